//! Recompression of what is idle: pages that have lain in the compressed store for a while are stored once more with zstd, when that
//! makes them smaller (the kernel's zram does so with what is marked idle, when its `recompress` is written to).
//!
//! The evictor does it while it has nothing else to do, under the `gate`: a fork never finds it at work. It makes way after a page at
//! most for a fork, for a look at new mappings and for who asks for memory, and takes an eighth of a processor at most. In scope resident the store's
//! bytes count for nothing, and a store that relatives share after a fork would only become each one's own: there nothing is done.

use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::futex::{self, Sharing};
use crate::sys;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_group::segment::Scope;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::{ADDRESS_BITS, BLOCK, PAGE};
use folioswap_space::recompression::{Recompression, Room};
use folioswap_space::space::ages::Generation;

/// A page is idle when it was stored at least this long ago and was not touched since.
const IDLE_NS: u64 = 2_000_000_000;
/// Pages tried in one step, about 0.7 ms, and blocks of 2 MiB looked through for them.
const PAGES_AT_ONCE: u64 = 32;
const BLOCKS_AT_ONCE: usize = 16;
/// All members of a group together take this part of a processor at most.
const PROCESSOR_PART: u64 = 8;
/// Rest after a step, at least.
const REST_MIN_NS: u64 = 1_000_000;
/// Smaller stores are not worth the 100 KiB that zstd's tables take.
const STORED_MIN: u64 = 1 << 20;

/// Which pages are idle, by the generations of what is stored ([`folioswap_space::space::ages`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Idle {
    looked_ns: u64,
    /// Pages written out until the last look, and the youngest generation then.
    written: u64,
    young: Generation,
    /// Pages of older generations were stored before the look before.
    before: Generation,
}

impl Idle {
    /// Nothing is idle yet.
    const fn since(now_ns: u64, written: u64, young: Generation) -> Self {
        // The oldest generations are not told apart from the youngest's successors: the first look finds the true one.
        Idle { looked_ns: now_ns, written, young, before: young }
    }

    /// Pages of generations older than the answer are idle, `written` pages having been written out until `now_ns`, `young` being the
    /// youngest generation.
    fn look(&mut self, now_ns: u64, written: u64, young: Generation) -> Generation {
        let is_quiet = written == self.written;
        if now_ns >= self.looked_ns + IDLE_NS {
            // Nothing came since the last look: all are older than that.
            let before = if is_quiet { young.next() } else { self.young };
            *self = Idle { looked_ns: now_ns, written, young, before };
            return before;
        }
        // What came since is of the generation that was young at the last look, or of a younger one.
        if !is_quiet && self.young.is_older_than(self.before) { self.young } else { self.before }
    }
}

/// Where recompression is on its way round. Lost without harm at a fork.
pub(crate) struct Rounds {
    hand: usize,
    idle: Option<Idle>,
    /// Pages recompressed, and pages tried, since the hand was at the start.
    this_round: u64,
    tried: u64,
    next_ns: u64,
    /// Pages written out until a round over everything that found nothing to try: the next is due when there are more.
    ended: Option<u64>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Step {
    /// Pages that are stored with zstd now.
    done: u64,
    /// Bytes that their objects take less.
    saved: u64,
    /// Pages for which zstd gains too little.
    settled: u64,
    /// The hand has come to the end.
    is_round: bool,
}

impl Rounds {
    /// At the start.
    pub(crate) const fn new() -> Self {
        Rounds { hand: 0, idle: None, this_round: 0, tried: 0, next_ns: 0, ended: None }
    }
}

impl Evictor {
    /// Recompresses some idle pages, when it is time. Under the gate, when there is nothing else to do. Returns for how long the evictor
    /// may sleep, in nanoseconds.
    pub(crate) fn recompress_idle(&mut self) -> u64 {
        let engine = self.engine;
        let stored = engine.space.mm_stat().compr_data_size;
        if engine.segment().scope() == Scope::Resident || stored < STORED_MIN || engine.shares_memory() {
            return u64::MAX;
        }
        let now = sys::now_ns();
        let rounds = &mut self.recompression;
        let (written, young) = (engine.figures().counter(Counter::PagesOut), engine.space.ages().young());
        let idle = rounds.idle.get_or_insert(Idle::since(now, written, young));
        let before = idle.look(now, written, young);
        if rounds.ended == Some(written) {
            return u64::MAX;
        }
        if now < rounds.next_ns {
            return rounds.next_ns - now;
        }
        let step = engine.recompress(rounds, before);
        let took = sys::now_ns() - now;
        let members = engine.segment().live_members().count().max(1) as u64;
        let mut rest = (took * (PROCESSOR_PART * members - 1)).max(REST_MIN_NS);
        if step.is_round {
            rest = rest.max(IDLE_NS);
            let is_over = core::mem::take(&mut rounds.tried) == 0 && young.is_older_than(before);
            rounds.ended = is_over.then_some(written);
            if core::mem::take(&mut rounds.this_round) > 0 {
                engine.space.trim();
                futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
            }
        }
        rounds.next_ns = now + took + rest;
        rest
    }
}

impl Engine {
    /// Tries some pages of generations older than `before`, from where the hand is. Evictor only, under the gate. Cost: some
    /// nanoseconds for each page word that the hand passes, of at most 32 MiB of the program; about 28 µs for a page that is tried.
    fn recompress(&self, rounds: &mut Rounds, before: Generation) -> Step {
        let mut step = Step::default();
        let Some(room) = self.recompression_room() else {
            // Without memory for it, it is tried again a round later.
            rounds.tried += 1;
            return Step { is_round: true, ..step };
        };
        let wake = self.member().wake.load(Relaxed);
        let (mut blocks, mut hand, mut has_room) = (0, 0, true);
        self.table.for_blocks_while(rounds.hand, 1 << ADDRESS_BITS, |base, block| {
            hand = base;
            if blocks == BLOCKS_AT_ONCE {
                return ControlFlow::Break(());
            }
            blocks += 1;
            for index in 0..BLOCK / PAGE {
                let PageState::Stored(entry) = block.word(index).state() else { continue };
                let is_idle = self.space.generation(entry).is_some_and(|age| age.is_older_than(before));
                if !is_idle || !self.space.may_recompress(entry) {
                    continue;
                }
                if step.done + step.settled == PAGES_AT_ONCE || self.is_wanted_elsewhere(wake) {
                    return ControlFlow::Break(());
                }
                match self.space.recompress(entry, room) {
                    Ok(Recompression::Done { saved }) => {
                        step.done += 1;
                        step.saved += u64::from(saved);
                    }
                    Ok(Recompression::Settled) => step.settled += 1,
                    Ok(Recompression::Passed) => {}
                    Err(_) => {
                        has_room = false;
                        return ControlFlow::Break(());
                    }
                }
            }
            hand = 0;
            ControlFlow::Continue(())
        });
        // Without memory for a new object it is tried again a round later.
        step.is_round = hand == 0 || !has_room;
        rounds.hand = hand;
        rounds.this_round += step.done;
        rounds.tried += step.done + step.settled + u64::from(!has_room);
        let figures = self.figures();
        figures.add(Counter::PagesRecompressed, step.done);
        figures.add(Counter::RecompressSavedBytes, step.saved);
        figures.add(Counter::RecompressIncompressible, step.settled);
        step
    }

    /// Does somebody wait for the evictor, whose wake-ups were `wake` when it began, or for the gate?
    fn is_wanted_elsewhere(&self, wake: u32) -> bool {
        self.fork.is_preparing()
            || self.member().wake.load(Relaxed) != wake
            || self.scan_wanted.load(Relaxed) != 0
            || self.member().reclaim_request_bytes.load(Relaxed) != 0
    }

    /// The evictor's room for recompression; `None` without memory. It becomes resident when it is used, and a forked child
    /// inherits it.
    fn recompression_room(&self) -> Option<&'static mut Room> {
        let mut room = self.arena.room(&self.recompression_room)?;
        // SAFETY: all-zero is a valid room; it is the evictor's alone, and its only caller ends the use before the next.
        Some(unsafe { room.as_mut() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory;
    use folioswap_devices::{Page, zstd::Decoder};
    use folioswap_slots::SwapEntry;
    use folioswap_space::space::Movers;
    use std::boxed::Box;
    use std::vec::Vec;

    const PROGRAM: usize = 0x7000_0000_0000;

    /// A page of digits, other for every number: zstd takes much less for it than LZ4.
    fn digits(number: usize) -> Page {
        let mut state = number as u64 + 1;
        core::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'0' + (state >> 40) as u8 % 10
        })
    }

    fn store(engine: &Engine, places: impl IntoIterator<Item = usize>) -> Vec<SwapEntry> {
        let stored = |place| test_memory::store_page(engine, PROGRAM + place * PAGE, &digits(place));
        places.into_iter().map(stored).collect()
    }

    fn everything(engine: &Engine) -> Generation {
        engine.space.ages().young().next()
    }

    fn verify(engine: &Engine, entries: &[SwapEntry]) {
        let (mut decoder, mut page) = (Box::new(Decoder::new()), [0; PAGE]);
        for (number, &entry) in entries.iter().enumerate() {
            engine.space.read(entry, &mut decoder, &mut page, Movers::Running).expect("it is stored");
            assert!(page == digits(number), "page {number}");
        }
        engine.space.validate().expect("invariants");
    }

    #[test]
    fn what_is_idle_is_known_by_generations_and_by_quiet() {
        let young = Generation::from_raw;
        let mut idle = Idle::since(0, 100, young(5));
        // Before the first look nothing younger than what was young then.
        assert_eq!(idle.look(1, 100, young(5)), young(5));
        // Two seconds later, with pages written meanwhile: what is older than the generation that was young at the look before.
        assert_eq!(idle.look(IDLE_NS, 300, young(7)), young(5));
        assert_eq!(idle.look(IDLE_NS + 1, 300, young(7)), young(5));
        assert_eq!(idle.look(2 * IDLE_NS, 400, young(8)), young(7));
        // Nothing was written: everything.
        assert_eq!(idle.look(3 * IDLE_NS, 400, young(8)), young(9));
        assert_eq!(idle.look(3 * IDLE_NS + 1, 400, young(8)), young(9));
        // A page comes: it is of the youngest generation, which is idle no longer.
        assert_eq!(idle.look(3 * IDLE_NS + 2, 401, young(8)), young(8));
        assert_eq!(idle.look(4 * IDLE_NS, 401, young(8)), young(8));
        assert_eq!(idle.look(5 * IDLE_NS, 401, young(8)), young(9));
    }

    #[test]
    fn idle_pages_become_smaller_and_each_is_tried_once() {
        let engine = test_memory::engine();
        let entries = store(engine, 0..700);
        let before = engine.space.mm_stat();
        let (mut rounds, mut steps, mut done) = (Rounds::new(), 0, 0);
        loop {
            let step = engine.recompress(&mut rounds, everything(engine));
            assert!(step.done + step.settled <= PAGES_AT_ONCE, "{step:?}");
            (steps, done) = (steps + 1, done + step.done);
            if step.is_round {
                break;
            }
        }
        assert_eq!((done, steps), (700, 700_u64.div_ceil(PAGES_AT_ONCE)));
        let after = engine.space.mm_stat();
        assert!(after.compr_data_size * 4 < before.compr_data_size * 3, "{before:?} {after:?}");
        let figure = |counter| engine.figures().counter(counter);
        assert_eq!(figure(Counter::PagesRecompressed), 700);
        let saved = before.compr_data_size - after.compr_data_size;
        assert_eq!(figure(Counter::RecompressSavedBytes), saved);
        let again = engine.recompress(&mut rounds, everything(engine));
        assert_eq!(again, Step { is_round: true, ..Step::default() });
        verify(engine, &entries);
    }

    #[test]
    fn what_zstd_does_not_shrink_is_settled() {
        let engine = test_memory::engine();
        let mut state = 1_u64;
        let page: Page = core::array::from_fn(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if at < PAGE / 2 { (state >> 40) as u8 } else { 0 }
        });
        for place in 0..40 {
            test_memory::store_page(engine, PROGRAM + place * PAGE, &page);
        }
        let mut rounds = Rounds::new();
        let steps = [0; 3].map(|_| engine.recompress(&mut rounds, everything(engine)));
        assert_eq!(steps.map(|step| (step.done, step.settled)), [(0, 32), (0, 8), (0, 0)]);
        assert_eq!(engine.figures().counter(Counter::RecompressIncompressible), 40);
    }

    #[test]
    fn what_is_young_waits() {
        let engine = test_memory::engine();
        let old = store(engine, 0..256);
        // The generation is full; from the next page on another one is young.
        let young = engine.space.ages().young();
        store(engine, 256..300);
        let mut rounds = Rounds::new();
        let mut done = 0;
        for _ in 0..20 {
            done += engine.recompress(&mut rounds, young).done;
        }
        assert_eq!(done, 256);
        verify(engine, &old);
    }

    #[test]
    fn it_makes_way_for_who_waits() {
        let engine = test_memory::engine();
        store(engine, 0..64);
        let mut rounds = Rounds::new();
        engine.scan_wanted.store(1, Relaxed);
        assert_eq!(engine.recompress(&mut rounds, everything(engine)), Step::default());
        engine.scan_wanted.store(0, Relaxed);
        engine.member().reclaim_request_bytes.store(1, Relaxed);
        assert_eq!(engine.recompress(&mut rounds, everything(engine)), Step::default());
        engine.member().reclaim_request_bytes.store(0, Relaxed);
        assert_eq!(engine.recompress(&mut rounds, everything(engine)).done, PAGES_AT_ONCE);
    }

    #[test]
    fn a_step_passes_a_bounded_part_of_the_program() {
        let engine = test_memory::engine();
        store(engine, (0..BLOCKS_AT_ONCE + 1).map(|block| block * (BLOCK / PAGE)));
        let mut rounds = Rounds::new();
        let first = engine.recompress(&mut rounds, everything(engine));
        assert_eq!((first.done, first.is_round), (BLOCKS_AT_ONCE as u64, false));
        let second = engine.recompress(&mut rounds, everything(engine));
        assert_eq!((second.done, second.is_round), (1, true));
    }

    #[test]
    fn it_is_compacted_like_anything_else() {
        let engine = test_memory::engine();
        let entries = store(engine, 0..2000);
        let mut rounds = Rounds::new();
        while !engine.recompress(&mut rounds, everything(engine)).is_round {}
        // Every object of zstd's classes moves, and its location keeps the codec.
        for (number, &entry) in entries.iter().enumerate() {
            if number % 4 != 0 {
                engine.space.put(entry, 1);
            }
        }
        let moved = engine.space.compact(1 << 30).objects_moved;
        assert!(moved > 0);
        let (mut decoder, mut page) = (Box::new(Decoder::new()), [0; PAGE]);
        for (number, &entry) in entries.iter().enumerate().step_by(4) {
            engine.space.read(entry, &mut decoder, &mut page, Movers::Running).expect("it is stored");
            assert!(page == digits(number), "page {number}");
            assert!(!engine.space.may_recompress(entry));
        }
        engine.space.validate().expect("invariants");
    }
}

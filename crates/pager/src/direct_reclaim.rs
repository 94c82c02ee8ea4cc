//! Direct reclaim: a handler whose fault has to wait for memory does a part of what it waits for.
//!
//! The evictor offers the folios that the batch will write back; the handler compresses them from the youngest on, on the CPU of the
//! thread that waits, into the store, and says which pages of them are stored. The evictor, when it comes to such a folio, has only
//! the bookkeeping left. What of it is touched meanwhile goes back to the program as ever; its stored copy is freed with its entry.
//!
//! Only into the store: it alone needs a processor. Only with nothing between evictor and store to be decided: where devices take turns,
//! and in a fork's snapshot, nothing is offered.

use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::handler::Handler;
use crate::isolate::{Pages, page_index};
use crate::staging::{FOLIO_PAGES, PLACES_MAX};
use crate::write_back::is_leaving;
use core::sync::atomic::{
    AtomicU16, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use folioswap_devices::{IncompressiblePolicy, Page};
use folioswap_policy::page_table::PAGE;
use folioswap_policy::reclaim::division::{Division, Next};

/// Who writes what of a batch. All-zero is valid: nothing is offered.
#[repr(C)]
pub(crate) struct Shares {
    /// [`Division`].
    division: AtomicU64,
    /// Number of the oldest folio of the last offer, all of it.
    oldest: AtomicU64,
    /// One behind the number of its youngest. The evictor's.
    end: AtomicU64,
    /// By place in staging: pages whose bytes the handler has stored. Set by who helps, cleared when the folio is written back.
    stored: [AtomicU16; PLACES_MAX],
}

impl Shares {
    fn load(&self) -> Division {
        Division::from_bits(self.division.load(Acquire))
    }

    fn exchange(&self, old: Division, new: Division) -> bool {
        self.division.compare_exchange(old.bits(), new.bits(), AcqRel, Acquire).is_ok()
    }

    /// Exchanges the word for what `next` makes of it, if that is anything; the word that was exchanged.
    fn update(&self, next: impl Fn(Division) -> Option<Division>) -> Option<Division> {
        let bits = |bits| next(Division::from_bits(bits)).map(Division::bits);
        self.division.fetch_update(AcqRel, Acquire, bits).ok().map(Division::from_bits)
    }

    /// Offers so many folios of staging from number `oldest` on. The evictor's, in a batch, while nothing is offered.
    fn offer(&self, oldest: u64, folios: u64) {
        // Read by who takes one of them.
        self.oldest.store(oldest, Relaxed);
        self.end.store(oldest + folios, Relaxed);
        self.update(|word| word.offer(oldest as u16, folios as u16));
    }

    /// Offers also what follows the last offer, up to folio `end`, once all of that is begun and the helper is done. The evictor's.
    fn offer_up_to(&self, written: u64, end: u64) {
        let first = self.end.load(Relaxed).max(written);
        let word = self.load();
        if first < end && word.help().is_none() && word.helped().is_none() {
            self.offer(first, end - first);
        }
    }

    /// Nothing is offered any more, and nobody is at a folio. The evictor's, before its batch ends; waits as long as a folio takes.
    fn withdraw(&self) {
        self.update(|word| Some(word.withdraw()));
        while self.load().helped().is_some() {
            rustix::thread::sched_yield();
        }
    }

    /// The evictor comes to folio `number` of staging: afterwards it is the evictor's alone.
    pub(crate) fn take(&self, number: u64) {
        loop {
            let word = self.load();
            match word.next(number as u16) {
                Next::Mine(after) if self.exchange(word, after) => return,
                Next::Mine(_) => {}
                Next::MineAlready => return,
                Next::Helped => rustix::thread::sched_yield(),
            }
        }
    }

    /// Pages of the folio in this place whose bytes are stored already.
    pub(crate) fn stored(&self, place: u32) -> Pages {
        self.stored[place as usize].load(Relaxed)
    }

    /// The folio in this place is written back.
    pub(crate) fn forget(&self, place: u32) {
        if self.stored(place) != 0 {
            self.stored[place as usize].store(0, Relaxed);
        }
    }

    /// Is there a folio for who helps?
    pub(crate) fn is_offered(&self) -> bool {
        self.load().help().is_some()
    }

    /// Takes a folio that is offered; its number.
    fn help(&self) -> Option<u64> {
        let (_, number) = self.update(|word| Some(word.help()?.0))?.help()?;
        // No other offer is made before this folio is done.
        let oldest = self.oldest.load(Relaxed);
        Some(oldest + u64::from(number.wrapping_sub(oldest as u16)))
    }

    /// The folio that [`Shares::help`] gave is done.
    fn helped_out(&self) {
        self.update(|word| Some(word.helped_out()));
    }
}

impl Evictor {
    /// Runs one batch's work with `folios` folios of staging, from the oldest on, offered to whoever waits for memory.
    pub(crate) fn with_help<T>(&mut self, folios: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        let staging = self.staging();
        let (oldest, waiting) = (staging.written(), staging.waiting());
        if self.writes_to_store_alone() {
            self.engine.shares.offer(oldest, folios.min(waiting));
        }
        let result = work(self);
        self.engine.shares.withdraw();
        result
    }

    /// In the midst of that work, as more is due than was offered (a huge page is 32 folios): offers the next of the oldest `folios` that wait.
    pub(crate) fn offer_more(&mut self, folios: u64) {
        let staging = self.staging();
        let (written, folios) = (staging.written(), folios.min(staging.waiting()));
        if self.writes_to_store_alone() {
            self.engine.shares.offer_up_to(written, written + folios);
        }
    }
}

impl Handler {
    /// Compresses a folio of what the evictor is about to write back. False: there was none, or nothing of it to be stored. Cost: some 4 µs
    /// a page, 16 pages.
    pub(crate) fn reclaim_directly(&mut self) -> bool {
        let engine = self.engine;
        let Some(number) = engine.shares.help() else { return false };
        // SAFETY: the ring is installed, or nothing were offered; the evictor changes nothing of a folio that it waits for.
        let staging = unsafe { &*engine.staging.get() };
        let place = staging.place_of(number);
        let (folio, staged) = (staging.folio(place), staging.address(place));
        let (block, base) = (engine.table.block(folio.address), page_index(folio.address));
        let before = engine.shares.stored(place);
        let mut stored = before;
        for page in 0..FOLIO_PAGES {
            let Some(entry) = folio.entries[page] else { continue };
            if engine.is_stored(place, folio.clean, page) || !is_leaving(block, base + page, entry) {
                continue;
            }
            // SAFETY: the place belongs to this folio until it is popped, which waits for us.
            let bytes = unsafe { &*((staged + page * PAGE) as *const Page) };
            // What is refused is the evictor's to place.
            if engine.space.write(&mut self.scratch, entry, bytes, IncompressiblePolicy::Refuse).is_ok() {
                stored |= 1 << page;
            }
        }
        engine.shares.stored[place as usize].store(stored, Relaxed);
        engine.shares.helped_out();
        stored != before
    }
}

impl Engine {
    /// Does this page of the folio in staging have to be written no more: it is clean, or its bytes are stored already?
    pub(crate) fn is_stored(&self, place: u32, clean: Pages, page: usize) -> bool {
        (clean | self.shares.stored(place)) >> page & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;
    use crate::candidates::Candidates;
    use crate::demote::Pieces;
    use crate::row::Row;
    use crate::staging::FOLIO;
    use crate::test_memory::{map, moving_engine};
    use crate::write_back::Tier;
    use folioswap_devices::{Scratch, zstd::Decoder};
    use folioswap_group::counters::Counter;
    use folioswap_policy::page::{PageState, PageWord};
    use folioswap_slots::DeviceMask;
    use folioswap_space::space::Movers;
    use std::sync::atomic::AtomicBool;

    const FOLIOS: usize = 8;

    fn handler(engine: &'static Engine) -> Handler {
        Handler::new(engine, Buffers::of(engine).expect("memory"))
    }

    /// The page `page` of the test's memory in a round: half of it does not compress.
    fn contents(round: usize, page: usize) -> Page {
        let mut bytes = [0; PAGE];
        let mut word = (round as u64) << 32 | page as u64 | 1 << 63;
        for chunk in bytes.chunks_exact_mut(16) {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            chunk[..8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Memory of the program.
    fn memory(engine: &Engine) -> usize {
        let start = map((FOLIOS + 1) * FOLIO).next_multiple_of(FOLIO);
        engine.register_pieces(start, start + FOLIOS * FOLIO);
        start
    }

    /// Fills all of it and moves it to staging.
    fn take_out(engine: &Engine, start: usize, round: usize) {
        for page in 0..FOLIOS * FOLIO_PAGES {
            let (to, bytes) = (start + page * PAGE, contents(round, page));
            // SAFETY: the source is ours; what is missing there is filled.
            unsafe { engine.userfault().copy(to, bytes.as_ptr(), PAGE) }.unwrap();
        }
        for piece in (start..start + FOLIOS * FOLIO).step_by(FOLIO) {
            engine.table.block_or_insert(piece, engine.arena).unwrap();
            let done = engine.isolate_row(&Row::of(piece, Candidates::ALL_DIRTY));
            assert_eq!(done[0].moved, Pages::MAX, "{done:?}");
        }
    }

    fn write_back(engine: &Engine) {
        for _ in 0..FOLIOS {
            engine
                .write_back_oldest(&mut Scratch::new(), Tier::Store(DeviceMask::NONE), Pieces::Any, 1)
                .unwrap();
        }
        engine.shares.withdraw();
        // SAFETY: nobody helps any more.
        unsafe { &mut *engine.staging.get() }.recycle(engine.userfault(), 1, |_| false);
    }

    /// Each page is stored as it was; afterwards none is.
    fn check_and_free(engine: &Engine, start: usize, round: usize, expected: usize) {
        assert_eq!(engine.space.mm_stat().objects, expected as u64, "no copy too many");
        for page in 0..FOLIOS * FOLIO_PAGES {
            let block = engine.table.block(start + page * PAGE).unwrap();
            let index = page_index(start + page * PAGE);
            if let PageState::Stored(entry) = block.word(index).state() {
                let mut found = [0; PAGE];
                engine.space.read(entry, &mut Decoder::new(), &mut found, Movers::Running).unwrap();
                assert!(found == contents(round, page), "round {round}, page {page}");
                engine.space.put(entry, 1);
                block.set(index, PageWord::PRESENT);
            }
        }
        assert_eq!(engine.space.mm_stat().objects, 0);
        assert_eq!(engine.space.slots().stats().inuse, 0);
    }

    #[test]
    fn what_the_handler_has_stored_is_not_written_again() {
        let Some(engine) = moving_engine() else { return };
        let (start, mut handler) = (memory(engine), handler(engine));
        take_out(engine, start, 0);
        assert!(!handler.reclaim_directly(), "nothing is offered");
        engine.shares.offer(0, FOLIOS as u64);
        assert!(handler.reclaim_directly() && handler.reclaim_directly());
        assert_eq!(engine.space.mm_stat().objects, 32);
        assert_eq!(engine.shares.stored(FOLIOS as u32 - 1), Pages::MAX, "the youngest first");
        write_back(engine);
        assert_eq!(engine.figures().counter(Counter::StolenDirect), 32);
        assert_eq!(engine.figures().counter(Counter::StolenBackground), 96);
        assert!((0..FOLIOS as u32).all(|place| engine.shares.stored(place) == 0));
        assert!(!handler.reclaim_directly(), "the offer is withdrawn");
        check_and_free(engine, start, 0, 128);
    }

    #[test]
    fn what_is_due_beyond_the_first_offer_is_offered_when_that_is_done() {
        let Some(engine) = moving_engine() else { return };
        let (start, mut handler) = (memory(engine), handler(engine));
        take_out(engine, start, 0);
        engine.shares.offer(0, 2);
        let before = engine.shares.load();
        engine.shares.offer_up_to(0, FOLIOS as u64);
        assert_eq!(engine.shares.load(), before, "that goes first");
        assert!(handler.reclaim_directly() && handler.reclaim_directly() && !handler.reclaim_directly());
        engine.shares.offer_up_to(0, 2);
        assert!(!handler.reclaim_directly(), "no more is due");
        engine.shares.offer_up_to(0, 5);
        assert!(handler.reclaim_directly());
        assert_eq!(engine.shares.stored(4), Pages::MAX, "the youngest first");
        let at_one = engine.shares.help().expect("two are left");
        engine.shares.take(2);
        engine.shares.offer_up_to(2, FOLIOS as u64);
        assert!(!engine.shares.is_offered(), "not while somebody is at one: {at_one}");
        engine.shares.helped_out();
        write_back(engine);
        check_and_free(engine, start, 0, 128);
    }

    #[test]
    fn what_is_touched_after_it_was_stored_goes_back_and_its_copy_is_freed() {
        let Some(engine) = moving_engine() else { return };
        let (start, mut handler) = (memory(engine), handler(engine));
        take_out(engine, start, 0);
        engine.shares.offer(0, FOLIOS as u64);
        assert!(handler.reclaim_directly());
        let touched = start + (FOLIOS - 1) * FOLIO + 3 * PAGE;
        let (block, index) = (engine.table.block(touched).unwrap(), page_index(touched));
        let back = block.word(index).claim().and_then(|word| word.returned()).expect("it waits");
        block.set(index, back);
        write_back(engine);
        assert_eq!(block.word(index), back);
        assert_eq!(engine.figures().counter(Counter::StolenDirect), 15);
        check_and_free(engine, start, 0, 127);
    }

    #[test]
    fn the_reader_of_events_does_not_write_again_what_is_stored() {
        let Some(engine) = moving_engine() else { return };
        let (start, mut handler) = (memory(engine), handler(engine));
        take_out(engine, start, 0);
        engine.shares.offer(0, FOLIOS as u64);
        assert!(handler.reclaim_directly());
        // As before a mapping moves.
        handler.write_back_range(start, start + FOLIOS * FOLIO);
        write_back(engine);
        check_and_free(engine, start, 0, 128);
    }

    /// Ends the other thread also where a check fails.
    struct Ends<'e>(&'e AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn both_write_at_once_and_nothing_is_lost() {
        let Some(engine) = moving_engine() else { return };
        let start = memory(engine);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut handler = handler(engine);
                while !ended.load(Relaxed) {
                    if !handler.reclaim_directly() {
                        std::thread::yield_now();
                    }
                }
            });
            let _ends = Ends(&ended);
            for round in 0..300 {
                take_out(engine, start, round);
                // SAFETY: the ring's numbers are ours to read.
                let oldest = unsafe { &*engine.staging.get() }.written();
                engine.shares.offer(oldest, FOLIOS as u64);
                write_back(engine);
                check_and_free(engine, start, round, 128);
            }
        });
        let helped = engine.figures().counter(Counter::StolenDirect);
        assert!(helped > 0, "the handler took no part");
    }
}

//! Recompression of idle pages: pages that have lain in the compressed store for a while are stored
//! once more with zstd, when that makes them smaller. The kernel's zram does the same with pages
//! that are marked idle, when its `recompress` file is written to.
//!
//! The evictor does it while it has nothing else to do, under the `locks.gate`, so a fork never
//! finds it at work. After a page at most it makes way for a fork, for a look at new mappings and
//! for a thread that asks for memory, and it takes an eighth of a processor at most. Nothing is
//! recompressed in scope resident, because the store's bytes do not count there, nor in a store
//! that relatives share after a fork, because each of them would only get a copy of its own.

use crate::engine::Engine;
use crate::units::{ADDRESS_END, PageInBlock};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageState;
use folioswap_space::recompression::{Recompression, Workspace};
use folioswap_space::space::ages::Generation;

/// A page is idle when it was stored at least this long ago and was not touched since.
pub(crate) const IDLE_NS: u64 = 2_000_000_000;

/// Pages tried in one step, about 0.7 ms, and blocks of 2 MiB looked through for them.
const PAGES_AT_ONCE: u64 = 32;

const BLOCKS_AT_ONCE: usize = 16;

/// The part of a processor, one in this many, that all members of a group together take at most.
pub(crate) const PROCESSOR_PART: u64 = 8;

/// The shortest rest after a step.
pub(crate) const REST_MIN_NS: u64 = 1_000_000;

/// Smaller stores are not worth the 100 KiB that zstd's tables take.
pub(crate) const STORED_MIN: u64 = 1 << 20;

/// Which pages are idle, by the generations of the stored pages ([`folioswap_space::space::ages`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Idle {
    looked_ns: u64,
    /// Pages written out until the last look, and the youngest generation at that time.
    written: u64,
    young: Generation,
    /// Pages of older generations were stored before the look before the last.
    before: Generation,
}

impl Idle {
    /// The state in which nothing is idle yet.
    pub(crate) const fn since(now_ns: u64, written: u64, young: Generation) -> Self {
        // The oldest generations are not told apart from the youngest's successors, so the first
        // look finds the true one.
        Idle { looked_ns: now_ns, written, young, before: young }
    }

    /// Returns the generation before which pages are idle. `written` pages have been written out
    /// until `now_ns`, and `young` is the youngest generation.
    pub(crate) fn look(&mut self, now_ns: u64, written: u64, young: Generation) -> Generation {
        let is_quiet = written == self.written;
        if now_ns >= self.looked_ns + IDLE_NS {
            // No page came since the last look, so all pages are older than that.
            let before = if is_quiet { young.next() } else { self.young };
            *self = Idle { looked_ns: now_ns, written, young, before };
            return before;
        }
        // A page that came since is of the generation that was young at the last look, or of a
        // younger one.
        if !is_quiet && self.young.is_older_than(self.before) { self.young } else { self.before }
    }
}

/// How far recompression is on its way round. A fork may lose it without harm.
pub(crate) struct Rounds {
    hand: usize,
    pub(crate) idle: Option<Idle>,
    /// Pages recompressed, and pages tried, since the hand was at the start.
    pub(crate) this_round: u64,
    pub(crate) tried: u64,
    pub(crate) next_ns: u64,
    /// Pages written out until a full round found nothing to try: the next round is due when there
    /// are more.
    pub(crate) ended: Option<u64>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Pages that are stored with zstd now.
    done: u64,
    /// Bytes that their objects take less than before.
    saved: u64,
    /// Pages for which zstd gains too little.
    settled: u64,
    /// The hand has come to the end.
    pub(crate) is_round: bool,
}

impl Rounds {
    /// Rounds with the hand at the start.
    pub(crate) const fn new() -> Self {
        Rounds { hand: 0, idle: None, this_round: 0, tried: 0, next_ns: 0, ended: None }
    }
}

impl Engine {
    /// Tries some pages of generations older than `before`, from the hand on. The caller is the
    /// evictor and holds the gate. Cost: some nanoseconds for each page word that the hand passes,
    /// over at most 32 MiB of the program; about 28 µs for each page that is tried.
    pub(crate) fn recompress(&self, rounds: &mut Rounds, before: Generation) -> Step {
        let mut step = Step::default();
        let Some(room) = self.recompression_workspace() else {
            // Without memory for the workspace, the step is tried again a round later.
            rounds.tried += 1;
            return Step { is_round: true, ..step };
        };
        let wake = self.member().wake.load(Relaxed);
        let (mut blocks, mut hand, mut has_room) = (0, 0, true);
        self.table.for_blocks_while(rounds.hand, ADDRESS_END, |base, block| {
            hand = base.raw();
            if blocks == BLOCKS_AT_ONCE {
                return ControlFlow::Break(());
            }
            blocks += 1;
            for index in PageInBlock::all() {
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
        // Without memory for a new object, the page is tried again a round later.
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

    /// Whether a thread waits for the gate or for the evictor, whose wake-ups were `wake` at the
    /// start of the step.
    fn is_wanted_elsewhere(&self, wake: u32) -> bool {
        self.fork.is_preparing()
            || self.member().wake.load(Relaxed) != wake
            || self.mappings.scan_wanted.load(Relaxed) != 0
            || self.member().reclaim_request_bytes.load(Relaxed) != 0
    }

    /// The evictor's workspace for recompression; `None` without memory. It becomes resident on its
    /// first use, and a forked child inherits it.
    fn recompression_workspace(&self) -> Option<&'static mut Workspace> {
        let mut room = self.arena.room(&self.workspaces.recompression)?;
        // SAFETY: all-zero is a valid workspace; it is the evictor's alone, and its only caller
        // ends one use before the next.
        Some(unsafe { room.as_mut() })
    }
}

#[cfg(test)]
mod tests;

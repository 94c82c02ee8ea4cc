//! The memory that a thread of the program demands from the pager, as state.

use crate::kernel::sys;
use crate::units::{PIECE_PAGES, Pages, PieceAddr};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// A demand that is as old was left by a thread that never comes back: one that was cancelled, or
/// that has jumped out of a signal handler.
const ABANDONED_NS: u64 = 5_000_000_000;

/// How far a demand has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Step {
    /// Nobody demands a range.
    Nothing = 0,
    /// A thread of the program has taken the cell. Its range stays resident from now on.
    Taken = 1,
    /// The range is to be given up.
    Wanted = 2,
    /// The range was given up: no memory is registered until the thread is done.
    GivenUp = 3,
    /// The range could not be given up: some page of it is away.
    Kept = 4,
    /// All memory was given up, and none is registered again. This stays, in children too.
    Closed = 5,
}

/// One demand at a certain step: the word of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// This demand at another step.
    pub(crate) const fn at(self, step: Step) -> Self {
        Ticket(self.0 & !7 | step as u32)
    }

    /// The step.
    pub(crate) const fn step(self) -> Step {
        match self.0 & 7 {
            1 => Step::Taken,
            2 => Step::Wanted,
            3 => Step::GivenUp,
            4 => Step::Kept,
            5 => Step::Closed,
            _ => Step::Nothing,
        }
    }

    /// The word, for a futex.
    pub(crate) const fn word(self) -> u32 {
        self.0
    }
}

/// The range that a thread of the program demands; one at a time. All-zero: none.
#[repr(C)]
pub(crate) struct Demand {
    /// A [`Ticket`]: the number of the demand, and its step in the lowest three bits; also a futex.
    word: AtomicU32,
    /// Counts the ranges that were given up. The evictor raises it with the handler outside.
    given_up: AtomicU32,
    pub(crate) start: AtomicUsize,
    pub(crate) end: AtomicUsize,
    since_ns: AtomicU64,
}

impl Demand {
    /// The present demand.
    pub(crate) fn now(&self) -> Ticket {
        Ticket(self.word.load(Acquire))
    }

    /// The cell as a futex.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// Takes the cell for a range, if it is free.
    pub(crate) fn take(&self, start: usize, end: usize) -> Option<Ticket> {
        let before = self.now();
        if before.step() != Step::Nothing {
            // After `Closed` the range is the program's anyway.
            return None;
        }
        let mine = Ticket((before.0 & !7).wrapping_add(8)).at(Step::Taken);
        self.word.compare_exchange(before.0, mine.0, AcqRel, Relaxed).ok()?;
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
        self.since_ns.store(sys::now_ns(), Release);
        Some(mine)
    }

    /// Brings a demand from one step to another. Returns whether it was at that step.
    pub(crate) fn go(&self, from: Ticket, step: Step) -> bool {
        self.word.compare_exchange(from.0, from.at(step).0, AcqRel, Acquire).is_ok()
    }

    /// Whether the evictor may register memory now.
    pub(crate) fn lets_register(&self) -> bool {
        !matches!(self.now().step(), Step::GivenUp | Step::Closed)
    }

    /// The pages of the piece that stay resident for a demand.
    pub(crate) fn kept_pages(&self, piece: PieceAddr) -> Pages {
        if self.now().step() == Step::Nothing {
            return 0;
        }
        let range = self.start.load(Relaxed)..self.end.load(Relaxed);
        let is_kept = |page: usize| range.contains(&piece.page(page).raw());
        (0..PIECE_PAGES).fold(0, |pages, page| pages | Pages::from(is_kept(page)) << page)
    }

    /// Says that the thread of the demand still works for it.
    pub(crate) fn note_alive(&self) {
        self.since_ns.store(sys::now_ns(), Release);
    }

    /// Forgets a demand whose thread does not come back.
    pub(crate) fn forget_if_abandoned(&self) {
        let now = self.now();
        if !matches!(now.step(), Step::Nothing | Step::Closed)
            && sys::now_ns().saturating_sub(self.since_ns.load(Acquire)) > ABANDONED_NS
        {
            self.go(now, Step::Nothing);
        }
    }

    /// Forgets the demand of a thread that a forked child does not have.
    pub(crate) fn forget(&self) {
        let now = self.now();
        if now.step() != Step::Closed {
            self.word.store(now.at(Step::Nothing).0, Relaxed);
        }
    }

    /// Notes that a range was given up. The caller has the handler outside.
    pub(crate) fn note_given_up(&self) {
        self.given_up.fetch_add(1, Relaxed);
    }

    /// How many ranges were given up. For the handler, in its round.
    pub(crate) fn given_up(&self) -> u32 {
        self.given_up.load(Relaxed)
    }
}

//! The plan of rows that the evictor offers to the handler (`evict/hand_over.rs`), and the thread
//! that it belongs to.

use crate::engine::Engine;
use crate::engine::ring_turn::RingTurn;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::staging::batch::{BATCH_PAGES, Batch};
use crate::staging::row::{JOINED_PIECES, Row};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use folioswap_policy::reclaim::handover::{Handover, Rest};

/// The most rows of a plan.
pub(crate) const ROWS: usize = BATCH_PAGES as usize;

/// The most pieces of a row that leave between two faults.
const PIECES: usize = JOINED_PIECES / 2;

/// The evictor takes a plan back with which no thread goes on for this long.
pub(crate) const STALLED_NS: u64 = 500_000;

/// The evictor takes any plan back after this long: it must see soon what else the program maps and
/// touches.
const LATE_NS: u64 = 2_000_000;

/// The plan, and the thread that it belongs to. All-zero is valid: no plan is offered.
#[repr(C)]
pub(crate) struct Plans {
    /// [`Handover`]; also a futex.
    word: AtomicU32,
    /// Counts the rows that the handler took out.
    pub(crate) rows_taken: AtomicU32,
    pub(crate) plan: UnsafeCell<Plan>,
}

// SAFETY: the plan is used only by the thread that the word names.
unsafe impl Sync for Plans {}

/// Rows that are to leave, and the outcome of those that were begun.
pub(crate) struct Plan {
    pub(crate) rows: [Row; ROWS],
    /// The first of the rows that no thread has begun.
    first: usize,
    pub(crate) end: usize,
    /// Moves that all rows take, at most.
    pub(crate) moves: u64,
    /// Pages that an event stood in the way of. (`attempts` counts the tries.)
    pub(crate) again: Row,
    pub(crate) attempts: u32,
    /// Pages that could not be moved of the row that was begun last: shared, or pinned.
    pub(crate) busy: Row,
    pub(crate) done: Batch,
    /// Staging had no free berths, or the event is still there: the rest stays in the program.
    pub(crate) is_refused: bool,
}

impl Plan {
    pub(crate) fn reset(&mut self) {
        (self.first, self.end, self.moves) = (0, 0, 0);
        (self.again, self.attempts, self.busy) = (Row::default(), 0, Row::default());
        (self.done, self.is_refused) = (Batch::default(), false);
    }

    /// The rows that no thread has begun.
    pub(crate) fn rest(&self) -> &[Row] {
        &self.rows[self.first..self.end]
    }

    pub(crate) fn has_more(&self) -> bool {
        !self.again.is_empty() || !self.rest().is_empty()
    }

    /// Takes the next part of the plan, of no more than so many pieces, but of one at least.
    pub(crate) fn take(&mut self, places: usize) -> Option<Row> {
        if !self.again.is_empty() {
            // There may be fewer berths side by side than when it was tried first.
            return self.again.take(places);
        }
        let row = self.rows[..self.end].get_mut(self.first)?;
        let part = row.take(places.min(PIECES));
        self.first += usize::from(row.is_empty());
        part
    }
}

impl Plans {
    pub(crate) fn load(&self) -> Handover {
        Handover::from_bits(self.word.load(Acquire))
    }

    /// Whether a plan is offered to the thread that comes first.
    pub(crate) fn are_offered(&self) -> bool {
        self.load() == Handover::Offered
    }

    /// Exchanges the word for the result of `next`. False: `next` gave none.
    pub(crate) fn update(&self, next: impl Fn(Handover) -> Option<Handover>) -> bool {
        let bits = |bits| next(Handover::from_bits(bits)).map(Handover::bits);
        self.word.fetch_update(AcqRel, Acquire, bits).is_ok()
    }

    /// Puts the plan down, and wakes the evictor where it has to go on.
    fn put_down(&self, rest: Rest) {
        self.update(|word| word.put_down(rest));
        if rest == Rest::None {
            futex::wake(&self.word, Sharing::Private);
        }
    }

    /// Declines the plan: no thread takes it now, and it is the evictor's again. Any thread.
    pub(crate) fn decline(&self) {
        if self.update(Handover::decline) {
            futex::wake(&self.word, Sharing::Private);
        }
    }

    /// Forgets the plan, in a forked child, where no evictor plans yet.
    pub(crate) fn forget(&self) {
        self.word.store(Handover::Kept.bits(), Relaxed);
    }

    /// Waits until the plan is done, or declined, or no thread goes on with it; afterwards it is
    /// the caller's.
    pub(crate) fn await_return(&self) {
        let (mut seen, until_ns) = (self.rows_taken.load(Relaxed), sys::now_ns() + LATE_NS);
        loop {
            futex::wait(&self.word, Handover::Offered.bits(), STALLED_NS, Sharing::Private);
            // The word is loaded first: this load makes the count current.
            let word = self.load();
            let taken = self.rows_taken.load(Relaxed);
            match word {
                Handover::Offered if taken == seen || sys::now_ns() >= until_ns => break,
                Handover::Offered => {}
                Handover::Taken => rustix::thread::sched_yield(),
                Handover::Returned | Handover::Kept => break,
            }
            seen = taken;
        }
        while !self.update(Handover::withdraw) {
            rustix::thread::sched_yield();
        }
    }
}

/// The plan, taken by the handler: no other thread looks at it, and the ring is the handler's.
pub(crate) struct HeldPlan<'e> {
    plans: &'e Plans,
    turn: RingTurn<'e>,
}

impl<'e> HeldPlan<'e> {
    /// The plan itself, and the right to the ring that its rows need.
    pub(crate) fn parts(&mut self) -> (&mut Plan, &mut RingTurn<'e>) {
        // SAFETY: the plan is held, and `&mut self` makes this the only use of it.
        (unsafe { &mut *self.plans.plan.get() }, &mut self.turn)
    }

    /// Gives the plan back, with one more row of it taken; where nothing is left of it, the evictor
    /// goes on.
    pub(crate) fn put_down(self, rest: Rest) {
        self.plans.rows_taken.fetch_add(1, Relaxed);
        self.plans.put_down(rest);
    }
}

impl Engine {
    /// Takes the plan that the evictor offers. `None`: there is none, or another thread has it.
    pub(crate) fn take_plan(&self) -> Option<HeldPlan<'_>> {
        let is_taken = self.plans.update(Handover::take);
        // SAFETY: the plan is held until it is put down, which ends the turn.
        is_taken.then(|| HeldPlan { plans: &self.plans, turn: unsafe { RingTurn::new(self) } })
    }

    /// Has the evictor look at once: after the limit was changed, for example, or where a thread
    /// waits for it. The evictor sleeps, or waits for its plan to be done; in that case it takes
    /// the plan back. Cost: a system call, two where a plan is on offer.
    pub fn wake_evictor(&self) {
        futex::post(&self.member().wake, Sharing::Shared);
        self.plans.decline();
    }
}

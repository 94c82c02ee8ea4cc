//! Single pages leave by the hand of the handler, on the processor of the thread whose faults it serves.
//!
//! A move invalidates TLBs: from another processor that takes ten times as long, and interrupts the thread. So where pages lie apart the
//! evictor plans a batch (which pages, by the clock) and sleeps, and the handler takes a row of it out now and then between two faults. The
//! evictor, meanwhile on another processor unless other members want that, has the planning and the writing back. A batch in one go, by an evictor that comes over,
//! would stop the thread for half a millisecond (`docs/measurements.md`, *The longest waits of random touches*).
//!
//! Who holds the plan ([`Handover`]) is who isolates: the ring of staging is used in isolation by one thread at a time. It is offered under
//! the gate, and the evictor's again before that is given back.

use crate::batch::{BATCH_PAGES, Batch, Scattered};
use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::futex::{self, Sharing};
use crate::handler::Handler;
use crate::isolate::{Isolation, Refused};
use crate::row::{JOINED_PIECES, ROW_PIECES, Row};
use crate::staging::FOLIO;
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use folioswap_policy::reclaim::handover::{Handover, Rest};

/// Most rows of a plan.
const ROWS: usize = BATCH_PAGES as usize;
/// Most pieces of a row that leave between two faults.
const PIECES: usize = JOINED_PIECES / 2;
/// A plan of fewer moves is not worth the evictor's sleep.
const MOVES_MIN: u64 = 16;
/// As long as memory is not short, so many pages leave for one that comes.
const PAGES_OUT: u64 = 4;
/// Pages that come before the first row of a plan leaves: by then the evictor, who has just offered it, sleeps, and no move interrupts it.
const PAGES_BEFORE: u64 = 2;
/// A plan with which nobody goes on for so long is taken back.
const STALLED_NS: u64 = 500_000;
/// So is one after this: the evictor must see soon what the program maps and touches besides.
const LATE_NS: u64 = 2_000_000;
/// For how long no plan is offered after one with which nobody began: at first, and at most, where that happens again and again.
const DECLINED_NS: u64 = 1_000_000;
const DECLINED_MOST_NS: u64 = 64_000_000;
/// Attempts of a row that an event stands in the way of.
const ATTEMPTS: u32 = 4;

/// What is to leave, and whose it is. All-zero is valid: nothing is offered.
#[repr(C)]
pub(crate) struct Plans {
    /// [`Handover`]; also a futex.
    word: AtomicU32,
    /// Counts the rows that the handler took out.
    rows_taken: AtomicU32,
    plan: UnsafeCell<Plan>,
}

// SAFETY: the plan is used by who the word says.
unsafe impl Sync for Plans {}

/// Rows that are to leave, and what became of them.
struct Plan {
    rows: [Row; ROWS],
    /// Those that nobody has begun.
    first: usize,
    end: usize,
    /// Moves that all of them take, at most.
    moves: u64,
    /// What an event stood in the way of, and how often.
    again: Row,
    attempts: u32,
    /// What could not be moved of the row that was begun last: shared, or pinned.
    busy: Row,
    done: Batch,
    /// There was no room, or the event is still there: what is left stays where it is.
    is_refused: bool,
}

impl Plan {
    fn reset(&mut self) {
        (self.first, self.end, self.moves) = (0, 0, 0);
        (self.again, self.attempts, self.busy) = (Row::default(), 0, Row::default());
        (self.done, self.is_refused) = (Batch::default(), false);
    }

    /// What nobody has begun.
    fn rest(&self) -> &[Row] {
        &self.rows[self.first..self.end]
    }

    fn has_more(&self) -> bool {
        !self.again.is_empty() || !self.rest().is_empty()
    }

    /// Its next part.
    fn take(&mut self, places: usize) -> Option<Row> {
        if !self.again.is_empty() {
            return Some(core::mem::take(&mut self.again));
        }
        let row = self.rows[..self.end].get_mut(self.first)?;
        let part = row.take(places.min(PIECES));
        self.first += usize::from(row.is_empty());
        part
    }

    /// Takes its next part out of the program. Under the gate, by who holds the plan.
    fn go_on(&mut self, engine: &Engine) -> Rest {
        // SAFETY: whoever holds the plan isolates.
        let places = unsafe { &*engine.staging.get() }.places_in_a_row();
        if let Some(part) = self.take(places) {
            // A thread may have begun since.
            engine.apply_requests();
            let part = part.among(|number| !engine.kept_pages(part.start() + number * FOLIO));
            let done = engine.isolate_row(&part);
            self.note(&part, &done);
        }
        if self.has_more() && !self.is_refused && self.busy.is_empty() { Rest::Some } else { Rest::None }
    }

    fn note(&mut self, part: &Row, done: &[Isolation; ROW_PIECES]) {
        done.iter().for_each(|isolation| self.done.note(isolation));
        if done.iter().any(|isolation| isolation.busy != 0) {
            self.busy = part.among(|number| done[number].busy);
        }
        match done.iter().find_map(|isolation| isolation.refused) {
            // Its reader is who holds the plan, and goes on with it then.
            Some(Refused::EventPending) if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                self.done.event_pending = false;
                self.again = part.among(|number| !(done[number].moved | done[number].busy));
            }
            Some(Refused::EventPending | Refused::NoSlots | Refused::StagingFull) => self.is_refused = true,
            // It is another mapping now.
            Some(Refused::Gone) | None => self.attempts = 0,
        }
    }
}

impl Plans {
    fn load(&self) -> Handover {
        Handover::from_bits(self.word.load(Acquire))
    }

    /// Is there one for whoever comes first?
    pub(crate) fn are_offered(&self) -> bool {
        self.load() == Handover::Offered
    }

    /// Exchanges the word for what `next` makes of it. False: that is nothing.
    fn update(&self, next: impl Fn(Handover) -> Option<Handover>) -> bool {
        let bits = |bits| next(Handover::from_bits(bits)).map(Handover::bits);
        self.word.fetch_update(AcqRel, Acquire, bits).is_ok()
    }

    /// Puts the plan down, and says so where the evictor has to go on.
    fn put_down(&self, rest: Rest) {
        self.update(|word| word.put_down(rest));
        if rest == Rest::None {
            futex::wake(&self.word, Sharing::Private);
        }
    }

    /// Nobody takes it now: it is the evictor's again. Any thread.
    fn decline(&self) {
        if self.update(Handover::decline) {
            futex::wake(&self.word, Sharing::Private);
        }
    }

    /// For a forked child: nobody plans yet.
    pub(crate) fn forget(&self) {
        self.word.store(Handover::Kept.bits(), Relaxed);
    }

    /// Waits until the plan is done, or declined, or nobody goes on with it; afterwards it is the caller's.
    fn await_return(&self) {
        let (mut seen, until_ns) = (self.rows_taken.load(Relaxed), sys::now_ns() + LATE_NS);
        loop {
            futex::wait(&self.word, Handover::Offered.bits(), STALLED_NS, Sharing::Private);
            // The word first: it makes the count current.
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

impl Engine {
    /// Has the evictor look at once: after the limit was changed, for example, or where a thread waits for it. It sleeps, or waits for its plan to be
    /// done, which it takes back then. Cost: a system call, two where a plan is on offer.
    pub fn wake_evictor(&self) {
        futex::post(&self.member().wake, Sharing::Shared);
        self.plans.decline();
    }
}

impl Evictor {
    /// Is somebody there who would take a plan, and nothing that the evictor has to look at meanwhile?
    pub(crate) fn may_hand_over(&self) -> bool {
        let (engine, now) = (self.engine, sys::now_ns());
        let is_wanted = engine.scan_wanted.load(Relaxed) != 0 || engine.evictor_waits.load(Relaxed) != 0;
        now >= self.declined_until_ns && now >= self.growing_until_ns && !is_wanted
    }

    /// Plans to take a row out, in a batch of which something may be planned. False: it has to leave at once, since the handler would gain
    /// nothing. The evictor's, with nothing offered.
    pub(crate) fn plan(&mut self, row: &Row, batch: &mut Batch) -> bool {
        let Some(planned) = &mut batch.planned else { return false };
        let moves = u64::from(row.moves());
        let is_scattered = [self.scattered, Scattered::of(row.pages(), moves)].contains(&Scattered::Yes);
        if row.is_whole() || moves == 0 || !is_scattered {
            return false;
        }
        // SAFETY: nothing is offered.
        let plan = unsafe { &mut *self.engine.plans.plan.get() };
        if *planned == 0 {
            plan.reset();
        }
        let Some(place) = plan.rows.get_mut(plan.end) else { return false };
        *place = *row;
        plan.end += 1;
        plan.moves += moves;
        *planned += row.pages();
        true
    }

    /// Has what is planned taken out of the program: by the handler, which serves a thread on the CPU `faulting`, or as far as it does
    /// not, from here.
    pub(crate) fn hand_over(&mut self, faulting: u32, batch: &mut Batch) {
        if batch.planned.take().unwrap_or(0) == 0 {
            return;
        }
        let engine = self.engine;
        let plans = &engine.plans;
        // SAFETY: nothing is offered.
        let is_worth_it = unsafe { &*plans.plan.get() }.moves >= MOVES_MIN;
        if is_worth_it {
            plans.update(Handover::offer);
            if engine.is_at_limit() {
                // The handler may wait for just that.
                futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
            }
            plans.await_return();
        }
        // SAFETY: nothing is offered any more.
        let plan = unsafe { &mut *plans.plan.get() };
        batch.isolated += plan.done.isolated;
        batch.moves += plan.done.moves;
        batch.event_pending |= plan.done.event_pending;
        self.aging.note(0, plan.done.isolated);
        let is_left = plan.has_more();
        let has_begun = plan.done.moves > 0;
        if has_begun || !is_left {
            self.declined_ns = 0;
        } else if is_worth_it {
            self.declined_ns = (2 * self.declined_ns).clamp(DECLINED_NS, DECLINED_MOST_NS);
            self.declined_until_ns = sys::now_ns() + self.declined_ns;
        }
        if plan.is_refused || !is_left && plan.busy.is_empty() {
            return;
        }
        if plan.done.isolated > 0 && plan.busy.is_empty() && !engine.is_at_limit() {
            // There is time: the next plan goes on. What the clock has found counts as found.
            self.aging.note(0, plan.rest().iter().chain([&plan.again]).map(Row::pages).sum());
            return;
        }
        let joined = is_worth_it && self.placement.join(faulting);
        let mut rows = [plan.busy, plan.again].into_iter().chain(plan.rest().iter().copied());
        rows.find(|row| self.take_row(*row, batch).is_some());
        if joined {
            self.placement.leave();
        }
    }
}

impl Handler {
    /// After faults were served: takes a row of what is planned out of the program, if one is due.
    pub(crate) fn take_out_planned(&mut self) {
        if !self.engine.plans.are_offered() {
            // Of one that is offered next, nothing is due before the evictor sleeps.
            self.pages_to_next_row = PAGES_BEFORE;
        } else if self.pages_to_next_row == 0 {
            self.take_out_row();
        }
    }

    /// Takes a row of what is planned out of the program. False: nothing is planned, or it is not for the handler: beside several threads a move
    /// costs as much from here, and a fork is to find the evictor between two batches. Cost: some 2 µs a page, up to sixteen moves.
    pub(crate) fn take_out_row(&mut self) -> bool {
        let plans = &self.engine.plans;
        if self.reads.several_threads_fault() || self.engine.fork.is_preparing() {
            plans.decline();
            return false;
        }
        if !plans.update(Handover::take) {
            return false;
        }
        // SAFETY: taken.
        let plan = unsafe { &mut *plans.plan.get() };
        let before = plan.done.isolated;
        let rest = plan.go_on(self.engine);
        self.pages_to_next_row = (plan.done.isolated - before) / PAGES_OUT;
        plans.rows_taken.fetch_add(1, Relaxed);
        plans.put_down(rest);
        true
    }
}

#[cfg(test)]
mod tests;

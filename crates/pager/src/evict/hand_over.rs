//! Single pages leave by the hand of the handler, on the processor of the thread whose faults it
//! serves.
//!
//! A move invalidates TLBs: from another processor that takes ten times as long, and interrupts the
//! thread. So where pages lie apart the evictor plans a batch (which pages, by the clock) and
//! sleeps, and the handler takes a row of it out now and then between two faults. The evictor, on
//! another processor meanwhile unless other members want that, keeps the planning and the writing
//! back. A batch in one go, by an evictor that comes over, would stop the thread for half a
//! millisecond (`docs/decisions/`).
//!
//! The holder of the plan ([`Handover`]) isolates: one thread at a time uses the ring of staging to
//! isolate. The plan is offered under the gate, and is the evictor's again before the gate is given
//! back.

use crate::engine::plans::Plan;
use crate::engine::ring_turn::RingTurn;
use crate::evict::evictor::Evictor;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::staging::batch::{Batch, Scattered};
use crate::staging::isolation::{Isolation, Refused};
use crate::staging::row::{ROW_PIECES, Row};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::reclaim::handover::{Handover, Rest};

/// A plan of fewer moves is not worth the evictor's sleep.
const MOVES_MIN: u64 = 16;

/// How long no plan is offered after one that the handler did not begin: at first, and at most,
/// where that happens again and again.
const DECLINED_NS: u64 = 1_000_000;

const DECLINED_MOST_NS: u64 = 64_000_000;

/// How often a row is tried that an event stands in the way of.
const ATTEMPTS: u32 = 4;

impl Plan {
    /// Takes the next part of the plan out of the program. The caller holds the plan, and the
    /// evictor the gate.
    pub(crate) fn go_on(&mut self, turn: &mut RingTurn<'_>) -> Rest {
        let engine = turn.engine();
        let places = turn.ring().berths_in_a_row();
        if let Some(part) = self.take(places) {
            // A thread, whose stack must stay resident, may have begun since.
            engine.apply_requests();
            let part = part.among(|number| !engine.kept_pages(part.start().plus(number)));
            let done = turn.isolate_row(&part);
            self.note(&part, &done);
        }
        if self.has_more() && !self.is_refused && self.busy.is_empty() { Rest::Some } else { Rest::None }
    }

    pub(crate) fn note(&mut self, part: &Row, done: &[Isolation; ROW_PIECES]) {
        done.iter().for_each(|isolation| self.done.note(isolation));
        if done.iter().any(|isolation| isolation.busy != 0) {
            self.busy = part.among(|number| done[number].busy);
        }
        match done.iter().find_map(|isolation| isolation.refused) {
            // The holder of the plan reads the event, and goes on with the row then.
            Some(Refused::EventPending) if self.attempts < ATTEMPTS => {
                self.attempts += 1;
                self.done.event_pending = false;
                let undone = part.among(|number| !(done[number].moved | done[number].busy));
                self.again = undone.followed_by(&self.again);
            }
            Some(Refused::EventPending | Refused::NoSlots | Refused::StagingFull) => self.is_refused = true,
            // Another mapping stands there now.
            Some(Refused::Gone) | None => self.attempts = 0,
        }
    }
}

/// Whether plans are offered, by what came of the last ones.
pub(crate) struct HandoverPace {
    /// How the pages of the last batch lay.
    pub(crate) scattered: Scattered,
    /// The time until which no plan is offered, because the handler has not taken one.
    pub(crate) declined_until_ns: u64,
    /// How long that was.
    pub(crate) declined_ns: u64,
}

impl HandoverPace {
    pub(crate) const fn new() -> Self {
        HandoverPace { scattered: Scattered::No, declined_until_ns: 0, declined_ns: 0 }
    }
}

impl Evictor {
    /// Whether a handler would take a plan, and nothing else asks for the evictor meanwhile.
    pub(crate) fn may_hand_over(&self) -> bool {
        let (engine, now) = (self.engine, sys::now_ns());
        let is_wanted =
            engine.mappings.scan_wanted.load(Relaxed) != 0 || engine.threads.evictor_waits.load(Relaxed) != 0;
        now >= self.handover.declined_until_ns && now >= self.survey.growing_until_ns && !is_wanted
    }

    /// Adds a row to the plan of a batch in which rows may be planned. False: the row has to leave
    /// at once, because the handler would gain nothing. The caller is the evictor, with nothing
    /// offered.
    pub(crate) fn plan(&mut self, row: &Row, batch: &mut Batch) -> bool {
        let Some(planned) = &mut batch.planned else { return false };
        let moves = u64::from(row.moves());
        let is_scattered =
            [self.handover.scattered, Scattered::of(row.pages(), moves)].contains(&Scattered::Yes);
        if row.is_huge_page() || moves == 0 || !is_scattered {
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

    /// Has the planned rows taken out of the program: by the handler, which serves a thread on the
    /// CPU `faulting`, and the rest from here.
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
                // The handler may wait for exactly this plan.
                futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
            }
            plans.await_return();
        }
        // SAFETY: nothing is offered any more.
        let plan = unsafe { &mut *plans.plan.get() };
        batch.isolated += plan.done.isolated;
        batch.moves += plan.done.moves;
        batch.event_pending |= plan.done.event_pending;
        self.clock.aging.note(0, plan.done.isolated);
        let is_left = plan.has_more();
        let has_begun = plan.done.moves > 0;
        if has_begun || !is_left {
            self.handover.declined_ns = 0;
        } else if is_worth_it {
            self.handover.declined_ns = (2 * self.handover.declined_ns).clamp(DECLINED_NS, DECLINED_MOST_NS);
            self.handover.declined_until_ns = sys::now_ns() + self.handover.declined_ns;
        }
        if plan.is_refused || !is_left && plan.busy.is_empty() {
            return;
        }
        if plan.done.isolated > 0 && plan.busy.is_empty() && !engine.is_at_limit() {
            // There is time: the next plan goes on with the rest. Pages that the clock has found
            // count as found.
            self.clock.aging.note(0, plan.rest().iter().chain([&plan.again]).map(Row::pages).sum());
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

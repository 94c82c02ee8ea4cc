//! A handler that waits for memory: the reasons why a fault waits at the limit, for how long, and
//! the work that the handler does meanwhile.

use crate::fault::handler::Handler;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use core::sync::atomic::Ordering::Acquire;
use folioswap_group::counters::Counter;
use folioswap_group::decisions::GroupState;
use folioswap_policy::reclaim::watermarks::Watermarks;

/// How often a handler that waits looks again.
const LOOK_AGAIN_NS: u64 = 300_000;

/// How long the handler looks without a pause before it sleeps.
const PATIENT_NS: u64 = 100_000;

/// Looks after which a fault is served without free memory, as long as the group is short of the
/// brink.
const LOOKS: u64 = 60;

impl Handler {
    /// Whether somebody frees memory within a moment, or offers folios that can be freed; asked
    /// before the handler sleeps. A batch is over soon, and waking a halted CPU takes long. Other
    /// members have work for the CPU, so beside them the handler does not look.
    fn sees_memory_soon(&self, observed: u32) -> bool {
        let (engine, until_ns) = (self.engine, sys::now_ns() + PATIENT_NS);
        if engine.others_are_active() {
            return false;
        }
        loop {
            let sank = engine.segment().header.charge_sank.load(Acquire) != observed;
            if sank || engine.shares.is_offered() || engine.plans.are_offered() {
                return true;
            }
            if sys::now_ns() >= until_ns {
                return false;
            }
            rustix::thread::sched_yield();
        }
    }

    /// Direct reclaim, the last resort. While the group is at its limit a fault waits for the
    /// evictors: for a while, and on the brink without end. Events go on being read, since an
    /// unread one stops every move. Returns true if there is still no memory and the fault is to be
    /// looked at later.
    pub(crate) fn wait_for_memory(&mut self, thread: u32) -> bool {
        let engine = self.engine;
        let (header, me) = (&engine.segment().header, engine.member());
        if !engine.is_at_limit() || !engine.is_engaged() || self.is_urgent(thread) {
            return false;
        }
        engine.figures().add(Counter::DirectReclaims, 1);
        let until_ns = sys::now_ns() + LOOKS * LOOK_AGAIN_NS;
        while sys::now_ns() < until_ns {
            let observed = header.charge_sank.load(Acquire);
            if !engine.is_at_limit() || engine.decisions().state() == GroupState::Ending {
                return false;
            }
            if self.position_of_urgent().is_some() || engine.fork.is_preparing() {
                // The urgent fault goes first: its thread may be the one that frees memory.
                return true;
            }
            if !self.take_out_row() && !self.reclaim_directly() {
                futex::post(&me.wake, Sharing::Shared);
                if !self.sees_memory_soon(observed) {
                    futex::wait(&header.charge_sank, observed, LOOK_AGAIN_NS, Sharing::Shared);
                }
            }
            self.read_messages();
            if !engine.fork.is_thawed() {
                return true;
            }
        }
        let bound = engine.bound();
        bound.charge >= Watermarks::of(bound.limit).brink
    }
}

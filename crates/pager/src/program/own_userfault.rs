//! Memory that the program serves by a userfaultfd of its own: a mapping belongs to one of them at
//! a time, so the pager gives up what it has registered there.
//!
//! The evictor alone registers memory, and only it has the pager's userfaultfd. So a thread of the
//! program brings back what is away, leaves its demand, and waits; the evictor unregisters the
//! range, and looks at no mapping until that thread has registered the range itself.

use crate::engine::Engine;
use crate::engine::demand::{GIVEN_UP, KEPT, NOTHING, TAKEN, WANTED};
use crate::engine::mappings::Wait;
use crate::engine::threads::Life;
use crate::engine::words::pages_within;
use crate::kernel::futex::{self, Sharing};
use crate::units::PAGE;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use folioswap_policy::page::PageState;
use rustix::mm::{Advice, madvise};

/// How often pages are brought back that came in the way of giving a range up.
const ATTEMPTS: u32 = 16;

/// How often, and how far apart, a thread looks whether the evictor has followed, or whether
/// another thread is done.
const LOOKS: u32 = 1000;
const LOOK_NS: u64 = 200_000;

impl Engine {
    /// Calls `register`, by which the program registers `start..end` with a userfaultfd of its own,
    /// while the range is not the pager's. Pages that are away come back first. Where the pager
    /// does not answer, or pages of the range leave again and again, `register` is called all the
    /// same, and the kernel refuses it (EBUSY). Threads of the program.
    pub fn leave_to_program<T>(&self, start: usize, end: usize, register: impl FnOnce() -> T) -> T {
        let (start, end) = (start & !(PAGE - 1), end.next_multiple_of(PAGE));
        let demand = &self.demand;
        let is_served = || self.is_ours() && self.life() == Life::Running && self.is_engaged();
        let mut looks = 0;
        while demand.state.compare_exchange(NOTHING, TAKEN, AcqRel, Relaxed).is_err() {
            looks += 1;
            if looks > LOOKS || !is_served() {
                return register();
            }
            futex::wait(&demand.state, demand.state.load(Relaxed), LOOK_NS, Sharing::Private);
        }
        demand.start.store(start, Relaxed);
        demand.end.store(end, Relaxed);
        for _ in 0..ATTEMPTS {
            if !is_served() || self.keep_resident_and_wait(start, end) == Wait::InVain {
                break;
            }
            self.bring_back_known(start, end);
            demand.state.store(WANTED, Release);
            if self.wait_for_evictor() == GIVEN_UP {
                break;
            }
        }
        let result = register();
        demand.state.store(NOTHING, Release);
        futex::wake(&demand.state, Sharing::Private);
        result
    }

    /// Waits until the evictor has followed the demand. Returns the state then.
    fn wait_for_evictor(&self) -> u32 {
        let state = &self.demand.state;
        for _ in 0..LOOKS {
            futex::post(&self.member().wake, Sharing::Shared);
            futex::wait(state, WANTED, LOOK_NS, Sharing::Private);
            if state.load(Acquire) != WANTED {
                return state.load(Acquire);
            }
        }
        // It must not be followed any more, unless it has been in this moment.
        match state.compare_exchange(WANTED, TAKEN, AcqRel, Acquire) {
            Ok(_) => TAKEN,
            Err(followed) => followed,
        }
    }

    /// Brings back the pages of the range of which the pager has something. The evictor knows that
    /// they are to stay.
    fn bring_back_known(&self, start: usize, end: usize) {
        self.table.for_blocks(start, end, |base, block| {
            for index in pages_within(base, start, end) {
                if !has_nothing(block.word(index).state()) {
                    let page = base.page(index).raw();
                    // SAFETY: bringing pages in changes no contents; where the program has unmapped
                    // the page, the kernel refuses.
                    let _ = unsafe { madvise(page as *mut _, PAGE, Advice::LinuxPopulateWrite) };
                }
            }
        });
    }

    /// Follows the demand of a thread, if there is one. Called by the evictor under the gate.
    pub(crate) fn follow_demand(&self) {
        let demand = &self.demand;
        if demand.state.load(Acquire) != WANTED {
            return;
        }
        let (start, end) = (demand.start.load(Relaxed), demand.end.load(Relaxed));
        let state = if self.give_up_range(start, end) { GIVEN_UP } else { KEPT };
        // A thread that waits no longer has taken its demand back.
        if demand.state.compare_exchange(WANTED, state, AcqRel, Relaxed).is_ok() {
            futex::wake(&demand.state, Sharing::Private);
        }
    }

    /// Unregisters a range of which no page is away, and forgets it. Returns false, with nothing
    /// changed, where one is.
    fn give_up_range(&self, start: usize, end: usize) -> bool {
        let _events_wait = self.locks.moves.lock();
        let mut is_whole = true;
        self.table.for_blocks(start, end, |base, block| {
            is_whole &= pages_within(base, start, end).all(|index| has_nothing(block.word(index).state()));
        });
        if !is_whole {
            return false;
        }
        let mut at = start;
        // SAFETY: the set is used under the move lock.
        while let Some(range) = unsafe { &*self.mappings.registered.get() }.next(at) {
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from >= to {
                break;
            }
            // SAFETY: no page of the range is away, and none leaves under the move lock. Where the
            // kernel refuses, it refuses the program as well.
            let _ = unsafe { self.userfault().unregister(from, to - from) };
            at = to;
        }
        self.unmap_pages(start, end);
        true
    }
}

/// Whether the pager has nothing of a page in this state, and expects nothing of it.
fn has_nothing(state: PageState) -> bool {
    matches!(state, PageState::Present(_) | PageState::Removed { .. })
}

#[cfg(test)]
mod tests;

//! madvise(MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED) by the program (spec §3.7).
//!
//! They raise no event, so the pager sees only those that the agent's madvise passes on.
//! MADV_PAGEOUT and MADV_COLD are left for the evictor, in cells without a lock, and the thread
//! waits until they have been followed; for MADV_WILLNEED the thread itself touches the pages that
//! are away.

use crate::engine::Engine;
use crate::engine::advices::{Advice, COLD, DONE, FREE, PAGE_OUT_NEW};
use crate::engine::threads::Life;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::units::PAGE;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How often a waiting thread checks whether it must go on.
const LOOK_NS: u64 = 5_000_000;

impl Engine {
    /// Follows the advice of a thread of the program about `bytes` (rounded up to pages) from the
    /// page-aligned address `start` on. Returns when it has been followed, as far as it can be; at
    /// once where memory is not managed.
    ///
    /// Some pages stay where they are: pages shared with relatives after a fork (unless nothing
    /// else is left), locked ones, those that must stay resident, and those advised by more than 32
    /// threads at a time.
    pub fn advise(&self, advice: Advice, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes.next_multiple_of(PAGE));
        if start >= end || !self.follows_advice() {
            return;
        }
        match advice {
            Advice::PageOut => self.leave_advice(PAGE_OUT_NEW, start, end),
            // As long as nothing was taken out, every page is cold.
            Advice::Cold if !self.is_engaged() => {}
            Advice::Cold => self.leave_advice(COLD, start, end),
            Advice::WillNeed => self.bring_back(start, end),
        }
    }

    /// Whether there is an evictor that would follow advice.
    pub fn follows_advice(&self) -> bool {
        self.life() == Life::Running && self.is_ours()
    }

    fn leave_advice(&self, state: u32, start: usize, end: usize) {
        if !self.is_engaged() {
            // This comes before the advice is left: the evictor that finds it prepares to take
            // memory out.
            self.mappings.scan_wanted.store(1, Release);
        }
        let Some(number) = self.advices.leave(state, start, end) else { return };
        let state = &self.advices.0[number].state;
        self.wake_evictor();
        // While a fork is being prepared the evictor stands still, perhaps for this very thread:
        // the advice is followed a little later. And a child that a signal handler forked has no
        // evictor to follow it.
        while self.life() == Life::Running && !self.fork.is_preparing() && self.is_ours() {
            match state.load(Acquire) {
                DONE => {
                    let _ = state.compare_exchange(DONE, FREE, AcqRel, Relaxed);
                    return;
                }
                FREE => return,
                waits => futex::wait(state, waits, LOOK_NS, Sharing::Private),
            }
        }
    }

    /// Touches the pages of the range that are away, as other processes read memory: a page that
    /// goes away meanwhile is no fault of the program's. Each page brings its neighbours along as
    /// if the program went through the range.
    fn bring_back(&self, start: usize, end: usize) {
        // If the range is unmapped meanwhile, a block may come to describe other memory: then a
        // page is touched for nothing, or not.
        self.for_pages_away(start, end, |page| {
            sys::read_bytes(&[page]);
        });
    }
}

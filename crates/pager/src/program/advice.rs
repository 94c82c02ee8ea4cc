//! madvise(MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED) by the program (spec §3.7).
//!
//! They raise no event: the pager sees only the calls that the agent's madvise passes on.
//! MADV_PAGEOUT and MADV_COLD are left for the evictor, in cells without a lock, and the thread
//! waits until they have been followed; for MADV_WILLNEED the thread touches the pages that are
//! away itself.

use crate::engine::Engine;
use crate::engine::advices::{Advice, COLD, DONE, FREE, PAGE_OUT_NEW};
use crate::engine::threads::Life;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::units::PAGE;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How often a waiting thread looks whether it must go on.
const LOOK_NS: u64 = 5_000_000;

impl Engine {
    /// Follows a thread's advice about `bytes` (rounded up to pages) from the page-aligned address
    /// `start` on. Returns when it has been followed, as far as it can be; at once where memory is
    /// not managed. Pages stay where they are if they are shared with relatives after a fork
    /// (unless nothing else is left), are locked, or must stay resident, or if more than 32 threads
    /// advise at a time.
    pub fn advise(&self, advice: Advice, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes.next_multiple_of(PAGE));
        if start >= end || !self.follows_advice() {
            return;
        }
        match advice {
            Advice::PageOut => self.leave_advice(PAGE_OUT_NEW, start, end),
            // As long as no page was taken out, every page is cold.
            Advice::Cold if !self.is_engaged() => {}
            Advice::Cold => self.leave_advice(COLD, start, end),
            Advice::WillNeed => self.bring_back(start, end),
        }
    }

    /// Whether an evictor is there to follow an advice.
    pub fn follows_advice(&self) -> bool {
        self.life() == Life::Running && self.is_ours()
    }

    fn leave_advice(&self, state: u32, start: usize, end: usize) {
        if !self.is_engaged() {
            // Before the advice is left, because an evictor that finds it prepares to take memory
            // out.
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

    /// Touches the pages of the range that are away, in the way of other processes: a page that
    /// goes away meanwhile is no fault of the program's. Each brings its neighbours along as if the
    /// program went through the range.
    fn bring_back(&self, start: usize, end: usize) {
        // Where the range is unmapped meanwhile, a block may come to describe other memory: then a
        // page is touched in vain, or not touched.
        self.for_pages_away(start, end, |page| {
            sys::read_bytes(&[page]);
        });
    }
}

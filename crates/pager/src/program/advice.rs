//! madvise(MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED) by the program (spec §3.7).
//!
//! They raise no event: what is seen of them is what the agent's madvise passes on. MADV_PAGEOUT and MADV_COLD are left for the evictor, in places
//! without a lock, and the thread waits until it has been done; for MADV_WILLNEED the thread touches what is away itself.

use crate::engine::Engine;
use crate::engine::advices::{Advice, COLD, DONE, FREE, PAGE_OUT_NEW};
use crate::engine::threads::Life;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::units::PAGE;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How often who waits looks whether it must go on.
const LOOK_NS: u64 = 5_000_000;

impl Engine {
    /// Follows what a thread of the program has said of `bytes` (rounded up to pages) from the page-aligned address `start` on. Returns when it
    /// has been done, as far as it can be; at once where memory is not looked after. What is shared with relatives after a fork (unless nothing else is left), locked, or
    /// must stay resident stays where it is, as does what more than 32 threads advise at a time.
    pub fn advise(&self, advice: Advice, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes.next_multiple_of(PAGE));
        if start >= end || !self.follows_advice() {
            return;
        }
        match advice {
            Advice::PageOut => self.leave_advice(PAGE_OUT_NEW, start, end),
            // As long as nothing was taken out, everything is cold.
            Advice::Cold if !self.is_engaged() => {}
            Advice::Cold => self.leave_advice(COLD, start, end),
            Advice::WillNeed => self.bring_back(start, end),
        }
    }

    /// Is there anybody who would follow one?
    pub fn follows_advice(&self) -> bool {
        self.life() == Life::Running && self.is_ours()
    }

    fn leave_advice(&self, state: u32, start: usize, end: usize) {
        if !self.is_engaged() {
            // Before it is left: who finds it prepares to take memory out.
            self.mappings.scan_wanted.store(1, Release);
        }
        let Some(number) = self.advices.leave(state, start, end) else { return };
        let state = &self.advices.0[number].state;
        self.wake_evictor();
        // While a fork is being prepared the evictor stands still, perhaps for this very thread: it is done a little later.
        // And a child that a signal handler forked has nobody who would do it.
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

    /// Touches what of the range is away, in the way of other processes: a page that goes away meanwhile is no fault of the program's. Each
    /// brings its neighbours along as if the program went through the range.
    fn bring_back(&self, start: usize, end: usize) {
        // Where the range is unmapped meanwhile, a block may come to describe other memory: then a page is touched for nothing, or not.
        self.for_pages_away(start, end, |page| {
            sys::read_bytes(&[page]);
        });
    }
}

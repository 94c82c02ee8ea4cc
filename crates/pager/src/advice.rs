//! madvise(MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED) by the program (spec §3.7).
//!
//! They raise no event: what is seen of them is what the agent's madvise passes on. MADV_PAGEOUT and MADV_COLD are left for the evictor, in places
//! without a lock, and the thread waits until it has been done; for MADV_WILLNEED the thread touches what is away itself.

use crate::engine::{Engine, Life};
use crate::futex::{self, Sharing};
use crate::sys;
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use folioswap_policy::page_table::PAGE;

/// What the program says of a range of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It is not needed for long: it leaves now.
    PageOut,
    /// It is not needed for long: it leaves before anything else when memory is short.
    Cold,
    /// It is needed soon: it comes back, as far as there is room.
    WillNeed,
}

/// Advices that can wait; further ones are not followed.
const PLACES: usize = 32;
/// How often who waits looks whether it must go on.
const LOOK_NS: u64 = 5_000_000;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const PAGE_OUT: u32 = 2;
const COLD: u32 = 3;
const DONE: u32 = 4;
/// A [`PAGE_OUT`] that the evictor has not looked at yet.
const PAGE_OUT_NEW: u32 = 5;

#[repr(C)]
struct Place {
    /// One of the constants above; also a futex.
    state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Advices left for the evictor. All-zero is "none".
#[repr(C)]
pub(crate) struct Advices([Place; PLACES]);

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advised {
    pub(crate) place: usize,
    pub(crate) advice: Advice,
    pub(crate) turn: Turn,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Whether the evictor has looked at an advice before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// No: its range may not be registered yet.
    First,
    /// Yes.
    Later,
}

impl Advices {
    /// Leaves one; the number of its place, or `None` when all are taken. Where no other is free, a place is used whose thread has not looked
    /// since it was done: it may have gone for good, by a jump out of a signal handler; if not, it waits a little longer.
    fn leave(&self, state: u32, start: usize, end: usize) -> Option<usize> {
        let take = |from| {
            let mut places = self.0.iter();
            places.position(|place| place.state.compare_exchange(from, TAKEN, Acquire, Relaxed).is_ok())
        };
        let number = take(FREE).or_else(|| take(DONE))?;
        let place = &self.0[number];
        place.start.store(start, Relaxed);
        place.end.store(end, Relaxed);
        place.state.store(state, Release);
        Some(number)
    }

    /// The next one that waits to be followed, behind place `last`: they take turns. Evictor.
    pub(crate) fn next(&self, last: usize) -> Option<Advised> {
        (1..=PLACES).find_map(|step| {
            let number = (last + step) % PLACES;
            let place = &self.0[number];
            let (advice, turn) = match place.state.load(Acquire) {
                PAGE_OUT_NEW => (Advice::PageOut, Turn::First),
                PAGE_OUT => (Advice::PageOut, Turn::Later),
                COLD => (Advice::Cold, Turn::First),
                _ => return None,
            };
            let (start, end) = (place.start.load(Relaxed), place.end.load(Relaxed));
            Some(Advised { place: number, advice, turn, start, end })
        })
    }

    /// It is followed from `start` on the next time. Evictor.
    pub(crate) fn go_on_from(&self, advised: Advised, start: usize) {
        let place = &self.0[advised.place];
        place.start.store(start, Relaxed);
        if advised.advice == Advice::PageOut {
            place.state.store(PAGE_OUT, Release);
        }
    }

    /// It was followed, as far as it can be. Evictor.
    pub(crate) fn done(&self, advised: Advised) {
        let state = &self.0[advised.place].state;
        state.store(DONE, Release);
        futex::wake(state, Sharing::Private);
    }

    /// Forgets all of them: in a child, whose threads they are not.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.state.store(FREE, Relaxed));
    }
}

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
            self.scan_wanted.store(1, Release);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;

    fn advices() -> Box<Advices> {
        // SAFETY: all-zero is a valid value.
        unsafe { Box::new_zeroed().assume_init() }
    }

    #[test]
    fn an_advice_is_followed_once_and_its_place_is_free_again() {
        let advices = advices();
        assert_eq!(advices.next(PLACES - 1), None);
        let place = advices.leave(PAGE_OUT_NEW, 0x1000, 0x9000).unwrap();
        let advised = advices.next(PLACES - 1).unwrap();
        let first = Advised { place, advice: Advice::PageOut, turn: Turn::First, start: 0x1000, end: 0x9000 };
        assert_eq!(advised, first);
        advices.go_on_from(advised, 0x5000);
        assert_eq!(advices.next(PLACES - 1), Some(Advised { turn: Turn::Later, start: 0x5000, ..first }));
        advices.done(advised);
        assert_eq!(advices.next(PLACES - 1), None);
        // Its thread has not looked: others come first, then it is used all the same.
        for _ in 1..PLACES {
            assert_ne!(advices.leave(COLD, 0, 0x1000), Some(place));
        }
        assert_eq!(advices.leave(COLD, 0, 0x1000), Some(place));
        assert_eq!(advices.leave(COLD, 0, 0x1000), None, "all are taken");
        advices.forget();
        assert_eq!(advices.next(PLACES - 1), None);
        assert_eq!(advices.leave(COLD, 0, 0x1000), Some(0));
    }

    #[test]
    fn advices_take_turns() {
        let advices = advices();
        let places = [0, 1, 2].map(|start| advices.leave(COLD, start, start + 1).unwrap());
        let (mut last, mut followed) = (0, std::vec::Vec::new());
        for _ in 0..6 {
            last = advices.next(last).unwrap().place;
            followed.push(last);
        }
        assert_eq!(followed, [1, 2, 0, 1, 2, 0].map(|number| places[number]));
    }

    #[test]
    fn nobody_waits_for_an_engine_that_does_not_run() {
        let engine = crate::test_memory::engine();
        for advice in [Advice::PageOut, Advice::Cold, Advice::WillNeed] {
            engine.advise(advice, 0x1000, 1 << 40);
        }
        assert_eq!(engine.advices.next(PLACES - 1), None);
    }
}

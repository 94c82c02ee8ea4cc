//! Advices of the program (MADV_PAGEOUT, MADV_COLD) that wait for the evictor, in cells without a
//! lock.

use crate::kernel::futex::{self, Sharing};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// An advice of the program about a range of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The range is not needed for long: it leaves now.
    PageOut,
    /// The range is not needed for long: it leaves before any other memory when memory is short.
    Cold,
    /// The range is needed soon: it comes back, as far as memory allows.
    WillNeed,
}

/// The most advices that can wait; further ones are not followed.
pub(crate) const PLACES: usize = 32;

pub(crate) const FREE: u32 = 0;

const TAKEN: u32 = 1;

const PAGE_OUT: u32 = 2;

pub(crate) const COLD: u32 = 3;

pub(crate) const DONE: u32 = 4;

/// A [`PAGE_OUT`] that the evictor has not looked at yet.
pub(crate) const PAGE_OUT_NEW: u32 = 5;

#[repr(C)]
pub(crate) struct AdviceCell {
    /// One of the constants above; also a futex.
    pub(crate) state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Advices left for the evictor. All-zero is "none".
#[repr(C)]
pub(crate) struct Advices(pub(crate) [AdviceCell; PLACES]);

/// An advice that waits to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advised {
    pub(crate) place: usize,
    pub(crate) advice: Advice,
    pub(crate) visit: Visit,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Whether the evictor has looked at an advice before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The evictor has not: the range may not be registered yet.
    First,
    /// The evictor has.
    Later,
}

impl Advices {
    /// Leaves an advice; returns the number of its cell, or `None` when all are taken. Where no
    /// cell is free, the advice takes a cell that is done and whose thread has not looked at it
    /// since: the thread may have gone for good, by a jump out of a signal handler; if not, it
    /// waits a little longer.
    pub(crate) fn leave(&self, state: u32, start: usize, end: usize) -> Option<usize> {
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

    /// The next advice that waits to be followed, behind cell `last`: the cells take turns.
    /// Evictor.
    pub(crate) fn next(&self, last: usize) -> Option<Advised> {
        (1..=PLACES).find_map(|step| {
            let number = (last + step) % PLACES;
            let place = &self.0[number];
            let (advice, visit) = match place.state.load(Acquire) {
                PAGE_OUT_NEW => (Advice::PageOut, Visit::First),
                PAGE_OUT => (Advice::PageOut, Visit::Later),
                COLD => (Advice::Cold, Visit::First),
                _ => return None,
            };
            let (start, end) = (place.start.load(Relaxed), place.end.load(Relaxed));
            Some(Advised { place: number, advice, visit, start, end })
        })
    }

    /// Has the evictor follow the advice from `start` on the next time. Evictor.
    pub(crate) fn go_on_from(&self, advised: Advised, start: usize) {
        let place = &self.0[advised.place];
        place.start.store(start, Relaxed);
        if advised.advice == Advice::PageOut {
            place.state.store(PAGE_OUT, Release);
        }
    }

    /// Records that the advice was followed, as far as possible. Evictor.
    pub(crate) fn done(&self, advised: Advised) {
        let state = &self.0[advised.place].state;
        state.store(DONE, Release);
        futex::wake(state, Sharing::Private);
    }

    /// Forgets all advices, in a child: the threads that left them are not the child's.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.state.store(FREE, Relaxed));
    }
}

#[cfg(test)]
mod tests;

//! Whose fork it is. Of several threads that fork one goes at a time, and two bring its fork to an end: the thread, which comes back
//! from the C library, and the handler, which ends the fork as soon as the child is on its own. Either may be first; when the
//! thread is late, another one's fork may have begun, and nothing may be said of that.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Bit of [`ForkTurn::thread`]: the C library's fork is over in the parent. Thread numbers have 22 bits.
const BACK: u32 = 1 << 31;

/// Has a fork opened the window in which nothing changes?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Freeze {
    /// Nothing was ever registered; the forking thread ends the fork.
    None = 0,
    /// The handler closes it and ends the fork.
    Opened = 1,
}

/// What a thread finds that is back from the C library's fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// Its fork is over.
    Late,
    /// Its fork is to be ended by itself, now.
    ToEnd,
    /// The handler will end its fork, and knows that the thread is back.
    HandlerEnds,
}

/// Whose turn it is. All-zero: nobody's.
#[repr(C)]
pub(crate) struct ForkTurn {
    thread: AtomicU32,
    /// A [`Freeze`]; changes only between two forks.
    window: AtomicU32,
}

impl ForkTurn {
    /// The turn of thread `thread` begins. The caller holds the lock that forks are serialised by, until the turn ends.
    pub(crate) fn begin(&self, thread: u32) {
        self.thread.store(thread, Relaxed);
    }

    /// Says what the fork did; before the thread calls the C library.
    pub(crate) fn set_freeze(&self, window: Freeze) {
        self.window.store(window as u32, Relaxed);
    }

    /// The thread whose turn it is; 0 if it is nobody's.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Relaxed) & !BACK
    }

    /// Thread `me` is back. Changes nothing if the turn is not its own any more.
    pub(crate) fn come_back(&self, me: u32) -> Back {
        // Read first: if the turn is still its own then, it was so when this was read.
        let opened = self.window.load(Relaxed) == Freeze::Opened as u32;
        match self.thread.compare_exchange(me, me | BACK, AcqRel, Relaxed) {
            Err(_) => Back::Late,
            Ok(_) if opened => Back::HandlerEnds,
            Ok(_) => Back::ToEnd,
        }
    }

    /// Is the thread whose turn it is back?
    pub(crate) fn is_back(&self) -> bool {
        self.thread.load(Acquire) & BACK != 0
    }

    /// Is it still the turn of thread `me`, which has come back?
    pub(crate) fn waits_for_end(&self, me: u32) -> bool {
        self.thread.load(Acquire) == me | BACK
    }

    /// The turn is over: once for each, by the handler if there was a window, else by the thread.
    pub(crate) fn end(&self) {
        self.thread.store(0, Release);
    }
}

#[cfg(test)]
mod tests;

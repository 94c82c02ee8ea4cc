//! The turns of threads that fork. Of several threads that fork, one goes at a time, and two
//! threads bring its fork to an end: the forking thread, which comes back from the C library, and
//! the handler, which ends the fork as soon as the child is on its own. Either may be first. When
//! the forking thread is late, another thread's fork may have begun, and the late thread must
//! report nothing of that one.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Bit of [`ForkTurn::thread`]: the C library's fork is over in the parent. Thread numbers have 22
/// bits.
const BACK: u32 = 1 << 31;

/// Whether a fork has begun the freeze in which no page word changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Freeze {
    /// The process never registered any memory; the forking thread ends the fork.
    None = 0,
    /// The handler thaws the words and ends the fork.
    Opened = 1,
}

/// The state that a thread finds when it is back from the C library's fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// Its fork is over.
    Late,
    /// The thread has to end its fork itself, now.
    ToEnd,
    /// The handler will end the fork, and knows that the thread is back.
    HandlerEnds,
}

/// The thread whose turn it is. All-zero: no thread has the turn.
#[repr(C)]
pub(crate) struct ForkTurn {
    thread: AtomicU32,
    /// A [`Freeze`]; changes only between two forks.
    window: AtomicU32,
}

impl ForkTurn {
    /// Begins the turn of thread `thread`. The caller holds the lock that serialises forks, until
    /// the turn ends.
    pub(crate) fn begin(&self, thread: u32) {
        self.thread.store(thread, Relaxed);
    }

    /// Records whether the fork froze the words; called before the thread calls the C library.
    pub(crate) fn set_freeze(&self, window: Freeze) {
        self.window.store(window as u32, Relaxed);
    }

    /// The thread whose turn it is; 0 if no thread has the turn.
    pub(crate) fn thread(&self) -> u32 {
        self.thread.load(Relaxed) & !BACK
    }

    /// Records that thread `me` is back. Changes nothing if the turn is not its own any more.
    pub(crate) fn come_back(&self, me: u32) -> Back {
        // The load precedes the exchange: if the turn is still the thread's own then, it was so at
        // this load.
        let opened = self.window.load(Relaxed) == Freeze::Opened as u32;
        match self.thread.compare_exchange(me, me | BACK, AcqRel, Relaxed) {
            Err(_) => Back::Late,
            Ok(_) if opened => Back::HandlerEnds,
            Ok(_) => Back::ToEnd,
        }
    }

    /// Whether it is the turn of thread `me`, which has not come back.
    pub(crate) fn is_out(&self, me: u32) -> bool {
        self.thread.load(Relaxed) == me
    }

    /// Whether the thread whose turn it is is back.
    pub(crate) fn is_back(&self) -> bool {
        self.thread.load(Acquire) & BACK != 0
    }

    /// Whether it is still the turn of thread `me`, which has come back.
    pub(crate) fn waits_for_end(&self, me: u32) -> bool {
        self.thread.load(Acquire) == me | BACK
    }

    /// Ends the turn: once for each, by the handler if the fork froze the words, else by the
    /// thread.
    pub(crate) fn end(&self) {
        self.thread.store(0, Release);
    }
}

#[cfg(test)]
mod tests;

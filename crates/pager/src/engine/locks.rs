//! The locks of an engine, and their order.

use crate::kernel::futex::Lock;

/// The locks of an engine, in the order in which they may be taken: `gate`, `serve`, `moves`,
/// `write_back`, `kept`.
///
/// None is held while waiting for an event to be read, and the reader of events never takes `gate`.
#[repr(C)]
pub struct Locks {
    /// Held by the evictor for a batch, and by a fork from its preparation until the child is on
    /// its own.
    pub(crate) gate: Lock,
    /// Held around isolate + move, and around the reading and processing of events: a move happens
    /// either entirely before an event or sees its effects.
    pub(crate) moves: Lock,
    /// Held while a berth of staging is written back, or while the reader of events takes over
    /// pages of the ring.
    pub(crate) write_back: Lock,
    /// Held by the handler thread for a round of messages: the holder knows that the handler
    /// changes nothing.
    pub(crate) serve: Lock,
    /// Protects [`Said`]. Taken by the pager threads alone.
    pub(crate) kept: Lock,
}

impl Locks {
    /// Opens all locks, whichever thread held them. In a forked child, before any other thread
    /// exists in it.
    pub(crate) fn reset(&self) {
        let Locks { gate, moves, write_back, serve, kept } = self;
        for lock in [gate, moves, write_back, serve, kept] {
            lock.reset();
        }
    }
}

//! The memory that a thread of the program demands from the pager, as state.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicUsize};

/// Nobody demands a range.
pub(crate) const NOTHING: u32 = 0;
/// A thread of the program has taken the cell.
pub(crate) const TAKEN: u32 = 1;
/// The range is to be given up.
pub(crate) const WANTED: u32 = 2;
/// It was given up: nothing is registered until the thread is done.
pub(crate) const GIVEN_UP: u32 = 3;
/// It could not be given up: some page of it is away.
pub(crate) const KEPT: u32 = 4;

/// The range that a thread of the program demands; one at a time. All-zero: none.
#[repr(C)]
pub(crate) struct Demand {
    /// One of the constants above; also a futex.
    pub(crate) state: AtomicU32,
    pub(crate) start: AtomicUsize,
    pub(crate) end: AtomicUsize,
}

impl Demand {
    /// Whether the evictor may look for new memory.
    pub(crate) fn lets_register(&self) -> bool {
        self.state.load(Acquire) != GIVEN_UP
    }

    /// Forgets the demand of a thread that a forked child does not have.
    pub(crate) fn forget(&self) {
        self.state.store(NOTHING, Relaxed);
    }
}

//! What the gate has counted since it was armed, or since the last fork.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that never goes back; an addition costs a few nanoseconds.
pub struct Figure(AtomicU64);

impl Figure {
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Calls that trapped.
pub static TRAPPED: Figure = Figure(AtomicU64::new(0));
/// Sites whose `syscall` is a jump now.
pub static REWRITTEN: Figure = Figure(AtomicU64::new(0));
/// Calls that a handler left by a jump, and whose slots were found.
pub static ABANDONED: Figure = Figure(AtomicU64::new(0));
/// Sites that keep trapping because they cannot be rewritten.
pub static LEFT_ALONE: Figure = Figure(AtomicU64::new(0));

//! The atomics of [`crate::hazard`]. A test mounts that file against others: those of loom, and
//! ones with a fence left out.

pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The fence of a call, between what it publishes and its look at the evictor.
pub fn fence_of_a_call() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// The fence of the evictor, between its announcement and its look at the calls.
pub fn fence_of_the_evictor() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// A moment in a wait for another thread.
pub fn pause() {
    core::hint::spin_loop();
}

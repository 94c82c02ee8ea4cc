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

/// A moment in a wait for the evictor, which takes some microseconds unless it is not run: then the
/// waiting thread sleeps, for one of real-time priority would keep its processor from the evictor.
pub fn pause(round: u32) {
    const SPINS: u32 = 4096;
    match round < SPINS {
        true => core::hint::spin_loop(),
        false => crate::kernel::sleep_a_little(),
    }
}

//! The one door to atomics and locks, so that a model test can compile the same source files against others that yield to a scheduler.

pub(crate) use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Takes a lock. A panic elsewhere does not stop the others: every section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

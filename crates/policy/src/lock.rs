//! A spin lock for sections of a few dozen instructions that no system call interrupts.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// Mutual exclusion by spinning. A holder must not block, because the others spin meanwhile.
#[repr(C)]
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out one exclusive reference at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Exclusive access to the value. Dropping the guard releases the lock.
pub struct SpinGuard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        SpinLock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Acquires the lock. The wait is bounded by the longest section of the other holders.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        while self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            core::hint::spin_loop();
        }
        SpinGuard(self)
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, so this guard is the only one.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, so this guard is the only one.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Release);
    }
}

//! A spin lock in the caller's memory that needs no libc and no futex.

use core::sync::atomic::{AtomicU32, Ordering};

/// Called by a waiter between two bounded rounds of spinning, for example `sched_yield`.
pub(crate) type Relax = fn();

/// Looks at a held lock before the relax hook is called. A critical section here takes tens of
/// nanoseconds, so a longer wait means that the holder is not running.
const SPINS_MAX: u32 = 100;

/// The lock word: 0 free, 1 held. It hands out no reference, because the data that it protects are
/// themselves atomic.
pub(crate) struct SpinLock(AtomicU32);

impl SpinLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock. Waits without a bound, and calls `relax` after every [`SPINS_MAX`] looks.
    #[inline]
    pub(crate) fn lock(&self, relax: Relax) -> SpinGuard<'_> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            self.wait(relax);
        }
    }

    #[cold]
    fn wait(&self, relax: Relax) {
        for _ in 0..SPINS_MAX {
            core::hint::spin_loop();
            if self.0.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
        relax();
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_>> {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok().map(|_| SpinGuard(self))
    }
}

/// Holds the lock; dropping the guard releases it.
#[must_use]
pub(crate) struct SpinGuard<'a>(&'a SpinLock);

impl Drop for SpinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

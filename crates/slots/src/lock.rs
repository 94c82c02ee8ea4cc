//! Four-byte spin lock: cluster lock, list lock, local lock of a logical CPU.
//!
//! Lock order (spec §0):
//!
//! - swap lock -> available-list lock
//! - local lock -> cluster lock -> list lock of the device
//! - cluster lock -> available-list lock
//!
//! Under a list lock, a cluster lock is taken only by [`SpinLock::try_lock`].

use crate::observe::{LockName, Step};
use crate::sync::{AtomicU32, Ordering, spin_loop};

/// How a thread waits for a lock that stayed taken for a bounded number of spins.
///
/// The owner of the lock may have been preempted, and only the caller knows how to give up the
/// processor (`sched_yield`, a futex, the scheduler of a simulation).
pub trait Relax {
    /// Called after each bounded round of spinning. `round` counts from 0 for each acquisition.
    fn relax(round: u32);

    /// Called before `lock` is taken, waiting for it if need be. A simulation returns when the lock
    /// is free.
    #[inline(always)]
    fn before_lock(lock: LockName) {
        let _ = lock;
    }

    /// Called before one attempt to take `lock`.
    #[inline(always)]
    fn before_try(lock: LockName) {
        let _ = lock;
    }

    /// Called when `lock` has been taken, by either way.
    #[inline(always)]
    fn locked(lock: LockName) {
        let _ = lock;
    }

    /// Called before `lock` is dropped.
    #[inline(always)]
    fn before_unlock(lock: LockName) {
        let _ = lock;
    }

    /// Called for each piece of work.
    #[inline(always)]
    fn step(step: Step) {
        let _ = step;
    }
}

/// Keeps spinning: for tests and for callers without an operating system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpinOnly;

impl Relax for SpinOnly {
    #[inline]
    fn relax(_round: u32) {
        spin_loop();
    }
}

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;
const SPINS_PER_ROUND: u32 = 64;

/// Zeroed memory is an unlocked lock.
#[repr(transparent)]
pub(crate) struct SpinLock {
    state: AtomicU32,
}

impl SpinLock {
    #[cfg(test)]
    #[allow(dead_code, reason = "for the models, which compile this file into a test of their own")]
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(UNLOCKED) }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.state.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn lock<R: Relax>(&self) {
        if !self.try_lock() {
            self.lock_contended::<R>();
        }
    }

    #[cold]
    fn lock_contended<R: Relax>(&self) {
        let mut round = 0;
        loop {
            for _ in 0..SPINS_PER_ROUND {
                if self.state.load(Ordering::Relaxed) == UNLOCKED && self.try_lock() {
                    return;
                }
                spin_loop();
            }
            R::relax(round);
            round = round.saturating_add(1);
        }
    }

    /// Context: the caller holds the lock.
    #[inline]
    pub(crate) fn unlock(&self) {
        debug_assert_eq!(self.state.load(Ordering::Relaxed), LOCKED, "unlock of a lock that is not held");
        self.state.store(UNLOCKED, Ordering::Release);
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LOCKED
    }

    /// Takes the lock for the lifetime of the returned guard.
    #[inline]
    pub(crate) fn hold<R: Relax>(&self) -> Held<'_> {
        self.lock::<R>();
        Held { lock: self }
    }
}

/// A lock held for a scope.
pub(crate) struct Held<'a> {
    lock: &'a SpinLock,
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

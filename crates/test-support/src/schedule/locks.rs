//! The locks. A thread that waits for one yields until it gets it.

use super::{point, wait};
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// Tries until the lock is free, because its holder is another thread of the model, or of the
/// operating system. A poisoned lock is taken all the same.
fn until_free<G>(mut try_lock: impl FnMut() -> TryLockResult<G>) -> G {
    point();
    loop {
        match try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(error)) => return PoisonError::into_inner(error),
            Err(TryLockError::WouldBlock) => wait(),
        }
    }
}

/// In place of [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// In place of [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'m, T> {
    mutex: &'m Mutex<T>,
    guard: sync::MutexGuard<'m, T>,
}

impl<T> Mutex<T> {
    /// As in `std`.
    pub const fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    /// As in `std`, but it never fails.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(lock(self))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Takes a mutex, poisoned or not.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    MutexGuard { mutex, guard: until_free(|| mutex.0.try_lock()) }
}

/// Takes a mutex, poisoned or not, if nobody has it.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.0.try_lock().ok().map(|guard| MutexGuard { mutex, guard })
}

/// In place of [`std::sync::RwLock`].
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

/// In place of the type of this name in [`std::sync`].
pub type RwLockReadGuard<'l, T> = sync::RwLockReadGuard<'l, T>;

/// In place of the type of this name in [`std::sync`].
pub type RwLockWriteGuard<'l, T> = sync::RwLockWriteGuard<'l, T>;

impl<T> RwLock<T> {
    /// As in `std`.
    pub const fn new(value: T) -> Self {
        RwLock(sync::RwLock::new(value))
    }
}

/// Takes a lock for reading, poisoned or not.
pub fn read_lock<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    until_free(|| lock.0.try_read())
}

/// Takes a lock for writing, poisoned or not.
pub fn write_lock<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    until_free(|| lock.0.try_write())
}

/// In place of [`std::sync::Condvar`]. A wait gives its mutex up for one yield and returns: each
/// wakeup is a spurious one, and the waiter looks at its condition whenever it is scheduled.
#[derive(Debug, Default)]
pub struct Condvar;

/// In place of [`std::sync::WaitTimeoutResult`].
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeout;

impl WaitTimeout {
    /// Never, because models know no time.
    pub fn timed_out(&self) -> bool {
        false
    }
}

#[expect(missing_docs, reason = "as in std")]
impl Condvar {
    pub const fn new() -> Self {
        Condvar
    }

    pub fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> LockResult<MutexGuard<'m, T>> {
        let mutex = guard.mutex;
        drop(guard);
        wait();
        Ok(lock(mutex))
    }

    pub fn wait_timeout<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        _: Duration,
    ) -> LockResult<(MutexGuard<'m, T>, WaitTimeout)> {
        self.wait(guard).map(|guard| (guard, WaitTimeout)).map_err(|_| unreachable!("it never fails"))
    }

    pub fn notify_one(&self) {
        point();
    }

    pub fn notify_all(&self) {
        point();
    }
}

//! Stands in for `src/sync.rs`: the same types, but each operation first lets the scheduler of the model choose another thread, and who waits
//! for a lock yields. Layout and zero state of the atomics are those of the real ones. Outside of a model all of it is as it always is.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
pub(crate) use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::Duration;

pub(crate) const SPINS: u32 = 2;

thread_local! {
    static IN_A_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Runs a model with so many schedules.
pub(crate) fn model(schedules: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    let scheduler = shuttle::scheduler::RandomScheduler::new(schedules);
    shuttle::Runner::new(scheduler, config).run(move || {
        IN_A_MODEL.set(true);
        run();
        IN_A_MODEL.set(false);
    });
}

fn step() {
    if IN_A_MODEL.get() && !std::thread::panicking() {
        shuttle::thread::yield_now();
    }
}

/// Until it works: whoever has it is another thread of the model, or of the system.
fn wait() {
    if IN_A_MODEL.get() {
        step();
    } else {
        std::thread::yield_now();
    }
}

pub(crate) fn spin_loop() {
    wait();
}
pub(crate) fn yield_now() {
    wait();
}
pub(crate) fn sleep(_: Duration) {
    wait();
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(std::sync::atomic::$name);
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }
            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }
            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(old, new, success, failure)
            }
            pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_and(value, order)
            }
            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_or(value, order)
            }
        }
    };
}
macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(value, order)
            }
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(value, order)
            }
            pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_max(value, order)
            }
            pub(crate) fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                step();
                self.0.fetch_update(success, failure, update)
            }
        }
    };
}
atomic!(AtomicBool, bool);
number!(AtomicU32, u32);
number!(AtomicU64, u64);

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

pub(crate) struct MutexGuard<'m, T> {
    mutex: &'m Mutex<T>,
    held: std::sync::MutexGuard<'m, T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(lock(self))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.held
    }
}
impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    step();
    loop {
        match mutex.0.try_lock() {
            Ok(held) => return MutexGuard { mutex, held },
            Err(TryLockError::Poisoned(error)) => return MutexGuard { mutex, held: error.into_inner() },
            Err(TryLockError::WouldBlock) => wait(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);
pub(crate) type RwLockReadGuard<'l, T> = std::sync::RwLockReadGuard<'l, T>;
pub(crate) type RwLockWriteGuard<'l, T> = std::sync::RwLockWriteGuard<'l, T>;

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        RwLock(std::sync::RwLock::new(value))
    }
}

pub(crate) fn share<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    step();
    loop {
        match lock.0.try_read() {
            Ok(held) => return held,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => wait(),
        }
    }
}

pub(crate) fn alone<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    step();
    loop {
        match lock.0.try_write() {
            Ok(held) => return held,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => wait(),
        }
    }
}

/// Who waits looks again each time that it is chosen.
#[derive(Debug, Default)]
pub(crate) struct Condvar;

pub(crate) struct Waited;
impl Waited {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar
    }
    pub(crate) fn wait<'m, T>(&self, guard: MutexGuard<'m, T>) -> LockResult<MutexGuard<'m, T>> {
        let mutex = guard.mutex;
        drop(guard);
        wait();
        Ok(lock(mutex))
    }
    pub(crate) fn wait_timeout<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        _: Duration,
    ) -> LockResult<(MutexGuard<'m, T>, Waited)> {
        self.wait(guard).map(|guard| (guard, Waited)).map_err(|_| unreachable!("it never fails"))
    }
    pub(crate) fn notify_one(&self) {
        step();
    }
    pub(crate) fn notify_all(&self) {
        step();
    }
}

//! Stand-ins for `std::sync`: the code under test is compiled with these types in place of its
//! own, and each of their operations is a point at which another thread may run.
//!
//! A crate takes all its atomics, locks and waits from one module, `sync`. Its shuttle test
//! compiles the crate's source files with a `sync` that names the types of this module.
//!
//! | The thread runs | Before an operation | A wait for another thread |
//! |---|---|---|
//! | in a model: [`check_random`], [`check_pct`] | shuttle chooses the next thread | as an operation |
//! | [`alone`] | an [`interrupted`] action may be due | panics: nobody can end it |
//! | otherwise | nothing | yields to the operating system |
//!
//! Layout and zero state of the atomics are those of the real ones, so the code under test may
//! place them in zeroed memory.

mod atomics;
mod locks;

pub use atomics::{
    AllButRelaxedAccesses, AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, EveryOperation,
    Points,
};
pub use locks::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeout, lock, read_lock,
    try_lock, write_lock,
};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use std::cell::RefCell;
use std::time::Duration;

/// Stack of a model's thread. Shuttle's default of 32 KiB is too small for a swap space.
const STACK_BYTES: usize = 1 << 20;

/// Runs before one of the coming operations.
struct Interruption {
    /// Operations that come first.
    operations: u32,
    action: Box<dyn FnOnce()>,
}

/// Decides before each operation of this thread. Shuttle runs all threads of a model on one.
enum Mode {
    /// Outside of a model.
    Free,
    /// In a model: shuttle chooses the next thread.
    Model,
    /// One thread that nobody else may join.
    Alone(Option<Interruption>),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Free) };
}

/// Restores the mode from before, also when a model fails.
struct Restore(Option<Mode>);

impl Restore {
    fn enter(mode: Mode) -> Self {
        Restore(Some(MODE.replace(mode)))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(mode) = self.0.take() {
            MODE.set(mode);
        }
    }
}

fn check(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    let _restore = Restore::enter(Mode::Model);
    shuttle::Runner::new(scheduler, config).run(model);
}

/// Runs `model` under so many random schedules. A failure prints its schedule, to be replayed with
/// `shuttle::replay`.
pub fn check_random(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    check(RandomScheduler::new(schedules), model);
}

/// Runs `model` under so many schedules with at most `switches` well-placed switches each
/// (probabilistic concurrency testing).
pub fn check_pct(schedules: usize, switches: usize, model: impl Fn() + Send + Sync + 'static) {
    check(PctScheduler::new(switches, schedules), model);
}

/// Runs `run` as the only thread there is.
pub fn alone<T>(run: impl FnOnce() -> T) -> T {
    let _restore = Restore::enter(Mode::Alone(None));
    run()
}

/// Runs `work` [`alone`], and `action` to its end just before operation number `operation` of it,
/// counted from 0. The operations of `action` are not counted. Work of fewer operations is not
/// interrupted.
pub fn interrupted<T>(operation: u32, action: impl FnOnce() + 'static, work: impl FnOnce() -> T) -> T {
    let interruption = Interruption { operations: operation, action: Box::new(action) };
    let _restore = Restore::enter(Mode::Alone(Some(interruption)));
    work()
}

/// Stands before each operation.
fn point() {
    let action = MODE.with_borrow_mut(|mode| match mode {
        Mode::Free => None,
        Mode::Model => Some(None),
        Mode::Alone(Some(interruption)) if interruption.operations > 0 => {
            interruption.operations -= 1;
            None
        }
        // Taken out first: the operations of the action itself are not interrupted.
        Mode::Alone(plan) => plan.take().map(|interruption| Some(interruption.action)),
    });
    match action {
        None => {}
        // A thread that unwinds is no longer scheduled.
        Some(None) if std::thread::panicking() => {}
        Some(None) => shuttle::thread::yield_now(),
        Some(Some(action)) => action(),
    }
}

/// Stands wherever a thread waits for another one.
fn wait() {
    let is_free = MODE.with_borrow(|mode| match mode {
        Mode::Free => true,
        Mode::Model => false,
        Mode::Alone(_) => panic!("the interruption waits for a lock of the work that it interrupts"),
    });
    if is_free {
        std::thread::yield_now();
    } else {
        point();
    }
}

/// In place of [`std::hint::spin_loop`].
pub fn spin_loop() {
    wait();
}

/// In place of [`std::thread::yield_now`].
pub fn yield_now() {
    wait();
}

/// In place of [`std::thread::sleep`]. Models know no time.
pub fn sleep(_: Duration) {
    wait();
}

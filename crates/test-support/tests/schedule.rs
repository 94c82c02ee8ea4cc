//! The shims themselves: a model with a race fails, one without passes, and interruptions happen
//! where they were asked for.

use folioswap_test_support::schedule::*;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const SCHEDULES: usize = 200;

/// Two threads increment a counter, in a step that `step` makes atomic or not.
fn incremented_twice(step: impl Fn(&AtomicU32) + Send + Sync + Copy + 'static) {
    let counter = Arc::new(AtomicU32::new(0));
    let other = counter.clone();
    let thread = shuttle::thread::spawn(move || step(&other));
    step(&counter);
    thread.join().unwrap();
    assert_eq!(counter.load(Acquire), 2, "an increment is lost");
}

fn load_and_store(counter: &AtomicU32) {
    counter.store(counter.load(Acquire) + 1, Release);
}

#[test]
#[should_panic(expected = "an increment is lost")]
fn random_schedules_find_a_lost_update() {
    check_random(SCHEDULES, || incremented_twice(load_and_store));
}

#[test]
#[should_panic(expected = "an increment is lost")]
fn schedules_with_few_switches_find_a_lost_update() {
    check_pct(SCHEDULES, 3, || incremented_twice(load_and_store));
}

#[test]
fn an_atomic_increment_is_never_lost() {
    check_random(SCHEDULES, || incremented_twice(|counter| _ = counter.fetch_add(1, Relaxed)));
}

#[test]
fn excepted_relaxed_accesses_are_no_scheduling_points() {
    check_random(SCHEDULES, || {
        let counter = Arc::new(AtomicU32::<AllButRelaxedAccesses>::new(0));
        let step = |counter: &AtomicU32<_>| counter.store(counter.load(Relaxed) + 1, Relaxed);
        let other = counter.clone();
        let thread = shuttle::thread::spawn(move || step(&other));
        step(&counter);
        thread.join().unwrap();
        assert_eq!(counter.load(Acquire), 2);
    });
}

#[test]
fn a_mutex_excludes_and_a_waiter_sees_the_change() {
    check_random(SCHEDULES, || {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let other = shared.clone();
        let thread = shuttle::thread::spawn(move || {
            *lock(&other.0) += 1;
            other.1.notify_one();
        });
        let mut count = lock(&shared.0);
        while *count == 0 {
            count = shared.1.wait(count).unwrap();
        }
        drop(count);
        thread.join().unwrap();
    });
}

#[test]
fn each_operation_is_interrupted_once() {
    let counter = Rc::new(AtomicU32::<EveryOperation>::new(0));
    for operation in 0..4 {
        counter.store(0, Relaxed);
        let seen = Rc::new(Cell::new(None));
        let (inner, at) = (counter.clone(), seen.clone());
        let action = move || at.set(Some(inner.load(Relaxed)));
        interrupted(operation, action, || (0..3).for_each(|_| _ = counter.fetch_add(1, Relaxed)));
        assert_eq!(seen.get(), (operation < 3).then_some(operation));
    }
}

#[test]
#[should_panic(expected = "waits for a lock of the work that it interrupts")]
fn a_thread_alone_that_waits_fails_instead_of_hanging() {
    let mutex = Mutex::new(());
    let _held = lock(&mutex);
    alone(|| drop(lock(&mutex)));
}

#[test]
fn outside_of_a_model_the_types_are_those_of_std() {
    let mutex = Arc::new(Mutex::new(0));
    let other = mutex.clone();
    let thread = std::thread::spawn(move || (0..1000).for_each(|_| *lock(&other) += 1));
    (0..1000).for_each(|_| *lock(&mutex) += 1);
    thread.join().unwrap();
    assert_eq!(*lock(&mutex), 2000);
}

use super::*;
use crate::events::CostsFile;
use folioswap_slots::Relax;
use std::cell::Cell;

fn costs() -> Costs {
    Costs { lock_ns: 10.0, transfer_ns: 100.0, list_ns: 0.0, alloc_ns: 7.0, ..CostsFile::kept().costs }
}

const LOCK: LockName = LockName::Lists { device: 0 };

/// Holds the lock for `ns`.
fn hold(ns: f64) {
    Simulated::before_lock(LOCK);
    Simulated::locked(LOCK);
    spend(Spent::Allocator, ns);
    Simulated::before_unlock(LOCK);
}

#[test]
fn who_comes_while_a_lock_is_held_waits_until_it_is_dropped() {
    let simulation = simulate(&costs(), 3, |cpu| {
        spend(Spent::User, f64::from(cpu) * 5.0);
        hold(1000.0);
    })
    .unwrap();
    let lock = simulation.locks.iter().find(|lock| lock.name == "lists of device 0").unwrap();
    assert_eq!((lock.acquired, lock.waited, lock.queue_max), (3, 2, 2));
    // CPU 0 holds from 10 to 1010. CPU 1 comes at 15, moves the line and holds to 2110; CPU 2 comes
    // at 20 and waits for both.
    let waited = (1010.0 - 15.0) + (2110.0 - 20.0);
    assert!((lock.wait_s * 1e9 - waited).abs() < 0.01, "{}", lock.wait_s * 1e9);
    assert!((simulation.times.elapsed * 1e9 - 3210.0).abs() < 0.01, "{}", simulation.times.elapsed * 1e9);
    let system = simulation.times.allocator + simulation.times.lock_wait;
    assert!((simulation.times.system() - simulation.times.pages - system).abs() < 1e-15);
}

#[test]
fn the_lock_goes_to_whoever_came_first() {
    let order = Cell::new(0u32);
    let order = &order;
    simulate(&costs(), 4, |cpu| {
        // The later ones come earlier.
        spend(Spent::User, f64::from(10 - cpu));
        Simulated::before_lock(LOCK);
        Simulated::locked(LOCK);
        order.set(order.get() * 10 + cpu);
        spend(Spent::Allocator, 500.0);
        Simulated::before_unlock(LOCK);
    })
    .unwrap();
    assert_eq!(order.get(), 3210);
}

#[test]
fn a_cpu_runs_no_code_before_those_whose_clocks_are_lower() {
    let last = Cell::new(0.0);
    let last = &last;
    simulate(&costs(), 8, |cpu| {
        let mut now = 0.0;
        for step in 0..50 {
            let ns = f64::from((cpu * 31 + step * 17) % 23 + 1);
            spend(Spent::User, ns);
            Simulated::relax(0);
            now += ns + 100.0;
            assert!(now >= last.get(), "CPU {cpu} at {now} runs after {}", last.get());
            last.set(now);
        }
    })
    .unwrap();
}

#[test]
fn cpus_that_wait_for_each_other_are_reported() {
    assert_eq!(simulate(&costs(), 2, |_| block()).unwrap_err(), Deadlock(2));
    // The thread can simulate again.
    assert!(simulate(&costs(), 2, |_| hold(1.0)).is_ok());
}

#[test]
fn a_woken_cpu_goes_on_at_the_time_of_the_one_that_woke_it_and_was_idle() {
    let simulation = simulate(&costs(), 2, |cpu| {
        if cpu == 0 {
            block();
        } else {
            spend(Spent::User, 250.0);
            wake(0);
        }
    })
    .unwrap();
    assert!((simulation.times.idle * 1e9 - 250.0).abs() < 0.01);
    assert!((simulation.times.system()).abs() < 1e-15, "idle time is no system time");
}

#[test]
fn a_lock_within_a_device_is_no_lock_of_another() {
    let simulation = simulate(&costs(), 4, |cpu| hold_store(cpu / 3, Spent::Pages, 1000.0)).unwrap();
    let of = |name: &str| simulation.locks.iter().find(|lock| lock.name == name).unwrap();
    let (first, second) = (of("inside device 0"), of("inside device 1"));
    assert_eq!((first.acquired, first.waited), (3, 2));
    assert_eq!((second.acquired, second.waited), (1, 0));
    assert!((simulation.times.pages * 1e9 - 4000.0).abs() < 0.01);
}

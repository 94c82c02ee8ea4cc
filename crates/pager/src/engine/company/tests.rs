use super::*;
use crate::kernel::sys;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;

#[test]
fn who_ran_alone_since_the_last_look_has_no_company() {
    let mut company = Company::default();
    let mut look = |thread, others_ns, ms: u64| {
        company.look(thread, ms * 1_000_000, || Some(others_ns));
        company.is_absent(thread) && !company.is_absent(thread + 1)
    };
    assert!(!look(7, 500, 100), "nothing is known at the first look");
    assert!(!look(7, 500, 111), "too soon to tell");
    assert!(look(7, 500 + 1_999_999, 116));
    assert!(look(7, 900_000_000, 127), "what was found holds for a while");
    assert!(!look(7, 2_000_499 + 2_000_000, 132), "an eighth");
    assert!(look(7, 4_000_499, 148));
    assert!(!look(8, 4_000_499, 164), "another thread");
    assert!(!look(7, 4_000_499, 180));
    assert!(look(7, 100, 196), "a clock that goes back, since a thread has ended between two readings");
    assert!(!look(7, 100, 256), "long ago");
}

/// The clock of the process alone does not show the thread before a tick.
#[test]
fn who_runs_without_a_break_is_noticed_however_often_is_looked() {
    let (told, tells) = std::sync::mpsc::channel();
    let ends = std::sync::Arc::new(AtomicBool::new(false));
    let until = ends.clone();
    let busy = std::thread::spawn(move || {
        told.send(()).unwrap();
        while !until.load(Relaxed) {
            core::hint::spin_loop();
        }
    });
    tells.recv().unwrap();
    let (mut company, thread) = (Company::default(), sys::gettid());
    let began = sys::now_ns();
    let mut looks = 0;
    while sys::now_ns() - began < 150_000_000 {
        company.look(thread, sys::now_ns(), || others_cpu_ns(sys::getpid(), sys::thread_cpu_ns()));
        assert!(!company.is_absent(thread), "look {looks}");
        looks += 1;
        std::thread::sleep(Duration::from_micros(150));
    }
    ends.store(true, Relaxed);
    busy.join().unwrap();
}

#[test]
fn what_the_thread_named_has_run_for_is_left_out() {
    /// No process: the kernel's numbers end at 2^22.
    const NOBODY: u32 = 1 << 23;
    const RUNS_NS: u64 = 20_000_000;
    let (told, tells) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        while sys::thread_cpu_ns() < RUNS_NS {}
        told.send(sys::thread_cpu_ns()).unwrap();
    });
    let its_ns = tells.recv().unwrap();
    let with = others_cpu_ns(sys::getpid(), 0).unwrap();
    assert!(with >= RUNS_NS);
    let without = others_cpu_ns(sys::getpid(), its_ns).unwrap();
    assert!(others_cpu_ns(sys::getpid(), 0).unwrap() - without >= RUNS_NS);
    assert_eq!(others_cpu_ns(NOBODY, 0), None);
    other.join().unwrap();
}

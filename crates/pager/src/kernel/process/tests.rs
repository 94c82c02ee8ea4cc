use super::*;
use crate::kernel::thread::{self, Place, STACK_BYTES};
use core::sync::atomic::Ordering::{Acquire, Release};
use std::process::Command;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const LONG: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

#[test]
fn the_parent_is_opened_and_no_other_process() {
    let number = parent();
    assert_eq!(number, std::os::unix::process::parent_id());
    let parent = open_parent(number).unwrap();
    assert!(!has_ended(parent, AT_ONCE));
    sys::close_range(parent as u32, parent as u32);
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    assert_eq!(open_parent(other.id()), Err(Errno::SRCH), "it is a child");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(open_parent(0), Err(Errno::SRCH));
}

#[test]
fn a_process_is_killed_and_its_end_is_seen() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap().into_raw_fd();
    assert!(!has_ended(opened, AT_ONCE));
    kill(opened).unwrap();
    assert!(has_ended(opened, LONG));
    child.wait().unwrap();
    assert_eq!(kill(opened), Err(Errno::SRCH));
    sys::close_range(opened as u32, opened as u32);
}

/// What a process apart finds and does.
struct Seen {
    process: AtomicU32,
    parent: AtomicU32,
    session: AtomicU32,
    ends: AtomicU32,
}

unsafe extern "C" fn apart(argument: usize) -> ! {
    // SAFETY: the test keeps it until this process has ended.
    let seen = unsafe { &*(argument as *const Seen) };
    leave_session();
    // SAFETY: no arguments.
    let session = unsafe { sys::syscall(raw::__NR_getsid, [0; 6]) }.unwrap_or(0);
    seen.session.store(session as u32, Release);
    seen.parent.store(parent(), Release);
    seen.process.store(sys::getpid(), Release);
    while seen.ends.load(Acquire) == 0 {
        rustix::thread::sched_yield();
    }
    sys::exit_group(3)
}

/// It shares the memory, has another number and session, is no thread of this process, and is
/// waited for by whoever asks for it alone.
#[test]
fn a_process_apart_shares_the_memory_and_nothing_else() {
    let seen = Seen {
        process: AtomicU32::new(0),
        parent: AtomicU32::new(0),
        session: AtomicU32::new(0),
        ends: AtomicU32::new(0),
    };
    let mut stack = vec![0u8; STACK_BYTES + 16];
    let at = stack.as_mut_ptr();
    // SAFETY: the stack lives until the process has ended; its base is aligned to 16 bytes.
    let pid = unsafe {
        let base = at.add(at.align_offset(16));
        thread::spawn(base, apart, (&raw const seen) as usize, Place::Apart).unwrap()
    };
    while seen.process.load(Acquire) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(seen.process.load(Acquire), pid);
    assert_eq!(seen.parent.load(Acquire), sys::getpid());
    assert_eq!(seen.session.load(Acquire), pid);
    assert!(!std::path::Path::new(&format!("/proc/self/task/{pid}")).exists());
    assert!(cpu_ns(pid).unwrap() > 0);
    assert_eq!(wait_for(pid, NO_WAIT), Child::Runs);
    seen.ends.store(1, Release);
    assert_eq!(wait_for(pid, 0), Child::Ended);
    assert_eq!(wait_for(pid, NO_WAIT), Child::Ended, "there is none any more");
    assert_eq!(cpu_ns(pid), None);
}

#[test]
fn this_process_makes_its_children_beside_it() {
    assert!(has_children_beside_it());
}

#[test]
fn the_exit_word_is_that_which_was_set() {
    std::thread::spawn(|| {
        let before = exit_word().unwrap();
        let word = AtomicU32::new(7);
        // SAFETY: the word is put back before it goes.
        unsafe { watch_exit(&word) };
        assert_eq!(exit_word(), Some((&raw const word) as usize));
        // SAFETY: as it was.
        unsafe { watch_exit(before as *const AtomicU32) };
        assert_eq!(word.load(Acquire), 7);
    })
    .join()
    .unwrap();
}

#[test]
fn minor_faults_are_counted() {
    let before = own_minor_faults();
    let memory = vec![1u8; 8 << 20];
    assert!(std::hint::black_box(&memory)[4096] == 1);
    assert!(own_minor_faults() > before);
}

#[test]
fn the_time_of_one_thread_is_told_by_its_number() {
    let before = sys::thread_cpu_ns();
    let of_this = cpu_ns_of_thread(sys::gettid());
    assert!((before..=sys::thread_cpu_ns()).contains(&of_this), "{of_this} from {before}");
    for none in [0, u32::MAX, (1 << 22) + 1] {
        assert_eq!(cpu_ns_of_thread(none), 0, "{none}");
    }
}

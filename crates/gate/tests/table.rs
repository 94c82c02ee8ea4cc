//! The table beside the kernel: its numbers and names, and that it never says less than the kernel
//! touches. A buffer that ends where nothing is mapped must be long enough when it has the
//! table's size.
#![cfg(target_arch = "x86_64")]

use folioswap_gate::table::{Extent, Operand, Size, operands};
use std::arch::asm;

const PAGE: u64 = 4096;
const EFAULT: i64 = -14;

fn syscall(number: u64, [a, b, c, d, e, f]: [u64; 6]) -> i64 {
    let answer;
    // SAFETY: the arguments of the calls below lead into memory of the test's, or nowhere.
    unsafe {
        asm!("syscall", inlateout("rax") number as i64 => answer, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
    }
    answer
}

/// Pages that end where nothing is mapped; zeroes, and every string in them is terminated.
fn edge(bytes: u64) -> u64 {
    let length = bytes.div_ceil(PAGE) * PAGE + PAGE;
    let start = syscall(9, [0, length, 3, 0x22, u64::MAX, 0]) as u64;
    assert!(start as i64 > 0);
    let end = start + length - PAGE;
    assert_eq!(syscall(11, [end, PAGE, 0, 0, 0, 0]), 0);
    end - bytes
}

fn text(text: &str) -> u64 {
    let at = edge(text.len() as u64 + 1);
    // SAFETY: the memory was mapped for the text and its end.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), at as *mut u8, text.len()) };
    at
}

/// An argument of a call that is tried.
#[derive(Clone, Copy)]
enum A {
    /// This word.
    Is(u64),
    /// A buffer of the table's size.
    Buffer,
    /// A buffer of the table's size that begins with these bytes.
    Holds(&'static [u8]),
    /// This string.
    Text(&'static str),
}

use A::{Buffer, Holds, Is, Text};

fn number_of(name: &str) -> u64 {
    let line = include_str!("../syscalls.txt")
        .lines()
        .find(|line| line.split(' ').nth(1) == Some(name))
        .unwrap_or_else(|| panic!("{name} is in the table"));
    line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn try_call(name: &str, given: &[A]) -> i64 {
    let number = number_of(name);
    let mut arguments = [0u64; 6];
    for (argument, given) in arguments.iter_mut().zip(given) {
        *argument = match given {
            Is(word) => *word,
            Text(string) => text(string),
            // Not null, so that the extent is told.
            Buffer | Holds(_) => 1,
        };
    }
    let known = operands(number as u32).expect("known");
    let told = arguments;
    for (place, given) in given.iter().enumerate() {
        let content: &[u8] = match given {
            Buffer => &[],
            Holds(content) => content,
            _ => continue,
        };
        let operand: &Operand = known
            .iter()
            .find(|operand| operand.argument as usize == place && !matches!(operand.size, Size::Unknown))
            .unwrap_or_else(|| panic!("{name}: argument {place} is in the table"));
        let bytes = match operand.extent(&told) {
            Extent::Bytes(bytes) => bytes,
            Extent::InMemory => content.len() as u64,
            other => panic!("{name}: argument {place}: {other:?}"),
        };
        let at = edge(bytes);
        let held = content.len().min(bytes as usize);
        // SAFETY: the memory was mapped for `bytes` bytes.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), at as *mut u8, held) };
        arguments[place] = at;
    }
    let answer = syscall(number, arguments);
    assert_ne!(answer, EFAULT, "{name}: the kernel touches more than the table says");
    answer
}

#[test]
fn every_number_of_the_kernel_is_there_under_its_name() {
    let registry = std::path::Path::new(
        &std::env::var("CARGO_HOME")
            .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default())),
    )
    .join("registry/src");
    let general = std::fs::read_dir(registry)
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|index| std::fs::read_dir(index.path()).into_iter().flatten().flatten())
        .find(|entry| entry.file_name().to_string_lossy().starts_with("linux-raw-sys-0.12"))
        .map(|entry| entry.path().join("src/x86_64/general.rs"));
    let Some(text) = general.and_then(|path| std::fs::read_to_string(path).ok()) else {
        folioswap_test_support::skipping::note("the source of linux-raw-sys is not in cargo's registry");
        return;
    };
    let mut seen = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("pub const __NR_")) {
        let (name, rest) = line.split_once(": u32 = ").expect("a constant");
        assert_eq!(rest.trim_end_matches(';').parse(), Ok(number_of(name)), "{name}");
        seen += 1;
    }
    let lines = include_str!("../syscalls.txt").lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(seen, lines);
    assert!((0..512).filter(|number| operands(*number).is_some()).count() == lines);
}

/// A call by its name, and its arguments.
type Trial = (&'static str, &'static [A]);

const OPEN: &[Trial] = &[
    ("stat", &[Text("/"), Buffer]),
    ("lstat", &[Text("/"), Buffer]),
    ("fstat", &[Is(0), Buffer]),
    ("newfstatat", &[Is(-100i64 as u64), Text("/"), Buffer, Is(0)]),
    ("statx", &[Is(-100i64 as u64), Text("/"), Is(0), Is(0xfff), Buffer]),
    ("statfs", &[Text("/"), Buffer]),
    ("fstatfs", &[Is(0), Buffer]),
    ("access", &[Text("/none"), Is(0)]),
    ("faccessat", &[Is(-100i64 as u64), Text("/none"), Is(0)]),
    ("faccessat2", &[Is(-100i64 as u64), Text("/none"), Is(0), Is(0)]),
    ("open", &[Text("/none"), Is(0)]),
    ("openat", &[Is(-100i64 as u64), Text("/none"), Is(0)]),
    ("openat2", &[Is(-100i64 as u64), Text("/none"), Buffer, Is(24)]),
    ("readlink", &[Text("/proc/self/exe"), Buffer, Is(64)]),
    ("readlinkat", &[Is(-100i64 as u64), Text("/proc/self/exe"), Buffer, Is(100)]),
    ("getcwd", &[Buffer, Is(300)]),
    ("chdir", &[Text("/none")]),
    ("unlink", &[Text("/none")]),
    ("rmdir", &[Text("/none")]),
    ("rename", &[Text("/none"), Text("/none2")]),
    ("renameat2", &[Is(-100i64 as u64), Text("/none"), Is(-100i64 as u64), Text("/none2"), Is(0)]),
    ("link", &[Text("/none"), Text("/none2")]),
    ("chmod", &[Text("/none"), Is(0)]),
    ("truncate", &[Text("/none"), Is(0)]),
    ("utimensat", &[Is(-100i64 as u64), Text("/none"), Buffer, Is(0)]),
    ("utimes", &[Text("/none"), Buffer]),
    ("utime", &[Text("/none"), Buffer]),
    ("getxattr", &[Text("/"), Text("user.none"), Buffer, Is(100)]),
    ("listxattr", &[Text("/"), Buffer, Is(200)]),
    ("inotify_add_watch", &[Is(99), Text("/none"), Is(1)]),
    ("memfd_create", &[Text("a"), Is(1)]),
    ("mincore", &[Is(0x1000), Is(0x5000), Buffer]),
    ("name_to_handle_at", &[Is(-100i64 as u64), Text("/"), Holds(&[128, 0, 0, 0]), Buffer, Is(0)]),
    ("cachestat", &[Is(0), Buffer, Buffer, Is(0)]),
];

const TIMES: &[Trial] = &[
    ("nanosleep", &[Buffer, Buffer]),
    ("clock_nanosleep", &[Is(1), Is(0), Buffer, Buffer]),
    ("clock_gettime", &[Is(0), Buffer]),
    ("clock_getres", &[Is(0), Buffer]),
    ("gettimeofday", &[Buffer, Buffer]),
    ("time", &[Buffer]),
    ("times", &[Buffer]),
    ("getitimer", &[Is(0), Buffer]),
    ("setitimer", &[Is(2), Buffer, Buffer]),
    ("adjtimex", &[Buffer]),
    ("clock_adjtime", &[Is(0), Buffer]),
    ("timer_create", &[Is(1), Holds(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]), Buffer]),
    ("timer_settime", &[Is(0), Is(0), Buffer, Buffer]),
    ("timer_gettime", &[Is(0), Buffer]),
    ("poll", &[Buffer, Is(3), Is(0)]),
    ("ppoll", &[Buffer, Is(3), Buffer, Buffer, Is(8)]),
    ("select", &[Is(3), Buffer, Buffer, Buffer, Buffer]),
    ("pselect6", &[Is(65), Buffer, Buffer, Buffer, Buffer, Is(0)]),
    ("rt_sigtimedwait", &[Buffer, Buffer, Buffer, Is(8)]),
    ("sched_rr_get_interval", &[Is(0), Buffer]),
];

const PROCESS: &[Trial] = &[
    ("uname", &[Buffer]),
    ("sysinfo", &[Buffer]),
    ("getrusage", &[Is(0), Buffer]),
    ("getrlimit", &[Is(7), Buffer]),
    ("prlimit64", &[Is(0), Is(7), Is(0), Buffer]),
    ("getresuid", &[Buffer, Buffer, Buffer]),
    ("getresgid", &[Buffer, Buffer, Buffer]),
    ("getgroups", &[Is(64), Buffer]),
    ("capget", &[Holds(&[0x22, 5, 8, 0x20]), Buffer]),
    ("rt_sigprocmask", &[Is(0), Buffer, Buffer, Is(8)]),
    ("rt_sigpending", &[Buffer, Is(8)]),
    ("rt_sigaction", &[Is(12), Buffer, Buffer, Is(8)]),
    ("sigaltstack", &[Is(0), Buffer]),
    ("rt_sigqueueinfo", &[Is(0x3fff_ffff), Is(0), Buffer]),
    ("sched_getaffinity", &[Is(0), Is(128), Buffer]),
    ("sched_getparam", &[Is(0), Buffer]),
    ("sched_getattr", &[Is(0), Buffer, Is(56), Is(0)]),
    ("getcpu", &[Buffer, Buffer]),
    ("get_robust_list", &[Is(0), Buffer, Buffer]),
    ("wait4", &[Is(0x3fff_ffff), Buffer, Is(1), Buffer]),
    ("waitid", &[Is(0), Is(0), Buffer, Is(5), Buffer]),
    ("getrandom", &[Buffer, Is(77), Is(0)]),
    ("prctl", &[Is(16), Buffer]),
    ("prctl", &[Is(15), Holds(b"a name"), Is(0)]),
    ("prctl", &[Is(2), Buffer]),
    ("arch_prctl", &[Is(0x1003), Buffer]),
    ("futex", &[Buffer, Is(128), Is(1), Buffer, Is(0), Is(0)]),
    ("futex", &[Buffer, Is(128 | 3), Is(0), Is(0), Buffer, Is(0)]),
    ("get_mempolicy", &[Buffer, Buffer, Is(1025), Is(0), Is(0)]),
    ("semop", &[Is(0x3fff_ffff), Buffer, Is(2)]),
    ("landlock_create_ruleset", &[Buffer, Is(8), Is(0)]),
    ("sched_setaffinity", &[Is(0x3fff_ffff), Is(16), Buffer]),
];

const DESCRIPTORS: &[Trial] = &[
    ("pipe", &[Buffer]),
    ("pipe2", &[Buffer, Is(0)]),
    ("socketpair", &[Is(1), Is(1), Is(0), Buffer]),
    ("write", &[Is(4), Holds(b"x"), Is(1)]),
    ("sendfile", &[Is(-1i64 as u64), Is(-1i64 as u64), Buffer, Is(1)]),
    ("epoll_ctl", &[Is(99), Is(1), Is(0), Buffer]),
    ("epoll_wait", &[Is(99), Buffer, Is(4), Is(0)]),
    ("signalfd4", &[Is(-1i64 as u64), Buffer, Is(8), Is(0)]),
    ("timerfd_settime", &[Is(99), Is(0), Buffer, Buffer]),
    ("fcntl", &[Is(0), Is(5), Buffer]),
    ("fcntl", &[Is(0), Is(16), Buffer]),
    ("fcntl", &[Is(0), Is(1035), Buffer]),
    ("splice", &[Is(99), Buffer, Is(99), Buffer, Is(1), Is(0)]),
    ("copy_file_range", &[Is(99), Buffer, Is(99), Buffer, Is(1), Is(0)]),
    ("mq_open", &[Text("none"), Is(0), Is(0), Buffer]),
    ("connect", &[Is(99), Buffer, Is(16)]),
    ("setsockopt", &[Is(99), Is(1), Is(2), Buffer, Is(4)]),
    ("io_setup", &[Is(1), Buffer]),
    ("clone3", &[Holds(&[0xff, 0xff, 0xff, 0xff]), Is(88)]),
];

#[test]
fn the_kernel_touches_no_more_than_the_table_says() {
    let mut tried = 0;
    let mut done = 0;
    for (name, arguments) in OPEN.iter().chain(TIMES).chain(PROCESS).chain(DESCRIPTORS) {
        let answer = try_call(name, arguments);
        tried += 1;
        done += (answer >= 0) as u32;
    }
    println!("{tried} calls, of which {done} succeeded");
    assert!(done > 50, "{done} of {tried}");
}

#[test]
fn a_size_that_is_too_small_is_noticed() {
    let number = number_of("uname");
    assert_eq!(syscall(number, [edge(389), 0, 0, 0, 0, 0]), EFAULT);
    assert_eq!(syscall(number, [edge(390), 0, 0, 0, 0, 0]), 0);
}

//! Transfers between regions and descriptors: whoever may do what, the bytes are right, and an end,
//! a short read, an interruption and an error are told apart.

#[path = "common/again.rs"]
mod again;
#[path = "common/leaving.rs"]
mod leaving;

use again::{as_nobody, is_child};
use folioswap::{Device, Error, FaultMode, Gate, Region, Swap};
use leaving::leaves;
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Returns a byte that is different in most places.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(byte).collect()
}

/// Returns a file without a name, with these contents.
fn file_of(contents: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("folioswap-transfer-{}-{:p}", std::process::id(), contents));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(contents).unwrap();
    file.rewind().unwrap();
    file
}

/// Sends a region that is larger than the limit through a file, and back to other offsets.
fn there_and_back(swap: &Swap, mode: FaultMode) {
    let bytes = 24 * MIB + 12_345;
    let mut region = swap.region_with(bytes, mode).unwrap();
    region.as_mut_slice().iter_mut().enumerate().for_each(|(at, to)| *to = byte(at));
    assert!(leaves(&region, 0..MIB, 0) == 0, "the beginning is away");
    let file = file_of(&[]);
    assert_eq!(region.write_to(&file, 1..).unwrap(), bytes - 1);
    assert!(
        std::fs::read(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap()
            == pattern(bytes)[1..]
    );
    region.dont_need(..).unwrap();
    region.as_mut_slice()[..7].fill(9);
    region.page_out(..).unwrap();
    (&file).rewind().unwrap();
    assert_eq!(region.read_from(&file, 7..7 + 20 * MIB).unwrap(), 20 * MIB);
    assert_eq!(region.as_slice()[..7], [9; 7]);
    assert!((0..20 * MIB).all(|at| region.as_slice()[7 + at] == byte(at + 1)));
    assert!(region.as_slice()[7 + 20 * MIB..].iter().all(|&byte| byte == 0), "nothing behind the range");
    assert!(swap.statistics().counter("pswpin").is_some_and(|pages| pages > 0));
    assert_eq!(swap.statistics().times_exceeded(), 0);
}

fn swap_of_8_mib() -> Swap {
    let file = Device::file("/var/tmp").size("64M").priority(0);
    let builder = Swap::builder().limit("8M").device(Device::zram().priority(1)).device(file).sigbus();
    builder.gate(Gate::Never).build().unwrap()
}

#[test]
fn what_is_larger_than_the_limit_goes_to_a_file_and_comes_back() {
    for mode in [FaultMode::HandlerThreads, FaultMode::Sigbus] {
        there_and_back(&swap_of_8_mib(), mode);
    }
}

#[test]
fn an_ordinary_user_can_transfer_what_system_calls_alone_cannot() {
    if is_child("nobody") {
        let swap = swap_of_8_mib();
        assert!(!swap.serves_system_calls());
        let mut region = swap.region("4M").unwrap();
        region.as_mut_slice().fill(7);
        assert_eq!(leaves(&region, 0..4 * MIB, 0), 0);
        // SAFETY: within the region.
        let failed = unsafe { libc::write(1, region.base().as_ptr().cast(), 4096) };
        assert!(failed == -1, "the case is the one that is meant");
        drop(region);
        there_and_back(&swap, FaultMode::HandlerThreads);
        there_and_back(&swap, FaultMode::Sigbus);
    } else {
        as_nobody("nobody");
    }
}

#[test]
fn an_end_of_file_ends_the_transfer_without_an_error() {
    let swap = swap_of_8_mib();
    let mut region = swap.region(4 * MIB).unwrap();
    let file = file_of(&pattern(3 * MIB / 2));
    assert_eq!(region.read_from(&file, ..).unwrap(), 3 * MIB / 2);
    assert_eq!(region.read_from(&file, ..).unwrap(), 0, "at the end");
    assert_eq!(region.read_from(&file, 5..5).unwrap(), 0);
    assert_eq!(region.write_to(&file, 5..5).unwrap(), 0);
    assert!(region.as_slice()[..3 * MIB / 2] == pattern(3 * MIB / 2));
    assert!(region.as_slice()[3 * MIB / 2..].iter().all(|&byte| byte == 0));
}

#[test]
fn short_reads_and_writes_go_on() {
    let swap = swap_of_8_mib();
    let mut region = swap.region(10 * MIB).unwrap();
    let (mut from, mut to) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for piece in pattern(10 * MIB).chunks(12_347) {
                to.write_all(piece).unwrap();
            }
        });
        // A pipe has at most 64 KiB, so each read is short.
        assert_eq!(region.read_from(&from, ..).unwrap(), 10 * MIB);
        assert_eq!(region.read_from(&from, ..1).unwrap(), 0, "the writer has gone");
    });
    assert!(region.as_slice() == pattern(10 * MIB));
    let to;
    (from, to) = std::io::pipe().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).unwrap();
            all
        });
        assert_eq!(region.write_to(&to, MIB..).unwrap(), 9 * MIB);
        drop(to);
        assert!(reader.join().unwrap() == pattern(10 * MIB)[MIB..]);
    });
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Relaxed);
}

/// A thread is sent signals, without SA_RESTART, while it waits in read(2) and write(2).
#[test]
fn an_interruption_is_told_by_one_call_and_repeated_by_a_whole_transfer() {
    // SAFETY: the handler is async-signal-safe, and no other test uses the signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let swap = swap_of_8_mib();
    let mut region = swap.region(MIB).unwrap();
    let (from, mut to) = std::io::pipe().unwrap();
    // SAFETY: this thread, which outlives the other one.
    let reader = unsafe { libc::pthread_self() };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                // SAFETY: a thread that is alive.
                unsafe { libc::pthread_kill(reader, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // SAFETY: nobody has a slice of the region.
        let one = unsafe { region.read_some_from(&from, ..) };
        ended.store(true, Relaxed);
        assert!(matches!(one, Err(Error::Transfer { errno: Errno::INTR, done: 0, .. })), "{one:?}");
    });
    let (before, sent) = (SIGNALS.load(Relaxed), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Ten interruptions come before the first byte, and ten between the first and the rest.
            for part in pattern(MIB).chunks(MIB / 2) {
                for _ in 0..10 {
                    let seen = SIGNALS.load(Relaxed);
                    // SAFETY: a thread that is alive.
                    unsafe { libc::pthread_kill(reader, libc::SIGUSR1) };
                    while SIGNALS.load(Relaxed) == seen {
                        std::thread::yield_now();
                    }
                    sent.fetch_add(1, Relaxed);
                }
                to.write_all(part).unwrap();
            }
        });
        assert_eq!(region.read_from(&from, ..).unwrap(), MIB);
    });
    assert_eq!(SIGNALS.load(Relaxed) - before, sent.load(Relaxed));
    assert!(region.as_slice() == pattern(MIB));
}

#[test]
fn an_error_says_how_much_was_done_before_it() {
    let swap = swap_of_8_mib();
    let mut region = swap.region(4 * MIB).unwrap();
    region.as_mut_slice().fill(3);
    // A file for reading only, and one for writing only.
    let nothing = File::open("/dev/null").unwrap();
    let failed = region.write_to(&nothing, ..);
    assert!(matches!(failed, Err(Error::Transfer { errno: Errno::BADF, done: 0, .. })), "{failed:?}");
    let failed = region.read_from(File::create("/dev/null").unwrap(), ..);
    assert!(matches!(failed, Err(Error::Transfer { errno: Errno::BADF, done: 0, .. })), "{failed:?}");
    let failed = region.read_from(File::open("/").unwrap(), ..);
    assert!(matches!(failed, Err(Error::Transfer { errno: Errno::ISDIR, .. })), "{failed:?}");
    let failed = region.write_to(File::create("/dev/full").unwrap(), ..);
    assert!(matches!(failed, Err(Error::Transfer { errno: Errno::NOSPC, done: 0, .. })), "{failed:?}");
    assert!(failed.unwrap_err().to_string().contains("after 0 B"));
    // A pipe that does not wait takes 64 KiB, then no more.
    let (from, to) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&to, true).unwrap();
    let Err(Error::Transfer { errno: Errno::AGAIN, done, .. }) = region.write_to(&to, ..) else {
        panic!("it must be full")
    };
    assert!((1..4 * MIB).contains(&done));
    rustix::io::ioctl_fionbio(&from, true).unwrap();
    let Err(Error::Transfer { errno: Errno::AGAIN, done: read, .. }) = region.read_from(&from, ..) else {
        panic!("it must be empty")
    };
    assert_eq!(read, done);
    drop(from);
    let failed = region.write_to(&to, ..);
    assert!(matches!(failed, Err(Error::Transfer { errno: Errno::PIPE, .. })), "{failed:?}");
    assert!(region.as_slice().iter().all(|&byte| byte == 3));
}

#[test]
fn a_range_that_ends_behind_the_region_changes_nothing() {
    let swap = swap_of_8_mib();
    let mut region = swap.region(10_000).unwrap();
    let file = file_of(&pattern(20_000));
    #[allow(clippy::reversed_empty_ranges, reason = "a range that runs backwards is refused too")]
    for range in [0..10_001, 10_001..10_001, 10_000..usize::MAX, 6..5] {
        let refused = region.read_from(&file, range.clone());
        assert!(matches!(refused, Err(Error::OutOfRange { length: 10_000, .. })), "{refused:?}");
        let refused = region.write_to(&file, range);
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
    }
    assert!((&file).stream_position().unwrap() == 0 && region.as_slice().iter().all(|&byte| byte == 0));
    assert_eq!(region.read_from(&file, 10_000..).unwrap(), 0);
    assert_eq!(region.read_from(&file, ..).unwrap(), 10_000);
}

/// What others have pinned leaves less than a piece, then nothing.
#[test]
fn pins_of_others_make_the_pieces_smaller_or_are_an_error() {
    let swap = swap_of_8_mib();
    let mut region = swap.region_with(2 * MIB, FaultMode::Sigbus).unwrap();
    let others: Region = swap.region(4 * MIB).unwrap();
    let file = file_of(&pattern(2 * MIB));
    let pin = others.pin(..4 * MIB - 8192).unwrap();
    assert_eq!(region.read_from(&file, ..).unwrap(), 2 * MIB);
    assert!(region.as_slice() == pattern(2 * MIB));
    let rest = others.pin(4 * MIB - 8192..).unwrap();
    let refused = region.write_to(&file, ..);
    assert!(matches!(refused, Err(Error::PinTooLarge { .. })), "{refused:?}");
    drop((pin, rest));
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(region.write_to(&file, ..).unwrap(), 2 * MIB);
}

/// A piece that begins in the middle of a page touches one page more than it is long.
#[test]
fn two_threads_transfer_parts_of_one_region() {
    let swap = swap_of_8_mib();
    let region = swap.region(16 * MIB).unwrap();
    let middle = 8 * MIB + 1234;
    std::thread::scope(|scope| {
        for (start, end) in [(0, middle), (middle, 16 * MIB)] {
            let region = &region;
            scope.spawn(move || {
                let file = file_of(&pattern(16 * MIB)[start..end]);
                // SAFETY: nobody has a slice of the region.
                assert_eq!(unsafe { region.read_from_shared(&file, start..end) }.unwrap(), end - start);
            });
        }
    });
    assert!(region.as_slice() == pattern(16 * MIB));
}

#[test]
fn a_forked_child_is_refused() {
    let swap = swap_of_8_mib();
    let region = swap.region(MIB).unwrap();
    let file = file_of(&[1]);
    // SAFETY: the child takes no lock, and ends by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let refused = matches!(region.read_from_shared(&file, ..), Err(Error::Forked))
                && matches!(region.write_to(&file, ..), Err(Error::Forked));
            libc::_exit(i32::from(!refused));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}

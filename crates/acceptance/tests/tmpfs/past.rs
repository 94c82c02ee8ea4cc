//! Writes past the page cache beside mappings of the same pages.

use crate::{RANDOM_OPERATIONS, new_file};
use folioswap_acceptance::{mount, mount::Mount, skip};
use std::{
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    process::Command,
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// A shared mapping of the start of a file.
struct Mapped {
    start: *mut u8,
    length: usize,
}

impl Mapped {
    fn new(file: &File, length: usize) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert!(start != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapped { start: start.cast(), length }
    }

    /// The number at this offset, of which eight divides it.
    fn number(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length);
        // SAFETY: within the mapping, which lives as long as `self`, and aligned; others change it
        // as a number too.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }
    }
}

// SAFETY: the memory is used through atomics alone.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// Random operations in files of a few pages, where a write past the page cache meets the mappings
/// of the others in most of its steps.
#[test]
fn writes_past_the_page_cache_beside_mappings() {
    if let Some(reason) = mount::missing() {
        skip!("{reason}");
    }
    let mount = Mount::new("past", &["--memory", "32M", "--size", "64M", "--direct"]);
    let output = Command::new(RANDOM_OPERATIONS)
        .arg(mount.path())
        .args(["--seconds", "8", "--processes", "6", "--seed", "1", "--size", "36000"])
        .output()
        .expect("acc-tmpfs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let steps = String::from_utf8_lossy(&output.stdout);
    let done: u64 = steps.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()).sum();
    assert!(done > 6000, "{steps}");
}

/// One thread writes a number with write(2), the other waits for it in a mapping and stores the
/// next one, which the first then reads.
#[test]
fn a_store_after_a_write_was_seen_is_kept() {
    if let Some(reason) = mount::missing() {
        skip!("{reason}");
    }
    let mount = Mount::new("mailbox", &["--memory", "32M", "--size", "64M", "--direct"]);
    let file = new_file(&mount.path().join("mailbox"));
    file.write_all_at(&[0; 4096], 0).expect("a page");
    let mapped = Mapped::new(&file, 4096);
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for = |number: u64, look: &dyn Fn() -> u64| {
        while look() != number {
            assert!(Instant::now() < deadline, "{number} never came, but {}", look());
        }
    };
    let read = || {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0).expect("read");
        u64::from_ne_bytes(bytes)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000_u64 {
                wait_for(2 * round + 1, &|| mapped.number(0).load(SeqCst));
                mapped.number(0).store(2 * round + 2, SeqCst);
            }
        });
        for round in 0..2000_u64 {
            file.write_all_at(&(2 * round + 1).to_ne_bytes(), 0).expect("write");
            wait_for(2 * round + 2, &read);
        }
    });
}

/// A thread stores to every page of a mapping while another writes the whole file with `O_DIRECT`
/// at once, in far more requests than the kernel has under way in the background.
#[test]
fn large_writes_past_the_page_cache_end_beside_stores() {
    const LENGTH: usize = 64 << 20;
    if let Some(reason) = mount::missing() {
        skip!("{reason}");
    }
    let mount = Mount::new("large", &["--memory", "64M", "--size", "256M"]);
    let path = mount.path().join("large");
    let file = new_file(&path);
    file.set_len(LENGTH as u64).expect("ftruncate");
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).expect("O_DIRECT");
    let mapped = Mapped::new(&file, LENGTH);
    let memory = vec![7_u8; LENGTH + 4096];
    let from = memory.as_ptr().align_offset(4096);
    let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let storing = scope.spawn(|| {
            while !stop.load(SeqCst) {
                for at in (0..LENGTH).step_by(4096) {
                    mapped.number(at).store(9, SeqCst);
                }
                rounds.fetch_add(1, SeqCst);
            }
        });
        // Some of the writes begin before all pages are there, and some after.
        for _ in 0..8 {
            direct.write_all_at(&memory[from..from + LENGTH], 0).expect("write");
        }
        while rounds.load(SeqCst) == 0 {
            thread::yield_now();
        }
        stop.store(true, SeqCst);
        storing.join().expect("the stores");
        direct.write_all_at(&memory[from..from + LENGTH], 0).expect("write");
    });
    let wrong =
        (0..LENGTH).step_by(8).find(|&at| mapped.number(at).load(SeqCst) != u64::from_ne_bytes([7; 8]));
    assert_eq!(wrong, None, "the last write is what is there");
}

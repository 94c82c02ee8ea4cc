//! The descriptors 0, 1 and 2 and the inherited ones: CMD gets them unchanged, and our processes
//! keep none for whose end a pipeline waits.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};

/// The end of the numbers of [`at_random_number`]. The kernel's table has 8 bytes for each number
/// up to the highest open one.
const NUMBERS_END: u64 = 1 << 15;

/// Opens `/dev/null` in place of each closed descriptor of 0, 1 and 2, so that no file of ours ever
/// gets these numbers. They are close-on-exec: a program that we start finds them closed, as we
/// did.
pub fn fill_standard() {
    for number in 0..3 {
        // SAFETY: fcntl(F_GETFD) on any number reads a flag or fails with EBADF.
        let open_already = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        if !open_already {
            // open(2) gives the lowest free number, which is `number`, since those below are open.
            if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                std::mem::forget(null);
            }
        }
    }
}

/// Makes the descriptors 0, 1 and 2 `/dev/null`. The front and the supervisor do so once CMD has
/// its own copies.
pub fn leave_standard() {
    if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        for number in 0..3 {
            // SAFETY: replaces a standard descriptor; the handles of std for these cache nothing
            // about the file.
            unsafe { libc::dup3(null.as_raw_fd(), number, libc::O_CLOEXEC) };
        }
    }
}

/// Closes every descriptor from 3 up that is not in `kept`.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).filter(|&number| number > 2).collect();
    kept.sort_unstable();
    let mut first: u32 = 3;
    for number in kept {
        let number = number as u32;
        if number > first {
            close_range(first, number - 1);
        }
        first = first.max(number + 1);
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: closes descriptors that no value of this process owns. They were inherited, or their
    // owners were given up with `std::mem::forget` before; the callers pass every descriptor that
    // is still owned as kept.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Moves a descriptor to a random number in the upper half of those that this process may have, up
/// to 32768, close-on-exec. A process that does not mean to has no such number. The descriptor
/// keeps its number when none of them is free.
///
/// # Errors
/// Of getrandom(2).
pub fn at_random_number(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    let mut random = [0_u8; 8];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let end = getrlimit(Resource::Nofile).current.map_or(NUMBERS_END, |most| most.min(NUMBERS_END));
    let (first, numbers) = (end / 2, (end - end / 2).max(1));
    let number = first + u64::from_ne_bytes(random) % numbers;
    Ok(fcntl_dupfd_cloexec(&fd, number as RawFd).unwrap_or(fd))
}

/// A duplicate of standard error that survives whatever is done to descriptor 2.
pub fn saved_stderr() -> Option<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC on descriptor 2 gives a new descriptor or fails.
    let number = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: the descriptor is new and has no other owner.
    (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// The path by which other processes open what a descriptor of this process leads to, as long as it
/// lives: the file, or that of this name where the descriptor is a directory.
pub fn path_for_others(descriptor: impl AsFd, name: Option<&str>) -> String {
    let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_fd().as_raw_fd());
    name.map_or(path.clone(), |name| format!("{path}/{name}"))
}

#[cfg(test)]
mod tests;

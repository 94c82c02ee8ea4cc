//! userfaultfd, as far as a supervisor needs it: whether the memory behind a descriptor still
//! exists, the events of a descriptor whose pager is gone, and the userfaultfd that the host offers
//! ([`Probe`]).

mod probe;

pub use probe::{FEATURES, Probe, REQUIRED, Route};

use folioswap_devices::PAGE_SIZE;
use rustix::{
    fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    fs::OFlags,
    io::Errno,
};

const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xC018_AA06;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_AA02;
/// The last page of user addresses, for probes: the kernel refuses to write-protect memory that is
/// not registered.
const PROBE_ADDRESS: u64 = 0x7fff_ffff_e000;

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Whether the address space of this userfaultfd has ended. It ends when its process ends or
/// executes another image.
pub fn is_orphaned(fd: impl AsFd) -> bool {
    let mut request = [PROBE_ADDRESS, PAGE_SIZE as u64, 0];
    // SAFETY: uffdio_writeprotect is three 64-bit words (start, length, mode); mode 0 removes a
    // protection, which is refused with ENOENT on memory that is not registered: nothing changes
    // whatever is mapped there.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), UFFDIO_WRITEPROTECT, request.as_mut_ptr()) };
    result < 0 && last_error() == Errno::SRCH
}

/// Wakes every thread that waits for a fault on this memory, so that it faults again. A fault that
/// a pager had read but not served when it ended would be lost otherwise.
pub fn wake_all(fd: impl AsFd) {
    let mut range = [0x1000_u64, (1 << 47) - 0x2000];
    // SAFETY: uffdio_range is two 64-bit words (start, length); a wake-up changes no memory.
    unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), UFFDIO_WAKE, range.as_mut_ptr()) };
}

/// Allows writes to the page at `address`, and wakes the threads that wait for that.
pub fn unprotect(fd: impl AsFd, address: u64) {
    let mut request = [address & !(PAGE_SIZE as u64 - 1), PAGE_SIZE as u64, 0];
    // SAFETY: uffdio_writeprotect is three 64-bit words (start, length, mode); contents do not
    // change.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), UFFDIO_WRITEPROTECT, request.as_mut_ptr()) };
    if result < 0 {
        wake_all(fd);
    }
}

/// An event that was read from a userfaultfd.
#[derive(Debug)]
pub enum Event {
    /// A thread waits for a page: its id, or 0 when the feature is off.
    Fault(u32),
    /// A thread waits to write to a protected page: the address.
    Protected(u64),
    /// A process of this memory forked: the userfaultfd of the child.
    Fork(OwnedFd),
    /// A mapping changed.
    Mapping,
}

/// Reads one event without waiting. The descriptor becomes non-blocking; the only pager that could
/// mind is gone.
pub fn read_event(fd: &OwnedFd) -> Option<Event> {
    if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
        rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).ok()?;
    }
    let mut message = [0_u8; 32];
    let length = rustix::io::read(fd, &mut message).ok()?;
    if length != message.len() {
        return None;
    }
    let word = |offset: usize| u32::from_ne_bytes(message[offset..offset + 4].try_into().expect("4 bytes"));
    const WRITE_PROTECTED: u32 = 1 << 1;
    let address = u64::from_ne_bytes(message[16..24].try_into().expect("8 bytes"));
    Some(match message[0] {
        0x12 if word(8) & WRITE_PROTECTED != 0 => Event::Protected(address),
        0x12 => Event::Fault(word(24)),
        // SAFETY: reading a fork event installs this descriptor in our table, for us to own.
        0x13 => Event::Fork(unsafe { OwnedFd::from_raw_fd(word(8) as i32) }),
        _ => Event::Mapping,
    })
}

#[cfg(test)]
mod tests;

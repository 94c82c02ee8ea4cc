//! userfaultfd, as far as a supervisor needs it: the proof that a descriptor is one, whether the
//! memory behind it still exists, the events of one whose pager is gone ([`Userfault`]), and the
//! userfaultfd that the host offers ([`Probe`]).

mod probe;

pub use probe::{FEATURES, Probe, REQUIRED, Route, open_device};

use super::last_error;
use folioswap_devices::PAGE_SIZE;
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, ReadWriteFlags, preadv2},
};
use std::io::IoSliceMut;

const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xC018_AA06;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_AA02;
/// The address behind the last one of a program.
const ADDRESS_END: u64 = 1 << if cfg!(target_arch = "aarch64") { 48 } else { 47 };
/// The last page of user addresses, for probes: the kernel refuses to write-protect memory that is
/// not registered.
const PROBE_ADDRESS: u64 = ADDRESS_END - 0x2000;

/// The name that the kernel gives to every userfaultfd and to nothing else: the names of anonymous
/// inodes are fixed in the kernel, and the path of a file begins with a slash.
const NAME: &str = "anon_inode:[userfaultfd]";

/// A descriptor that is proven to be a userfaultfd. A value comes from [`Userfault::prove`], or
/// from a fork event that was read off such a descriptor, and from nowhere else.
#[derive(Debug)]
pub struct Userfault(OwnedFd);

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Userfault {
    /// Proves a descriptor that another process sent; `None` closes it.
    ///
    /// A userfaultfd whose handshake (`UFFDIO_API`) was never made is not taken, because it never
    /// tells that its memory is gone and would be held for ever.
    pub fn prove(descriptor: OwnedFd) -> Option<Self> {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        if std::fs::read_link(link).ok()?.as_os_str() != NAME {
            return None;
        }
        let userfault = Userfault(descriptor);
        (userfault.probe() != Err(Errno::INVAL)).then_some(userfault)
    }

    /// Proves the first descriptor of a message; the others are closed. `None` if there is none.
    pub fn only_of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        Self::prove(descriptors.into_iter().next()?)
    }

    /// Asks for a change of memory that is not registered, which changes nothing.
    fn probe(&self) -> Result<(), Errno> {
        let mut request = [PROBE_ADDRESS, PAGE_SIZE as u64, 0];
        // SAFETY: uffdio_writeprotect is three 64-bit words (start, length, mode); mode 0 removes a
        // protection, which is refused with ENOENT on memory that is not registered: nothing
        // changes whatever is mapped there.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), UFFDIO_WRITEPROTECT, request.as_mut_ptr()) };
        if result < 0 { Err(last_error()) } else { Ok(()) }
    }

    /// Whether the address space of this userfaultfd has ended. It ends when its process ends or
    /// executes another image.
    pub fn is_orphaned(&self) -> bool {
        self.probe() == Err(Errno::SRCH)
    }

    /// Wakes every thread that waits for a fault on this memory, so that it faults again. A fault
    /// that a pager had read but not served when it ended would be lost otherwise.
    pub fn wake_all(&self) {
        let mut range = [0x1000_u64, ADDRESS_END - 0x2000];
        // SAFETY: uffdio_range is two 64-bit words (start, length); a wake-up changes no memory.
        unsafe { libc::ioctl(self.0.as_raw_fd(), UFFDIO_WAKE, range.as_mut_ptr()) };
    }

    /// Allows writes to the page at `address`, and wakes the threads that wait for that.
    pub fn unprotect(&self, address: u64) {
        let mut request = [address & !(PAGE_SIZE as u64 - 1), PAGE_SIZE as u64, 0];
        // SAFETY: uffdio_writeprotect is three 64-bit words (start, length, mode); contents do not
        // change.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), UFFDIO_WRITEPROTECT, request.as_mut_ptr()) };
        if result < 0 {
            self.wake_all();
        }
    }

    /// Makes the descriptor non-blocking, without which poll(2) reports an error at once. The only
    /// pager that could mind is gone.
    pub fn make_non_blocking(&self) -> Result<(), Errno> {
        let flags = fcntl_getfl(&self.0)?;
        fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)
    }

    /// Reads one event without waiting; the descriptor becomes non-blocking.
    pub fn read_event(&self) -> Option<Event> {
        self.make_non_blocking().ok()?;
        let mut message = [0_u8; 32];
        // The flag O_NONBLOCK belongs to every process that has the descriptor, and one of them may
        // take it away again: the read itself must not wait either.
        let length =
            match preadv2(&self.0, &mut [IoSliceMut::new(&mut message)], u64::MAX, ReadWriteFlags::NOWAIT) {
                // Linux before 6.10 cannot read a userfaultfd so.
                Err(Errno::OPNOTSUPP) => rustix::io::read(&self.0, &mut message).ok()?,
                read => read.ok()?,
            };
        if length != message.len() {
            return None;
        }
        let word =
            |offset: usize| u32::from_ne_bytes(message[offset..offset + 4].try_into().expect("4 bytes"));
        const WRITE_PROTECTED: u32 = 1 << 1;
        let address = u64::from_ne_bytes(message[16..24].try_into().expect("8 bytes"));
        Some(match message[0] {
            0x12 if word(8) & WRITE_PROTECTED != 0 => Event::Protected(address),
            0x12 => Event::Fault(word(24)),
            // SAFETY: the message comes from the kernel, since this is a userfaultfd for certain.
            // The read that gave a fork event installed this descriptor, a userfaultfd too, in our
            // table, for us to own; no other read gives the same event.
            0x13 => Event::Fork(Userfault(unsafe { OwnedFd::from_raw_fd(word(8) as i32) })),
            _ => Event::Mapping,
        })
    }
}

/// An event that was read from a userfaultfd.
#[derive(Debug)]
pub enum Event {
    /// A thread waits for a page: its id in its own process-id namespace, or 0 when the feature is
    /// off.
    Fault(u32),
    /// A thread waits to write to a protected page: the address.
    Protected(u64),
    /// A process of this memory forked: the userfaultfd of the child.
    Fork(Userfault),
    /// A mapping changed.
    Mapping,
}

#[cfg(test)]
mod tests;

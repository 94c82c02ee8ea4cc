//! Opening a userfaultfd, by the way and with the features that are allowed.

use super::{API, Userfault};
use crate::kernel::sys;
use folioswap_group::decisions::{CallFaults, Forks};
use linux_raw_sys::general as raw;
use rustix::io::Errno;

const NEW: u32 = raw::UFFDIO << 8;

/// The features that the pager uses. EVENT_FORK, which takes a permission of its own, it can do
/// without where forks are made by the gate.
pub const FEATURES: u64 = (raw::UFFD_FEATURE_EVENT_FORK
    | raw::UFFD_FEATURE_EVENT_REMAP
    | raw::UFFD_FEATURE_EVENT_REMOVE
    | raw::UFFD_FEATURE_EVENT_UNMAP
    | raw::UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | raw::UFFD_FEATURE_THREAD_ID
    | raw::UFFD_FEATURE_POISON
    | raw::UFFD_FEATURE_MOVE) as u64;

/// The same without a report of forks.
const UNREPORTED: u64 = FEATURES & !(raw::UFFD_FEATURE_EVENT_FORK as u64);

/// The origins of the faults that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Faults of the program, and those of system calls on its behalf.
    All,
    /// Faults of the program alone (UFFD_USER_MODE_ONLY): a system call on memory that is away
    /// fails with EFAULT.
    UserOnly,
}

/// The way in which a fault is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// By a message, to the thread that reads the descriptor.
    Messages,
    /// By SIGBUS, to the thread that faults (UFFD_FEATURE_SIGBUS); a system call on memory that is
    /// away fails with EFAULT. Events come as messages.
    Signals,
}

/// Asks an open `/dev/userfaultfd` for a userfaultfd of the calling process.
fn new_of(device: i32, flags: usize) -> Result<usize, Errno> {
    // SAFETY: the request takes flags by value and makes a descriptor.
    unsafe { sys::syscall(raw::__NR_ioctl, [device as usize, NEW as usize, flags, 0, 0, 0]) }
}

impl Userfault {
    /// Opens a userfaultfd for the calling process, by the system call or by `/dev/userfaultfd`
    /// (`device`: a descriptor of it, where the process may not open it itself), with
    /// [`FEATURES`]; without a report of forks where they are made by the gate. Where calls hold
    /// what they use it serves faults of the program alone.
    ///
    /// # Errors
    /// EPERM: no permission by either way; EINVAL: a feature is missing (Linux before 6.8).
    pub fn open(forks: Forks, calls: CallFaults, device: Option<i32>) -> Result<Self, Errno> {
        let features = match forks {
            Forks::Reported => FEATURES,
            Forks::Gated => UNREPORTED,
        };
        let origins = match calls {
            CallFaults::Served => Origins::All,
            CallFaults::Held => Origins::UserOnly,
        };
        Self::open_with(origins, features, device)
    }

    /// Opens a userfaultfd for an embedder: faults are reported as `faults` says, and a fork is not
    /// reported, since no child has the managed memory. Where faults of system calls may not be
    /// served, those of the program are, without a permission.
    ///
    /// # Errors
    /// As [`Userfault::open`]; EPERM where a container forbids the system call too.
    pub fn open_embedded(faults: Faults) -> Result<(Self, Origins), Errno> {
        let sigbus = match faults {
            Faults::Messages => 0,
            Faults::Signals => raw::UFFD_FEATURE_SIGBUS as u64,
        };
        let features = UNREPORTED | sigbus;
        match Self::open_with(Origins::All, features, None) {
            Err(Errno::PERM) => Self::open_with(Origins::UserOnly, features, None)
                .map(|userfault| (userfault, Origins::UserOnly)),
            result => result.map(|userfault| (userfault, Origins::All)),
        }
    }

    fn open_with(origins: Origins, features: u64, device: Option<i32>) -> Result<Self, Errno> {
        let user_only = if origins == Origins::UserOnly { raw::UFFD_USER_MODE_ONLY } else { 0 };
        let flags = (raw::O_CLOEXEC | raw::O_NONBLOCK | user_only) as usize;
        // SAFETY: makes a descriptor.
        let fd = unsafe { sys::syscall(raw::__NR_userfaultfd, [flags, 0, 0, 0, 0, 0]) }.or_else(|errno| {
            if let Some(device) = device {
                return new_of(device, flags);
            }
            const HERE: usize = raw::AT_FDCWD as usize;
            let path = c"/dev/userfaultfd";
            let how = (raw::O_RDWR | raw::O_CLOEXEC) as usize;
            // SAFETY: opens a device.
            let device =
                unsafe { sys::syscall(raw::__NR_openat, [HERE, path.as_ptr() as usize, how, 0, 0, 0]) }
                    .map_err(|_| errno)?;
            let made = new_of(device as i32, flags);
            sys::close_range(device as u32, device as u32);
            made
        })? as i32;
        let mut api = raw::uffdio_api { api: 0xAA, features, ioctls: 0 };
        // SAFETY: the argument is the one that UFFDIO_API demands.
        match unsafe { sys::ioctl(fd, API, &raw mut api) } {
            Ok(_) => Ok(Userfault(fd)),
            Err(errno) => {
                sys::close_range(fd as u32, fd as u32);
                Err(errno)
            }
        }
    }
}

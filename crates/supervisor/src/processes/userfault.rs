//! userfaultfd, as far as a supervisor needs it: what the host gives, whether the memory behind a descriptor still
//! exists, and reading the events of one whose pager is gone.

use rustix::{
    fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// The features by their bits in `UFFDIO_API`.
pub const FEATURES: &[(&str, u32)] = &[
    ("PAGEFAULT_FLAG_WP", 0),
    ("EVENT_FORK", 1),
    ("EVENT_REMAP", 2),
    ("EVENT_REMOVE", 3),
    ("MISSING_HUGETLBFS", 4),
    ("MISSING_SHMEM", 5),
    ("EVENT_UNMAP", 6),
    ("SIGBUS", 7),
    ("THREAD_ID", 8),
    ("MINOR_HUGETLBFS", 9),
    ("MINOR_SHMEM", 10),
    ("EXACT_ADDRESS", 11),
    ("WP_HUGETLBFS_SHMEM", 12),
    ("WP_UNPOPULATED", 13),
    ("POISON", 14),
    ("WP_ASYNC", 15),
    ("MOVE", 16),
];
/// Bits without which `run` cannot work: write protection, all events, thread ids, POISON and MOVE.
pub const REQUIRED: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8 | 1 << 14 | 1 << 16;

const API: u64 = 0xAA;
const USER_MODE_ONLY: i32 = 1;
const EVENT_FORK: u64 = 1 << 1;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xC018_AA06;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_AA02;
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xAA00;
/// The last page of user addresses. Write-protecting memory that is not registered is refused, so probing it is harmless.
const PROBE_ADDRESS: u64 = 0x7fff_ffff_e000;

/// How a userfaultfd that also serves faults inside the kernel can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// By the system call.
    Syscall,
    /// Through `/dev/userfaultfd`.
    Device,
    /// Only one that does not serve faults taken inside system calls.
    UserModeOnly,
    /// Not at all.
    None,
}

/// What the host gives.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The best route.
    pub route: Route,
    /// Outcome of the system call.
    pub syscall: Result<(), Errno>,
    /// Outcome of opening the device.
    pub device: Result<(), Errno>,
    /// Outcome of asking for user-mode faults only.
    pub user_mode: Result<(), Errno>,
    /// Bits of `UFFDIO_API`.
    pub features: u64,
    /// Whether fork events may be asked for.
    pub fork_event: Result<(), Errno>,
}

impl Probe {
    /// Asks the kernel.
    pub fn new() -> Self {
        let syscall = by_syscall(0);
        let device = by_device();
        let user_mode = by_syscall(USER_MODE_ONLY);
        let route = match (&syscall, &device, &user_mode) {
            (Ok(_), _, _) => Route::Syscall,
            (_, Ok(_), _) => Route::Device,
            (_, _, Ok(_)) => Route::UserModeOnly,
            _ => Route::None,
        };
        let again = || if route == Route::Device { by_device() } else { by_syscall(USER_MODE_ONLY) };
        let outcome = |result: &Result<OwnedFd, Errno>| result.as_ref().map(|_| ()).map_err(|error| *error);
        Probe {
            route,
            syscall: outcome(&syscall),
            device: outcome(&device),
            user_mode: outcome(&user_mode),
            features: again().and_then(|fd| handshake(&fd, 0)).unwrap_or(0),
            fork_event: again().and_then(|fd| handshake(&fd, EVENT_FORK)).map(|_| ()),
        }
    }

    /// Names of the required features that the kernel does not have.
    pub fn missing(&self) -> Vec<&'static str> {
        let absent = REQUIRED & !self.features;
        FEATURES.iter().filter(|(_, bit)| absent >> bit & 1 == 1).map(|(name, _)| *name).collect()
    }

    /// True when `run` works.
    pub fn works(&self) -> bool {
        matches!(self.route, Route::Syscall | Route::Device)
            && self.missing().is_empty()
            && self.fork_event.is_ok()
    }
}

fn by_syscall(flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: userfaultfd(2) takes flags and gives a descriptor or an error.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC | libc::O_NONBLOCK) };
    own(number as i32)
}

fn by_device() -> Result<OwnedFd, Errno> {
    let device = open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: this request takes flags by value and gives a descriptor or an error.
    let number = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            USERFAULTFD_IOC_NEW,
            libc::c_ulong::from((libc::O_CLOEXEC | libc::O_NONBLOCK) as u32),
        )
    };
    own(number)
}

fn own(number: i32) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Runs `UFFDIO_API`; the features of the kernel.
fn handshake(fd: &OwnedFd, features: u64) -> Result<u64, Errno> {
    let mut api = [API, features, 0_u64];
    // SAFETY: uffdio_api is three 64-bit words, read and written by the kernel.
    if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } < 0 {
        Err(last_error())
    } else {
        Ok(api[1])
    }
}

/// True when the address space that this userfaultfd belongs to has ended (its process ended or executed another image).
pub fn is_orphaned(fd: impl AsFd) -> bool {
    let mut request = [PROBE_ADDRESS, 4096, 0_u64];
    // SAFETY: uffdio_writeprotect is three 64-bit words (start, length, mode); mode 0 removes a protection, which is refused
    // with ENOENT on memory that is not registered: nothing changes whatever is mapped there.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), UFFDIO_WRITEPROTECT, request.as_mut_ptr()) };
    result < 0 && last_error() == Errno::SRCH
}

/// Whoever waits for a fault on this memory looks again: also those whose fault was read by a pager that ended before it served
/// it, which nobody would hear of again.
pub fn wake_all(fd: impl AsFd) {
    let mut range = [0x1000_u64, (1 << 47) - 0x2000];
    // SAFETY: uffdio_range is two 64-bit words (start, length); a wake-up changes no memory.
    unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), UFFDIO_WAKE, range.as_mut_ptr()) };
}

/// Lets the page at `address` be written, and wakes who waits for that.
pub fn unprotect(fd: impl AsFd, address: u64) {
    let mut request = [address & !0xfff, 4096, 0_u64];
    // SAFETY: uffdio_writeprotect is three 64-bit words (start, length, mode); contents do not change.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), UFFDIO_WRITEPROTECT, request.as_mut_ptr()) };
    if result < 0 {
        wake_all(fd);
    }
}

/// Something read from a userfaultfd.
#[derive(Debug)]
pub enum Event {
    /// A thread waits for a page; its id, 0 when the feature is off.
    Fault(u32),
    /// A thread waits to write to a protected page; the address.
    Protected(u64),
    /// A process of this memory forked; the child's userfaultfd.
    Fork(OwnedFd),
    /// Mappings changed.
    Mapping,
}

/// Reads one event, without waiting (the descriptor is made non-blocking: the pager that might mind is gone).
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
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_not_gone() {
        let Ok(fd) = by_syscall(USER_MODE_ONLY) else { return };
        handshake(&fd, 0).expect("API");
        assert!(!is_orphaned(&fd));
        assert!(read_event(&fd).is_none());
    }
}

//! The userfaultfd that the host offers: by which way, and with which features.

use super::last_error;
use folioswap_group::decisions::{Forks, Way};
use rustix::{
    fd::{AsRawFd, FromRawFd, OwnedFd},
    fs::{Mode, OFlags, open},
    io::Errno,
};

/// The features of userfaultfd and their bit numbers in `UFFDIO_API`.
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
/// The bits without which `run` cannot work: write protection, all events, thread ids, POISON and
/// MOVE.
pub const REQUIRED: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8 | 1 << 14 | 1 << 16;

const API: u64 = 0xAA;
pub(super) const USER_MODE_ONLY: i32 = 1;
const EVENT_FORK: u64 = 1 << 1;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xAA00;

/// The way to a userfaultfd that also serves faults taken inside system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The system call.
    Syscall,
    /// The device `/dev/userfaultfd`.
    Device,
    /// No way: only a userfaultfd that serves faults in user mode can be had.
    UserModeOnly,
    /// No way: no userfaultfd can be had.
    None,
}

impl Route {
    /// Whether faults that system calls take are served on it.
    pub const fn serves_calls(self) -> bool {
        matches!(self, Route::Syscall | Route::Device)
    }
}

/// The userfaultfd that the host offers.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The best route.
    pub route: Route,
    /// The outcome of the system call.
    pub syscall: Result<(), Errno>,
    /// The outcome of opening the device.
    pub device: Result<(), Errno>,
    /// The outcome of asking for user-mode faults only.
    pub user_mode: Result<(), Errno>,
    /// The feature bits that `UFFDIO_API` reports; 0 when no userfaultfd can be had.
    pub features: u64,
    /// The outcome of asking for fork events.
    pub fork_event: Result<(), Errno>,
    /// Whether the kernel has Syscall User Dispatch, by which the gate sees calls.
    pub dispatch: Result<(), Errno>,
}

impl Probe {
    /// Asks the kernel. Every descriptor that this opens is closed again.
    pub fn of_kernel() -> Self {
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
            dispatch: dispatch(),
        }
    }

    /// The names of the required features that the kernel lacks.
    pub fn missing(&self) -> Vec<&'static str> {
        let absent = REQUIRED & !self.features;
        FEATURES.iter().filter(|(_, bit)| absent >> bit & 1 == 1).map(|(name, _)| *name).collect()
    }

    /// Whether `run` works here in this way.
    pub fn works_with(&self, way: Way) -> bool {
        let has_userfault = match way {
            Way::Kernel | Way::GatedForks => self.route.serves_calls(),
            Way::GatedCalls => self.user_mode.is_ok(),
        };
        let is_followed = match way.forks() {
            Forks::Reported => self.fork_event.is_ok(),
            Forks::Gated => self.dispatch.is_ok(),
        };
        has_userfault && is_followed && self.missing().is_empty()
    }
}

/// Asks for the state in which this thread is anyway: no dispatch.
fn dispatch() -> Result<(), Errno> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Errno::NOSYS);
    }
    // PR_SET_SYSCALL_USER_DISPATCH and PR_SYS_DISPATCH_OFF.
    // SAFETY: turns off what is off.
    let result = unsafe { libc::prctl(59, 0, 0, 0, 0) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// Opens the device by which a process gets a userfaultfd of its own.
///
/// # Errors
/// open(2)'s.
pub fn open_device() -> Result<OwnedFd, Errno> {
    open("/dev/userfaultfd", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn by_syscall(flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: userfaultfd(2) takes flags and gives a descriptor or an error.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC | libc::O_NONBLOCK) };
    own(number as i32)
}

fn by_device() -> Result<OwnedFd, Errno> {
    let device = open_device()?;
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

/// Runs `UFFDIO_API` with these features; returns the features of the kernel.
pub(super) fn handshake(fd: &OwnedFd, features: u64) -> Result<u64, Errno> {
    let mut api = [API, features, 0_u64];
    // SAFETY: uffdio_api is three 64-bit words, read and written by the kernel.
    if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()) } < 0 {
        Err(last_error())
    } else {
        Ok(api[1])
    }
}

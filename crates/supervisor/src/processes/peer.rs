//! The process at the other end of a connection.

use super::last_error;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    io::Errno,
    process::Uid,
};
use std::mem::MaybeUninit;

/// The process that connected, as it was at that time.
pub struct Peer {
    /// The process id in our namespace. The number means this process as long as it [`exists`].
    pub pid: u32,
    /// The effective user.
    pub user: Uid,
    /// A pidfd of the process.
    pub process: OwnedFd,
}

impl Peer {
    /// The process at the other end of a Unix socket.
    ///
    /// # Errors
    /// `SRCH`, or `INVAL` from older kernels, for a process that has ended and was waited for, or
    /// that has no number in our namespace; `NOPROTOOPT` before Linux 6.5.
    pub fn of(socket: impl AsFd) -> Result<Self, Errno> {
        let socket = socket.as_fd();
        // SAFETY: the kernel writes a `ucred`.
        let credentials: libc::ucred = unsafe { option(socket, libc::SO_PEERCRED) }?;
        // SAFETY: the kernel writes the number of a new descriptor.
        let number: i32 = unsafe { option(socket, libc::SO_PEERPIDFD) }?;
        // SAFETY: the kernel has just made this descriptor for us.
        let process = unsafe { OwnedFd::from_raw_fd(number) };
        match u32::try_from(credentials.pid) {
            Ok(pid) if pid > 0 => Ok(Peer { pid, user: Uid::from_raw(credentials.uid), process }),
            _ => Err(Errno::SRCH),
        }
    }
}

/// The effective user at the other end of a Unix socket, when it connected or began to listen.
///
/// # Errors
/// Of getsockopt(2).
pub fn user_of(socket: impl AsFd) -> Result<Uid, Errno> {
    // SAFETY: the kernel writes a `ucred`.
    let credentials: libc::ucred = unsafe { option(socket.as_fd(), libc::SO_PEERCRED) }?;
    Ok(Uid::from_raw(credentials.uid))
}

/// Whether the process of a pidfd exists; one that has ended exists until its parent waits for it,
/// and keeps its number as long.
pub fn exists(process: impl AsFd) -> bool {
    let process = process.as_fd().as_raw_fd();
    let (nothing, no_flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
    // SAFETY: signal 0 reaches nobody; the call only looks for the process.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, 0, nothing, no_flags) };
    // A process that we may not signal exists.
    sent == 0 || last_error() != Errno::SRCH
}

/// Whether the process of a pidfd has ended, waited for or not.
pub fn has_ended(process: impl AsFd) -> bool {
    let process = process.as_fd();
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

/// A socket option of the level `SOL_SOCKET`.
///
/// # Safety
/// `T` must be the type of the option.
unsafe fn option<T: Copy>(socket: BorrowedFd<'_>, name: i32) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(last_error());
    }
    if length as usize != size_of::<T>() {
        return Err(Errno::PROTO);
    }
    // SAFETY: by contract, and the kernel has written all of it.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests;

//! Processes: the calling one, and the one whose memory it shares.

use crate::kernel::proc::Shown;
use crate::kernel::sys;
use core::sync::atomic::AtomicU32;
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, setrlimit};

/// The id of the process that made the calling one; another one's once that has ended.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_pid() as u32)
}

/// A descriptor of the calling process's parent; readable once its last thread has ended.
///
/// # Errors
/// SRCH: it is not the process of this number, because that has ended. Else pidfd_open(2)'s.
pub fn open_parent(number: u32) -> Result<i32, Errno> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    // The number was the parent's if it is still: a process keeps its number while it lives.
    if parent() != number {
        return Err(Errno::SRCH);
    }
    Ok(opened.into_raw_fd())
}

/// Whether the process of a pidfd has ended, after at most `patience`.
pub fn has_ended(pidfd: i32, patience: Timespec) -> bool {
    // SAFETY: the descriptor is in the pager threads' table and stays open.
    let process = unsafe { BorrowedFd::borrow_raw(pidfd) };
    let mut polled = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&patience)) == Ok(1)
}

/// Sends SIGKILL to the process of a pidfd.
///
/// # Errors
/// PERM: it runs as another user, and the caller may not. SRCH: it has been waited for.
pub fn kill(pidfd: i32) -> Result<(), Errno> {
    // SAFETY: the descriptor is in the pager threads' table and stays open.
    let process = unsafe { BorrowedFd::borrow_raw(pidfd) };
    rustix::process::pidfd_send_signal(process, Signal::KILL)
}

/// Sends SIGKILL to the process of this number, which is the calling one's parent.
pub fn kill_parent(number: u32) {
    if let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// Leaves the session, and so the process group, of the parent, and its working directory: no
/// signal to the group reaches the calling process, and it keeps no file system in use.
pub fn leave_session() {
    // A process that was just made leads no group, so this cannot fail.
    let _ = rustix::process::setsid();
    // Where the root directory may not be searched the old directory is as good.
    let _ = rustix::process::chdir(c"/");
}

/// How many descriptors a process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Hardly more than the pager cannot do without.
    Handful,
    /// As many as the pager likes.
    Plenty,
}

impl Allowance {
    /// With fewer descriptors none is spent on comfort.
    const PLENTY: u64 = 32;
}

/// Lets the calling process have as many descriptors as it may; the program may have allowed itself
/// fewer.
pub fn have_descriptors() -> Allowance {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if maximum.is_some_and(|maximum| maximum < Allowance::PLENTY) {
        Allowance::Handful
    } else {
        Allowance::Plenty
    }
}

/// The state of a child that reports its end by no signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// It runs.
    Runs,
    /// It has ended, and is forgotten now.
    Ended,
}

/// A flag of [`wait_for`]: it returns at once.
pub const NO_WAIT: u32 = raw::WNOHANG;

/// Looks after such a child of the calling process; with [`NO_WAIT`] as `flags` without waiting.
pub fn wait_for(child: u32, flags: u32) -> Child {
    loop {
        let flags = (flags | raw::__WCLONE) as usize;
        // SAFETY: nothing is written to null pointers.
        match unsafe { sys::syscall(raw::__NR_wait4, [child as usize, 0, flags, 0, 0, 0]) } {
            Ok(0) => return Child::Runs,
            Err(Errno::INTR) => {}
            // It may have been waited for by a thread of the program that waits for everything.
            Ok(_) | Err(Errno::CHILD) => return Child::Ended,
            // A filter of the program's forbids to ask.
            Err(_) => return Child::Runs,
        }
    }
}

/// Forgets the calling process's children with such a name that have ended and whose end raised no
/// signal. Cost: a system call where there is none.
pub fn forget_ended(name: &[u8]) {
    loop {
        // struct siginfo: the signal, two more words, a gap; then the process id.
        let mut info = [0u32; 32];
        let options = (raw::WEXITED | raw::WNOHANG | raw::WNOWAIT | raw::__WCLONE) as usize;
        let arguments = [0, 0, info.as_mut_ptr() as usize, options, 0, 0];
        // SAFETY: the kernel writes a siginfo of 128 bytes.
        let found = unsafe { sys::syscall(raw::__NR_waitid, arguments) };
        let child = info[4];
        if found.is_err() || child == 0 {
            return;
        }
        let mut text = [0; 16];
        let comm = Shown::As(child).open(b"comm");
        let read = comm.and_then(|comm| rustix::io::read(comm, &mut text));
        // Another one, of the program's own, waits for the program; those behind it do so too.
        if !read.is_ok_and(|length| text[..length].starts_with(name)) {
            return;
        }
        wait_for(child, NO_WAIT);
    }
}

/// Whether children of the calling process are made in its own process-id namespace. In another
/// one, which the process has asked for and which has no process yet, the first child would be the
/// namespace's init.
pub fn has_children_beside_it() -> bool {
    let name = |path: &core::ffi::CStr| {
        let mut text = [0u8; 32];
        let here = raw::AT_FDCWD as usize;
        let arguments = [here, path.as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0, 0];
        // SAFETY: the kernel writes into the text.
        let read = unsafe { sys::syscall(raw::__NR_readlinkat, arguments) };
        read.map(|_| text)
    };
    // Without a /proc nobody can tell, and hardly anybody has asked for a namespace. The link to a
    // namespace that has no process yet cannot be read.
    name(c"/proc/self/ns/pid").map_or(true, |own| name(c"/proc/self/ns/pid_for_children") == Ok(own))
}

/// The word that the kernel clears when the calling thread leaves its memory, by its end or by an
/// exec, while others use that memory: [`watch_exit`].
pub fn exit_word() -> Option<usize> {
    let mut address = 0usize;
    let arguments = [prctl::PR_GET_TID_ADDRESS as usize, (&raw mut address) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one address.
    unsafe { sys::syscall(raw::__NR_prctl, arguments) }.ok().map(|_| address)
}

/// Has the kernel clear `word`, and wake whoever waits there, when the calling thread leaves this
/// memory.
///
/// # Safety
/// The word must be an `AtomicU32` that exists as long as the thread uses the memory, or null.
pub unsafe fn watch_exit(word: *const AtomicU32) {
    // SAFETY: by contract.
    let _ = unsafe { sys::syscall(raw::__NR_set_tid_address, [word as usize, 0, 0, 0, 0, 0]) };
}

/// Nanoseconds of CPU time of all threads of a process, those that have ended too; `None` if there
/// is no such process.
pub fn cpu_ns(process: u32) -> Option<u64> {
    /// Bits of the clock's number: the scheduler's clock of a whole process.
    const PER_PROCESS: u32 = 2;
    sys::cpu_clock_ns(process, PER_PROCESS)
}

/// Nanoseconds of CPU time of a thread of the calling process; 0 if there is none of this number.
pub fn cpu_ns_of_thread(thread: u32) -> u64 {
    /// Bits of the clock's number: the scheduler's clock of one thread.
    const PER_THREAD: u32 = 4 | 2;
    sys::cpu_clock_ns(thread, PER_THREAD).unwrap_or(0)
}

/// Minor faults of the calling process.
pub fn own_minor_faults() -> u64 {
    // struct rusage: two timevals, then 14 longs, of which the fifth counts minor faults.
    let mut usage = [0u64; 18];
    // SAFETY: the kernel writes a `struct rusage` of 144 bytes.
    let read = unsafe { sys::syscall(raw::__NR_getrusage, [0, usage.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if read.is_ok() { usage[8] } else { 0 }
}

#[cfg(test)]
mod tests;

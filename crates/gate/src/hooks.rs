//! What a pager is told and asked by the gate. A hook that is not set costs one load.
//!
//! Hooks run on a stack of the gate's with some 14 KiB, may make system calls of their own only
//! through code that the dispatch lets through ([`make_call`], and all that
//! [`let_through`](crate::dispatch::let_through) names), and must not unwind.

use crate::kernel::{self, Errno};
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};

/// A function to call, or none yet.
///
/// The word is an address and not an `Option<fn>`: a static with a function would need a
/// relocation.
pub struct Hook<T> {
    address: AtomicUsize,
    kind: core::marker::PhantomData<T>,
}

impl<T: Copy> Hook<T> {
    const fn none() -> Self {
        Hook { address: AtomicUsize::new(0), kind: core::marker::PhantomData }
    }

    /// Sets the function. It is called from then on, also by calls that are under way.
    pub fn set(&self, function: T) {
        const { assert!(size_of::<T>() == size_of::<usize>()) };
        // SAFETY: `T` is a function pointer, which has the size of an address.
        let address = unsafe { core::mem::transmute_copy::<T, usize>(&function) };
        self.address.store(address, Release);
    }

    pub(crate) fn get(&self) -> Option<T> {
        match self.address.load(Acquire) {
            0 => None,
            // SAFETY: only `set` stores an address, and that of a `T`.
            address => Some(unsafe { core::mem::transmute_copy::<usize, T>(&address) }),
        }
    }
}

/// What the gate reports and does not do, or does without knowing what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Incident {
    /// The program wanted a Syscall User Dispatch of its own, and got EBUSY.
    OwnDispatch = 0,
    /// The program made a 32-bit call (`int $0x80`), which the kernel served.
    Legacy = 1,
    /// The program made a call with a number that the table does not have.
    UnknownNumber = 2,
    /// The program is about to put a filter before its own calls: nothing is rewritten any more,
    /// and the calls of its new threads are not seen.
    Confined = 3,
    /// The kernel has refused that filter.
    NotConfined = 4,
}

/// Whether pages may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Managed {
    /// They are not the pager's: nothing touches them.
    No = 0,
    /// They are, and may be read.
    Readable = 1,
    /// They are, and may be written.
    Writable = 2,
}

/// Pages of one kind, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Run {
    /// What is true of them.
    pub managed: Managed,
    /// The page behind the last, by its number.
    pub end: u64,
}

/// A call for mappings: its number and arguments. The hook makes it, by [`make_call`].
pub type Mapping = unsafe extern "C" fn(number: u64, arguments: &[u64; 6]) -> u64;

/// Runs before a fork that copies memory, with all signals blocked.
pub static BEFORE_FORK: Hook<extern "C" fn()> = Hook::none();
/// Runs in the parent after such a fork. The argument is the kernel's answer: a process number or
/// a negative error.
pub static FORK_PARENT: Hook<extern "C" fn(i64)> = Hook::none();
/// Runs in the child of such a fork before any code of the program, with all signals blocked.
pub static FORK_CHILD: Hook<extern "C" fn()> = Hook::none();
/// Runs in a new thread, or in a process that shares the memory, before any code of the program.
pub static THREAD_CREATED: Hook<extern "C" fn()> = Hook::none();
/// Runs before execve(2) and execveat(2), with the call's number and arguments. Its answer is for
/// [`EXEC_FAILED`]: the child of a vfork has its parent's memory, and keeps nothing there.
pub static BEFORE_EXEC: Hook<extern "C" fn(call: &[u64; 7]) -> u64> = Hook::none();
/// Runs when an exec has failed, with the answer of [`BEFORE_EXEC`].
pub static EXEC_FAILED: Hook<extern "C" fn(answer: u64)> = Hook::none();
/// Makes, in the gate's place, or refuses: mmap, munmap, mremap, mprotect, pkey_mprotect, brk,
/// madvise, process_madvise, shmat, shmdt, remap_file_pages, mlock, mlock2, mlockall, munlock,
/// munlockall, and io_uring_setup, whose requests no call announces.
pub static MAPPING: Hook<Mapping> = Hook::none();
/// Says whether a page (by its number) is managed, and those that follow it: they may be away, and
/// a touch brings them back. Must be set before the gate is armed; calls hold what they use from
/// then on, and what the kernel would use without a call is kept from it (`rseq`: ENOSYS).
pub static MANAGED: Hook<fn(page: u64) -> Run> = Hook::none();
/// Says how many bytes a call may hold at once: longer ones are made in pieces. Without the hook
/// none are.
pub static HELD_AT_ONCE: Hook<fn() -> u64> = Hook::none();
/// Says where so many bytes of the gate's own may be mapped, which the pager leaves alone; 0:
/// nowhere. Without the hook the kernel chooses.
pub static PLACE: Hook<extern "C" fn(bytes: u64) -> u64> = Hook::none();
/// Hears of memory that the kernel will write while no call is under way that names it, by its
/// address and bytes: the word that a thread's end clears, a list of robust mutexes, an area for
/// restartable sequences. Must be set before the gate is armed.
pub static KERNEL_WRITES: Hook<extern "C" fn(address: u64, bytes: u64)> = Hook::none();
/// Runs before exit(2), with all signals blocked, unless the program has confined itself.
pub static THREAD_ENDS: Hook<extern "C" fn()> = Hook::none();
/// Runs before exit_group(2).
pub static LEAVING: Hook<extern "C" fn()> = Hook::none();
/// Hears of what the gate refuses or does not know: the incident, and the call's number.
pub static REPORT: Hook<extern "C" fn(Incident, u64)> = Hook::none();

pub(crate) fn kernel_writes(address: u64, bytes: u64) {
    if let Some(hook) = KERNEL_WRITES.get().filter(|_| address != 0) {
        hook(address, bytes);
    }
}

pub(crate) fn report(incident: Incident, number: u64) {
    if let Some(hook) = REPORT.get() {
        hook(incident, number);
    }
}

/// Makes a system call that is let through.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The arguments must be those that the call demands.
pub unsafe fn make_call(number: u32, arguments: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller's.
    unsafe { kernel::call(number, arguments) }
}

//! Threads that the C library does not know: made by clone(2), on stacks of our own.
//!
//! The first one is a process of its own, which shares the program's memory and nothing else: not
//! the descriptor table (programs close all descriptors), not the working directory, no handlers
//! of signals, no identity. The program has no thread more for it.

use crate::kernel::processor;
use crate::kernel::sys;
use linux_raw_sys::general as raw;
use rustix::io::Errno;

/// Bytes of a pager thread's stack.
pub const STACK_BYTES: usize = 256 << 10;

/// What a new thread is to the caller's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Another thread of it, with its descriptors.
    Beside,
    /// A process of its own with the same memory. It begins with a copy of the descriptors, and
    /// its end raises no signal: only [`crate::kernel::process::wait_for`] sees it. Whoever traces
    /// what the caller starts traces it too, since a filter that the tracer has installed stops its
    /// calls as well.
    Apart,
}

/// Starts `entry(argument)` on the stack `stack` (its last byte is below the top). Returns the
/// thread's id.
///
/// # Safety
/// The stack must be mapped, writable, at least [`STACK_BYTES`] long, used by no other thread, and
/// outlive the thread. `entry` must not return, must not unwind, and must not use thread-local
/// storage or the C library.
pub unsafe fn spawn(
    stack: *mut u8,
    entry: unsafe extern "C" fn(usize) -> !,
    argument: usize,
    place: Place,
) -> Result<u32, Errno> {
    let flags = raw::CLONE_VM
        | raw::CLONE_SETTLS
        | match place {
            Place::Beside => {
                raw::CLONE_SIGHAND | raw::CLONE_THREAD | raw::CLONE_SYSVSEM | raw::CLONE_FS | raw::CLONE_FILES
            }
            Place::Apart => 0,
        };
    // The lowest page of the stack serves as thread-local block: on x86_64 code compiled with a
    // stack protector reads a canary from it, no code writes it.
    let tls = stack as usize;
    // SAFETY: within the stack, by the caller's promise.
    unsafe {
        (tls as *mut usize).write(tls);
        let top = stack.add(STACK_BYTES).cast::<usize>().sub(4);
        top.write(entry as usize);
        top.add(1).write(argument);
        let blocked = SignalsBlocked::now()?;
        let result = processor::clone(flags, top, tls);
        drop(blocked);
        processor::outcome(result).map(|number| number as u32)
    }
}

/// While this exists, no signal interrupts the thread that made it: none of the program's handlers
/// runs there. Holds the mask that comes back when it is dropped.
pub struct SignalsBlocked(u64);

impl SignalsBlocked {
    /// Blocks all signals of the calling thread. Cost: one system call, and one more at the end.
    ///
    /// # Errors
    /// rt_sigprocmask(2)'s, which only a filter of the program's can bring about.
    pub fn now() -> Result<Self, Errno> {
        set_mask(raw::SIG_BLOCK, u64::MAX).map(SignalsBlocked)
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let _ = set_mask(raw::SIG_SETMASK, self.0);
    }
}

/// Changes the calling thread's mask of blocked signals; returns the one before.
fn set_mask(how: u32, mask: u64) -> Result<u64, Errno> {
    let mut before = 0u64;
    let words = [how as usize, &raw const mask as usize, &raw mut before as usize, 8, 0, 0];
    // SAFETY: reads and writes one word each.
    unsafe { sys::syscall(raw::__NR_rt_sigprocmask, words) }.map(|_| before)
}

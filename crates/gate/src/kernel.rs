//! System calls of the gate's own, from within the range that is let through.

use crate::entry;
use crate::hazard::PAGE;
use linux_raw_sys::general as raw;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u16);

impl Errno {
    /// The kernel's word for this error: the negative number.
    pub(crate) fn word(self) -> u64 {
        (self.0 as u64).wrapping_neg()
    }
}

/// The kernel's answer as a result.
pub(crate) fn outcome(word: u64) -> Result<u64, Errno> {
    match word as i64 {
        error @ -4095..=-1 => Err(Errno((-error) as u16)),
        _ => Ok(word),
    }
}

/// Makes a system call.
///
/// # Safety
/// The arguments must be those that the call demands.
pub(crate) unsafe fn call(number: u32, arguments: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller's.
    outcome(unsafe { entry::syscall(number as u64, arguments) })
}

/// The calling thread's id.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(raw::__NR_gettid, [0; 6]) }.unwrap_or(0) as u32
}

/// Lets other threads run.
pub(crate) fn give_way() {
    // SAFETY: no arguments.
    let _ = unsafe { call(raw::__NR_sched_yield, [0; 6]) };
}

/// Sets the mask of blocked signals; returns the one before.
pub(crate) fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let arguments = [
        raw::SIG_SETMASK as u64,
        &raw const mask as u64,
        &raw mut before as u64,
        size_of::<u64>() as u64,
        0,
        0,
    ];
    // SAFETY: reads one word and writes one.
    let _ = unsafe { call(raw::__NR_rt_sigprocmask, arguments) };
    before
}

/// Reads words that the program points to, which need not be there. `stack` is an address that
/// certainly is; its page is read without asking the kernel. Returns whether all could be read.
pub(crate) fn read_words(from: u64, to: &mut [u64], stack: u64) -> Readable {
    let bytes = size_of_val(to) as u64;
    let last = from.wrapping_add(bytes.wrapping_sub(1));
    if from / PAGE == stack / PAGE && last / PAGE == stack / PAGE {
        // SAFETY: the bytes lie in the page of the frame, which is mapped; the words are the
        // calling thread's own arguments.
        unsafe { copy(from, to) };
        return Readable::Yes;
    }
    let here = [to.as_mut_ptr() as u64, bytes];
    let there = [from, bytes];
    // SAFETY: no arguments.
    let process = unsafe { call(raw::__NR_getpid, [0; 6]) }.unwrap_or(0);
    let arguments = [process, &raw const here as u64, 1, &raw const there as u64, 1, 0];
    // SAFETY: the kernel writes at most `bytes` bytes into the slice.
    match unsafe { call(raw::__NR_process_vm_readv, arguments) } {
        Ok(read) if read == bytes => Readable::Yes,
        Ok(_) | Err(Errno(14)) => Readable::No,
        // A filter forbids the call: a pointer that leads nowhere then is a fault of the program.
        Err(_) => {
            // SAFETY: as good as the program's pointer.
            unsafe { copy(from, to) };
            Readable::Yes
        }
    }
}

/// Whether the program's memory could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readable {
    Yes,
    No,
}

/// # Safety
/// The bytes at `from` must be mapped.
unsafe fn copy(from: u64, to: &mut [u64]) {
    for (index, word) in to.iter_mut().enumerate() {
        // SAFETY: the caller's; the program's pointers need no alignment.
        *word = unsafe { (from as *const u64).add(index).read_unaligned() };
    }
}

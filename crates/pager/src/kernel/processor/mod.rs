//! What depends on the processor: how a system call is made, how a thread begins that the C library
//! does not know, and where the C library keeps what it knows of a thread. One file for each
//! processor, with the same functions.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
compile_error!("folioswap runs on Linux on x86_64 and aarch64");

use rustix::io::Errno;

pub use own::{control_block, read_byte, thread_data, touch_byte};

pub(super) use own::{WINDOW_START, clone};

/// Makes any system call.
///
/// # Safety
/// That of the call itself.
#[inline]
pub unsafe fn syscall(number: u32, a: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: by contract.
    outcome(unsafe { own::call(number, a) })
}

/// The meaning of the kernel's answer to a system call.
#[inline]
pub(super) fn outcome(answer: isize) -> Result<usize, Errno> {
    if (-4095..0).contains(&answer) {
        Err(Errno::from_raw_os_error(-answer as i32))
    } else {
        Ok(answer as usize)
    }
}

/// More than the C library's descriptor of a thread takes.
pub const CONTROL_BLOCK_MAX: usize = 4096;

/// Bytes at the thread pointer among which are all that the kernel writes at a thread's end. The C
/// library's descriptor takes 2304 on x86_64 and somewhat fewer on aarch64, where the thread's
/// stack lies below it.
pub const CONTROL_BLOCK_LEAST: usize = 2048;

#[cfg(test)]
mod tests;

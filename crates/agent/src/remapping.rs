//! mremap: several mappings move at once, as they do in a program that is not managed.
//!
//! From Linux 6.17 on one call moves all mappings of a range, unless a userfaultfd serves one of
//! them. Then each is moved by a call of its own, which is what the kernel does otherwise.

use crate::libc;
use core::ffi::{c_int, c_void};
use folioswap_pager::kernel::sys;
use folioswap_pager::program::remapping::{Move, Whole};
use linux_raw_sys::errno::EFAULT;
use linux_raw_sys::general as raw;

/// mremap(2). The fifth argument counts with MREMAP_FIXED and MREMAP_DONTUNMAP only; without them
/// the caller may have left it out, and the kernel does not look at it.
///
/// # Safety
/// As mremap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    start: *mut c_void,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let arguments = [start as usize, bytes, new_bytes, flags as usize, to as usize, 0];
    // SAFETY: by the caller's contract.
    let result = unsafe { sys::syscall(raw::__NR_mremap, arguments) };
    let is_move = flags as u32 == raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED && bytes == new_bytes;
    let result = match result {
        Err(errno) if is_move && errno.raw_os_error() as u32 == EFAULT => {
            let wanted = Move { from: start as usize, bytes, to: to as usize };
            // SAFETY: by the caller's contract.
            match unsafe { wanted.in_pieces() } {
                Ok(Whole::Moved) => Ok(to as usize),
                Ok(Whole::NotOfThisKernel) => Err(errno),
                Err(errno) => Err(errno),
            }
        }
        other => other,
    };
    match result {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            libc::set_errno(errno.raw_os_error());
            usize::MAX as *mut c_void
        }
    }
}

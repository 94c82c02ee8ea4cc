//! mremap: several mappings move at once, as they do in a program that is not managed.
//!
//! From Linux 6.17 on one call moves all mappings of a range, unless a userfaultfd serves one of
//! them. Then each is moved by a call of its own, which is what the kernel does otherwise.

use crate::libc;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use folioswap_pager::kernel::sys;
use folioswap_pager::program::remapping::{Move, Mover};
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
    // SAFETY: by the caller's contract.
    match unsafe { remap([start as usize, bytes, new_bytes, flags as usize, to as usize]) } {
        Ok(address) => address as *mut c_void,
        Err(errno) => {
            libc::set_errno(errno);
            usize::MAX as *mut c_void
        }
    }
}

/// The same with the arguments of the system call, for whoever has no errno.
///
/// # Errors
/// mremap(2)'s, by its number.
///
/// # Safety
/// As mremap.
pub(crate) unsafe fn remap([start, bytes, new_bytes, flags, to]: [usize; 5]) -> Result<usize, i32> {
    const PAGE: usize = 4096;
    let pages = |bytes: usize| bytes.checked_next_multiple_of(PAGE);
    let is_move = flags as u32 & raw::MREMAP_FIXED != 0 && pages(bytes) == pages(new_bytes);
    let several = pages(bytes)
        .filter(|_| is_move && engine().is_some())
        .map(|bytes| Move { from: start, bytes, to, flags })
        .filter(|wanted| (wanted.from | wanted.to).is_multiple_of(PAGE) && wanted.is_apart())
        .filter(|wanted| wanted.mover() == Mover::Us);
    let result = match several {
        // SAFETY: by the caller's contract.
        Some(wanted) => unsafe { wanted.in_pieces() }.map(|()| to),
        None => {
            // SAFETY: by the caller's contract.
            unsafe { sys::syscall(raw::__NR_mremap, [start, bytes, new_bytes, flags, to, 0]) }
        }
    };
    let address = result.map_err(|errno| errno.raw_os_error())?;
    if let Some(engine) = engine() {
        engine.mapping_has_moved(address, bytes, new_bytes);
    }
    Ok(address)
}

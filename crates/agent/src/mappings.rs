//! madvise: what the kernel does not tell the pager.

use crate::libc;
use crate::start::engine;
use core::ffi::{c_int, c_void};
use folioswap_pager::sys;
use linux_raw_sys::general as raw;

/// madvise(2): what a child will not inherit is remembered for the fork.
///
/// # Safety
/// As madvise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's.
    let result =
        unsafe { sys::syscall(raw::__NR_madvise, [start as usize, bytes, advice as usize, 0, 0, 0]) };
    if result.is_ok()
        && let Some(engine) = engine()
    {
        match advice as u32 {
            raw::MADV_DONTFORK | raw::MADV_WIPEONFORK => engine.not_inherited(start as usize, bytes),
            raw::MADV_DOFORK | raw::MADV_KEEPONFORK => engine.inherited(start as usize, bytes),
            _ => {}
        }
    }
    match result {
        Ok(_) => 0,
        Err(errno) => {
            // SAFETY: the calling thread's errno.
            unsafe { *libc::__errno_location() = errno.raw_os_error() };
            -1
        }
    }
}

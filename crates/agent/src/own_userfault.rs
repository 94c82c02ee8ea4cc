//! ioctl: a program that serves memory by a userfaultfd of its own gets it from the pager.

use crate::libc;
use crate::next;
use crate::start::engine;
use core::ffi::{c_int, c_ulong};
use folioswap_pager::kernel::uffd;
use linux_raw_sys::errno::EBUSY;
use linux_raw_sys::general::uffdio_register;

/// ioctl(2). Its third argument is passed on whether the caller has filled its place or not.
///
/// # Safety
/// As ioctl.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: usize) -> c_int {
    let call = || {
        // SAFETY: by the caller's contract.
        unsafe { next!(ioctl: fn(c_int, c_ulong, usize) -> c_int)(descriptor, request, argument) }
    };
    let result = call();
    if request as u32 != uffd::REGISTER || result == 0 || libc::errno() != EBUSY as i32 {
        return result;
    }
    let Some(engine) = engine() else { return result };
    // The kernel has looked at the range, which is then valid: it belongs to another userfaultfd.
    // SAFETY: the kernel has just read the structure.
    let range = unsafe { (*(argument as *const uffdio_register)).range };
    engine.leave_to_program(range.start as usize, range.start.saturating_add(range.len) as usize, call)
}

//! mlockall: the program's memory is locked, the engine's is not.

use crate::libc;
use crate::start::engine;
use core::ffi::c_int;
use folioswap_pager::kernel::sys;
use folioswap_pager::program::locking::{LockError, Residence};
use linux_raw_sys::general as raw;

/// mlockall(2).
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    match lock_all(flags as u32) {
        Ok(()) => 0,
        Err(errno) => libc::failed(errno),
    }
}

/// The same, for whoever has no errno.
///
/// # Errors
/// mlockall(2)'s, by its number.
pub(crate) fn lock_all(flags: u32) -> Result<(), i32> {
    let ask = |flags: u32| {
        // SAFETY: locking changes no contents.
        let result = unsafe { sys::syscall(raw::__NR_mlockall, [flags as usize, 0, 0, 0, 0, 0]) };
        result.map(drop).map_err(|errno| errno.raw_os_error())
    };
    let known = raw::MCL_CURRENT | raw::MCL_FUTURE | raw::MCL_ONFAULT;
    let (Some(engine), true) = (engine(), flags & !known == 0 && flags & raw::MCL_CURRENT != 0) else {
        return ask(flags);
    };
    if flags & raw::MCL_FUTURE != 0 {
        ask(flags & !raw::MCL_CURRENT)?;
    }
    let residence = if flags & raw::MCL_ONFAULT == 0 { Residence::Now } else { Residence::OnFault };
    match engine.lock_program(residence) {
        Ok(()) => Ok(()),
        Err(LockError::NoList) => ask(flags),
        Err(LockError::Refused(errno)) => Err(errno.raw_os_error()),
    }
}

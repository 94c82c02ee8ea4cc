//! Reading a descriptor into a region, and writing a region to one.

use crate::FolioswapCode;
use crate::border::{guarded, invalid, known, output};
use crate::region::{FolioswapRegion, end};
use folioswap::{Error, Region};
use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Runs a transfer, and stores in `done` how much of it was done. errno is that of a system call
/// that failed.
///
/// # Safety
/// The handle is null or valid; `done` is null or may be written; the descriptor is not closed
/// during the call.
unsafe fn transfer(
    region: *const FolioswapRegion,
    file: c_int,
    done: *mut usize,
    (offset, bytes): (usize, usize),
    work: impl FnOnce(&Region, BorrowedFd<'_>, Range<usize>) -> Result<usize, Error>,
) -> FolioswapCode {
    let mut errno = None;
    let code = guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (region, done) = unsafe { (known(region)?.region(), output(done)?) };
        if file < 0 {
            return Err(invalid("a descriptor is negative: give one that open(2) has returned"));
        }
        // SAFETY: the caller upholds the `# Safety` section. A number of no descriptor is EBADF.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let result = work(region, file, offset..end(offset, bytes)?);
        match result {
            Ok(all) => *done = all,
            Err(Error::Transfer { errno: why, done: before, .. }) => {
                *done = before;
                errno = Some(why.raw_os_error());
            }
            Err(_) => {}
        }
        Ok(result.map(drop)?)
    });
    if let Some(errno) = errno {
        // SAFETY: the calling thread's errno. It is set last, since what runs before may change it.
        unsafe { *libc::__errno_location() = errno };
    }
    code
}

/// Reads from the descriptor `file` into `bytes` bytes of the region from `offset` on, until they
/// are full or the descriptor is at its end, and stores in `*done` how many were read. It works for
/// every process: where system calls cannot wait for memory that is swapped out
/// (folioswap_swap_serves_system_calls is 0), pieces of at most 1 MiB are pinned in turn, so the
/// range may be larger than the limit. Short reads are continued, and interrupted ones (EINTR)
/// repeated. FOLIOSWAP_ESYSTEM: read(2) failed after `*done` bytes, and errno says why.
/// FOLIOSWAP_EINVAL: the range is not within the region; nothing was read. FOLIOSWAP_ENOMEM: pins
/// of others take all that can be pinned; nothing was read.
///
/// # Safety
/// The handle is null or valid; `done` is null or may be written; the descriptor is not closed
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_read(
    region: *const FolioswapRegion,
    offset: usize,
    file: c_int,
    bytes: usize,
    done: *mut usize,
) -> FolioswapCode {
    // SAFETY: C has no slices; its threads see old or new bytes, as with read(2).
    let read = |region: &Region, file: BorrowedFd<'_>, range| unsafe { region.read_from_shared(file, range) };
    // SAFETY: the caller upholds the `# Safety` section.
    unsafe { transfer(region, file, done, (offset, bytes), read) }
}

/// Writes `bytes` bytes of the region from `offset` on to the descriptor `file`, and stores in
/// `*done` how many were written. It works for every process, as folioswap_region_read does. Short
/// writes are continued, and interrupted ones repeated. FOLIOSWAP_ESYSTEM: write(2) failed after
/// `*done` bytes, and errno says why. The other codes are those of folioswap_region_read.
///
/// # Safety
/// The handle is null or valid; `done` is null or may be written; the descriptor is not closed
/// meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_write(
    region: *const FolioswapRegion,
    offset: usize,
    file: c_int,
    bytes: usize,
    done: *mut usize,
) -> FolioswapCode {
    let write = |region: &Region, file: BorrowedFd<'_>, range| region.write_to(file, range);
    // SAFETY: the caller upholds the `# Safety` section.
    unsafe { transfer(region, file, done, (offset, bytes), write) }
}

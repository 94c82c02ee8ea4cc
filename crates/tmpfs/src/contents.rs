//! Requests about the contents of a file.

use crate::inode::PAGE_SIZE;
use folioswap_shmem::{Allocation, ShmemError, ShmemObject};
use fuser::ReplyData;
use rustix::io::Errno;
use std::{cell::RefCell, ops::Range};

/// The bytes copied at a time between two files.
const COPY_SIZE: usize = 1 << 20;

/// Converts an error to that of a system call.
pub fn errno(error: ShmemError) -> Errno {
    match error {
        ShmemError::NoSpace => Errno::NOSPC,
        ShmemError::TooLarge => Errno::FBIG,
        // The kernel's tmpfs returns EIO in both cases: the bytes cannot be had.
        ShmemError::Io { .. } | ShmemError::DeviceGone { .. } => Errno::IO,
    }
}

/// Returns the pages that a range of bytes lies in.
pub fn pages(offset: u64, length: u64) -> Range<u64> {
    offset / PAGE_SIZE..offset.saturating_add(length).div_ceil(PAGE_SIZE)
}

thread_local! {
    /// A buffer in which pieces from several folios are joined.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Answers a read. Bytes that lie in one folio are sent from there, without a copy. Bytes of
/// several folios are joined first, since the answer takes one slice.
pub fn read(object: &ShmemObject, offset: u64, length: usize, reply: ReplyData) {
    let expected = length.min(object.size().saturating_sub(offset) as usize);
    let mut reply = Some(reply);
    GATHERED.with_borrow_mut(|gathered| {
        gathered.clear();
        let result = object.read_with(offset, expected, |piece| {
            if piece.len() == expected
                && let Some(reply) = reply.take()
            {
                reply.data(piece);
            } else {
                gathered.extend_from_slice(piece);
            }
        });
        match (reply, result) {
            (Some(reply), Ok(_)) => reply.data(gathered),
            (Some(reply), Err(error)) => reply.error(fuser::Errno::from_i32(errno(error).raw_os_error())),
            (None, _) => {}
        }
    });
}

/// Does fallocate(2).
///
/// # Errors
/// `EOPNOTSUPP` for a mode that the kernel's tmpfs does not support either, `EFBIG`, `ENOSPC`,
/// `EIO`.
pub fn fallocate(object: &ShmemObject, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
    let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
    let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let size = if keep { Allocation::KeepSize } else { Allocation::Extend };
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 => object.allocate(offset, end - offset, size),
        libc::FALLOC_FL_PUNCH_HOLE if keep => object.punch_hole(offset, end - offset),
        libc::FALLOC_FL_ZERO_RANGE => object.zero_range(offset, end - offset, size),
        _ => return Err(Errno::OPNOTSUPP),
    }
    .map_err(errno)
}

/// Does lseek(2) with `SEEK_DATA` or `SEEK_HOLE`.
///
/// # Errors
/// `ENXIO`: the offset is not within the file, or no data is behind it; `EINVAL` for another
/// `whence`.
pub fn seek(object: &ShmemObject, offset: i64, whence: i32) -> Result<i64, Errno> {
    let size = object.size();
    let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
    if offset >= size {
        return Err(Errno::NXIO);
    }
    let found = match whence {
        libc::SEEK_DATA => object.seek_data(offset).filter(|&found| found < size).ok_or(Errno::NXIO)?,
        libc::SEEK_HOLE => object.seek_hole(offset).unwrap_or(size).min(size),
        _ => return Err(Errno::INVAL),
    };
    Ok(found as i64)
}

/// Does copy_file_range(2). Returns how many bytes were copied.
///
/// # Errors
/// `ENOSPC`, `EFBIG`, `EIO`, where nothing was copied before the error.
pub fn copy(
    (from, from_offset): (&ShmemObject, u64),
    (to, to_offset): (&ShmemObject, u64),
    length: u64,
) -> Result<u64, Errno> {
    let length = length.min(from.size().saturating_sub(from_offset));
    let mut buffer = vec![0; COPY_SIZE.min(length as usize)];
    let mut copied = 0;
    while copied < length {
        let part = (length - copied).min(COPY_SIZE as u64) as usize;
        let step = from
            .read(from_offset + copied, &mut buffer[..part])
            .and_then(|read| if read == 0 { Ok(0) } else { to.write(to_offset + copied, &buffer[..read]) });
        match step {
            Ok(0) => break,
            Ok(written) => copied += written as u64,
            Err(_) if copied > 0 => break,
            Err(error) => return Err(errno(error)),
        }
    }
    Ok(copied)
}

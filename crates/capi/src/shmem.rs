//! Shmem: contents by offset, which swap within the limit of their space.

use crate::FolioswapCode;
use crate::border::{Refusal, figure, guarded, invalid, known, output, slice, slice_mut, text};
use crate::swap::{FolioswapSwap, devices_of};
use folioswap::{HugePolicy, ShmemObject, ShmemSpace};
use std::ffi::{c_char, c_int};

/// The smallest limit of a space, in bytes.
pub const FOLIOSWAP_SHMEM_LEAST_LIMIT: u64 = 4 << 20;
/// `huge`: single pages.
pub const FOLIOSWAP_HUGE_NEVER: c_int = 0;
/// `huge`: large folios.
pub const FOLIOSWAP_HUGE_ALWAYS: c_int = 1;
/// `huge`: large folios that do not reach beyond the object's size.
pub const FOLIOSWAP_HUGE_WITHIN_SIZE: c_int = 2;
/// The result of a search that finds no offset.
pub const FOLIOSWAP_NO_OFFSET: u64 = u64::MAX;

const _: () = assert!(FOLIOSWAP_SHMEM_LEAST_LIMIT == ShmemSpace::LEAST_LIMIT);

/// A limit for the contents of objects, and the devices behind it. Threads may share it.
pub struct FolioswapShmemSpace(ShmemSpace);

/// Contents by offset: a file without a name, in memory. Any number of threads may use an object at
/// once; reads and writes of one page exclude each other.
pub struct FolioswapShmemObject(ShmemObject);

/// Makes a space and stores it in `*space`. Its contents, tables and compressed store may take
/// `limit` bytes together. The contents, resident or not, may be `size` bytes; 0: any number.
/// `devices` are as for folioswap_swap_new, but only one "zram" and one "file:DIRECTORY" are
/// possible; with a `device_count` of 0 the space has both. If `within` is not NULL, the limit is
/// set aside from that swap's limit as long as the space lives. The space starts one thread.
///
/// # Safety
/// Pointers are null or valid for this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_space_new(
    limit: u64,
    size: u64,
    devices: *const *const c_char,
    device_count: usize,
    within: *const FolioswapSwap,
    space: *mut *mut FolioswapShmemSpace,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (space, devices, within) =
            unsafe { (output(space)?, devices_of(devices, device_count)?, within.as_ref()) };
        let mut builder = ShmemSpace::builder().limit(limit);
        if size > 0 {
            builder = builder.size(size);
        }
        if let Some(within) = within {
            builder = builder.within(&within.0);
        }
        let builder = devices.into_iter().fold(builder, |builder, device| builder.device(device));
        *space = Box::into_raw(Box::new(FolioswapShmemSpace(builder.build()?)));
        Ok(())
    })
}

/// Frees a space; NULL does nothing. Its objects live on.
///
/// # Safety
/// The handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_space_free(space: *mut FolioswapShmemSpace) {
    guarded(|| {
        if !space.is_null() {
            // SAFETY: `folioswap_shmem_space_new` made the handle, and the caller gives it up.
            drop(unsafe { Box::from_raw(space) });
        }
        Ok(())
    });
}

/// Stores a figure in `*value`: "limit", "charge", "resident", "content", or a counter by the
/// kernel's name ("pswpin", "pswpout", ...).
///
/// # Safety
/// The handle is null or valid; `name` is null or a string; `value` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_space_figure(
    space: *const FolioswapShmemSpace,
    name: *const c_char,
    value: *mut u64,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (space, name, value) = unsafe { (known(space)?, text(name)?, output(value)?) };
        let statistics = space.0.statistics()?;
        *value = match name {
            "limit" => statistics.limit(),
            "charge" => statistics.charge(),
            "resident" => statistics.resident_bytes(),
            "content" => statistics.content_bytes(),
            name => statistics.counter(name).ok_or_else(|| invalid("there is no figure of this name"))?,
        };
        Ok(())
    })
}

/// Makes an empty object and stores it in `*object`. `huge` is FOLIOSWAP_HUGE_NEVER,
/// FOLIOSWAP_HUGE_ALWAYS or FOLIOSWAP_HUGE_WITHIN_SIZE: the folios in which its contents come, as
/// tmpfs's mount option of that name.
///
/// # Safety
/// The handle is null or valid; `object` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_object_new(
    space: *const FolioswapShmemSpace,
    huge: c_int,
    object: *mut *mut FolioswapShmemObject,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (space, object) = unsafe { (known(space)?, output(object)?) };
        let huge = match huge {
            FOLIOSWAP_HUGE_NEVER => HugePolicy::Never,
            FOLIOSWAP_HUGE_ALWAYS => HugePolicy::Always,
            FOLIOSWAP_HUGE_WITHIN_SIZE => HugePolicy::WithinSize,
            _ => return Err(invalid("huge is none of its constants")),
        };
        *object = Box::into_raw(Box::new(FolioswapShmemObject(space.0.object_with(huge)?)));
        Ok(())
    })
}

/// Frees an object and all of its contents; NULL does nothing.
///
/// # Safety
/// The handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_object_free(object: *mut FolioswapShmemObject) {
    guarded(|| {
        if !object.is_null() {
            // SAFETY: `folioswap_shmem_object_new` made the handle, and the caller gives it up.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    });
}

/// Returns the size in bytes: the end of the last write, or the size set by
/// folioswap_shmem_set_size. 0: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_size(object: *const FolioswapShmemObject) -> u64 {
    // SAFETY: the caller upholds the `# Safety` section.
    figure(0, || Ok::<_, Refusal>(unsafe { known(object) }?.0.size()))
}

/// Returns the bytes of content, resident or swapped out, in whole pages (`st_blocks` times 512).
/// 0: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_content_bytes(object: *const FolioswapShmemObject) -> u64 {
    // SAFETY: the caller upholds the `# Safety` section.
    figure(0, || Ok::<_, Refusal>(unsafe { known(object) }?.0.content_bytes()))
}

/// Copies up to `bytes` bytes from `offset` on into `into`, and stores in `*done` how many: fewer
/// at the object's end. Holes read as zeroes. FOLIOSWAP_EIO: a page cannot be read back from swap.
///
/// # Safety
/// The handle is null or valid; `bytes` bytes may be written at `into`; `done` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_read(
    object: *const FolioswapShmemObject,
    offset: u64,
    into: *mut u8,
    bytes: usize,
    done: *mut usize,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (object, into, done) = unsafe { (known(object)?, slice_mut(into, bytes), output(done)?) };
        let into = into.ok_or_else(|| invalid("there are bytes to read, and their place is NULL"))?;
        *done = object.0.read(offset, into)?;
        Ok(())
    })
}

/// Copies `bytes` bytes to `offset`, and stores in `*done` how many: fewer only where space ran out
/// on the way. The object grows if they end behind its end. FOLIOSWAP_ENOSPC: there is no room for
/// any.
///
/// # Safety
/// The handle is null or valid; `bytes` bytes may be read at `from`; `done` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_write(
    object: *const FolioswapShmemObject,
    offset: u64,
    from: *const u8,
    bytes: usize,
    done: *mut usize,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (object, from, done) = unsafe { (known(object)?, slice(from, bytes), output(done)?) };
        let from = from.ok_or_else(|| invalid("there are bytes to write, and their place is NULL"))?;
        *done = object.0.write(offset, from)?;
        Ok(())
    })
}

/// Sets the size, as ftruncate(2). Content behind a smaller size is freed, and reads as zeroes if
/// the object grows again.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_set_size(
    object: *const FolioswapShmemObject,
    size: u64,
) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { known(object) }?.0.set_size(size)?))
}

/// Frees the content of a range of bytes, which reads as zeroes afterwards. The size stays.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_punch_hole(
    object: *const FolioswapShmemObject,
    offset: u64,
    length: u64,
) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { known(object) }?.0.punch_hole(offset, length)?))
}

/// Allocates every page of a range of bytes that has none, as posix_fallocate(3); the size grows to
/// the end of the range. Without room (FOLIOSWAP_ENOSPC) the object is as before.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_allocate(
    object: *const FolioswapShmemObject,
    offset: u64,
    length: u64,
) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { known(object) }?.0.allocate(offset, length)?))
}

/// Stores in `*found` the first offset at or behind `offset` with content, as lseek(2) with
/// SEEK_DATA. FOLIOSWAP_NO_OFFSET: there is none.
///
/// # Safety
/// The handle is null or valid; `found` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_seek_data(
    object: *const FolioswapShmemObject,
    offset: u64,
    found: *mut u64,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (object, found) = unsafe { (known(object)?, output(found)?) };
        *found = object.0.seek_data(offset)?.unwrap_or(FOLIOSWAP_NO_OFFSET);
        Ok(())
    })
}

/// Stores in `*found` the first offset at or behind `offset` that lies in a hole, as lseek(2) with
/// SEEK_HOLE; the end counts as one. FOLIOSWAP_NO_OFFSET: `offset` is not before the end.
///
/// # Safety
/// The handle is null or valid; `found` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_seek_hole(
    object: *const FolioswapShmemObject,
    offset: u64,
    found: *mut u64,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (object, found) = unsafe { (known(object)?, output(found)?) };
        *found = object.0.seek_hole(offset)?.unwrap_or(FOLIOSWAP_NO_OFFSET);
        Ok(())
    })
}

/// Says that the object is not needed for long: its resident folios leave now. Stores in `*left`
/// (unless it is NULL) the bytes that left; folios for which swap has no room stay.
///
/// # Safety
/// The handle is null or valid; `left` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_shmem_page_out(
    object: *const FolioswapShmemObject,
    left: *mut u64,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (object, left) = unsafe { (known(object)?, left.as_mut()) };
        let bytes = object.0.page_out()?;
        if let Some(left) = left {
            *left = bytes;
        }
        Ok(())
    })
}

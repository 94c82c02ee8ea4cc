//! Regions: memory that may be larger than the limit.

use crate::FolioswapCode;
use crate::border::{Refusal, figure, guarded, invalid, known, output};
use crate::swap::FolioswapSwap;
use folioswap::{Pin, Region};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Private memory, all zero at first, which is read and written like any other. A function that
/// changes a region's size or contents must be its only user; threads may share it for the others.
pub struct FolioswapRegion(Arc<Region>);

impl FolioswapRegion {
    /// Returns the region of the handle.
    pub(crate) fn region(&self) -> &Region {
        &self.0
    }
}

/// A range of a region that stays resident.
pub struct FolioswapPin {
    /// Declared first, so that it is dropped before the region that it borrows.
    pin: Pin<'static>,
    _region: Arc<Region>,
}

/// Advice: the range is not needed for long, and its pages leave now.
pub const FOLIOSWAP_PAGE_OUT: c_int = 1;
/// Advice: the range leaves before anything else when memory is short.
pub const FOLIOSWAP_COLD: c_int = 2;
/// Advice: the range comes back now, in order, as far as there is room.
pub const FOLIOSWAP_WILL_NEED: c_int = 3;
/// Advice: the range comes back now, ready to be written, even without room. It may leave again.
pub const FOLIOSWAP_POPULATE: c_int = 4;

pub(crate) fn end(offset: usize, bytes: usize) -> Result<usize, Refusal> {
    offset.checked_add(bytes).ok_or_else(|| invalid("a range ends beyond the address space"))
}

/// Returns a region to its only user.
///
/// # Safety
/// The handle is null or valid, and no other thread uses the region.
unsafe fn alone<'a>(region: *mut FolioswapRegion) -> Result<&'a mut Region, Refusal> {
    // SAFETY: the caller upholds the `# Safety` section.
    let region = unsafe { output(region) }?;
    Arc::get_mut(&mut region.0).ok_or_else(|| invalid("the region has pins: free them first"))
}

/// Makes a region of `bytes`, rounded up to pages, and stores it in `*region`. The region begins at
/// a multiple of 2 MiB and takes memory only where it is touched.
///
/// # Safety
/// The handle is null or valid; `region` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_new(
    swap: *const FolioswapSwap,
    bytes: usize,
    region: *mut *mut FolioswapRegion,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (swap, region) = unsafe { (known(swap)?, output(region)?) };
        *region = Box::into_raw(Box::new(FolioswapRegion(Arc::new(swap.0.region(bytes)?))));
        Ok(())
    })
}

/// Makes a copy-on-write clone of a region and stores it in `*clone`: another region with the same
/// contents, whose stored pages are not stored twice. Resident pages leave first; pages that cannot
/// leave are copied. Other threads may read the original meanwhile.
///
/// # Safety
/// The handle is null or valid; `clone` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_clone(
    region: *const FolioswapRegion,
    clone: *mut *mut FolioswapRegion,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (region, clone) = unsafe { (known(region)?, output(clone)?) };
        *clone = Box::into_raw(Box::new(FolioswapRegion(Arc::new(region.0.try_clone()?))));
        Ok(())
    })
}

/// Frees a region; NULL does nothing. As with munmap(2), no thread may use its memory afterwards.
///
/// # Safety
/// Neither the handle nor the memory is used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_free(region: *mut FolioswapRegion) {
    guarded(|| {
        if !region.is_null() {
            // SAFETY: `folioswap_region_new` or `folioswap_region_clone` made the handle, and the
            // caller gives it up.
            drop(unsafe { Box::from_raw(region) });
        }
        Ok(())
    });
}

/// Returns the address of the first byte; NULL: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_base(region: *const FolioswapRegion) -> *mut c_void {
    // SAFETY: the caller upholds the `# Safety` section.
    figure(null_mut(), || Ok(unsafe { known(region) }?.0.base().as_ptr().cast()))
}

/// Returns the length in bytes, as requested; 0: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_length(region: *const FolioswapRegion) -> usize {
    // SAFETY: the caller upholds the `# Safety` section.
    figure(0, || Ok(unsafe { known(region) }?.0.len()))
}

/// Gives advice about a range: FOLIOSWAP_PAGE_OUT, FOLIOSWAP_COLD, FOLIOSWAP_WILL_NEED or
/// FOLIOSWAP_POPULATE.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_advise(
    region: *const FolioswapRegion,
    offset: usize,
    bytes: usize,
    advice: c_int,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (region, range) = (&unsafe { known(region) }?.0, offset..end(offset, bytes)?);
        match advice {
            FOLIOSWAP_PAGE_OUT => region.page_out(range)?,
            FOLIOSWAP_COLD => region.cold(range)?,
            FOLIOSWAP_WILL_NEED => region.will_need(range)?,
            FOLIOSWAP_POPULATE => region.populate(range)?,
            _ => return Err(invalid("advice is none of its constants")),
        }
        Ok(())
    })
}

/// Discards the contents of a range, which reads as zeroes afterwards. Whole pages in it take no
/// memory any more. The region must not have pins.
///
/// # Safety
/// The handle is null or valid, and no other thread uses the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_dont_need(
    region: *mut FolioswapRegion,
    offset: usize,
    bytes: usize,
) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { alone(region) }?.dont_need(offset..end(offset, bytes)?)?))
}

/// Makes a region larger; the added bytes are zero. The region may move: call folioswap_region_base
/// again. It must not have pins.
///
/// # Safety
/// The handle is null or valid, and no other thread uses the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_grow(region: *mut FolioswapRegion, bytes: usize) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { alone(region) }?.grow(bytes)?))
}

/// Stores in `*resident` how many bytes of the pages of the range are in memory now.
///
/// # Safety
/// The handle is null or valid; `resident` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_resident(
    region: *const FolioswapRegion,
    offset: usize,
    bytes: usize,
    resident: *mut usize,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (region, resident) = unsafe { (known(region)?, output(resident)?) };
        *resident = region.0.resident_bytes(offset..end(offset, bytes)?)?;
        Ok(())
    })
}

/// Brings a range into memory and keeps it there until the pin, which is stored in `*pin`, is
/// freed. At most half of the limit can be pinned.
///
/// # Safety
/// The handle is null or valid; `pin` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_pin(
    region: *const FolioswapRegion,
    offset: usize,
    bytes: usize,
    pin: *mut *mut FolioswapPin,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (region, pin) = unsafe { (Arc::clone(&known(region)?.0), output(pin)?) };
        let held: *const Region = Arc::as_ptr(&region);
        // SAFETY: the region lives as long as the pin, which holds a reference to it.
        let made = unsafe { &*held }.pin(offset..end(offset, bytes)?)?;
        *pin = Box::into_raw(Box::new(FolioswapPin { pin: made, _region: region }));
        Ok(())
    })
}

/// Frees a pin; NULL does nothing. A region that was freed meanwhile goes with its last pin.
///
/// # Safety
/// The handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_pin_free(pin: *mut FolioswapPin) {
    guarded(|| {
        if !pin.is_null() {
            // SAFETY: `folioswap_region_pin` made the handle, and the caller gives it up.
            let FolioswapPin { pin, _region } = *unsafe { Box::from_raw(pin) };
            drop(pin);
        }
        Ok(())
    });
}

//! Regions: memory that may be larger than the limit.

use crate::FolioswapCode;
use crate::border::{Refusal, figure, guarded, invalid, known, place};
use crate::swap::FolioswapSwap;
use folioswap::{Pin, Region};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Private memory, all zero at first. Its bytes are read and written like any others. Functions that change its size or contents need it alone; for the
/// others threads may share it.
pub struct FolioswapRegion(Arc<Region>);

/// A range of a region that stays resident.
pub struct FolioswapPin {
    /// First: it refers to the other.
    pin: Pin<'static>,
    _region: Arc<Region>,
}

/// Advice: the range is not needed for long, its pages leave now.
pub const FOLIOSWAP_PAGE_OUT: c_int = 1;
/// Advice: it leaves before anything else when memory is short.
pub const FOLIOSWAP_COLD: c_int = 2;
/// Advice: it is brought back now, in order, as far as there is room.
pub const FOLIOSWAP_WILL_NEED: c_int = 3;
/// Advice: it is brought back now, ready to be written, whether there is room or not; it may leave again.
pub const FOLIOSWAP_POPULATE: c_int = 4;

fn end(offset: usize, bytes: usize) -> Result<usize, Refusal> {
    offset.checked_add(bytes).ok_or_else(|| invalid("a range ends beyond the address space"))
}

/// # Safety
/// The handle is null or valid, and nobody else uses it.
unsafe fn alone<'a>(region: *mut FolioswapRegion) -> Result<&'a mut Region, Refusal> {
    // SAFETY: by contract.
    let region = unsafe { place(region) }?;
    Arc::get_mut(&mut region.0).ok_or_else(|| invalid("the region has pins: free them first"))
}

/// Makes a region of `bytes`, rounded up to pages, and stores it in `*region`. It begins at a multiple of 2 MiB and takes memory only where it is
/// touched.
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
        // SAFETY: by contract.
        let (swap, region) = unsafe { (known(swap)?, place(region)?) };
        *region = Box::into_raw(Box::new(FolioswapRegion(Arc::new(swap.0.region(bytes)?))));
        Ok(())
    })
}

/// Makes a copy-on-write clone of a region and stores it in `*clone`: a region of its own with the same contents, of which nothing is stored twice.
/// What is in memory leaves first; what cannot leave is copied. Other threads may read the original meanwhile.
///
/// # Safety
/// The handle is null or valid; `clone` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_clone(
    region: *const FolioswapRegion,
    clone: *mut *mut FolioswapRegion,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: by contract.
        let (region, clone) = unsafe { (known(region)?, place(clone)?) };
        *clone = Box::into_raw(Box::new(FolioswapRegion(Arc::new(region.0.try_clone()?))));
        Ok(())
    })
}

/// Gives a region back; NULL does nothing. No thread may use its memory from then on, as after munmap(2).
///
/// # Safety
/// Neither the handle nor the memory is used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_free(region: *mut FolioswapRegion) {
    guarded(|| {
        if !region.is_null() {
            // SAFETY: by contract; made by `folioswap_region_new`.
            drop(unsafe { Box::from_raw(region) });
        }
        Ok(())
    });
}

/// The first byte. NULL: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_base(region: *const FolioswapRegion) -> *mut c_void {
    // SAFETY: by contract.
    figure(null_mut(), || Ok(unsafe { known(region) }?.0.base().as_ptr().cast()))
}

/// The length in bytes, as it was asked for. 0: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_length(region: *const FolioswapRegion) -> usize {
    // SAFETY: by contract.
    figure(0, || Ok(unsafe { known(region) }?.0.len()))
}

/// Says something of a range: FOLIOSWAP_PAGE_OUT (it is not needed for long: its pages leave now), FOLIOSWAP_COLD, FOLIOSWAP_WILL_NEED or
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
        // SAFETY: by contract.
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

/// Gives the contents of a range up: it reads as zeroes, and takes no memory where whole pages lie in it. The region may have no pins.
///
/// # Safety
/// The handle is null or valid, and no other thread uses the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_dont_need(
    region: *mut FolioswapRegion,
    offset: usize,
    bytes: usize,
) -> FolioswapCode {
    // SAFETY: by contract.
    guarded(|| Ok(unsafe { alone(region) }?.dont_need(offset..end(offset, bytes)?)?))
}

/// Makes a region larger; what is new is zero. It may move: ask folioswap_region_base again. The region may have no pins.
///
/// # Safety
/// The handle is null or valid, and no other thread uses the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_region_grow(region: *mut FolioswapRegion, bytes: usize) -> FolioswapCode {
    // SAFETY: by contract.
    guarded(|| Ok(unsafe { alone(region) }?.grow(bytes)?))
}

/// Stores in `*resident` how many bytes of the range's pages are in memory now.
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
        // SAFETY: by contract.
        let (region, resident) = unsafe { (known(region)?, place(resident)?) };
        *resident = region.0.resident_bytes(offset..end(offset, bytes)?)?;
        Ok(())
    })
}

/// Brings a range into memory and keeps it there until the pin, stored in `*pin`, is freed. At most half of the limit can be pinned.
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
        // SAFETY: by contract.
        let (region, pin) = unsafe { (Arc::clone(&known(region)?.0), place(pin)?) };
        let held: *const Region = Arc::as_ptr(&region);
        // SAFETY: the region lives as long as the pin, which holds it.
        let made = unsafe { &*held }.pin(offset..end(offset, bytes)?)?;
        *pin = Box::into_raw(Box::new(FolioswapPin { pin: made, _region: region }));
        Ok(())
    })
}

/// Ends a pin; NULL does nothing. A region that was freed meanwhile goes with its last pin.
///
/// # Safety
/// The handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_pin_free(pin: *mut FolioswapPin) {
    guarded(|| {
        if !pin.is_null() {
            // SAFETY: by contract; made by `folioswap_region_pin`.
            let FolioswapPin { pin, _region } = *unsafe { Box::from_raw(pin) };
            drop(pin);
        }
        Ok(())
    });
}

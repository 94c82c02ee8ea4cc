//! Groups: swaps within a swap.

use crate::FolioswapCode;
use crate::border::{guarded, invalid, known, place, slice};
use crate::swap::{self, FolioswapSwap};
use std::ffi::c_int;

/// Makes a group within `parent` and stores it in `*group`: a swap with a limit of its own besides, which has regions and groups of its own. What it
/// takes counts towards its own limit and towards those of all around it; whichever leaves the least room is kept. Up to seven deep, and 63 in all.
///
/// `devices` holds the `device_count` numbers of the devices that it may use, in the order in which they were given to folioswap_swap_new, from 0 on
/// (of the built-in ones compressed RAM is 0 and the file 1); with none it may use all that the swap around it may. `when_full` says what happens
/// when its own limit is reached and nothing can be swapped out. It starts three threads, and is given back by folioswap_swap_free; `parent` may be
/// given back before.
///
/// # Safety
/// Handles are null or valid; `devices` holds so many numbers; `group` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_group_new(
    parent: *const FolioswapSwap,
    limit: u64,
    devices: *const usize,
    device_count: usize,
    when_full: c_int,
    group: *mut *mut FolioswapSwap,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: by contract.
        let (parent, group) = unsafe { (known(parent)?, place(group)?) };
        let mut builder = parent.0.group().limit(limit).when_full(swap::when_full(when_full)?);
        if device_count > 0 {
            // SAFETY: by contract.
            let devices = unsafe { slice(devices, device_count) }
                .ok_or_else(|| invalid("there are devices, and their array is NULL"))?;
            builder = builder.devices(devices.iter().copied());
        }
        *group = Box::into_raw(Box::new(FolioswapSwap(builder.build()?)));
        Ok(())
    })
}

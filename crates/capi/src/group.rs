//! Groups: swaps within a swap.

use crate::FolioswapCode;
use crate::border::{guarded, invalid, known, output, slice};
use crate::swap::{self, FolioswapSwap};
use std::ffi::c_int;

/// Makes a group within `parent` and stores it in `*group`: a swap with a limit of its own, which
/// may have regions and groups of its own. Its memory counts towards its own limit and those of all
/// swaps around it, and the limit that is reached first is kept. Groups can be nested seven deep; a
/// swap has at most 63.
///
/// `devices` holds `device_count` numbers of devices that the group may use. A device's number is
/// its position in folioswap_swap_new's array, from 0 on (of the built-in devices, compressed RAM
/// is 0 and the file 1). With a `device_count` of 0 the group may use all devices that `parent` may
/// use. `when_full` is the reaction when the group's own limit is reached and nothing more can be
/// swapped out. The group starts three threads. Free it with folioswap_swap_free; `parent` may be
/// freed before.
///
/// # Safety
/// Handles are null or valid; `devices` holds `device_count` numbers; `group` is null or may be
/// written.
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
        // SAFETY: the caller upholds the `# Safety` section.
        let (parent, group) = unsafe { (known(parent)?, output(group)?) };
        let mut builder = parent.0.group().limit(limit).when_full(swap::when_full(when_full)?);
        if device_count > 0 {
            // SAFETY: the caller upholds the `# Safety` section.
            let devices = unsafe { slice(devices, device_count) }
                .ok_or_else(|| invalid("there are devices, and their array is NULL"))?;
            builder = builder.devices(devices.iter().copied());
        }
        *group = Box::into_raw(Box::new(FolioswapSwap(builder.build()?)));
        Ok(())
    })
}

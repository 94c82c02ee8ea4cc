//! A limit, and the devices behind it.

use crate::FolioswapCode;
use crate::border::{Refusal, figure, guarded, invalid, known, output, slice, text};
use folioswap::{Device, Notices, Swap, WhenFull};
use std::ffi::{c_char, c_int};

/// The smallest limit, in bytes.
pub const FOLIOSWAP_LEAST_LIMIT: u64 = 8 << 20;
/// `when_full`: the limit gives way, so that the program goes on.
pub const FOLIOSWAP_WHEN_FULL_EXCEED: c_int = 0;
/// `when_full`: the process is ended by abort(3), with a message.
pub const FOLIOSWAP_WHEN_FULL_ABORT: c_int = 1;

/// `notices`: one line to standard error when the program thrashes.
pub const FOLIOSWAP_NOTICES_STDERR: c_int = 0;
/// `notices`: no line.
pub const FOLIOSWAP_NOTICES_SILENT: c_int = 1;

const _: () = assert!(FOLIOSWAP_LEAST_LIMIT == folioswap::LEAST_LIMIT);

/// A limit, devices, and the engine that keeps the limit. Threads may share it.
pub struct FolioswapSwap(pub(crate) Swap);

/// Makes a swap and stores it in `*swap`. Its regions, compressed store and tables may take `limit`
/// bytes together. `devices` holds `device_count` strings such as "zram,prio=1" and
/// "file:/var/tmp,size=10G,prio=0", in the grammar of `folioswap run --swap`. With a `device_count`
/// of 0 the swap has compressed RAM, and a file without a name in /var/tmp behind it. `when_full`
/// is FOLIOSWAP_WHEN_FULL_EXCEED or FOLIOSWAP_WHEN_FULL_ABORT. The swap starts three threads.
///
/// # Safety
/// Pointers are null or valid for this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_new(
    limit: u64,
    devices: *const *const c_char,
    device_count: usize,
    when_full: c_int,
    swap: *mut *mut FolioswapSwap,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let swap = unsafe { output(swap) }?;
        let builder = Swap::builder().limit(limit).when_full(self::when_full(when_full)?);
        // SAFETY: the caller upholds the `# Safety` section.
        let devices = unsafe { devices_of(devices, device_count) }?;
        let builder = devices.into_iter().fold(builder, |builder, device| builder.device(device));
        *swap = Box::into_raw(Box::new(FolioswapSwap(builder.build()?)));
        Ok(())
    })
}

/// Returns the meaning of one of the two constants.
pub(crate) fn when_full(constant: c_int) -> Result<WhenFull, Refusal> {
    match constant {
        FOLIOSWAP_WHEN_FULL_EXCEED => Ok(WhenFull::Exceed),
        FOLIOSWAP_WHEN_FULL_ABORT => Ok(WhenFull::Abort),
        _ => Err(invalid("when_full is neither of its constants")),
    }
}

/// Parses an array of strings as devices.
///
/// # Safety
/// The array is null, or holds `count` pointers, each null or to a string.
pub(crate) unsafe fn devices_of(devices: *const *const c_char, count: usize) -> Result<Vec<Device>, Refusal> {
    // SAFETY: the caller upholds the `# Safety` section.
    let devices = unsafe { slice(devices, count) };
    let devices = devices.ok_or_else(|| invalid("there are devices, and their array is NULL"))?;
    // SAFETY: the caller upholds the `# Safety` section.
    devices.iter().map(|&device| Ok(unsafe { text(device) }?.parse()?)).collect()
}

/// Frees a swap; NULL does nothing. Its regions live on, and its threads end with the last of them.
///
/// # Safety
/// The handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_free(swap: *mut FolioswapSwap) {
    guarded(|| {
        if !swap.is_null() {
            // SAFETY: `folioswap_swap_new` or `folioswap_group_new` made the handle, and the caller
            // gives it up.
            drop(unsafe { Box::from_raw(swap) });
        }
        Ok(())
    });
}

/// Refuses further regions. Existing regions live on.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_close(swap: *const FolioswapSwap) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        unsafe { known(swap) }?.0.close();
        Ok(())
    })
}

/// Changes the limit. A smaller limit makes the engine swap memory out in the background.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_set_limit(swap: *const FolioswapSwap, limit: u64) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { known(swap) }?.0.set_limit(limit)?))
}

/// Lets pages that are swapped out from now on go to the devices of these tiers alone: their
/// priorities with commas between them ("10,0"), or "all". Pages that are on others stay there.
///
/// # Safety
/// The handle is null or valid; `tiers` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_set_tiers(
    swap: *const FolioswapSwap,
    tiers: *const c_char,
) -> FolioswapCode {
    // SAFETY: the caller upholds the `# Safety` section.
    guarded(|| Ok(unsafe { known(swap) }?.0.set_tiers(unsafe { text(tiers) }?)?))
}

/// Returns the limit in bytes: the one that was set, unless it gave way because all devices were
/// full. 0: the handle is NULL.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_limit(swap: *const FolioswapSwap) -> u64 {
    // SAFETY: the caller upholds the `# Safety` section.
    figure(0, || Ok::<_, Refusal>(unsafe { known(swap) }?.0.limit()))
}

/// Chooses whether the library may write a line to standard error when the program has been
/// thrashing for ten seconds, once for a swap: FOLIOSWAP_NOTICES_STDERR, as at first, or
/// FOLIOSWAP_NOTICES_SILENT. The figure "thrashing_ms" tells in both cases.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_set_notices(
    swap: *const FolioswapSwap,
    notices: c_int,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let swap = unsafe { known(swap) }?;
        swap.0.set_notices(match notices {
            FOLIOSWAP_NOTICES_STDERR => Notices::Stderr,
            FOLIOSWAP_NOTICES_SILENT => Notices::Silent,
            _ => return Err(invalid("notices is neither of its constants")),
        });
        Ok(())
    })
}

/// Returns 1 if system calls such as read(2) work on memory that is swapped out. 0: they fail with
/// EFAULT, since the process has userfaultfd for faults of user mode only, and no gate stands
/// before the C library's calls; folioswap_region_pin before such a call makes it work.
/// folioswap_region_read and folioswap_region_write work always.
///
/// # Safety
/// The handle is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_serves_system_calls(swap: *const FolioswapSwap) -> c_int {
    // SAFETY: the caller upholds the `# Safety` section.
    figure(0, || Ok::<_, Refusal>(c_int::from(unsafe { known(swap) }?.0.serves_system_calls())))
}

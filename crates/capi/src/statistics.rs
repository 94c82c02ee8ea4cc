//! The figures of a swap at one moment.

use crate::FolioswapCode;
use crate::border::{Refusal, guarded, invalid, known, output, text};
use crate::swap::FolioswapSwap;
use std::ffi::c_char;

/// Stores a figure in `*value`: "limit", "charge", "resident", "faults", "fault_p50_ns",
/// "fault_p99_ns", or a counter by the kernel's name ("pswpin", "pswpout", "pgmajfault",
/// "64kB/swpout", ...).
///
/// # Safety
/// The handle is null or valid; `name` is null or a string; `value` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_figure(
    swap: *const FolioswapSwap,
    name: *const c_char,
    value: *mut u64,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let (swap, name, value) = unsafe { (known(swap)?, text(name)?, output(value)?) };
        let statistics = swap.0.statistics();
        let latency = |part| statistics.latency(part).map_or(0, |duration| duration.as_nanos() as u64);
        *value = match name {
            "limit" => statistics.limit(),
            "charge" => statistics.charge(),
            "resident" => statistics.resident_bytes(),
            "faults" => statistics.faults(),
            "fault_p50_ns" => latency(0.5),
            "fault_p99_ns" => latency(0.99),
            name => statistics.counter(name).ok_or_else(|| invalid("there is no figure of this name"))?,
        };
        Ok(())
    })
}

/// A step of the histogram of fault durations.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FolioswapLatency {
    /// The longest duration of the step, in nanoseconds.
    pub at_most_ns: u64,
    /// The faults that took no longer than this step, and longer than the step before.
    pub faults: u64,
}

/// Writes the histogram of fault durations into `steps`, shortest first, at most `count` steps, and
/// stores in `*needed` (unless it is NULL) how many there are. Steps without faults are left out.
///
/// # Safety
/// The handle is null or valid; `steps` is null and `count` 0, or `count` steps may be written;
/// `needed` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_latency_histogram(
    swap: *const FolioswapSwap,
    steps: *mut FolioswapLatency,
    count: usize,
    needed: *mut usize,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let swap = unsafe { known(swap) }?;
        if steps.is_null() && count > 0 {
            return Err::<(), Refusal>(invalid("a pointer for an answer is NULL"));
        }
        let mut there = 0;
        for (at_most, faults) in swap.0.statistics().latency_histogram() {
            if there < count {
                let step = FolioswapLatency { at_most_ns: at_most.as_nanos() as u64, faults };
                // SAFETY: `there` is below `count`, and the caller vouches for `count` steps.
                unsafe { steps.add(there).write(step) };
            }
            there += 1;
        }
        // SAFETY: the caller upholds the `# Safety` section.
        if let Some(needed) = unsafe { needed.as_mut() } {
            *needed = there;
        }
        Ok(())
    })
}

/// Writes a few lines of text into `text`, at most `bytes` bytes with the zero byte at the end, and
/// stores in `*needed` (unless it is NULL) how many bytes would hold all of it.
///
/// # Safety
/// The handle is null or valid; `text` is null and `bytes` 0, or `bytes` bytes may be written;
/// `needed` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn folioswap_swap_describe(
    swap: *const FolioswapSwap,
    text: *mut c_char,
    bytes: usize,
    needed: *mut usize,
) -> FolioswapCode {
    guarded(|| {
        // SAFETY: the caller upholds the `# Safety` section.
        let swap = unsafe { known(swap) }?;
        let lines = swap.0.statistics().to_string();
        if text.is_null() && bytes > 0 {
            return Err::<(), Refusal>(invalid("a pointer for an answer is NULL"));
        }
        if bytes > 0 {
            let written = lines.len().min(bytes - 1);
            // SAFETY: the caller upholds the `# Safety` section.
            unsafe {
                std::ptr::copy_nonoverlapping(lines.as_ptr(), text.cast(), written);
                text.add(written).write(0);
            }
        }
        // SAFETY: the caller upholds the `# Safety` section.
        if let Some(needed) = unsafe { needed.as_mut() } {
            *needed = lines.len() + 1;
        }
        Ok(())
    })
}

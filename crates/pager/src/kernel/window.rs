//! Where the engine's own mappings lie: in a part of the address space that neither the kernel nor
//! programs choose by themselves.
//!
//! The kernel would put them into any hole between the program's mappings. A program may unmap some
//! of its memory, or move it away, and later map there again with MAP_FIXED: alone it knows that
//! nothing has come to lie there. The new mapping then took the place of the store's.

use crate::kernel::processor::WINDOW_START as START;
use crate::units::{BLOCK, PAGE};
use core::ffi::c_void;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// The first mapping begins within so many bytes, by chance: 1 TiB.
const SPREAD: usize = 1 << 40;

const END: usize = START + 4 * SPREAD;

/// Where the next mapping goes; 0 before the first one. A forked child goes on where its parent
/// was.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The address for a new mapping of `bytes`, for mmap(2) without MAP_FIXED: where something lies
/// there already, the kernel chooses another one. Null where it may choose. Cost: two atomic
/// operations.
pub fn place(bytes: usize) -> *mut c_void {
    if NEXT.load(Relaxed) == 0 {
        let _ = NEXT.compare_exchange(0, first(), Relaxed, Relaxed);
    }
    let bytes = bytes.next_multiple_of(PAGE);
    let start = NEXT.fetch_add(bytes, Relaxed);
    if start.saturating_add(bytes) <= END {
        return without_provenance_mut(start);
    }
    // What lay at the start may be gone by now, and this is no more than a hint.
    NEXT.store(START, Relaxed);
    null_mut()
}

/// Whether an address lies in this part, where all is the engine's or the gate's own, or was put
/// there by a program that asked for it.
pub fn has(address: usize) -> bool {
    (START..END).contains(&address)
}

/// The first address, as random as that of our code, which the kernel chose.
fn first() -> usize {
    START + ((place as fn(usize) -> *mut c_void as usize) & (SPREAD - 1)) / BLOCK * BLOCK
}

#[cfg(test)]
mod tests;

//! Touches of memory that other threads may use at the same time, by single instructions. The
//! compiler does not see into them, so it removes none; it may remove an atomic access without
//! effect.

use std::arch::asm;

/// Reads the byte at this address and discards it.
///
/// # Safety
/// The address is mapped and readable.
pub(crate) unsafe fn read(address: usize) {
    // SAFETY: a load of one byte, which the caller says is readable.
    unsafe {
        asm!("mov {byte}, byte ptr [{address}]", byte = out(reg_byte) _, address = in(reg) address, options(nostack, readonly, preserves_flags))
    };
}

/// Writes the byte at this address back unchanged, atomically, so that concurrent writes are not
/// lost.
///
/// # Safety
/// The address is mapped and writable.
pub(crate) unsafe fn write(address: usize) {
    // SAFETY: an atomic OR with 0 of a byte that the caller says is writable.
    unsafe { asm!("lock or byte ptr [{address}], 0", address = in(reg) address, options(nostack)) };
}

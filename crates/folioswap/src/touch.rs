//! Touching memory that others may use at the same time, by single instructions: the compiler knows nothing of them, so it leaves none out (an
//! atomic access without effect may be).

use std::arch::asm;

/// Reads the byte at this address and forgets it.
///
/// # Safety
/// It is mapped and readable.
pub(crate) unsafe fn read(address: usize) {
    // SAFETY: by contract; a load of one byte.
    unsafe {
        asm!("mov {byte}, byte ptr [{place}]", byte = out(reg_byte) _, place = in(reg) address, options(nostack, readonly, preserves_flags))
    };
}

/// Writes the byte at this address as it is, atomically: whoever else writes there loses nothing.
///
/// # Safety
/// It is mapped and writable.
pub(crate) unsafe fn write(address: usize) {
    // SAFETY: by contract; an atomic OR with 0.
    unsafe { asm!("lock or byte ptr [{place}], 0", place = in(reg) address, options(nostack)) };
}

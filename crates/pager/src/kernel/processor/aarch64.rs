//! aarch64. The C library's descriptor of a thread ends at the thread pointer; the thread's data
//! lie above it.

use super::{CONTROL_BLOCK_LEAST, CONTROL_BLOCK_MAX};
use core::arch::asm;
use core::ops::Range;
use linux_raw_sys::general as raw;

/// The kernel puts programs around 0xaaaa_aaaa_0000, mappings downwards from the stack, or upwards
/// from 0x4000_0000_0000 without a limit on the stack. Go chooses addresses of its own below that.
pub const WINDOW_START: usize = 0x7b00_0000_0000;

/// Makes any system call, and returns what the kernel answers.
///
/// # Safety
/// That of the call itself.
#[inline]
pub unsafe fn call(number: u32, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the aarch64 system call convention; the kernel keeps every other register.
    unsafe {
        asm!("svc 0",
            in("x8") number as usize,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5], options(nostack));
    }
    result
}

/// clone(2). The new thread calls the function whose address lies at `top`, with the word behind it
/// as its argument; the caller gets what the kernel answers.
///
/// # Safety
/// `top` is a multiple of 16 near the top of a stack that nobody uses, and the function does not
/// return; `tls` may be the thread's pointer.
pub unsafe fn clone(flags: u32, top: *mut usize, tls: usize) -> isize {
    let result: isize;
    // SAFETY: the parent goes on behind the call with nothing changed but the registers named here;
    // the child uses the stack of the caller's, and never comes back.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "ldp x9, x0, [sp], #16",
            "blr x9",
            "brk #1",
            "2:",
            in("x8") raw::__NR_clone as usize,
            inlateout("x0") flags as usize => result,
            in("x1") top,
            in("x2") 0usize,
            // The thread's pointer comes before the child's word here (CONFIG_CLONE_BACKWARDS).
            in("x3") tls,
            in("x4") 0usize,
        );
    }
    result
}

/// The calling thread's pointer, behind the C library's descriptor of it.
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register that every program may read.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags)) };
    pointer
}

/// Where the C library's descriptor of the calling thread lies: a range of at most
/// [`CONTROL_BLOCK_MAX`] bytes, and the first and last of the [`CONTROL_BLOCK_LEAST`] bytes within.
pub fn control_block() -> (Range<usize>, [usize; 2]) {
    let end = thread_pointer();
    (end - CONTROL_BLOCK_MAX..end, [end - CONTROL_BLOCK_LEAST, end - 1])
}

/// The addresses around the calling thread's pointer: its descriptor, and `bytes` of its
/// thread-local data.
pub fn thread_data(bytes: usize) -> Range<usize> {
    let pointer = thread_pointer();
    pointer - 2 * CONTROL_BLOCK_MAX..pointer + bytes
}

/// Reads the byte at this address, by an instruction that the compiler does not see into.
///
/// # Safety
/// The address is mapped and readable.
#[inline]
pub unsafe fn read_byte(address: usize) {
    // SAFETY: a load of one byte, which the caller says is readable.
    unsafe {
        asm!("ldrb {byte:w}, [{address}]", byte = out(reg) _, address = in(reg) address,
            options(nostack, readonly, preserves_flags));
    }
}

/// Writes the byte at this address back unchanged, atomically, by instructions that the compiler
/// does not see into: it may leave out an atomic access that changes nothing.
///
/// # Safety
/// The address is mapped and writable.
#[inline]
pub unsafe fn touch_byte(address: usize) {
    // SAFETY: the byte, which the caller says is writable, is stored as it was loaded, and only if
    // nobody has written it between.
    unsafe {
        asm!(
            "2:",
            "ldxrb {byte:w}, [{address}]",
            "stxrb {failed:w}, {byte:w}, [{address}]",
            "cbnz {failed:w}, 2b",
            byte = out(reg) _,
            failed = out(reg) _,
            address = in(reg) address,
            options(nostack, preserves_flags)
        );
    }
}

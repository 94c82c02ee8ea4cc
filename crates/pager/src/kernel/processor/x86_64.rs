//! x86_64. The C library's descriptor of a thread begins at the thread pointer; the thread's data
//! lie below it.

use super::{CONTROL_BLOCK_LEAST, CONTROL_BLOCK_MAX};
use core::arch::asm;
use core::ops::Range;
use linux_raw_sys::general as raw;

/// The kernel puts programs around 0x5555_5555_4000, mappings downwards from the stack, or upwards
/// from 0x2aaa_aaaa_a000 without a limit on the stack. Go and Java choose addresses of their own
/// elsewhere. ThreadSanitizer and MemorySanitizer forbid this range, if they come first: then the
/// kernel chooses.
pub const WINDOW_START: usize = 0x4b00_0000_0000;

/// Makes any system call, and returns what the kernel answers.
///
/// # Safety
/// That of the call itself.
#[inline]
pub unsafe fn call(number: u32, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86_64 system call convention; rcx and r11 are clobbered by the instruction.
    unsafe {
        asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
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
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "pop rax",
            "pop rdi",
            "call rax",
            "ud2",
            "2:",
            inlateout("rax") raw::__NR_clone as isize => result,
            in("rdi") flags as usize,
            in("rsi") top,
            in("rdx") 0usize,
            in("r10") 0usize,
            in("r8") tls,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// The calling thread's FS base, where the C library keeps its thread control block.
fn thread_pointer() -> usize {
    let base: usize;
    // SAFETY: by the x86-64 ABI of thread-local storage the first word there is its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) base, options(nostack, readonly, preserves_flags)) };
    base
}

/// Where the C library's descriptor of the calling thread lies: a range of at most
/// [`CONTROL_BLOCK_MAX`] bytes, and the first and last of the [`CONTROL_BLOCK_LEAST`] bytes within.
pub fn control_block() -> (Range<usize>, [usize; 2]) {
    let start = thread_pointer();
    (start..start + CONTROL_BLOCK_MAX, [start, start + CONTROL_BLOCK_LEAST - 1])
}

/// The addresses around the calling thread's pointer: its descriptor, and `bytes` of its
/// thread-local data.
pub fn thread_data(bytes: usize) -> Range<usize> {
    let pointer = thread_pointer();
    pointer - bytes..pointer + 2 * CONTROL_BLOCK_MAX
}

/// Reads the byte at this address, by an instruction that the compiler does not see into.
///
/// # Safety
/// The address is mapped and readable.
#[inline]
pub unsafe fn read_byte(address: usize) {
    // SAFETY: a load of one byte, which the caller says is readable.
    unsafe {
        asm!("mov {byte}, byte ptr [{address}]", byte = out(reg_byte) _, address = in(reg) address,
            options(nostack, readonly, preserves_flags));
    }
}

/// Writes the byte at this address back unchanged, atomically, by an instruction that the compiler
/// does not see into: it may leave out an atomic access that changes nothing.
///
/// # Safety
/// The address is mapped and writable.
#[inline]
pub unsafe fn touch_byte(address: usize) {
    // SAFETY: an atomic OR with 0 of a byte that the caller says is writable.
    unsafe { asm!("lock or byte ptr [{address}], 0", address = in(reg) address, options(nostack)) };
}

//! aarch64: the number and all six arguments come in registers.

use super::{before_clone, failed, served};
use core::arch::naked_asm;
use core::ffi::c_long;
use linux_raw_sys::general as raw;

/// syscall(2), the C library's function.
///
/// # Safety
/// As the call with that number.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    naked_asm!(
        ".cfi_startproc",
        // A landing pad where the processor demands one (BTI), else nothing.
        "hint #34",
        "cmp x0, #{futex}",
        "b.eq 2f",
        "cmp x0, #{clone}",
        "b.eq 3f",
        "cmp x0, #{ioctl}",
        "b.eq 2f",
        "cmp x0, #{madvise}",
        "b.eq 2f",
        "cmp x0, #{mlockall}",
        "b.eq 2f",
        "cmp x0, #{mmap}",
        "b.eq 2f",
        "cmp x0, #{mprotect}",
        "b.eq 2f",
        "cmp x0, #{mremap}",
        "b.eq 2f",
        "cmp x0, #{set_tid_address}",
        "b.eq 2f",
        // A child of this call may be on another stack, and uses none of it here.
        "1:",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc #0",
        "cmn x0, #4095",
        "b.cs 4f",
        "ret",
        "2:",
        "b {served}",
        // The arguments are where they must be for this call too.
        "3:",
        "stp x29, x30, [sp, #-64]!",
        ".cfi_def_cfa_offset 64",
        ".cfi_offset x29, -64",
        ".cfi_offset x30, -56",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "bl {before_clone}",
        "ldp x4, x5, [sp, #48]",
        "ldp x2, x3, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #64",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "b 1b",
        "4:",
        "neg w0, w0",
        "b {failed}",
        ".cfi_endproc",
        futex = const raw::__NR_futex,
        clone = const raw::__NR_clone,
        ioctl = const raw::__NR_ioctl,
        madvise = const raw::__NR_madvise,
        mlockall = const raw::__NR_mlockall,
        mmap = const raw::__NR_mmap,
        mprotect = const raw::__NR_mprotect,
        mremap = const raw::__NR_mremap,
        set_tid_address = const raw::__NR_set_tid_address,
        served = sym served,
        before_clone = sym before_clone,
        failed = sym failed,
    )
}

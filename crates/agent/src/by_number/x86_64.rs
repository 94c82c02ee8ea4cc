//! x86_64: the number and five arguments come in registers, the sixth on the stack.

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
        "endbr64",
        "cmp rdi, {futex}",
        "je 2f",
        "cmp rdi, {clone}",
        "je 3f",
        "cmp rdi, {ioctl}",
        "je 2f",
        "cmp rdi, {madvise}",
        "je 2f",
        "cmp rdi, {mlockall}",
        "je 2f",
        "cmp rdi, {mmap}",
        "je 2f",
        "cmp rdi, {mprotect}",
        "je 2f",
        "cmp rdi, {mremap}",
        "je 2f",
        "cmp rdi, {set_tid_address}",
        "je 2f",
        // A child of this call may be on another stack: only its return address is asked for there.
        "1:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "ret",
        "2:",
        "jmp {served}",
        // The arguments are where they must be for this call too.
        "3:",
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "call {before_clone}",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "jmp 1b",
        "4:",
        "neg eax",
        "mov edi, eax",
        "jmp {failed}",
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

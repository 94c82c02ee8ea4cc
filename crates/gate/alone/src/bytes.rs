//! The functions for bytes that the compiler calls: nothing of a C library is linked.

use core::arch::global_asm;

global_asm!(
    ".hidden memcpy, memmove, memset, memcmp, bcmp, strlen, rust_eh_personality",
    ".globl memcpy, memmove, memset, memcmp, bcmp, strlen, rust_eh_personality",
    "memmove:",
    "mov rax, rdi",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jae memcpy",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "mov rcx, rdx",
    "std",
    "rep movsb",
    "cld",
    "ret",
    "memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "memset:",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "bcmp:",
    "memcmp:",
    "mov rcx, rdx",
    "xor eax, eax",
    "cmp rcx, rcx",
    "repe cmpsb",
    "je 2f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub ecx, eax",
    "mov eax, ecx",
    "2: ret",
    "strlen:",
    "lea rax, [rdi - 1]",
    "3: inc rax",
    "cmp byte ptr [rax], 0",
    "jne 3b",
    "sub rax, rdi",
    "ret",
    "rust_eh_personality: ud2",
);

/// A bug ends the process.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: the instruction ends the process by SIGILL.
        unsafe { core::arch::asm!("ud2") }
    }
}

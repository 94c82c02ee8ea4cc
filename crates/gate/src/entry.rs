//! The entry: from a call's site or trampoline into the gate, through the kernel, and back.
//!
//! At [`begin`] `rcx` has the address where the thread goes on, `r11` the address behind the
//! site's `syscall` (for unwinders only), and all other registers are the program's. A system call
//! destroys `rax`, `rcx` and `r11`, so the gate may use the last two.
//!
//! Rust code of the gate may use SSE registers. The slow path therefore saves `xmm0` to `xmm15`
//! by instructions that leave the upper halves of `ymm` and `zmm` as they are; the crate does not
//! compile with AVX enabled, so nothing else touches those. Nothing in the gate computes with
//! floating point, so `mxcsr` and the x87 state stay untouched.
//!
//! Every `syscall` instruction of the gate lies between [`begin`] and [`end`], the range from
//! which Syscall User Dispatch lets calls through.

use core::arch::{asm, global_asm};

/// Registers of a call in the order of the kernel's convention: number, then six arguments.
pub(crate) type Registers = [u64; 7];

/// What the slow path has on the stack of the calling thread, below the red zone.
#[repr(C)]
pub(crate) struct Frame {
    /// What goes to the kernel; word 0 is the number before, and the result after the call.
    pub call: Registers,
    /// What the program gave; it gets all but word 0 back.
    pub saved: Registers,
    /// Words that a path keeps over the call: masks, structures with pointers, a slot's number.
    pub scratch: [u64; 8],
    sse: [u64; 32],
    /// The program's flags.
    pub flags: u64,
    /// The address behind the site's `syscall`.
    pub site: u64,
    /// Where the thread goes on.
    pub goes_on: u64,
}

/// Bytes between a frame and the stack pointer of the program: the frame and the red zone.
pub(crate) const FRAME_TO_STACK: usize = size_of::<Frame>() + 128;

/// How the entry goes on after [`crate::call::before`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Path {
    /// The result is in `call[0]`; the kernel is not asked.
    Answered = 0,
    /// The call is made, then [`crate::call::after`] runs.
    Ordinary = 1,
    /// rt_sigreturn: the call is made with the stack pointer as it was, and does not return.
    SignalReturn = 2,
    /// clone onto another stack: `r9` leads the child to its slot.
    NewStack = 3,
    /// vfork: the child uses this stack first, so the parent finds nothing of the frame again.
    SameStack = 4,
}

const _: () = {
    assert!(size_of::<Frame>() == 456);
    assert!(FRAME_TO_STACK == 584);
    assert!(core::mem::offset_of!(Frame, sse) == 176);
    assert!(core::mem::offset_of!(Frame, flags) == 432);
};

/// Numbers below this have a byte in [`SLOW`]; larger ones always take the slow path.
pub(crate) const NUMBERS: usize = 512;

/// For each number: 0, and the entry makes the call at once; or 1, and the slow path looks at it.
pub(crate) static SLOW: [core::sync::atomic::AtomicU8; NUMBERS] =
    [const { core::sync::atomic::AtomicU8::new(0) }; NUMBERS];

/// The address of a label. Code that names it another way would need a relocation.
macro_rules! address {
    ($label:literal) => {{
        let address: u64;
        // SAFETY: computes an address.
        unsafe {
            asm!(concat!("lea {}, [rip + ", $label, "]"), out(reg) address, options(pure, nomem, nostack));
        }
        address
    }};
}

/// The address of a function, likewise.
macro_rules! address_of {
    ($function:path) => {{
        let address: u64;
        // SAFETY: computes an address.
        unsafe {
            core::arch::asm!(
                "lea {}, [rip + {}]", out(reg) address, sym $function, options(pure, nomem, nostack),
            );
        }
        address
    }};
}
pub(crate) use address_of;

/// The entry, and the first byte of the range from which calls are let through.
pub(crate) fn begin() -> u64 {
    address!("folioswap_gate_begin")
}

/// The byte behind that range.
pub(crate) fn end() -> u64 {
    address!("folioswap_gate_end")
}

/// The entry for `int $0x80`: the return address is on the stack, below the red zone.
pub(crate) fn legacy() -> u64 {
    address!("folioswap_gate_legacy")
}

/// The restorer of the gate's own handler.
pub(crate) fn restorer() -> u64 {
    address!("folioswap_gate_restorer")
}

/// Makes a system call from within the range that is let through.
///
/// # Safety
/// The arguments must be those that the call demands.
#[inline(always)]
pub(crate) unsafe fn syscall(number: u64, arguments: [u64; 6]) -> u64 {
    let [a, b, c, d, e, f] = arguments;
    let answer: u64;
    // SAFETY: the caller's. The kernel changes rax, rcx and r11.
    unsafe {
        asm!(
            "call folioswap_gate_syscall",
            inlateout("rax") number => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

global_asm!(
    r#"
.macro GATE_STORE at
    mov [rsp + \at + 8], rdi
    mov [rsp + \at + 16], rsi
    mov [rsp + \at + 24], rdx
    mov [rsp + \at + 32], r10
    mov [rsp + \at + 40], r8
    mov [rsp + \at + 48], r9
.endm
.macro GATE_LOAD at
    mov rdi, [rsp + \at + 8]
    mov rsi, [rsp + \at + 16]
    mov rdx, [rsp + \at + 24]
    mov r10, [rsp + \at + 32]
    mov r8, [rsp + \at + 40]
    mov r9, [rsp + \at + 48]
.endm
.macro GATE_SSE_STORE
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups [rsp + 176 + \n * 16], xmm\n
    .endr
.endm
.macro GATE_SSE_LOAD
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups xmm\n, [rsp + 176 + \n * 16]
    .endr
.endm
# Calls a Rust function with the frame's address as its first argument; rsi stays.
.macro GATE_CALL function
    lea rdi, [rsp]
    push rbp
    .cfi_adjust_cfa_offset 8
    mov rbp, rsp
    .cfi_def_cfa_register rbp
    and rsp, -16
    call \function
    mov rsp, rbp
    .cfi_def_cfa_register rsp
    pop rbp
    .cfi_adjust_cfa_offset -8
.endm
# Gives the registers of the call to the kernel, and the program's flags with them.
.macro GATE_KERNEL
    push qword ptr [rsp + 432]
    popfq
    mov rax, [rsp]
    GATE_LOAD 0
    syscall
.endm

    .pushsection .text.folioswap_gate, "ax", @progbits
    .hidden folioswap_gate_begin, folioswap_gate_end, folioswap_gate_restorer
    .hidden folioswap_gate_syscall, folioswap_gate_legacy
    .globl folioswap_gate_begin, folioswap_gate_end, folioswap_gate_restorer
    .globl folioswap_gate_syscall, folioswap_gate_legacy
    .p2align 6
    .type folioswap_gate_begin, @function
folioswap_gate_begin:
    .cfi_startproc simple
    .cfi_signal_frame
    .cfi_def_cfa rsp, 0
    .cfi_register rip, r11
    lea rsp, [rsp - 128]
    .cfi_def_cfa_offset 128
    push rcx
    .cfi_adjust_cfa_offset 8
    push r11
    .cfi_adjust_cfa_offset 8
    .cfi_offset rip, -144
    pushfq
    .cfi_adjust_cfa_offset 8
    cmp rax, {numbers}
    jae 20f
    lea rcx, [rip + {slow}]
    cmp byte ptr [rcx + rax], 0
    jne 20f
    popfq
    .cfi_adjust_cfa_offset -8
    syscall
    mov rcx, [rsp + 8]
    lea rsp, [rsp + 144]
    .cfi_def_cfa_offset 0
    .cfi_register rip, rcx
    jmp rcx

20: # The slow path.
    .cfi_def_cfa_offset 152
    .cfi_offset rip, -144
    lea rsp, [rsp - 432]
    .cfi_def_cfa_offset 584
    cld
    mov [rsp + 56], rax
    mov [rsp], rax
    GATE_STORE 0
    GATE_STORE 56
    GATE_SSE_STORE
    GATE_CALL {before}
    cmp eax, 1
    je 21f
    jb 30f
    GATE_SSE_LOAD
    cmp eax, 3
    je 23f
    ja 24f

    # rt_sigreturn: the kernel finds its frame at the stack pointer, and sets all registers.
    lea rsp, [rsp + 584]
    mov eax, 15
    syscall
    ud2

21: # An ordinary call, or one whose child has a copy of this stack.
    GATE_KERNEL
    mov [rsp], rax
    cld
    GATE_CALL {after}
    jmp 30f

23: # clone onto another stack.
    GATE_KERNEL
    test rax, rax
    jz 40f
    mov [rsp], rax
    cld
    GATE_CALL {after}
    jmp 30f

24: # vfork. The child runs first, and finds the frame as it was.
    GATE_KERNEL
    test rax, rax
    jnz 25f
    mov [rsp], rax
    cld
    GATE_CALL {after}
    jmp 30f
25: # The parent has its registers, and below the stack pointer what the child left there.
    mov [rsp], rax
    mov [rsp + 432], r11
    GATE_STORE 56
    GATE_SSE_STORE
    cld
    GATE_CALL {after_same_stack}

30: # Back to the program.
    GATE_SSE_LOAD
    GATE_LOAD 56
    mov rax, [rsp]
    lea rsp, [rsp + 432]
    .cfi_def_cfa_offset 152
    mov r11, [rsp]
    popfq
    .cfi_adjust_cfa_offset -8
    mov rcx, [rsp + 8]
    lea rsp, [rsp + 144]
    .cfi_def_cfa_offset 0
    .cfi_register rip, rcx
    jmp rcx
    .cfi_endproc

    # A new thread on its stack: r9 has its slot {{goes on, site, r9}}. What is below the stack
    # pointer of a new thread is free, so the frame lies there.
40: .cfi_startproc simple
    .cfi_undefined rip
    .cfi_def_cfa rsp, 0
    lea rsp, [rsp - 584]
    .cfi_def_cfa_offset 584
    mov [rsp], rax
    GATE_STORE 56
    mov [rsp + 432], r11
    mov rcx, [r9]
    mov [rsp + 448], rcx
    mov rcx, [r9 + 8]
    mov [rsp + 440], rcx
    mov rcx, [r9 + 16]
    mov [rsp + 104], rcx
    GATE_SSE_STORE
    cld
    mov rsi, r9
    GATE_CALL {thread_started}
    jmp 30b
    .cfi_endproc

    # int $0x80 of the program, which destroys rax only.
folioswap_gate_legacy:
    int 0x80
    ret 128

folioswap_gate_syscall:
    .cfi_startproc
    syscall
    ret
    .cfi_endproc

folioswap_gate_restorer:
    mov eax, 15
    syscall
    ud2
folioswap_gate_end:
    nop
    .size folioswap_gate_begin, . - folioswap_gate_begin
    .popsection
    "#,
    numbers = const NUMBERS,
    slow = sym SLOW,
    before = sym crate::call::before,
    after = sym crate::call::after,
    after_same_stack = sym crate::process::after_same_stack,
    thread_started = sym crate::process::thread_started,
);

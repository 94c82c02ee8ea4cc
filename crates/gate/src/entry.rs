//! The entry: from a call's site or trampoline into the gate, through the kernel, and back.
//!
//! At [`begin`] `rcx` has the address where the thread goes on, `r11` the address behind the
//! site's `syscall` (for unwinders only), and all other registers are the program's. A system call
//! destroys `rax`, `rcx` and `r11`, so the gate may use the last two.
//!
//! A call that nothing looks at uses 152 bytes below the program's stack pointer, 128 of them the
//! red zone, before it is made. All others take a slot ([`crate::slot`]): its frame, and its stack.
//! `rbx` has the frame over the call, since the kernel keeps it and a stack may be gone afterwards.
//!
//! Rust code of the gate may use SSE registers. The slow path therefore saves `xmm0` to `xmm15`
//! by instructions that leave the upper halves of `ymm` and `zmm` as they are; the crate does not
//! compile with AVX enabled, so nothing else touches those. Nothing in the gate computes with
//! floating point, so `mxcsr` and the x87 state stay untouched.
//!
//! Every `syscall` instruction of the gate lies between [`begin`] and [`end`], the range from
//! which Syscall User Dispatch lets calls through.

mod labels;

pub(crate) use labels::{
    PUSHED, begin, begun, delivery, end, legacy, made, made_at_once, restorer, thread_end,
};

use crate::slot::{self, place};
use core::arch::{asm, global_asm};
use core::sync::atomic::AtomicU8;

/// Registers of a call in the order of the kernel's convention: number, then six arguments.
pub(crate) type Registers = [u64; 7];

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
    /// clone onto another stack: `r9` leads the child to its frame.
    NewStack = 3,
    /// The thread, or the process, ends: the slot is free before the call.
    End = 4,
}

/// What becomes of the slot when the thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Slot {
    /// It is free.
    Free = 0,
    /// The thread is the child of a vfork: the slot is its parent's, which waits.
    Parents = 1,
}

/// Numbers below this have a byte in [`SLOW`]; larger ones always take the slow path.
pub(crate) const NUMBERS: usize = 512;

/// For each number: 0, and the entry makes the call at once; 1, and the slow path looks at it; or
/// [`AT_SITE`].
pub(crate) static SLOW: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];

/// The call is made by the `syscall` of the site's trampoline, which needs no stack: only where
/// every call comes from a trampoline, and no dispatch is on.
pub(crate) const AT_SITE: u8 = 2;

/// 1 where the frames of calls lie on their threads' stacks, and not in slots: signals that arrive
/// during a call do so on that stack.
pub(crate) static ON_STACK: AtomicU8 = AtomicU8::new(0);

/// The address of a label. Code that names it another way would need a relocation.
macro_rules! address {
    ($label:literal) => {{
        let address: u64;
        // SAFETY: computes an address.
        unsafe {
            core::arch::asm!(concat!("lea {}, [rip + ", $label, "]"), out(reg) address, options(pure, nomem, nostack));
        }
        address
    }};
}
pub(crate) use address;

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
    mov [rbx + \at + 8], rdi
    mov [rbx + \at + 16], rsi
    mov [rbx + \at + 24], rdx
    mov [rbx + \at + 32], r10
    mov [rbx + \at + 40], r8
    mov [rbx + \at + 48], r9
.endm
.macro GATE_LOAD at
    mov rdi, [rbx + \at + 8]
    mov rsi, [rbx + \at + 16]
    mov rdx, [rbx + \at + 24]
    mov r10, [rbx + \at + 32]
    mov r8, [rbx + \at + 40]
    mov r9, [rbx + \at + 48]
.endm
.macro GATE_SSE_STORE
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups [rbx + {SSE} + \n * 16], xmm\n
    .endr
.endm
.macro GATE_SSE_LOAD
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups xmm\n, [rbx + {SSE} + \n * 16]
    .endr
.endm
# Calls a Rust function with the frame as its first argument, on the slot's stack; rsi stays.
.macro GATE_CALL function
    mov rdi, rbx
    call \function
.endm
# Gives the registers of the call to the kernel, and the program's flags with them, on the program's
# stack.
.macro GATE_KERNEL
    push qword ptr [rbx + {FLAGS}]
    popfq
    mov rax, [rbx + {CALL}]
    GATE_LOAD {CALL}
    mov rsp, [rbx + {CALL_STACK}]
    syscall
.endm
# An unwinder finds all that it wants in the frame: the stack pointer, the address behind the site,
# and the program's rbx. Rules name a register that has it: 0x73 is rbx, 0x7b is r11.
.macro GATE_CFI_RBX at
    .cfi_escape 0x10, 3, 2, \at, {RBX}
.endm
.macro GATE_CFI_FRAME at
    .cfi_escape 0x0f, 3, \at, {STACK}, 0x06
    .cfi_escape 0x10, 16, 2, \at, {SITE}
    GATE_CFI_RBX \at
.endm
# The thread goes on in the program. What is read of the frame is read before the slot is free.
.macro GATE_BACK free
    GATE_SSE_LOAD
    GATE_LOAD {SAVED}
    mov rax, [rbx + {CALL}]
    mov rcx, [rbx + {GOES_ON}]
    mov qword ptr [rbx + {INTERRUPTED}], 0
    push qword ptr [rbx + {FLAGS}]
    popfq
    mov r11, rbx
    .cfi_remember_state
    GATE_CFI_FRAME 0x7b
    mov rbx, [r11 + {RBX}]
    mov rsp, [r11 + {STACK}]
    .cfi_def_cfa rsp, 0
    .cfi_register rip, rcx
    .cfi_same_value rbx
    .if \free
    mov byte ptr [r11], 0
    .endif
    jmp rcx
    .cfi_restore_state
.endm

    .pushsection .text.folioswap_gate, "ax", @progbits
    .hidden folioswap_gate_begin, folioswap_gate_end, folioswap_gate_restorer
    .hidden folioswap_gate_syscall, folioswap_gate_legacy, folioswap_gate_thread_end
    .hidden folioswap_gate_delivery, folioswap_gate_made, folioswap_gate_made_end
    .hidden folioswap_gate_made_at_once, folioswap_gate_pushed, folioswap_gate_at_once
    .hidden folioswap_gate_slow, folioswap_gate_claim
    .globl folioswap_gate_begin, folioswap_gate_end, folioswap_gate_restorer
    .globl folioswap_gate_syscall, folioswap_gate_legacy, folioswap_gate_thread_end
    .globl folioswap_gate_delivery, folioswap_gate_made, folioswap_gate_made_end
    .globl folioswap_gate_made_at_once, folioswap_gate_pushed, folioswap_gate_at_once
    .globl folioswap_gate_slow, folioswap_gate_claim
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
folioswap_gate_pushed:
    # The kernel looks at the lower half of the number only.
    mov ecx, eax
    cmp ecx, {numbers}
    jae 20f
    lea r11, [rip + {slow}]
    cmp byte ptr [r11 + rcx], 0
    jne 19f
folioswap_gate_at_once:
    popfq
    .cfi_adjust_cfa_offset -8
    syscall
folioswap_gate_made_at_once:
    mov rcx, [rsp + 8]
    lea rsp, [rsp + 144]
    .cfi_def_cfa_offset 0
    .cfi_register rip, rcx
    jmp rcx

folioswap_gate_slow:
19:
    .cfi_def_cfa_offset 152
    .cfi_offset rip, -144
    cmp byte ptr [r11 + rcx], {AT_SITE}
    je 70f
20: # The slow path: a slot, or room on this stack where all are taken.
    cld
    cmp byte ptr [rip + {on_stack}], 0
    jne 24f
    mov rcx, rsp
    shr rcx, 12
    and ecx, {FIRST} - 1
    shl rcx, {SLOT_SHIFT}
    lea r11, [rip + {table} + {SLOT_BYTES} - {BYTES}]
    add r11, rcx
    mov ecx, {SLOTS}
folioswap_gate_claim:
21: lock bts dword ptr [r11], 0
    jnc 22f
    add r11, {SLOT_BYTES}
    dec ecx
    jnz 21b
24: lea rcx, [rsp + 152]
    .cfi_remember_state
    .cfi_def_cfa rcx, 0
    lea r11, [rsp - {BYTES}]
    and r11, -64
    mov rsp, r11
    mov dword ptr [r11], 0
    mov qword ptr [r11 + {INTERRUPTED}], 0
    mov [r11 + {CALL_STACK}], r11
    jmp 23f
    .cfi_restore_state
22: add dword ptr [r11], {CLAIM}
    lea rcx, [rsp + 152]
    .cfi_def_cfa rcx, 0
    mov [r11 + {CALL_STACK}], rcx
23: mov [r11 + {STACK}], rcx
    mov [r11 + {RBX}], rbx
    GATE_CFI_RBX 0x7b
    mov rbx, [rcx - 144]
    mov [r11 + {SITE}], rbx
    mov rbx, r11
    GATE_CFI_FRAME 0x73
    mov r11, [rcx - 136]
    mov [rbx + {GOES_ON}], r11
    mov r11, [rcx - 152]
    mov [rbx + {FLAGS}], r11
    # All that a handler is shown is there before the stack is the slot's.
    mov qword ptr [rbx + {IS_MADE}], 0
    mov [rbx + {KEPT}], rbp
    mov [rbx + {KEPT} + 8], r12
    mov [rbx + {KEPT} + 16], r13
    mov [rbx + {KEPT} + 24], r14
    mov [rbx + {KEPT} + 32], r15
    mov [rbx + {SAVED}], rax
    GATE_STORE {SAVED}
    mov rsp, rbx
    mov [rbx + {CALL}], rax
    GATE_STORE {CALL}
    GATE_SSE_STORE
    GATE_CALL {before}
    cmp eax, 1
    je 31f
    jb 60f
    cmp eax, 3
    je 33f
    ja 50f

    # rt_sigreturn: the kernel finds its frame at the stack pointer, and sets all registers.
    mov rsp, [rbx + {STACK}]
    mov qword ptr [rbx + {INTERRUPTED}], 0
    mov byte ptr [rbx], 0
    mov eax, 15
    syscall
    ud2

31: # An ordinary call. The child of a vfork finds the frame as it was; so does its parent later.
    GATE_KERNEL
folioswap_gate_made:
    mov rsp, rbx
    mov [rbx + {CALL}], rax
    cld
    GATE_CALL {after}
folioswap_gate_made_end:
    test eax, eax
    jz 60f
    GATE_BACK 0

33: # clone onto another stack.
    GATE_KERNEL
    test rax, rax
    jz 40f
    mov rsp, rbx
    mov [rbx + {CALL}], rax
    cld
    GATE_CALL {after}

60: # Back to the program.
    GATE_BACK 1

40: # A new thread on its stack: r9 has its frame.
    mov rbx, r9
    mov [rbx + {STACK}], rsp
    mov [rbx + {CALL_STACK}], rsp
    mov rsp, rbx
    mov qword ptr [rbx + {CALL}], 0
    cld
    GATE_CALL {thread_started}
    jmp 60b

50: # The thread ends. Signals are blocked, but for a program that has a filter of its own.
    mov rdi, [rbx + {CALL} + 8]
    mov rax, [rbx + {CALL}]
    mov rsp, [rbx + {STACK}]
    mov qword ptr [rbx + {INTERRUPTED}], 0
    mov byte ptr [rbx], 0
    syscall
    ud2

70: # Back to the trampoline, whose own syscall makes the call: two bytes before where it goes on.
    .cfi_def_cfa rsp, 152
    .cfi_offset rip, -144
    .cfi_same_value rbx
    popfq
    .cfi_adjust_cfa_offset -8
    pop r11
    .cfi_adjust_cfa_offset -8
    .cfi_register rip, r11
    pop rcx
    .cfi_adjust_cfa_offset -8
    lea rsp, [rsp + 128]
    .cfi_adjust_cfa_offset -128
    lea rcx, [rcx - 2]
    jmp rcx
    .cfi_endproc

    # The same from a site that trapped: there may be no stack. rdi has the status.
folioswap_gate_thread_end:
    cld
    lea r11, [rip + {table} + {SLOT_BYTES} - {BYTES}]
    mov ecx, {SLOTS}
51: lock bts dword ptr [r11], 0
    jnc 52f
    add r11, {SLOT_BYTES}
    dec ecx
    jnz 51b
    mov eax, 60
    syscall
    ud2
52: add dword ptr [r11], {CLAIM}
    mov [r11 + {STACK}], rsp
    mov [r11 + {CALL_STACK}], rsp
    mov rbx, r11
    mov rsp, rbx
    mov qword ptr [rbx + {CALL}], 60
    mov [rbx + {CALL} + 8], rdi
    call {thread_ends}
    jmp 50b

    # The kernel's handler of the program's signals, on the thread's alternate stack, with all
    # signals blocked: rdi has the signal, rsi siginfo, rdx the context, rsp the frame.
folioswap_gate_delivery:
    cld
    mov rcx, rsp
    lea rsp, [rsp - {WAY_BYTES} - 8]
    mov r8, rsp
    call {deliver}
    # A frame that is the way into the handler: the kernel's own, or the one at r8.
    lea rsp, [rax + 8]
    mov eax, 15
    syscall
    ud2

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
    AT_SITE = const AT_SITE,
    on_stack = sym ON_STACK,
    table = sym slot::TABLE,
    FIRST = const slot::FIRST,
    SLOTS = const slot::SLOTS,
    SLOT_BYTES = const slot::SLOT_BYTES,
    SLOT_SHIFT = const slot::SLOT_BYTES.trailing_zeros(),
    CLAIM = const slot::CLAIM,
    STACK = const place::STACK,
    CALL_STACK = const place::CALL_STACK,
    RBX = const place::RBX,
    FLAGS = const place::FLAGS,
    SITE = const place::SITE,
    GOES_ON = const place::GOES_ON,
    CALL = const place::CALL,
    SAVED = const place::SAVED,
    SSE = const place::SSE,
    KEPT = const place::KEPT,
    IS_MADE = const place::IS_MADE,
    INTERRUPTED = const place::INTERRUPTED,
    BYTES = const place::BYTES,
    before = sym crate::call::before,
    after = sym crate::call::after,
    thread_started = sym crate::process::thread_started,
    thread_ends = sym crate::process::thread_ends,
    deliver = sym crate::delivery::deliver,
    WAY_BYTES = const crate::delivery::WAY_BYTES,
);

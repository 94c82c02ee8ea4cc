//! Touches of managed memory that fail where the program may not touch it: a pointer that leads
//! nowhere is the kernel's to refuse, with EFAULT.
//!
//! The handler of SIGSEGV knows the two instructions, and leads the thread to where the touch has
//! failed. So the kernel has our handler of SIGSEGV also where the program has none; then it does
//! what the kernel would have done.

use crate::entry;
use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .text.folioswap_gate_touch, \"ax\", @progbits",
    ".hidden folioswap_gate_touch_write, folioswap_gate_touch_read, folioswap_gate_touch_failed",
    ".globl folioswap_gate_touch_write, folioswap_gate_touch_read, folioswap_gate_touch_failed",
    // A thread may be cancelled here, inside a program.
    ".cfi_startproc",
    // The write changes no bit, and is atomic beside the program's own.
    "folioswap_gate_touch_write:",
    "lock or byte ptr [rdi], 0",
    "mov eax, 1",
    "ret",
    "folioswap_gate_touch_read:",
    "movzx eax, byte ptr [rdi]",
    "mov eax, 1",
    "ret",
    "folioswap_gate_touch_failed:",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

/// Whether a touch could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    Yes,
    /// The program may not touch the page so.
    No,
}

/// Writes a byte back, unchanged.
pub(crate) fn write(at: u64) -> Touched {
    let made: u32;
    // SAFETY: the function destroys what is said here, and no bit of the byte changes.
    unsafe {
        asm!("call folioswap_gate_touch_write", in("rdi") at, out("eax") made);
    }
    outcome(made)
}

/// Reads a byte.
pub(crate) fn read(at: u64) -> Touched {
    let made: u32;
    // SAFETY: as above, and nothing is written.
    unsafe {
        asm!("call folioswap_gate_touch_read", in("rdi") at, out("eax") made);
    }
    outcome(made)
}

fn outcome(made: u32) -> Touched {
    if made != 0 { Touched::Yes } else { Touched::No }
}

/// Where a thread goes on that was interrupted at a touch which it may not make; none elsewhere.
pub(crate) fn failed_at(counter: u64) -> Option<u64> {
    let touches =
        [entry::address!("folioswap_gate_touch_write"), entry::address!("folioswap_gate_touch_read")];
    touches.contains(&counter).then(|| entry::address!("folioswap_gate_touch_failed"))
}

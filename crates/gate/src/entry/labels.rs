//! Where the parts of the entry are.

use super::address;

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

/// Where a thread ends that may have no stack any more.
pub(crate) fn thread_end() -> u64 {
    address!("folioswap_gate_thread_end")
}

/// The handler that the kernel has for each signal for which the program has one.
pub(crate) fn delivery() -> u64 {
    address!("folioswap_gate_delivery")
}

/// Where the slow path goes on after the kernel's part of an ordinary call: in this range, and at
/// the `syscall` before it, `rbx` has the frame; `rax` has the result.
pub(crate) fn made() -> core::ops::Range<u64> {
    address!("folioswap_gate_made")..address!("folioswap_gate_made_end")
}

/// Where a call goes on that nothing looks at: the stack has the site, and where the thread goes
/// on.
pub(crate) fn made_at_once() -> u64 {
    address!("folioswap_gate_made_at_once")
}

/// Whether a thread with this program counter has begun a call and done nothing of it: it has no
/// slot yet. Then, how many bytes below the program's stack pointer its own is.
pub(crate) fn begun(counter: u64) -> Option<u64> {
    // Of the first instructions, by their lengths: the red zone is left, then three words are
    // pushed.
    const PUSHES: [(u64, u64); 4] = [(0, 0), (5, 128), (6, 136), (8, PUSHED - 8)];
    let first = counter.wrapping_sub(begin());
    if let Some((_, below)) = PUSHES.iter().find(|(at, _)| *at == first) {
        return Some(*below);
    }
    let fast = address!("folioswap_gate_pushed")..=address!("folioswap_gate_at_once");
    let slow = address!("folioswap_gate_slow")..=address!("folioswap_gate_claim");
    (fast.contains(&counter) || slow.contains(&counter)).then_some(PUSHED)
}

/// Bytes below the program's stack pointer once the flags are pushed: they come first, then the
/// address behind the site.
pub(crate) const PUSHED: u64 = 152;

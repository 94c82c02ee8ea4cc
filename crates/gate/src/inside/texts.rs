//! Finding the `syscall` instructions of a text.

use crate::rewrite::begins_instruction;
use core::ops::Range;

/// The bytes of a text.
///
/// # Safety
/// They must be mapped and readable for as long as the slice is used. (Sites of it that are
/// rewritten meanwhile are not looked at.)
pub(super) unsafe fn bytes<'text>(text: &Range<u64>) -> &'text [u8] {
    // SAFETY: by the caller's contract.
    unsafe { core::slice::from_raw_parts(text.start as *const u8, (text.end - text.start) as usize) }
}

/// Calls `see` with the place behind each `syscall` instruction, as far as the bytes before tell
/// that it is one.
pub fn for_each_site(text: &[u8], mut see: impl FnMut(usize)) {
    for at in 0..text.len().saturating_sub(1) {
        if text[at..at + 2] == [0x0f, 0x05] && begins_instruction(text, at) {
            see(at + 2);
        }
    }
}

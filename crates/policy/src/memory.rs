//! The source of memory for the engine's tables. The caller supplies it, since this crate knows no
//! operating system.

use core::ptr::NonNull;

/// A source of memory for tables. Memory is zeroed, aligned to a page, and never given back.
pub trait Memory {
    /// Returns `bytes` (a multiple of the page size) of zeroed memory, or `None` when the system
    /// has none.
    fn take(&self, bytes: usize) -> Option<NonNull<u8>>;
}

//! Where the tables of an engine get their memory: from the caller, since nothing here knows an operating system.

use core::ptr::NonNull;

/// A source of memory for tables: zeroed, aligned to a page, never given back.
pub trait Memory {
    /// Returns `bytes` (a multiple of the page size) of zeroed memory, or `None` when the system has none.
    fn take(&self, bytes: usize) -> Option<NonNull<u8>>;
}

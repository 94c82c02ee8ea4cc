//! Memory for code that lays its own structures out.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Alignment of [`Zeroed`] memory in bytes: one page.
pub const ALIGN: usize = 4096;

/// Zeroed heap memory, aligned to [`ALIGN`], freed on drop.
#[derive(Debug)]
pub struct Zeroed {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is plain bytes with one owner; `Zeroed` itself never reads or writes them.
unsafe impl Send for Zeroed {}
// SAFETY: as for `Send`.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// Allocates `bytes` bytes.
    ///
    /// # Panics
    ///
    /// If `bytes` is 0, or if memory is exhausted.
    pub fn new(bytes: usize) -> Self {
        assert!(bytes > 0, "an empty allocation");
        let layout = Layout::from_size_align(bytes, ALIGN).expect("below the address space");
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("out of memory");
        Zeroed { start, layout }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and the owner is gone.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

//! Zeroed memory.

use folioswap_devices::PAGE_SIZE;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Zeroed, page-aligned memory, freed on drop. Pages that are never touched cost nothing.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the type owns plain memory.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`; nothing is read or written through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates at least `bytes` bytes.
    ///
    /// # Panics
    /// The system has no memory.
    pub fn zeroed(bytes: usize) -> Memory {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_SIZE).expect("far below the address space");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, layout }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

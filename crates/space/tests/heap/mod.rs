//! Memory of the heap for a swap space under test.

use core::ptr::NonNull;
use folioswap_devices::PageMemory;
use folioswap_policy::memory::Memory;
use std::alloc::{Layout, alloc_zeroed};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The heap, and how many bytes were given back.
#[derive(Default)]
pub struct Heap {
    pub given_back: AtomicUsize,
    /// Start and length of the memory that the compressed store has.
    pub mapped: Mutex<Vec<(usize, usize)>>,
}

fn zeroed(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, align).unwrap()) })
}

impl Memory for Heap {
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        zeroed(bytes, 4096)
    }
}

// SAFETY: zeroed memory that is never freed; memory given back is cleared, so that a late reader
// would notice.
unsafe impl PageMemory for Heap {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        let start = zeroed(bytes, 2 << 20)?;
        self.mapped.lock().unwrap().push((start.as_ptr() as usize, bytes));
        Some(start)
    }
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        self.given_back.fetch_add(bytes, Relaxed);
        // SAFETY: by contract.
        unsafe { start.write_bytes(0, bytes) };
    }
}

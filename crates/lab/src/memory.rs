//! Zeroed memory.

use folioswap_devices::PAGE_SIZE;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// Zeroed, page-aligned memory, freed on drop. Pages that are never touched cost nothing, whatever
/// the size: the tables of a device of 1 TiB are a mapping of 3 GiB, of which a replay uses what
/// its trace does.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the type owns plain memory.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`; nothing is read or written through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps at least `bytes` bytes.
    ///
    /// # Panics
    /// The system has no memory.
    pub fn zeroed(bytes: usize) -> Memory {
        let bytes = bytes.max(1).next_multiple_of(PAGE_SIZE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that
        // exists. NORESERVE, because most of it may stay untouched.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = mapped.ok().and_then(|start| NonNull::new(start.cast::<u8>()));
        let start = start.unwrap_or_else(|| panic!("the system has no memory for {bytes} bytes"));
        Memory { start, bytes }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes, a multiple of the page size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

//! Where zram's memory comes from.

use core::ptr::NonNull;

/// Is memory that will be written resident already?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefault {
    /// It becomes resident page by page, when it is written.
    Not,
    /// All of it is.
    Done,
}

/// Private memory for the store, mapped piecewise.
///
/// # Safety
///
/// [`map`](Self::map) and [`map_to_write`](Self::map_to_write) hand out memory that is readable and writable, aligned to a page, not used
/// by anything else, and that stays mapped at that address for as long as the store (and any forked copy of it) exists; of `map`, it is zeroed.
/// [`give_back`](Self::give_back) changes nothing but the contents of exactly the range that it is given. Neither may
/// call back into the store.
pub unsafe trait PageMemory: Sync {
    /// Maps `bytes` (a multiple of 2 MiB) of zeroed memory. `None` when the system has none: the store then goes on
    /// with what it has, and asks again later.
    ///
    /// Pages that are never touched should cost nothing (`mmap` private anonymous, `MAP_NORESERVE`). Aligning to 2 MiB
    /// lets huge pages back the store.
    fn map(&self, bytes: usize) -> Option<NonNull<u8>>;

    /// The same for memory that is written before it is read: it may hold anything, and all of it be resident already.
    fn map_to_write(&self, bytes: usize) -> Option<(NonNull<u8>, Prefault)> {
        self.map(bytes).map(|start| (start, Prefault::Not))
    }

    /// Gives the memory behind a page-aligned range back to the system (`MADV_DONTNEED`). Its contents vanish (they
    /// need not read as zero afterwards), its addresses stay usable.
    ///
    /// # Safety
    ///
    /// The range lies inside one earlier [`map`](Self::map), and its contents are no longer needed.
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize);

    /// All of a page-aligned range inside one earlier [`map`](Self::map), which nobody uses yet, is about to be written, bit by bit. It may be made
    /// resident now, at once, instead of page by page; its contents do not change.
    fn will_write(&self, start: NonNull<u8>, bytes: usize) -> Prefault {
        let _ = (start, bytes);
        Prefault::Not
    }
}

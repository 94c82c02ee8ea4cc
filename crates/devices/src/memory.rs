//! The source of zram's memory.

use core::ptr::NonNull;

/// Whether all pages of a range are resident before they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefault {
    /// Each page becomes resident when it is first written.
    Not,
    /// All pages are resident.
    Done,
}

/// Private memory for the store, mapped piecewise.
///
/// # Safety
///
/// [`map`](Self::map) and [`map_to_write`](Self::map_to_write) return memory that is readable and
/// writable, aligned to a page, used by nothing else, and mapped at that address for as long as the
/// store (and any forked copy of it) exists. The memory of `map` is zeroed.
/// [`give_back`](Self::give_back) changes nothing but the contents of exactly the range that it is
/// given. None of them calls back into the store.
pub unsafe trait PageMemory: Sync {
    /// Maps `bytes` (a multiple of 2 MiB) of zeroed memory. `None` when the system has none: the
    /// store then continues with the memory it has, and asks again later.
    ///
    /// Pages that are never touched should cost nothing (`mmap` private anonymous,
    /// `MAP_NORESERVE`). Alignment to 2 MiB lets huge pages back the store.
    fn map(&self, bytes: usize) -> Option<NonNull<u8>>;

    /// Maps memory as [`map`](Self::map) does, for a caller that writes it before it reads it. The
    /// memory may hold arbitrary bytes, and may be resident already.
    fn map_to_write(&self, bytes: usize) -> Option<(NonNull<u8>, Prefault)> {
        self.map(bytes).map(|start| (start, Prefault::Not))
    }

    /// Gives the memory behind a page-aligned range back to the system (`MADV_DONTNEED`). Its
    /// contents are lost (and need not read as zero afterwards); its addresses stay usable.
    ///
    /// # Safety
    ///
    /// The range lies inside one earlier [`map`](Self::map), and its contents are no longer needed.
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize);

    /// Announces that a page-aligned range inside one earlier [`map`](Self::map), which nobody uses
    /// yet, is about to be written piece by piece. The implementation may make the range resident
    /// at once instead of page by page. The contents do not change.
    fn will_write(&self, start: NonNull<u8>, bytes: usize) -> Prefault {
        let _ = (start, bytes);
        Prefault::Not
    }
}

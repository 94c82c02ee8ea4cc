//! An arena: a region, and the pieces that are cut from it.

use crate::extents::{Contents, Extents};
use folioswap::Region;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A region that pieces are cut from.
pub(crate) struct Arena {
    /// Shared with callers that work with it without the heap's lock.
    pub(crate) region: Arc<Region>,
    pub(crate) bytes: usize,
    pub(crate) free: Extents,
    /// The length in bytes of each piece, by its address.
    pub(crate) pieces: BTreeMap<usize, usize>,
}

impl Arena {
    /// Makes an arena of which all is free.
    pub(crate) fn new(region: Region) -> Self {
        let bytes = region.len();
        let mut free = Extents::default();
        free.insert(region.base().as_ptr() as usize, bytes, Contents::Zero);
        Arena { region: Arc::new(region), bytes, free, pieces: BTreeMap::new() }
    }

    pub(crate) fn start(&self) -> usize {
        self.region.base().as_ptr() as usize
    }

    /// Cuts a piece out of free pages with the `wanted` contents, or else of others. Returns its
    /// address and its contents.
    pub(crate) fn take(&mut self, length: usize, wanted: Contents) -> Option<(usize, Contents)> {
        for contents in [wanted, wanted.other()] {
            if let Some(start) = self.free.take(length, contents) {
                self.pieces.insert(start, length);
                return Some((start, contents));
            }
        }
        None
    }

    /// Returns the range of the region that this memory has; `None`: it is not within one piece.
    pub(crate) fn range(&self, address: usize, bytes: usize) -> Option<Range<usize>> {
        let (start, length) = self.pieces.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        (end <= start + length).then(|| address - self.start()..end - self.start())
    }

    /// Discards the left contents of all free pages, so that adjacent free ranges become one.
    pub(crate) fn wash(&mut self) {
        for (start, length) in self.free.drain(Contents::Left) {
            // SAFETY: free pages of this arena.
            unsafe { give_up(start, length) };
            self.free.insert(start, length, Contents::Zero);
        }
    }
}

/// Discards the contents of whole pages, which are zero afterwards and take no memory.
///
/// # Safety
/// The pages belong to an arena, in the process that made it, and no one relies on their contents.
pub(crate) unsafe fn give_up(start: usize, length: usize) {
    // SAFETY: the caller vouches for the pages.
    let failed = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) } != 0;
    if failed {
        // The call itself may lack memory. Then the zeroes are written.
        // SAFETY: the caller vouches for the pages.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, length) };
    }
}

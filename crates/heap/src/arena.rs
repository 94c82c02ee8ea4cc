//! An arena: a region, and which of its pages are pieces.

use crate::extents::{Contents, Extents};
use folioswap::Region;
use std::collections::BTreeMap;

/// A region that pieces are cut from.
pub(crate) struct Arena {
    pub(crate) region: Region,
    pub(crate) bytes: usize,
    pub(crate) free: Extents,
    /// Length in bytes of each piece, by its address.
    pub(crate) pieces: BTreeMap<usize, usize>,
}

impl Arena {
    /// All of it is free.
    pub(crate) fn new(region: Region) -> Self {
        let bytes = region.len();
        let mut free = Extents::default();
        free.insert(region.base().as_ptr() as usize, bytes, Contents::Zero);
        Arena { region, bytes, free, pieces: BTreeMap::new() }
    }

    pub(crate) fn start(&self) -> usize {
        self.region.base().as_ptr() as usize
    }

    /// Cuts a piece out, of these contents if there is one, else of others; says what is in it.
    pub(crate) fn take(&mut self, length: usize, wanted: Contents) -> Option<(usize, Contents)> {
        for contents in [wanted, wanted.other()] {
            if let Some(start) = self.free.take(length, contents) {
                self.pieces.insert(start, length);
                return Some((start, contents));
            }
        }
        None
    }

    /// Gives up what was left in free pages, so that all that is free is one with its neighbours.
    pub(crate) fn wash(&mut self) {
        for (start, length) in self.free.drain(Contents::Left) {
            // SAFETY: free pages of this arena.
            unsafe { give_up(start, length) };
            self.free.insert(start, length, Contents::Zero);
        }
    }
}

/// Gives the contents of whole pages up: they are zero and take no memory.
///
/// # Safety
/// They are pages of an arena, in the process that made it, and nobody relies on what they hold.
pub(crate) unsafe fn give_up(start: usize, length: usize) {
    // SAFETY: by contract.
    let failed = unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) } != 0;
    if failed {
        // Without memory for the call itself, by hand.
        // SAFETY: by contract.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, length) };
    }
}

//! Size classes: the slot size for an object of a given length.
//!
//! The sizes are those that fit *n* times into a span with the least left over, in steps of a
//! granule (32 bytes), so that two lengths which would give the same number of slots per span share
//! a class. Up to 2 KiB the steps are 32 bytes, above they widen to 124 bytes at 4 KiB, and the
//! tail of a span is never more than its share of that.

use super::geometry::{GRANULE_BYTES, HEADER_BYTES, SPAN_BYTES};
use crate::page::PAGE_SIZE;

/// Bytes of the smallest slot.
const SLOT_MIN: usize = 64;
/// Bytes of the largest slot: a page and its header, in granules.
const SLOT_MAX: usize = (PAGE_SIZE + HEADER_BYTES).next_multiple_of(GRANULE_BYTES);
/// Slots of the largest class in a span.
const PER_SPAN_MIN: usize = SPAN_BYTES / SLOT_MAX;

/// Index of a size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClassId(u8);

const fn slot_bytes_of(per_span: usize) -> usize {
    let size = SPAN_BYTES / per_span / GRANULE_BYTES * GRANULE_BYTES;
    if size < SLOT_MIN { SLOT_MIN } else { size }
}

const fn count() -> usize {
    let mut classes = 0;
    let mut last = 0;
    let mut per_span = PER_SPAN_MIN;
    while last != SLOT_MIN {
        let size = slot_bytes_of(per_span);
        if size != last {
            classes += 1;
            last = size;
        }
        per_span += 1;
    }
    classes
}

/// Number of size classes.
pub(super) const CLASSES: usize = count();

/// Slot size of each class in granules, the largest first.
const SIZES: [u16; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    let mut last = 0;
    let mut per_span = PER_SPAN_MIN;
    while last != SLOT_MIN {
        let size = slot_bytes_of(per_span);
        if size != last {
            sizes[class] = (size / GRANULE_BYTES) as u16;
            class += 1;
            last = size;
        }
        per_span += 1;
    }
    sizes
};

const NEEDS: usize = SLOT_MAX / GRANULE_BYTES + 1;

/// Class of an object that needs a given number of granules, header included.
const BY_NEED: [u8; NEEDS] = {
    let mut table = [0; NEEDS];
    let mut need = 0;
    while need < NEEDS {
        let mut class = CLASSES - 1;
        while (SIZES[class] as usize) < need {
            class -= 1;
        }
        table[need] = class as u8;
        need += 1;
    }
    table
};

const _: () = assert!(CLASSES < 255 && SIZES[0] as usize * GRANULE_BYTES >= SLOT_MAX);

impl ClassId {
    /// The class for an object of `bytes` (1..=4096), header not counted.
    #[inline]
    pub(super) fn for_len(bytes: usize) -> Self {
        let need = (bytes + HEADER_BYTES).div_ceil(GRANULE_BYTES);
        Self(BY_NEED[need.min(NEEDS - 1)])
    }

    /// Restores a class from its number; `None` when there is no such class.
    #[inline]
    pub(super) fn from_raw(raw: u8) -> Option<Self> {
        ((raw as usize) < CLASSES).then_some(Self(raw))
    }

    pub(super) const fn raw(self) -> u8 {
        self.0
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// All classes.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }

    /// Bytes of a slot.
    #[inline]
    pub(super) const fn slot_bytes(self) -> usize {
        SIZES[self.0 as usize] as usize * GRANULE_BYTES
    }

    /// Slots in a span.
    #[inline]
    pub(super) const fn per_span(self) -> u16 {
        (SPAN_BYTES / self.slot_bytes()) as u16
    }
}

#[cfg(test)]
mod tests;

//! The eight bytes before each object.
//!
//! | | bits 0-47 | bits 48-59 | bit 63 |
//! |---|---|---|---|
//! | live object | owner | length − 1 | 1 |
//! | free slot | next free slot of the span + 1 (0 = none) | 0 | 0 |
//! | slot being filled | 0 | 0 | 0 |
//!
//! A header is the only part of a free slot that is ever written, and it is atomic, because the
//! compactor may read a slot while its owner frees it.

use crate::location::{Owner, StoredLen};
use crate::page::PAGE_SIZE;

const LIVE: u64 = 1 << 63;
const LEN_SHIFT: u32 = Owner::BITS;
const OWNER_MASK: u64 = (1 << Owner::BITS) - 1;

const _: () = assert!(LEN_SHIFT + (PAGE_SIZE - 1).ilog2() < 63);

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// A complete object.
    Live {
        /// The object's owner.
        owner: Owner,
        /// The object's length.
        len: StoredLen,
    },
    /// A free slot, or a slot that is being filled.
    Free {
        /// Next free slot of the span.
        next: Option<u16>,
    },
}

impl Header {
    /// The header of a slot from its allocation until its object is complete.
    pub(super) const FILLING: Self = Self::Free { next: None };

    #[inline]
    pub(super) const fn pack(self) -> u64 {
        match self {
            Self::Live { owner, len } => LIVE | (len.bytes() as u64 - 1) << LEN_SHIFT | owner.raw(),
            Self::Free { next: Some(next) } => next as u64 + 1,
            Self::Free { next: None } => 0,
        }
    }

    /// The inverse of [`pack`](Self::pack); `None` for a word that was overwritten from outside.
    #[inline]
    pub(super) fn unpack(word: u64) -> Option<Self> {
        let header = if word & LIVE != 0 {
            let len = StoredLen::new((word >> LEN_SHIFT & 0xfff) as usize + 1)?;
            Self::Live { owner: Owner::new(word & OWNER_MASK)?, len }
        } else if word == 0 {
            Self::Free { next: None }
        } else {
            Self::Free { next: Some(u16::try_from(word - 1).ok()?) }
        };
        (header.pack() == word).then_some(header)
    }
}

#[cfg(test)]
mod tests;

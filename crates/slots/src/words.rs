//! The 512 words at the start of a frame: slot words of a cluster, or its overflow counts.

use crate::order::CLUSTER_SLOTS;
use crate::sync::AtomicU64;
use core::marker::PhantomData;
use core::ops::{Index, Range};
use core::ptr::NonNull;

const WORDS: usize = CLUSTER_SLOTS as usize;

/// All words of a frame. References are made only to the words asked for: one to the whole array
/// would claim 4096 bytes at each look at a slot, and Miri checks a claim word by word.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    first: NonNull<AtomicU64>,
    frame: PhantomData<&'a [AtomicU64; WORDS]>,
}

impl<'a> Words<'a> {
    /// The words of the frame at `frame`, which stays valid as long as the handle that it comes
    /// from (`'a`).
    #[inline]
    pub(crate) fn of(frame: NonNull<u8>) -> Self {
        Words { first: frame.cast(), frame: PhantomData }
    }

    /// The words of these slots.
    #[inline]
    fn among(self, slots: Range<usize>) -> &'a [AtomicU64] {
        assert!(slots.start <= slots.end && slots.end <= WORDS, "a cluster has 512 slots");
        // SAFETY: a frame begins with 512 words, is 64-byte aligned, stays valid as long as the
        // handle, and its words are only ever used as atomics; the range lies within them.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr().add(slots.start), slots.len()) }
    }

    /// All words, in order.
    pub(crate) fn iter(self) -> core::slice::Iter<'a, AtomicU64> {
        self.among(0..WORDS).iter()
    }
}

impl Index<usize> for Words<'_> {
    type Output = AtomicU64;

    #[inline]
    fn index(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < WORDS, "a cluster has 512 slots");
        // SAFETY: as in `among`.
        unsafe { self.first.add(slot).as_ref() }
    }
}

impl Index<Range<usize>> for Words<'_> {
    type Output = [AtomicU64];

    #[inline]
    fn index(&self, slots: Range<usize>) -> &[AtomicU64] {
        self.among(slots)
    }
}

//! A range of slots cut at cluster borders.

use crate::entry::SwapEntry;
use crate::order::CLUSTER_SLOTS;
use crate::policy::{Frees, Policy};

/// Part of a range that lies in one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) cluster: u32,
    /// First slot in the cluster.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Piece {
    pub(crate) fn slots(self) -> core::ops::Range<u32> {
        self.first..self.first + self.count
    }
}

/// As [`pieces`], but slot by slot under a policy that frees slot by slot.
#[inline]
pub(crate) fn pieces_for<P: Policy>(entry: SwapEntry, slots: u32) -> impl Iterator<Item = Piece> {
    let at_most = match P::FREES {
        Frees::Batched => CLUSTER_SLOTS,
        Frees::PerSlot => 1,
    };
    cut(entry, slots, at_most)
}

/// The pieces of `slots` slots from `entry` on, in ascending order.
#[inline]
pub(crate) fn pieces(entry: SwapEntry, slots: u32) -> impl Iterator<Item = Piece> {
    cut(entry, slots, CLUSTER_SLOTS)
}

#[inline]
fn cut(entry: SwapEntry, slots: u32, at_most: u32) -> impl Iterator<Item = Piece> {
    let mut offset = entry.offset();
    let mut left = slots;
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let first = (offset % u64::from(CLUSTER_SLOTS)) as u32;
        let count = left.min(CLUSTER_SLOTS - first).min(at_most);
        let cluster = (offset / u64::from(CLUSTER_SLOTS)) as u32;
        offset += u64::from(count);
        left -= count;
        Some(Piece { cluster, first, count })
    })
}

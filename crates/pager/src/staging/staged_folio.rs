//! The content of a slot word that names a folio in the swap cache: the berth where the folio
//! begins in staging, and its order.

use crate::staging::ring::BerthIndex;
use crate::units::PIECE_PAGES;
use folioswap_slots::{FolioId, Order, SwapEntry};

/// Bits of a [`FolioId`] that hold the berth; the order stands above them.
const BERTH_BITS: u32 = 16;

const _: () = assert!(crate::staging::ring::BERTHS_MAX <= 1 << BERTH_BITS);

/// A folio that waits in staging. A folio of more than 64 KiB has as many berths side by side as it
/// has pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagedFolio {
    /// The berth of its first page.
    pub(crate) first: BerthIndex,
    /// The order of its run of slots.
    pub(crate) order: Order,
}

impl StagedFolio {
    /// The name that slot words use for the folio.
    pub(crate) fn id(self) -> FolioId {
        FolioId((self.order.index() as u32) << BERTH_BITS | self.first.raw())
    }

    /// The folio that a slot word names.
    pub(crate) fn of(id: FolioId) -> Self {
        let order = Order::new(id.0 >> BERTH_BITS).unwrap_or(Order::ZERO);
        StagedFolio { first: BerthIndex::new(id.0 & ((1 << BERTH_BITS) - 1)), order }
    }

    /// The berth of the page whose slot is `entry`, one of the folio's. (A run of slots is aligned
    /// to its length.)
    pub(crate) fn berth_of(self, entry: SwapEntry) -> BerthIndex {
        let within = entry.offset() & (u64::from(self.order.slots()) - 1);
        self.first.plus(within as u32 / PIECE_PAGES as u32)
    }
}

#[cfg(test)]
mod tests;

//! The words of the map, one per slot of a node.
//!
//! ```text
//! 63..62   61..60   59..56   55                                   0
//! | kind |   0    | order |  value: frame number or swap entry     |
//! ```
//! Kind 0 with a value is the address of a node; all zero is an empty slot. The value stands for
//! the first page of the slot itself, not of the item. Frames and slots of a large folio are
//! consecutive and naturally aligned, so each slot alone says what covers it, and rounding down
//! finds the first page of an item.

use folioswap_slots::{Order, SwapEntry};

#[cfg(test)]
#[path = "word/tests.rs"]
mod tests;

const KIND_SHIFT: u32 = 62;
const ORDER_SHIFT: u32 = 56;
const VALUE: u64 = (1 << ORDER_SHIFT) - 1;
const FOLIO: u64 = 1;
const SWAP: u64 = 2;
const POISON: u64 = 3;

/// The folio or swap entry that covers one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A resident folio: the frame number of this page.
    Folio(u32),
    /// Swapped out: the entry of this page.
    Swap(SwapEntry),
    /// Lost: the page could not be read back. An access is an I/O error until the page is
    /// overwritten as a whole or freed.
    Poison,
}

/// An item, with the order of the folio or entry that it is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) item: Item,
    pub(crate) order: Order,
}

impl Item {
    /// The item of the page that lies `pages` further on in the same folio or entry.
    pub(crate) fn step(self, pages: u64) -> Item {
        match self {
            Item::Folio(frame) => Item::Folio(frame + pages as u32),
            // Slots of one folio lie in one cluster, whose end is below the largest offset.
            Item::Swap(entry) => Item::Swap(entry.checked_add(pages).unwrap_or(entry)),
            Item::Poison => Item::Poison,
        }
    }

    /// The item of the first page of the folio or entry of `order` that this page is in.
    pub(crate) fn round_down(self, order: Order) -> Item {
        match self {
            Item::Folio(frame) => Item::Folio(frame & !(order.slots() - 1)),
            Item::Swap(entry) => Item::Swap(entry.round_down(order).unwrap_or(entry)),
            Item::Poison => Item::Poison,
        }
    }
}

/// The word of a slot.
pub(crate) fn pack(found: Found) -> u64 {
    let (kind, value) = match found.item {
        Item::Folio(frame) => (FOLIO, u64::from(frame)),
        Item::Swap(entry) => (SWAP, entry.to_raw()),
        Item::Poison => (POISON, 0),
    };
    kind << KIND_SHIFT | (found.order.index() as u64) << ORDER_SHIFT | value
}

/// The item in a slot's word; `None` for an empty slot and for the address of a node.
pub(crate) fn unpack(word: u64) -> Option<Found> {
    let item = match word >> KIND_SHIFT {
        FOLIO => Item::Folio((word & VALUE) as u32),
        SWAP => Item::Swap(SwapEntry::from_raw(word & VALUE)?),
        POISON => Item::Poison,
        _ => return None,
    };
    Some(Found { item, order: Order::new((word >> ORDER_SHIFT & 15) as u32)? })
}

/// Whether the word is the address of a node.
pub(crate) fn is_node(word: u64) -> bool {
    word != 0 && word >> KIND_SHIFT == 0
}

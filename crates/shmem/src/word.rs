//! The words of the map: what one slot of it says.
//!
//! ```text
//! 63..62   61..60   59..56   55                                   0
//! | kind |   0    | order |  value: frame number or swap entry     |
//! ```
//! Kind 0 with a value is the address of a node; all zero is an empty slot. The value stands for the first page of the slot itself, not
//! of the item: frames and slots of a large folio follow each other and are naturally aligned, so that each slot says alone what
//! covers it, and the first page of an item is found by rounding down.

use folioswap_slots::{Order, SwapEntry};

const KIND_SHIFT: u32 = 62;
const ORDER_SHIFT: u32 = 56;
const VALUE: u64 = (1 << ORDER_SHIFT) - 1;
const FOLIO: u64 = 1;
const SWAP: u64 = 2;
const POISON: u64 = 3;

/// What covers one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A resident folio; the number of the frame of this page.
    Folio(u32),
    /// Swapped out; the entry of this page.
    Swap(SwapEntry),
    /// Lost: reading it back failed. Touching it is an I/O error until it is overwritten as a whole or freed.
    Poison,
}

/// What covers one page, and how large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) item: Item,
    pub(crate) order: Order,
}

impl Item {
    /// What covers the page `pages` further on in the same item.
    pub(crate) fn step(self, pages: u64) -> Item {
        match self {
            Item::Folio(frame) => Item::Folio(frame + pages as u32),
            // Slots of one folio lie in one cluster, whose end is below the largest offset.
            Item::Swap(entry) => Item::Swap(entry.checked_add(pages).unwrap_or(entry)),
            Item::Poison => Item::Poison,
        }
    }

    /// What covers the first page of an item of `order` that has this one in it.
    pub(crate) fn round_down(self, order: Order) -> Item {
        match self {
            Item::Folio(frame) => Item::Folio(frame & !(order.slots() - 1)),
            Item::Swap(entry) => Item::Swap(entry.round_down(order).unwrap_or(entry)),
            Item::Poison => Item::Poison,
        }
    }
}

/// A slot's word.
pub(crate) fn pack(found: Found) -> u64 {
    let (kind, value) = match found.item {
        Item::Folio(frame) => (FOLIO, u64::from(frame)),
        Item::Swap(entry) => (SWAP, entry.to_raw()),
        Item::Poison => (POISON, 0),
    };
    kind << KIND_SHIFT | (found.order.index() as u64) << ORDER_SHIFT | value
}

/// What a slot's word says; `None` for an empty slot and for the address of a node.
pub(crate) fn unpack(word: u64) -> Option<Found> {
    let item = match word >> KIND_SHIFT {
        FOLIO => Item::Folio((word & VALUE) as u32),
        SWAP => Item::Swap(SwapEntry::from_raw(word & VALUE)?),
        POISON => Item::Poison,
        _ => return None,
    };
    Some(Found { item, order: Order::new((word >> ORDER_SHIFT & 15) as u32)? })
}

/// Is it the address of a node?
pub(crate) fn is_node(word: u64) -> bool {
    word != 0 && word >> KIND_SHIFT == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use folioswap_slots::DeviceId;

    #[test]
    fn what_is_packed_is_unpacked() {
        let entry = SwapEntry::new(DeviceId::new(31).unwrap(), (1 << 51) - 1).unwrap();
        for item in [Item::Folio(0), Item::Folio(u32::MAX), Item::Swap(entry), Item::Poison] {
            for order in Order::all() {
                let word = pack(Found { item, order });
                assert_eq!(unpack(word), Some(Found { item, order }));
                assert!(!is_node(word));
            }
        }
        assert_eq!(unpack(0), None);
        assert!(!is_node(0));
        assert!(is_node(&0u64 as *const u64 as u64) && unpack(&0u64 as *const u64 as u64).is_none());
    }
}

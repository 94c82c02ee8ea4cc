//! Swapping an object out on request.

use super::{Hold, ObjectOf};
use crate::map::Look;
use crate::variant::Variant;
use crate::word::Item;

impl<V: Variant> ObjectOf<V> {
    /// Swaps the object's resident folios out, as MADV_PAGEOUT does; returns the pages that left.
    /// Folios that find no place stay. Cost: writing them to swap.
    pub fn page_out(&self) -> u64 {
        let (mut index, mut left) = (0, 0);
        while let Some((first, found)) = self.inner.map.next(index, Look::Present) {
            index = first + u64::from(found.order.slots());
            if !matches!(found.item, Item::Folio(_)) {
                continue;
            }
            if let Some(held) = self.hold(first, found, Hold::Exclusive) {
                let frame = held.into_frame();
                self.space.lru.remove(&self.space.folios, frame);
                left += self.space.swap_out(frame);
            }
        }
        left
    }
}

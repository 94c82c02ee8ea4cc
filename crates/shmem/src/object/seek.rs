//! Seeking data and holes.

use super::{ObjectOf, index_of};
use crate::frames::PAGE;
use crate::map::Look;
use crate::variant::Variant;

impl<V: Variant> ObjectOf<V> {
    /// The first offset at or behind `offset` with content (SEEK_DATA); `None` if there is none
    /// before the end (ENXIO).
    pub fn seek_data(&self, offset: u64) -> Option<u64> {
        let size = self.size();
        if offset >= size {
            return None;
        }
        let (first, _) = self.inner.map.next(index_of(offset), Look::Present)?;
        let found = offset.max(first.saturating_mul(PAGE as u64));
        (found < size).then_some(found)
    }

    /// The first offset at or behind `offset` in a hole (SEEK_HOLE), which the end counts as;
    /// `None` if `offset` is not before the end (ENXIO).
    pub fn seek_hole(&self, offset: u64) -> Option<u64> {
        let size = self.size();
        if offset >= size {
            return None;
        }
        let mut index = index_of(offset);
        while let Some(found) = self.inner.map.get(index) {
            let pages = u64::from(found.order.slots());
            index = (index & !(pages - 1)) + pages;
        }
        Some(offset.max(index.saturating_mul(PAGE as u64)).min(size))
    }
}

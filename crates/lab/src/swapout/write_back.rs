//! Folios under write-back: they have slots and are in the swap cache until it ends.

use super::folio::Folio;
use folioswap_slots::{FolioId, Hooks, Policy, Reclaimed, Shadow, Slots, SwapEntry};
use std::cell::{Cell, RefCell};

/// A folio whose bytes are being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) folio: Folio,
    pub(super) id: FolioId,
    pub(super) entry: SwapEntry,
}

/// Takes a folio out of the swap cache, so that its memory can go.
pub(super) fn leave_cache<P: Policy>(slots: &Slots<0, P>, leaving: &Leaving) {
    let pages = leaving.folio.order.slots();
    let left = slots.cache_remove(leaving.entry, pages, leaving.id, Shadow::EMPTY, |_, _| {});
    left.expect("the folio was cached when its slots were allocated");
}

/// The hooks of a free for folios that are left only cached (spec §3.2).
pub(super) struct OnlyCached<'a, P: Policy> {
    pub(super) slots: &'a Slots<0, P>,
    pub(super) leaving: RefCell<&'a mut Vec<Leaving>>,
    /// Number of lookups so far.
    pub(super) lookups: Cell<u64>,
}

impl<P: Policy> Hooks for OnlyCached<'_, P> {
    fn reclaim(&self, _entry: SwapEntry, id: FolioId) -> Reclaimed {
        self.lookups.set(self.lookups.get() + 1);
        let mut all = self.leaving.borrow_mut();
        let Some(index) = all.iter().position(|leaving| leaving.id == id) else { return Reclaimed::Absent };
        let leaving = all[index];
        let pages = leaving.folio.order.slots();
        // Another slot of the folio is still in a page table.
        if self.slots.is_swapped(leaving.entry, pages) != Ok(false) {
            return Reclaimed::Kept(pages);
        }
        leave_cache(self.slots, &leaving);
        all.swap_remove(index);
        Reclaimed::Freed(pages)
    }
}

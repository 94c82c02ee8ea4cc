//! Frees slot by slot (before spec §3, patch 2).

use crate::entry::SwapEntry;
use crate::free::Put;
use crate::hooks::Hooks;
use crate::policy::Policy;
use crate::slots::{EntryError, Slots};

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Frees each slot on its own. If a slot is left only cached, its folio is tried at once, so a
    /// large folio is looked up and locked once per slot and can leave only with the last one.
    pub(crate) fn free_swap_and_cache_per_slot<H: Hooks>(
        &self,
        entry: SwapEntry,
        slots: u32,
        hooks: &H,
        mut freed: impl FnMut(SwapEntry, *mut u8),
    ) -> Result<Put, EntryError> {
        self.locate(entry, slots)?;
        let mut sum = Put::default();
        for target in (0..u64::from(slots)).filter_map(|step| entry.checked_add(step)) {
            let put = self.put(target, 1, &mut freed)?;
            if put.only_cached > 0 {
                self.reclaim_only_cached(target, hooks);
            }
            sum.freed += put.freed;
            sum.only_cached += put.only_cached;
            sum.rejected += put.rejected;
        }
        Ok(sum)
    }
}

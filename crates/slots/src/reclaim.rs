//! Reclaim of slots that are only cached (spec §0, `swap_reclaim_full_clusters`).

use crate::cluster::Flag;
use crate::discard::PINNED_ON;
use crate::entry::{DeviceId, FolioId, SwapEntry};
use crate::guard::Duty;
use crate::hooks::{Hooks, Reclaimed};
use crate::lists::ListId;
use crate::order::CLUSTER_SLOTS;
use crate::policy::{Policy, SlotCache};
use crate::scan::folio_end;
use crate::slots::{EntryError, Slots};
use crate::sync::Ordering;
use crate::word::{SlotWord, Word};

/// Number of full clusters searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullClusters {
    /// Exactly one.
    One,
    /// inuse / 512 of them: the work item that the caller queues when the device became full and
    /// `vm_swap_full` holds.
    All,
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Searches full clusters of `device` for folios that are only cached, and has
    /// [`Hooks::reclaim`] take them out of the swap cache. Returns the number of slots of the
    /// folios freed.
    ///
    /// The caller holds no lock that the hook takes. Cost: 512 loads per cluster, and the hook.
    pub fn reclaim_full_clusters<H: Hooks>(&self, device: DeviceId, extent: FullClusters, hooks: &H) -> u32 {
        let Some(_pinned) = self.device_get(PINNED_ON, device) else { return 0 };
        self.reclaim_full(device, extent, hooks)
    }

    pub(crate) fn reclaim_full<H: Hooks>(&self, id: DeviceId, extent: FullClusters, hooks: &H) -> u32 {
        let clusters = match extent {
            FullClusters::One => 1,
            FullClusters::All => self.device(id).usage().inuse() / u64::from(CLUSTER_SLOTS),
        };
        let mut freed = 0;
        for _ in 0..clusters {
            let Some(mut cluster) = self.isolate(id, ListId::FULL) else { break };
            // Frees during the reclaim list the cluster; if nothing was freed it must not be lost.
            cluster.duty = Duty::RelocateUnlisted;
            let mut slot = 0;
            while slot < CLUSTER_SLOTS {
                let Some(words) = cluster.words() else { break };
                let word = Word::from_raw(words[slot as usize].load(Ordering::Relaxed));
                let (true, Some(entry)) = (word.is_only_cached(), cluster.entry(slot)) else {
                    slot += 1;
                    continue;
                };
                match cluster.unlocked(|| self.reclaim_only_cached(entry, hooks)) {
                    Some(Reclaimed::Freed(pages)) => {
                        freed += pages;
                        slot = folio_end(slot, pages);
                    }
                    Some(Reclaimed::Kept(pages)) => slot = folio_end(slot, pages),
                    Some(Reclaimed::Absent) | None => slot += 1,
                }
                if cluster.cluster.flag() == Flag::Discard {
                    break;
                }
            }
        }
        freed
    }

    /// Asks the hook to reclaim the folio at `entry`, if the slot is only cached; `None` if it is
    /// not. Context: no cluster lock held.
    pub(crate) fn reclaim_only_cached<H: Hooks>(&self, entry: SwapEntry, hooks: &H) -> Option<Reclaimed> {
        match self.word(entry) {
            // Found, but pinned: a slot in a slot cache cannot be reclaimed.
            SlotWord::Cached { folio: FolioId::SLOT_CACHE, count: 0, .. }
                if P::SLOT_CACHE == SlotCache::PerCpu =>
            {
                Some(Reclaimed::Absent)
            }
            SlotWord::Cached { folio, count: 0, .. } => Some(hooks.reclaim(entry, folio)),
            _ => None,
        }
    }

    /// Whether any of `slots` slots from `entry` on has a swap count: the test before a folio may
    /// leave the swap cache for good.
    ///
    /// Lockless; the caller holds the lock of the folio that covers the range.
    ///
    /// # Errors
    /// [`EntryError`] if the range lies outside the device.
    pub fn is_swapped(&self, entry: SwapEntry, slots: u32) -> Result<bool, EntryError> {
        self.locate(entry, slots)?;
        let mut counts = (0..u64::from(slots)).filter_map(|step| self.swap_count(entry.checked_add(step)?));
        Ok(counts.any(|count| count > 0))
    }

    /// The swap count of a slot; `None` for free and bad ones. Lockless.
    pub fn swap_count(&self, entry: SwapEntry) -> Option<u64> {
        match self.word(entry) {
            SlotWord::Shadow { count, .. } | SlotWord::Cached { count, .. } => Some(count),
            SlotWord::Free | SlotWord::Bad => None,
        }
    }
}

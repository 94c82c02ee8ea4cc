//! Batched free: swap counts go down, slots become free (spec §0 "Batch free", §3.2).

use crate::entry::SwapEntry;
use crate::guard::Locked;
use crate::hooks::{Hooks, Reclaimed};
use crate::policy::{Frees, Policy};
use crate::range::{Piece, pieces_for};
use crate::scan::folio_end;
use crate::slots::{EntryError, Slots};
use crate::sync::{AtomicU64, Ordering};
use crate::word::{COUNT_IN_WORD_MAX, PutStep, Word};
use crate::words::Words;

/// Result of [`Slots::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Put {
    /// Slots that became free.
    pub freed: u32,
    /// Slots whose last count went while a folio is cached. They become free when the folio leaves
    /// the swap cache.
    pub only_cached: u32,
    /// Slots that had no count, which is a mistake of the caller. They are left alone.
    pub rejected: u32,
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Takes one count from each of `slots` slots from `entry` on. A slot whose last count goes and
    /// which is not cached becomes free: `freed` is called for it with its payload, under the
    /// cluster lock and *before* the slot can be allocated again, so that the stored bytes can be
    /// released. Slots freed in one cluster are taken off the account in one go.
    ///
    /// The caller owns the counts. `freed` must not call into this crate. Cost: one lock per
    /// cluster touched.
    ///
    /// # Errors
    /// [`EntryError`] if the range lies outside the device; nothing is done then.
    pub fn put(
        &self,
        entry: SwapEntry,
        slots: u32,
        mut freed: impl FnMut(SwapEntry, *mut u8),
    ) -> Result<Put, EntryError> {
        self.locate(entry, slots)?;
        let mut put = Put::default();
        for piece in pieces_for::<P>(entry, slots) {
            let cluster = self.lock_cluster(entry.device(), piece.cluster);
            match cluster.words() {
                Some(words) => put_piece(&cluster, words, piece, &mut put, &mut freed),
                None => put.rejected += piece.count,
            }
        }
        Ok(put)
    }

    /// [`put`](Self::put), then tries once to reclaim each folio of the range that is left only
    /// cached, jumping to the next folio border (spec §3.2, `free_swap_and_cache_nr`).
    /// `hooks.reclaim` is called without any lock.
    ///
    /// # Errors
    /// [`EntryError`] if the range lies outside the device; nothing is done then.
    pub fn free_swap_and_cache<H: Hooks>(
        &self,
        entry: SwapEntry,
        slots: u32,
        hooks: &H,
        freed: impl FnMut(SwapEntry, *mut u8),
    ) -> Result<Put, EntryError> {
        if P::FREES == Frees::PerSlot {
            return self.free_swap_and_cache_per_slot(entry, slots, hooks, freed);
        }
        let put = self.put(entry, slots, freed)?;
        if put.only_cached == 0 {
            return Ok(put);
        }
        let end = entry.offset() + u64::from(slots);
        let mut offset = entry.offset();
        while offset < end {
            let Some(target) = SwapEntry::new(entry.device(), offset) else { break };
            let slot = target.slot_in_cluster();
            let next = match self.reclaim_only_cached(target, hooks) {
                Some(Reclaimed::Freed(pages) | Reclaimed::Kept(pages)) => folio_end(slot, pages),
                Some(Reclaimed::Absent) | None => slot + 1,
            };
            offset += u64::from(next - slot);
        }
        Ok(put)
    }
}

#[inline]
fn put_piece<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    words: Words<'_>,
    piece: Piece,
    put: &mut Put,
    freed: &mut impl FnMut(SwapEntry, *mut u8),
) {
    let payload = cluster.payload();
    let mut count = 0;
    for slot in piece.slots() {
        let cell = &words[slot as usize];
        match Word::from_raw(cell.load(Ordering::Relaxed)).put() {
            PutStep::Freed => {
                free_slot(cluster, payload, cell, slot, freed);
                count += 1;
            }
            PutStep::Lowered(word) => cell.store(word.raw(), Ordering::Release),
            PutStep::OnlyCached(word) => {
                cell.store(word.raw(), Ordering::Release);
                put.only_cached += 1;
            }
            PutStep::Overflowed => lower_overflowed(cluster, cell, slot),
            PutStep::NoCount => put.rejected += 1,
        }
    }
    put.freed += count;
    cluster.count_freed(count);
}

/// Zeroes one slot's word and calls `freed`; `payload` is that of the cluster's first slot. The
/// account follows in [`Locked::count_freed`]. Context: cluster lock held.
#[inline]
pub(crate) fn free_slot<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    payload: *mut u8,
    cell: &AtomicU64,
    slot: u32,
    freed: &mut impl FnMut(SwapEntry, *mut u8),
) {
    if let Some(entry) = cluster.entry(slot) {
        freed(entry, payload.wrapping_add(slot as usize * PAYLOAD));
    }
    cell.store(Word::FREE.raw(), Ordering::Release);
}

/// Takes one count in the overflow array. At 14 the count returns into the word. Context: cluster
/// lock held.
#[cold]
pub(crate) fn lower_overflowed<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    cell: &AtomicU64,
    slot: u32,
) {
    let Some(counts) = cluster.overflow() else {
        debug_assert!(false, "overflowed word without an overflow array");
        return;
    };
    let count = &counts[slot as usize];
    let lowered = count.load(Ordering::Relaxed) - 1;
    if lowered > u64::from(COUNT_IN_WORD_MAX) {
        count.store(lowered, Ordering::Release);
        return;
    }
    let word = Word::from_raw(cell.load(Ordering::Relaxed)).with_count(COUNT_IN_WORD_MAX);
    cell.store(word.raw(), Ordering::Release);
    count.store(0, Ordering::Release);
    let overflowed = cluster.cluster.overflowed() - 1;
    cluster.cluster.set_overflowed(overflowed);
    if overflowed == 0 {
        cluster.detach_overflow();
    }
}

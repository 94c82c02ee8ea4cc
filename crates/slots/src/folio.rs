//! The opposite of `alloc_folio`: gives up count and swap cache in one go (spec §2.7).

use crate::cache::{CacheError, first_not_cached};
use crate::entry::{FolioId, SwapEntry};
use crate::free::{free_slot, lower_overflowed};
use crate::guard::Locked;
use crate::policy::Policy;
use crate::range::{Piece, pieces};
use crate::slots::Slots;
use crate::sync::Ordering;
use crate::word::{PutStep, Shadow, Word};
use crate::words::Words;

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Takes one count from each of `slots` slots of the cached `folio` from `entry` on, and the
    /// folio out of the swap cache: the work of [`put`](Self::put) and
    /// [`cache_remove`](Self::cache_remove) under one lock. Slots without further counts become
    /// free, with `freed` called for each as in [`put`](Self::put); the others stay swapped out.
    /// Returns the number of slots freed.
    ///
    /// The caller holds the folio's lock and owns the counts; write-back is over. Cost: one lock
    /// per cluster touched.
    ///
    /// # Errors
    /// [`CacheError::NotCached`] if a slot does not stand for `folio`; nothing was changed in its
    /// cluster.
    pub fn free_folio(
        &self,
        entry: SwapEntry,
        slots: u32,
        folio: FolioId,
        mut freed: impl FnMut(SwapEntry, *mut u8),
    ) -> Result<u32, CacheError> {
        self.locate(entry, slots)?;
        let mut sum = 0;
        for piece in pieces(entry, slots) {
            let cluster = self.lock_cluster(entry.device(), piece.cluster);
            let words = cluster.words().ok_or(CacheError::NotCached(entry))?;
            let count = if holds_only(words, piece, Word::allocated(folio)) {
                free_whole(&cluster, words, piece, &mut freed)
            } else if let Some(slot) = first_not_cached(words, piece, folio) {
                return Err(CacheError::NotCached(cluster.entry(slot).unwrap_or(entry)));
            } else {
                free_slot_by_slot(&cluster, words, piece, &mut freed)
            };
            cluster.count_freed(count);
            sum += count;
        }
        Ok(sum)
    }
}

/// Whether each word of the piece is exactly `word`.
#[inline]
fn holds_only(words: Words<'_>, piece: Piece, word: Word) -> bool {
    let cells = &words[piece.first as usize..(piece.first + piece.count) as usize];
    cells.iter().fold(0, |all, cell| all | (cell.load(Ordering::Relaxed) ^ word.raw())) == 0
}

/// Frees the piece; the caller's count was the only one of each slot. Context: cluster lock held.
#[inline]
fn free_whole<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    words: Words<'_>,
    piece: Piece,
    freed: &mut impl FnMut(SwapEntry, *mut u8),
) -> u32 {
    let payload = cluster.payload();
    for slot in piece.slots() {
        free_slot(cluster, payload, &words[slot as usize], slot, freed);
    }
    piece.count
}

/// Frees the slots without further counts; the others stay swapped out. Returns the number of slots
/// freed. Context: cluster lock held.
#[cold]
fn free_slot_by_slot<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    words: Words<'_>,
    piece: Piece,
    freed: &mut impl FnMut(SwapEntry, *mut u8),
) -> u32 {
    let payload = cluster.payload();
    let mut count = 0;
    for slot in piece.slots() {
        let cell = &words[slot as usize];
        let word = match Word::from_raw(cell.load(Ordering::Relaxed)).put() {
            PutStep::OnlyCached(word) | PutStep::Lowered(word) => word,
            PutStep::Overflowed => {
                lower_overflowed(cluster, cell, slot);
                Word::from_raw(cell.load(Ordering::Relaxed))
            }
            // Only cached before: there is no count to take.
            PutStep::Freed | PutStep::NoCount => Word::from_raw(cell.load(Ordering::Relaxed)),
        };
        let word = word.into_shadow(Shadow::EMPTY);
        if word.is_free() {
            free_slot(cluster, payload, cell, slot, freed);
            count += 1;
        } else {
            cell.store(word.raw(), Ordering::Release);
        }
    }
    count
}

//! The swap cache: slot words as the only synchronisation between bringing a folio in and taking it
//! out (spec §6, phases II to IV).

use crate::entry::{FolioId, SwapEntry};
use crate::free::free_slot;
use crate::guard::Locked;
use crate::order::Order;
use crate::policy::Policy;
use crate::range::{Piece, pieces};
use crate::slots::{EntryError, Slots};
use crate::sync::{AtomicU64, Ordering};
use crate::word::{Shadow, Word, WordKind, ZeroMark};
use crate::words::Words;

/// Why a folio could not be added to the swap cache (spec §6, race codes of phase IV).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertError {
    /// The target slot has a folio already: use that folio.
    Exist(FolioId),
    /// The target slot is free (or bad) by now: look at the page table again.
    NoEntry,
    /// The target slot is fine, but some other slot of the range is not swapped out, is cached, or
    /// differs in its zero mark or its group: reduce the order and try again.
    Busy,
    /// The range lies outside the device, or would begin at the header slot: reduce the order and
    /// try again.
    Entry(EntryError),
}

/// Why a cached folio could not be removed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheError {
    /// This slot does not stand for that folio; nothing was changed in its cluster.
    NotCached(SwapEntry),
    /// The range lies outside the device.
    Entry(EntryError),
}

impl core::fmt::Display for InsertError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            InsertError::Exist(folio) => write!(formatter, "slot is cached by folio {}", folio.0),
            InsertError::NoEntry => formatter.write_str("slot is not swapped out"),
            InsertError::Busy => formatter.write_str("range is not uniformly swapped out"),
            InsertError::Entry(error) => error.fmt(formatter),
        }
    }
}

impl core::fmt::Display for CacheError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            CacheError::NotCached(entry) => write!(formatter, "{entry:?} is not cached by that folio"),
            CacheError::Entry(error) => error.fmt(formatter),
        }
    }
}

impl core::error::Error for InsertError {}
impl core::error::Error for CacheError {}

impl From<EntryError> for CacheError {
    fn from(error: EntryError) -> Self {
        CacheError::Entry(error)
    }
}

/// Whether the slots of a range agree in what their owner keeps beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uniform {
    Yes,
    No,
}

/// A folio that was added to the swap cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// First slot of the folio: the target rounded down to its order.
    pub first: SwapEntry,
    /// Working-set information of the target slot.
    pub shadow: Shadow,
    /// Whether the whole range is all zero.
    pub zero: ZeroMark,
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Adds `folio` of `order` to the swap cache over the naturally aligned range that holds
    /// `target`, the slot that faulted. All slots must be swapped out with equal zero marks. Counts
    /// and zero marks stay.
    ///
    /// The caller holds the folio's lock and has pinned the device or holds a count of `target`.
    /// Cost: one lock.
    ///
    /// # Errors
    /// [`InsertError`]; nothing is changed then.
    pub fn cache_insert(
        &self,
        target: SwapEntry,
        order: Order,
        folio: FolioId,
    ) -> Result<Inserted, InsertError> {
        self.cache_insert_if(target, order, folio, |_, _| Uniform::Yes)
    }

    /// As [`cache_insert`](Self::cache_insert). `uniform` gets the payload of the range's first
    /// slot and the number of slots, under the cluster lock, before anything is changed.
    #[inline]
    pub(crate) fn cache_insert_if(
        &self,
        target: SwapEntry,
        order: Order,
        folio: FolioId,
        uniform: impl FnOnce(*const u8, u32) -> Uniform,
    ) -> Result<Inserted, InsertError> {
        let first = target.round_down(order).ok_or(InsertError::Entry(EntryError::OutOfRange))?;
        self.locate(first, order.slots()).map_err(InsertError::Entry)?;
        let cluster = self.lock_cluster(target.device(), target.cluster() as u32);
        let words = cluster.words().ok_or(InsertError::NoEntry)?;
        let word = Word::from_raw(words[target.slot_in_cluster() as usize].load(Ordering::Relaxed));
        if let Some(cached) = word.folio() {
            return Err(InsertError::Exist(cached));
        }
        let Some(shadow) = word.shadow() else { return Err(InsertError::NoEntry) };
        let zero = word.zero_mark();
        let start = first.slot_in_cluster() as usize;
        let range = &words[start..start + order.slots() as usize];
        let fits = |cell: &AtomicU64| {
            let word = Word::from_raw(cell.load(Ordering::Relaxed));
            word.kind() == WordKind::Shadow && word.zero_mark() == zero
        };
        let payload = cluster.payload().wrapping_add(start * PAYLOAD);
        if !range.iter().all(fits) || uniform(payload, order.slots()) == Uniform::No {
            return Err(InsertError::Busy);
        }
        for cell in range {
            let word = Word::from_raw(cell.load(Ordering::Relaxed));
            cell.store(word.into_cached(folio).raw(), Ordering::Release);
        }
        Ok(Inserted { first, shadow, zero })
    }

    /// Takes `folio` out of the swap cache. Its `slots` slots from `entry` on become shadows, and
    /// those without a count become free, with `freed` called for each as in [`put`](Self::put).
    /// Returns the number of slots freed.
    ///
    /// The caller holds the folio's lock; write-back is over. Cost: one lock per cluster touched.
    ///
    /// # Errors
    /// [`CacheError::NotCached`] if a slot does not stand for `folio`.
    pub fn cache_remove(
        &self,
        entry: SwapEntry,
        slots: u32,
        folio: FolioId,
        shadow: Shadow,
        mut freed: impl FnMut(SwapEntry, *mut u8),
    ) -> Result<u32, CacheError> {
        self.for_cached(entry, slots, folio, |cluster, words, piece| {
            let payload = cluster.payload();
            let mut count = 0;
            for slot in piece.slots() {
                let cell = &words[slot as usize];
                let word = Word::from_raw(cell.load(Ordering::Relaxed)).into_shadow(shadow);
                if word.is_free() {
                    free_slot(cluster, payload, cell, slot, &mut freed);
                    count += 1;
                } else {
                    cell.store(word.raw(), Ordering::Release);
                }
            }
            cluster.count_freed(count);
            count
        })
    }

    /// Gives `slots` slots of `old` from `entry` on to another folio: after a split, or when a
    /// folio moves.
    ///
    /// The caller holds the locks of both folios. Cost: one lock per cluster touched.
    ///
    /// # Errors
    /// [`CacheError::NotCached`] if a slot does not stand for `old`.
    pub fn cache_replace(
        &self,
        entry: SwapEntry,
        slots: u32,
        old: FolioId,
        new: FolioId,
    ) -> Result<(), CacheError> {
        self.for_cached(entry, slots, old, |_, words, piece| {
            for slot in piece.slots() {
                let cell = &words[slot as usize];
                let word = Word::from_raw(cell.load(Ordering::Relaxed)).into_cached(new);
                cell.store(word.raw(), Ordering::Release);
            }
            0
        })
        .map(|_| ())
    }

    /// Marks `slots` slots of the cached `folio` from `entry` on as all zero, or as stored (at
    /// write-back).
    ///
    /// The caller holds the folio's lock. Cost: one lock per cluster touched.
    ///
    /// # Errors
    /// [`CacheError::NotCached`] if a slot does not stand for `folio`.
    pub fn set_zero_mark(
        &self,
        entry: SwapEntry,
        slots: u32,
        folio: FolioId,
        mark: ZeroMark,
    ) -> Result<(), CacheError> {
        self.for_cached(entry, slots, folio, |_, words, piece| {
            for slot in piece.slots() {
                let cell = &words[slot as usize];
                let word = Word::from_raw(cell.load(Ordering::Relaxed)).with_zero_mark(mark);
                cell.store(word.raw(), Ordering::Release);
            }
            0
        })
        .map(|_| ())
    }

    /// Runs `change` per cluster with the lock held, after a check that all slots there stand for
    /// `folio`. Sums the results of `change`.
    #[inline]
    fn for_cached(
        &self,
        entry: SwapEntry,
        slots: u32,
        folio: FolioId,
        mut change: impl FnMut(&Locked<'_, PAYLOAD, P>, Words<'_>, Piece) -> u32,
    ) -> Result<u32, CacheError> {
        self.locate(entry, slots)?;
        let mut sum = 0;
        for piece in pieces(entry, slots) {
            let cluster = self.lock_cluster(entry.device(), piece.cluster);
            let words = cluster.words().ok_or(CacheError::NotCached(entry))?;
            if let Some(slot) = first_not_cached(words, piece, folio) {
                return Err(CacheError::NotCached(cluster.entry(slot).unwrap_or(entry)));
            }
            sum += change(&cluster, words, piece);
        }
        Ok(sum)
    }
}

/// First slot of the piece that does not stand for `folio`.
#[inline]
pub(crate) fn first_not_cached(words: Words<'_>, piece: Piece, folio: FolioId) -> Option<u32> {
    let cells = &words[piece.first as usize..(piece.first + piece.count) as usize];
    let differs = |cell: &AtomicU64| Word::from_raw(cell.load(Ordering::Relaxed)).differs_from(folio);
    // One look without a branch per slot: it finds nothing unless the caller is mistaken.
    if cells.iter().fold(0, |all, cell| all | differs(cell)) == 0 {
        return None;
    }
    cells.iter().position(|cell| differs(cell) != 0).map(|step| piece.first + step as u32)
}

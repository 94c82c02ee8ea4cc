//! Batched duplicate: all or nothing (spec §0).

use crate::before::is_slot_cached;
use crate::entry::SwapEntry;
use crate::free::lower_overflowed;
use crate::guard::Locked;
use crate::policy::Policy;
use crate::range::{Piece, pieces};
use crate::slots::{EntryError, Slots};
use crate::sync::{AtomicU64, Ordering};
use crate::word::{COUNT_OVERFLOWED, DupStep, PutStep, Word};
use crate::words::Words;

/// Why no count was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DupError {
    /// The range lies outside the device.
    Entry(EntryError),
    /// A slot of the range is free.
    NoEntry(SwapEntry),
    /// A slot of the range is bad.
    Bad(SwapEntry),
    /// A count passes 14 and the frame pool has no frame for the overflow array: add frames and try
    /// again.
    NoFrame,
}

impl core::fmt::Display for DupError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DupError::Entry(error) => error.fmt(formatter),
            DupError::NoEntry(entry) => write!(formatter, "{entry:?} is free"),
            DupError::Bad(entry) => write!(formatter, "{entry:?} is a bad slot"),
            DupError::NoFrame => formatter.write_str("no frame left for swap counts above 14"),
        }
    }
}

impl core::error::Error for DupError {}

impl From<EntryError> for DupError {
    fn from(error: EntryError) -> Self {
        DupError::Entry(error)
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Adds one count to each of `slots` slots from `entry` on, or to none. Counts above 14 take a
    /// frame per cluster for the overflow array.
    ///
    /// The caller holds a count of each slot, or the lock of the cached folio. For a moment, other
    /// threads may see a raised count that is then taken back. Cost: one lock per cluster touched.
    ///
    /// # Errors
    /// [`DupError`]; all counts are as before.
    pub fn dup(&self, entry: SwapEntry, slots: u32) -> Result<(), DupError> {
        self.locate(entry, slots)?;
        let mut done = 0;
        for piece in pieces(entry, slots) {
            let result = {
                let cluster = self.lock_cluster(entry.device(), piece.cluster);
                dup_piece(&cluster, piece)
            };
            if let Err(error) = result {
                self.undo_dup(entry, done);
                return Err(error);
            }
            done += piece.count;
        }
        Ok(())
    }

    /// Takes back the counts added to whole pieces before a later piece failed. No slot can become
    /// free, because each had a holder.
    #[cold]
    fn undo_dup(&self, entry: SwapEntry, slots: u32) {
        for piece in pieces(entry, slots) {
            let cluster = self.lock_cluster(entry.device(), piece.cluster);
            if let Some(words) = cluster.words() {
                undo_slots(&cluster, words, piece.slots());
            }
        }
    }
}

fn dup_piece<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    piece: Piece,
) -> Result<(), DupError> {
    let entry_of = |slot| cluster.entry(slot).ok_or(DupError::Entry(EntryError::OutOfRange));
    let Some(words) = cluster.words() else { return Err(DupError::NoEntry(entry_of(piece.first)?)) };
    for slot in piece.slots() {
        let cell = &words[slot as usize];
        let word = Word::from_raw(cell.load(Ordering::Relaxed));
        let step = if is_slot_cached::<P>(word) { DupStep::NoEntry } else { word.dup() };
        let failed = match step {
            DupStep::Raised(word) => {
                cell.store(word.raw(), Ordering::Release);
                continue;
            }
            DupStep::PassesWord(word) => match raise_past_word(cluster, cell, slot, word) {
                Ok(()) => continue,
                Err(error) => error,
            },
            DupStep::Overflowed => match cluster.overflow() {
                Some(counts) => {
                    let count = &counts[slot as usize];
                    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
                    continue;
                }
                None => DupError::NoFrame,
            },
            DupStep::NoEntry => DupError::NoEntry(entry_of(slot)?),
            DupStep::Bad => DupError::Bad(entry_of(slot)?),
        };
        undo_slots(cluster, words, piece.first..slot);
        return Err(failed);
    }
    Ok(())
}

#[cold]
fn raise_past_word<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    cell: &AtomicU64,
    slot: u32,
    word: Word,
) -> Result<(), DupError> {
    let counts = match cluster.overflow() {
        Some(counts) => counts,
        None => cluster.attach_overflow().map_err(|_| DupError::NoFrame)?,
    };
    // The count comes first, so that a lockless reader of the word finds it.
    counts[slot as usize].store(u64::from(COUNT_OVERFLOWED), Ordering::Release);
    cell.store(word.raw(), Ordering::Release);
    cluster.cluster.set_overflowed(cluster.cluster.overflowed() + 1);
    Ok(())
}

fn undo_slots<const PAYLOAD: usize, P: Policy>(
    cluster: &Locked<'_, PAYLOAD, P>,
    words: Words<'_>,
    slots: core::ops::Range<u32>,
) {
    for slot in slots {
        let cell = &words[slot as usize];
        match Word::from_raw(cell.load(Ordering::Relaxed)).put() {
            PutStep::Lowered(word) | PutStep::OnlyCached(word) => cell.store(word.raw(), Ordering::Release),
            PutStep::Overflowed => lower_overflowed(cluster, cell, slot),
            PutStep::Freed | PutStep::NoCount => debug_assert!(false, "a duplicated slot lost its holder"),
        }
    }
}

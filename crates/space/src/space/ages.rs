//! The age of the pages in the compressed RAM device: by generations, so that the oldest can go on
//! to a slower device first.
//!
//! A generation is a number that stands beside each stored page; the young one is given to pages
//! that are stored now. It ends when it holds an eighth of all stored pages, and the next begins,
//! as long as its number is free again. So ages are coarse, the count of each generation is exact,
//! and finding the oldest one takes no walk over pages.

use super::{Beside, Space};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use folioswap_devices::{PageMemory, Place};
use folioswap_policy::memory::Memory;
use folioswap_slots::SwapEntry;

/// Generations that are told apart. They are more than the eight that a store in steady turnover
/// has, because cold pages stay.
const GENERATIONS: u32 = 32;
/// A generation ends when it holds this part of all stored pages.
const SHARE: u64 = 8;
/// A generation holds at least this many pages.
const PAGES_MIN: u64 = 256;

/// The generation of a stored page. Only its order among those alive now has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// Returns the generation as a plain number.
    pub const fn raw(self) -> u32 {
        self.0
    }
    /// Makes a generation from a number that [`Generation::raw`] gave.
    pub const fn from_raw(raw: u32) -> Self {
        Generation(raw)
    }
    /// Returns the next generation.
    #[must_use]
    pub const fn next(self) -> Self {
        Generation(self.0.wrapping_add(1))
    }
    /// Whether this generation was stored before `other`. Both must be alive at the same time.
    pub const fn is_older_than(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

/// The counts of the generations. All-zero: empty. Each call is a few atomic operations, and up to
/// 32 loads.
#[derive(Debug, Default)]
pub struct Ages {
    young: AtomicU32,
    counts: [AtomicU64; GENERATIONS as usize],
}

impl Ages {
    fn count(&self, generation: u32) -> &AtomicU64 {
        &self.counts[(generation % GENERATIONS) as usize]
    }

    /// Counts a page that is stored; returns its generation.
    pub fn stored(&self) -> Generation {
        let young = self.young.load(Acquire);
        let pages = self.count(young).fetch_add(1, Relaxed) + 1;
        let next = young.wrapping_add(1);
        if pages >= PAGES_MIN && pages >= self.total() / SHARE && self.count(next).load(Relaxed) == 0 {
            // A thread that is late leaves a generation a few pages too large.
            let _ = self.young.compare_exchange(young, next, AcqRel, Relaxed);
        }
        Generation(young)
    }

    /// Counts a page of this generation that is stored no longer.
    pub fn gone(&self, generation: Generation) {
        self.count(generation.0).fetch_sub(1, Relaxed);
    }

    /// Returns the oldest generation with a page in it; `None` when nothing is stored.
    pub fn oldest(&self) -> Option<Generation> {
        let young = self.young.load(Acquire);
        (1..=GENERATIONS)
            .map(|step| young.wrapping_add(step).wrapping_sub(GENERATIONS))
            .find(|&generation| self.count(generation).load(Relaxed) != 0)
            .map(Generation)
    }

    /// Returns the generation of pages that are stored now.
    pub fn young(&self) -> Generation {
        Generation(self.young.load(Acquire))
    }

    /// Returns the number of pages stored, all generations together.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Counts a page that leaves the compressed store. The caller holds the location's lock.
    pub(crate) fn aged_out(&self, beside: &Beside) {
        self.ages.gone(Generation::from_raw(beside.age.load(Relaxed)));
    }

    /// Counts a page that comes into the compressed store. The caller holds the location's lock.
    pub(crate) fn aged_in(&self, beside: &Beside) {
        beside.age.store(self.ages.stored().raw(), Relaxed);
    }

    /// Makes a page count as stored just now. The caller holds the location's lock.
    pub(crate) fn rejuvenate(&self, beside: &Beside) {
        self.aged_out(beside);
        self.aged_in(beside);
    }

    /// Returns the ages of the pages in the compressed store.
    pub fn ages(&self) -> &Ages {
        &self.ages
    }

    /// Returns the generation of an entry's bytes, if they are in the compressed store. A hint:
    /// they may leave at any moment.
    pub fn generation(&self, entry: SwapEntry) -> Option<Generation> {
        let beside = self.beside(entry)?;
        let place = Place::unpack(beside.location.get(), beside.check.load(Relaxed));
        matches!(place, Some(Place::Zram { .. })).then(|| Generation::from_raw(beside.age.load(Relaxed)))
    }
}

#[cfg(test)]
mod tests;

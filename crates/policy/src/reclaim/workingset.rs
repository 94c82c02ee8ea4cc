//! How long a page was away: the refault distance (kernel: `mm/workingset.c`).
//!
//! A page that comes back soon after it was written back would have needed only a little more
//! memory to stay. How much more is its *refault distance*: the pages that were evicted or
//! activated meanwhile. It is measured without a list of pages that are away: a *nonresident age*
//! counts evictions (pages that leave staging for a device) and activations (pages touched in
//! staging, or back from a short way), and the slot word of a page that leaves keeps the age of
//! that moment as its shadow (SPEC, *Slot word*). At the refault the difference of both is the
//! distance:
//!
//! * at most the pages resident outside of the inactive list: the page belongs to the working set,
//!   at the expense of resident pages. It is *activated*;
//! * at most the pages that the inactive list could still grow by: a longer list would have spared
//!   the refault ([`inactive`](super::inactive)).
//!
//! Each process has an age of its own instead of one for its group. Slot words, the inactive list
//! and the clock are a process's own too; a distance in the group's evictions would mix the pace of
//! others into it; and all of the group would write one cache line. A forked child inherits the age
//! together with the slot words that refer to it.
//!
//! ```text
//!  57                                        1   0
//! +--------------------------------------------+---+
//! | nonresident age when the page left, 57 bits| 1 |   a shadow
//! +--------------------------------------------+---+
//! | 0                                              |   no information
//! +------------------------------------------------+
//! ```
//!
//! The kernel has few bits in its entries and counts in buckets; here each eviction counts, and the
//! age does not wrap in a lifetime. Pages of one piece (64 KiB) that leave together have one age.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use folioswap_slots::Shadow;

const EVICTED: u64 = 1;
const AGE_SHIFT: u32 = 1;
/// The bits of an age that a shadow holds.
const AGE_MASK: u64 = (1 << 57) - 1;

/// Returns the age that a shadow holds; `None` for one without information.
pub const fn age_of(shadow: Shadow) -> Option<u64> {
    if shadow.get() & EVICTED != 0 { Some(shadow.get() >> AGE_SHIFT) } else { None }
}

/// Returns the shadow of a page that leaves at this age, of which the low 57 bits count.
pub const fn shadow_of(age: u64) -> Shadow {
    match Shadow::new((age & AGE_MASK) << AGE_SHIFT | EVICTED) {
        Some(shadow) => shadow,
        None => Shadow::EMPTY,
    }
}

/// The meaning of the distance of a page that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refault {
    /// Nothing is known: the page's slot word had no shadow of ours.
    Unknown,
    /// The page was away for longer than the working set's size.
    Far,
    /// The page belongs to the working set.
    Active,
    /// The page belongs to the working set, and a longer inactive list, as long as it may become,
    /// would have kept it.
    Spared,
}

/// Refaults of a swap-in, counted together. Cost of adding one: no atomic operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refaults {
    /// Pages with a distance.
    pub pages: u64,
    /// Pages that belong to the working set.
    pub activated: u64,
    /// Pages that a longer inactive list would have spared.
    pub spared: u64,
}

impl Refaults {
    /// Adds a refault.
    pub fn add(&mut self, refault: Refault) {
        self.pages += u64::from(refault != Refault::Unknown);
        self.activated += u64::from(matches!(refault, Refault::Active | Refault::Spared));
        self.spared += u64::from(refault == Refault::Spared);
    }
}

/// The position of a nonresident age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Evictions and activations.
    pub age: u64,
    /// Evictions alone.
    pub evictions: u64,
}

/// A process's nonresident age, and the sizes that distances are compared with. All figures are
/// pages. Advisory: any thread may read; a race costs a distance a few pages. All-zero: nothing has
/// left yet.
#[derive(Debug, Default)]
pub struct Workingset {
    age: AtomicU64,
    /// The part of the age that is evictions.
    evictions: AtomicU64,
    /// Pages resident outside of the inactive list.
    active: AtomicU64,
    /// Pages by which the inactive list may still grow.
    headroom: AtomicU64,
    spared: AtomicU64,
}

impl Workingset {
    /// Returns the shadow for the slot word of a page that leaves now. Cost: a load.
    pub fn shadow(&self) -> Shadow {
        shadow_of(self.age.load(Relaxed))
    }

    /// Records that this many pages have left staging for a device. Called once for each folio;
    /// cost: two atomic additions.
    pub fn evicted(&self, pages: u64) {
        self.age.fetch_add(pages, Relaxed);
        self.evictions.fetch_add(pages, Relaxed);
    }

    /// Records that this many pages were touched in staging. Called once for each swap-in; cost: an
    /// atomic addition.
    pub fn activated(&self, pages: u64) {
        self.age.fetch_add(pages, Relaxed);
    }

    /// Sets how many pages are resident outside of the inactive list. Called by the evictor
    /// whenever it measures.
    pub fn set_active(&self, pages: u64) {
        self.active.store(pages, Relaxed);
    }

    /// Sets by how many pages the inactive list may grow. Called by the evictor.
    pub fn set_room(&self, pages: u64) {
        self.headroom.store(pages, Relaxed);
    }

    /// Returns the age now, and how much of it is evictions: the rest is activations.
    pub fn ages(&self) -> Ages {
        Ages { age: self.age.load(Relaxed), evictions: self.evictions.load(Relaxed) }
    }

    /// Returns how many pages have left or were activated since the page with this shadow left.
    /// Cost: a load.
    pub fn distance(&self, shadow: Shadow) -> Option<u64> {
        age_of(shadow).map(|then| self.age.load(Relaxed).wrapping_sub(then) & AGE_MASK)
    }

    /// Returns the meaning of this [`Workingset::distance`] for a page that comes back. Cost: two
    /// loads.
    pub fn refault(&self, distance: Option<u64>) -> Refault {
        let Some(distance) = distance else { return Refault::Unknown };
        if distance > self.active.load(Relaxed) {
            Refault::Far
        } else if distance > self.headroom.load(Relaxed) {
            Refault::Active
        } else {
            Refault::Spared
        }
    }

    /// Records the refaults of a swap-in. Activated pages count to the age (kernel:
    /// `workingset_refault`). Cost: up to two atomic additions.
    pub fn came_back(&self, refaults: Refaults) {
        if refaults.activated > 0 {
            self.age.fetch_add(refaults.activated, Relaxed);
        }
        if refaults.spared > 0 {
            self.spared.fetch_add(refaults.spared, Relaxed);
        }
    }

    /// Returns the refaults that a longer inactive list would have spared, since the beginning.
    pub fn spared(&self) -> u64 {
        self.spared.load(Relaxed)
    }

    /// Whether a slot word can have this shadow. A shadow of a later age than now cannot have been
    /// written.
    pub fn is_sound(&self, shadow: Shadow) -> bool {
        match age_of(shadow) {
            Some(then) => self.age.load(Relaxed).wrapping_sub(then) & AGE_MASK <= AGE_MASK / 2,
            None => shadow == Shadow::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests;

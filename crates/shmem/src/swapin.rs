//! Swap-in: a page of an object comes back, if possible with the folio that it left in (spec §5,
//! order of steps).
//!
//! | Step | Walks of the map |
//! |---|---|
//! | pin the device; confirm the entry and find out its order | 1; today none: the lookup told it |
//! | look the entry of the index up in the swap cache | |
//! | not cached: read it in the entry's order, else in the next smaller one that goes, or, if slow, with readahead | |
//! | lock the folio; it must be the entry's, and the first entry in the map | 1; today none |
//! | split the entry if the folio is smaller | |
//! | insert the folio if the whole range holds exactly its entries | 1 |
//! | take it out of the swap cache, and free its slots; today: when it is first written to | |
//!
//! A change found on the way means: begin again (EEXIST). Any other error is returned as it is.

use crate::counters::{add, count, count_order};
use crate::error::ShmemError;
use crate::folio::flag;
use crate::object::{Held, Hold, ObjectOf};
use crate::space::Urgency;
use crate::swap::Swap;
use crate::sync::SeqCst;
use crate::variant::{
    EntrySplit, Fallback, Insertion, LargerCached, Lookup, MajorFault, OrderWalk, Step, StoredCopy,
    UnderLock, Variant,
};
use crate::word::{Found, Item};
use folioswap_slots::{FolioId, Order, SlotWord, SwapEntry};

/// Begin again: something changed.
pub(crate) struct Again;

/// Why there is no folio.
pub(crate) enum Failed {
    Again,
    Error(ShmemError),
}

impl From<Again> for Failed {
    fn from(_: Again) -> Self {
        Failed::Again
    }
}

/// Origin of a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// It was in the swap cache, and is not locked yet.
    Cached(u32),
    /// It is new, read just now, in the swap cache, and held by this thread.
    New(u32),
}

impl<V: Variant> ObjectOf<V> {
    /// One attempt to bring the page `index` back, for which the map had `found`. `wanted` is the
    /// number of pages from it on that will be asked for.
    pub(crate) fn swap_in(&self, index: u64, found: Found, wanted: u64) -> Result<Held<'_>, Failed> {
        let Item::Swap(entry) = found.item else { return Err(Failed::Again) };
        let slots = self.space.swap.space().slots();
        let Some(_pinned) = slots.device_get(Swap::cpu(), entry.device()) else {
            let is_there = self.walk(index).is_some_and(|now| now.item == found.item);
            return Err(if is_there {
                Failed::Error(ShmemError::DeviceGone { entry })
            } else {
                Failed::Again
            });
        };
        V::at(Step::Begun);
        let order = match V::ORDER_WALK {
            OrderWalk::FromLookup => found.order,
            OrderWalk::WithConfirmation => self.confirmed(index, entry)?,
            OrderWalk::OfItsOwn => self.walk(index).ok_or(Again)?.order,
        };
        let looked_up = match V::LOOKUP {
            Lookup::SubEntry => entry,
            Lookup::FirstEntry => entry.round_down(order).ok_or(Again)?,
        };
        let arrived = match slots.word(looked_up) {
            SlotWord::Cached { folio, .. } => Arrived::Cached(folio.0),
            SlotWord::Shadow { .. } => self.missed(index, entry, order, wanted)?,
            SlotWord::Free | SlotWord::Bad => return Err(Failed::Again),
        };
        V::at(Step::Arrived);
        let frame = match arrived {
            Arrived::New(frame) => frame,
            Arrived::Cached(frame) => {
                self.space.folios.lock(frame);
                frame
            }
        };
        match self.install(index, entry, order, frame) {
            Ok(held) => Ok(held),
            Err(failed) => {
                match arrived {
                    Arrived::New(_) => _ = self.space.drop_cached(frame),
                    Arrived::Cached(_) => self.space.folios.unlock(frame),
                }
                Err(failed)
            }
        }
    }

    /// A walk of the map, counted.
    fn walk(&self, index: u64) -> Option<Found> {
        count(&self.space.counters.walks);
        self.inner.map.get(index)
    }

    /// The order of the entry, if it is still there.
    fn confirmed(&self, index: u64, entry: SwapEntry) -> Result<Order, Again> {
        let found = self.walk(index).filter(|found| found.item == Item::Swap(entry));
        found.map(|found| found.order).ok_or(Again)
    }

    /// Reads a page that is not in the swap cache.
    fn missed(&self, index: u64, entry: SwapEntry, order: Order, wanted: u64) -> Result<Arrived, Failed> {
        let counters = &self.space.counters;
        if V::MAJOR_FAULT == MajorFault::EachMiss {
            count(&counters.pgmajfault);
        }
        V::at(Step::Missed);
        let arrived = match self.fetch(index, entry, order, wanted) {
            // An error that this entry has caused concerns the caller only while the page is still
            // there.
            Err(Failed::Error(_)) if !self.is_still(index, entry) => return Err(Failed::Again),
            arrived => arrived?,
        };
        if V::MAJOR_FAULT == MajorFault::ReadingStarts && matches!(arrived, Arrived::New(_)) {
            count(&counters.pgmajfault);
        }
        Ok(arrived)
    }

    /// Whether the map has this entry for the page.
    fn is_still(&self, index: u64, entry: SwapEntry) -> bool {
        self.inner.map.get(index).is_some_and(|found| found.item == Item::Swap(entry))
    }

    /// Reads a folio with the page: as large as the entry, or a single page.
    fn fetch(&self, index: u64, entry: SwapEntry, order: Order, wanted: u64) -> Result<Arrived, Failed> {
        let counters = &self.space.counters;
        if !self.space.is_synchronous(entry) {
            self.read_ahead(index, entry, order, wanted)
        } else if order == Order::ZERO {
            self.space.read_directly(entry, order, Urgency::SwapIn)
        } else {
            match self.read_large(entry, order) {
                Err(Failed::Error(ShmemError::NoSpace)) => {
                    count_order(&counters.swpin_fallback, order);
                    V::at(Step::NoLargeFolio);
                    match V::FALLBACK {
                        Fallback::EachSmallerOrder => self.read_smaller(entry, order),
                        Fallback::DirectOrderZero => {
                            self.space.read_directly(entry, Order::ZERO, Urgency::SwapIn)
                        }
                        Fallback::CachedReadahead => self.read_ahead(index, entry, order, wanted),
                    }
                }
                arrived => arrived,
            }
        }
    }

    /// The one place where a large swap-in is refused: a large folio cannot be had, a slot of the
    /// range is cached or the locations are mixed, or a page of it cannot be read.
    fn read_large(&self, entry: SwapEntry, order: Order) -> Result<Arrived, Failed> {
        if !V::may_allocate_large(order) || !self.space.is_uniform(entry, order) {
            return Err(Failed::Error(ShmemError::NoSpace));
        }
        self.space.read_directly(entry, order, Urgency::Large)
    }

    /// Reads the page in the largest folio below `order` that goes, at least alone. Each order that
    /// does not is counted as a fallback.
    fn read_smaller(&self, entry: SwapEntry, order: Order) -> Result<Arrived, Failed> {
        for smaller in (1..order.index() as u32).rev().filter_map(Order::new) {
            match self.read_large(entry, smaller) {
                Err(Failed::Error(ShmemError::NoSpace)) => {
                    count_order(&self.space.counters.swpin_fallback, smaller);
                }
                arrived => return arrived,
            }
        }
        self.space.read_directly(entry, Order::ZERO, Urgency::SwapIn)
    }

    fn read_ahead(&self, index: u64, entry: SwapEntry, order: Order, wanted: u64) -> Result<Arrived, Failed> {
        if V::ENTRY_SPLIT == EntrySplit::OnMiss && order > Order::ZERO {
            // As it was: only the entry's value is compared, and it is not known yet whether a
            // small folio will come.
            self.split_entry(index, entry, Order::ZERO)?;
        }
        self.space.read_around(entry, wanted)
    }

    /// Splits the entry that covers `index` into entries of `to`.
    fn split_entry(&self, index: u64, entry: SwapEntry, to: Order) -> Result<(), Again> {
        let mut map = self.inner.map.lock();
        if map.get(index).is_none_or(|found| found.item != Item::Swap(entry)) {
            return Err(Again);
        }
        if map.split(index, to) {
            count(&self.space.counters.entry_splits);
        }
        Ok(())
    }

    /// Puts a folio, which this thread holds, into the map. On an error it is still held.
    fn install(
        &self,
        index: u64,
        entry: SwapEntry,
        entry_order: Order,
        frame: u32,
    ) -> Result<Held<'_>, Failed> {
        let (space, folio) = (&self.space, self.folio(frame));
        let (swap, order) = (space.swap.space(), folio.order());
        let first = entry.round_down(order).ok_or(Again)?;
        let is_ours = folio.entry() == Some(first)
            && matches!(swap.slots().word(entry), SlotWord::Cached { folio, .. } if folio.0 == frame);
        // As it was: the first entry's folio counts as arrived, whether or not it is the one of the
        // index.
        let false_hit = V::LOOKUP == Lookup::FirstEntry && folio.entry().is_some();
        if order < entry_order && (is_ours || false_hit) {
            self.split_entry(index, entry, order)?;
        }
        if !is_ours {
            return Err(Failed::Again);
        }
        let pages = u64::from(order.slots());
        let start = index & !(pages - 1);
        if V::LARGER_CACHED == LargerCached::Refused {
            // As it was: the folio's entry must be the one that the map has for the index.
            let now = self.inner.map.get(index).ok_or(Again)?;
            if now.item.round_down(now.order) != Item::Swap(first) {
                return Err(Failed::Again);
            }
        }
        match V::UNDER_LOCK {
            UnderLock::FolioAlone => {}
            UnderLock::FirstEntry => _ = self.confirmed(start, first)?,
            UnderLock::FirstEntryAndOrder => {
                self.confirmed(index, entry)?;
                if self.walk(index).ok_or(Again)?.order != order {
                    return Err(Failed::Again);
                }
            }
        }
        if !folio.has(flag::UPTODATE) {
            return Err(self.poison(index, entry));
        }
        V::at(Step::BeforeInsertion);
        count(&space.counters.walks);
        let mut map = self.inner.map.lock();
        match V::INSERTION {
            Insertion::WholeRange => map.expect_swapped(start, order, first).map_err(|_| Again)?,
            Insertion::FirstEntry => {
                if map.get(start) != Some(Found { item: Item::Swap(first), order }) {
                    return Err(Failed::Again);
                }
            }
        }
        self.inner.adopt(space, frame, start);
        map.store(start, order, Some(Item::Folio(frame)));
        drop(map);
        self.inner.swapped.fetch_sub(pages, SeqCst);
        match V::STORED_COPY {
            StoredCopy::Freed => {
                folio.set_entry(None);
                swap.free_folio(first, order.slots(), FolioId(frame));
            }
            StoredCopy::KeptWhileClean => folio.set(flag::CLEAN),
        }
        if folio.has(flag::READAHEAD) {
            folio.clear(flag::READAHEAD);
            count(&space.counters.swap_ra_hit);
            space.readahead_hit(entry);
        }
        space.lru.add(&space.folios, frame);
        count(&space.counters.swapins);
        count_order(&space.counters.swpin, order);
        Ok(Held::new(space, frame, start, Hold::Exclusive))
    }

    /// Marks a page that could not be read as lost in the map, and frees its slot. The folio, a
    /// single page, is still the caller's to drop.
    fn poison(&self, index: u64, entry: SwapEntry) -> Failed {
        let mut map = self.inner.map.lock();
        if map.expect_swapped(index, Order::ZERO, entry).is_err() {
            return Failed::Again;
        }
        map.store(index, Order::ZERO, Some(Item::Poison));
        drop(map);
        self.inner.swapped.fetch_sub(1, SeqCst);
        self.space.swap.space().put(entry, 1);
        add(&self.space.counters.poisoned, 1);
        Failed::Error(ShmemError::Io { index })
    }
}

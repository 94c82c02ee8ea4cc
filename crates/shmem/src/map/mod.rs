//! The map of a shmem object: index -> folio or swap entry of any order (spec §5).
//!
//! A radix tree of nodes with 64 slots. An item of order n lies at level n / 6, in 2^(n mod 6)
//! slots there, each of which alone says what covers it ([`crate::word`]), so a 2 MiB item takes
//! eight words. An empty map has no node, and neither has a map of page 0 alone.
//!
//! Lookups take no lock: a word is read in one go, and nodes that are taken out are freed when no
//! lookup can have them any more (epochs). A change of the map needs its lock ([`Map::lock`]). Each
//! node has *marks*, which say for each of its slots whether there are folios, or swap entries,
//! anywhere below: a walk that looks for one of them skips the other slots.

mod node;
#[cfg(test)]
mod tests;
mod writer;

use crate::sync::{Acquire, AtomicU64, Mutex, Relaxed, lock};
use crate::word::{Found, Item, is_node, unpack};
use crossbeam_epoch as epoch;
use node::{BITS, Node, SLOTS, covered, node, slot_of};
use std::sync::Arc;
pub(crate) use writer::{Changed, Writer};

/// The items that a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Anything.
    Present,
    /// Swap entries alone.
    Swapped,
}

/// The map. The nodes of all maps that share `meter` are counted there, in bytes.
pub(crate) struct Map {
    root: AtomicU64,
    changes: Mutex<()>,
    meter: Arc<AtomicU64>,
}

impl Map {
    pub(crate) fn new(meter: Arc<AtomicU64>) -> Map {
        Map { root: AtomicU64::new(0), changes: Mutex::new(()), meter }
    }

    /// The item that covers `index`. Takes no lock. Cost: one load for each level.
    pub(crate) fn get(&self, index: u64) -> Option<Found> {
        let _epoch = epoch::pin();
        let mut word = self.root.load(Acquire);
        if !is_node(word) {
            return unpack(word).filter(|_| index == 0);
        }
        // SAFETY: read from the map with the epoch pinned.
        let mut at = unsafe { node(word) };
        if index >> covered(at.level) != 0 {
            return None;
        }
        loop {
            word = at.slots[slot_of(index, at.level)].load(Acquire);
            if !is_node(word) {
                let found = unpack(word)?;
                let within = index & ((1 << (BITS * at.level)) - 1);
                return Some(Found { item: found.item.step(within), ..found });
            }
            // SAFETY: as above.
            at = unsafe { node(word) };
        }
    }

    /// The first item at or behind `from` that is looked for, and its first index, which may lie
    /// before `from`. Takes no lock; skips slots without the mark.
    pub(crate) fn next(&self, from: u64, look: Look) -> Option<(u64, Found)> {
        let _epoch = epoch::pin();
        let word = self.root.load(Acquire);
        if !is_node(word) {
            let wanted = |found: &Found| look == Look::Present || matches!(found.item, Item::Swap(_));
            return unpack(word).filter(wanted).filter(|_| from == 0).map(|found| (0, found));
        }
        // SAFETY: read from the map with the epoch pinned, which `walk` needs too.
        let top = unsafe { node(word) };
        if from >> covered(top.level) != 0 {
            return None;
        }
        walk(top, 0, from, look)
    }

    /// Takes the right to change the map. It is held for a few stores, and no other lock is taken
    /// under it.
    pub(crate) fn lock(&self) -> Writer<'_> {
        let held = lock(&self.changes);
        Writer { map: self, epoch: epoch::pin(), _held: held }
    }

    fn make(&self, level: u32) -> Box<Node> {
        self.meter.fetch_add(size_of::<Node>() as u64, Relaxed);
        Box::new(Node {
            slots: [const { AtomicU64::new(0) }; SLOTS],
            resident: AtomicU64::new(0),
            swapped: AtomicU64::new(0),
            level,
        })
    }

    fn discount(&self) {
        self.meter.fetch_sub(size_of::<Node>() as u64, Relaxed);
    }
}

fn walk(at: &Node, base: u64, from: u64, look: Look) -> Option<(u64, Found)> {
    let size = 1u64 << (BITS * at.level);
    let first = if from > base { slot_of(from, at.level) } else { 0 };
    for slot in first..SLOTS {
        if look == Look::Swapped && at.swapped.load(Acquire) >> slot & 1 == 0 {
            continue;
        }
        let word = at.slots[slot].load(Acquire);
        let start = base + slot as u64 * size;
        if is_node(word) {
            // SAFETY: the caller has the epoch pinned.
            let found = walk(unsafe { node(word) }, start, from, look);
            if found.is_some() {
                return found;
            }
        } else if let Some(found) = unpack(word)
            && (look == Look::Present || matches!(found.item, Item::Swap(_)))
        {
            let first = start & !(u64::from(found.order.slots()) - 1);
            return Some((first, Found { item: found.item.round_down(found.order), ..found }));
        }
    }
    None
}

impl Drop for Map {
    fn drop(&mut self) {
        fn free(map: &Map, word: u64) {
            if is_node(word) {
                // SAFETY: the map is being dropped, so no other reference is left.
                let at = unsafe { Box::from_raw(word as *mut Node) };
                at.slots.iter().for_each(|slot| free(map, slot.load(Relaxed)));
                map.discount();
            }
        }
        free(self, self.root.load(Relaxed));
    }
}

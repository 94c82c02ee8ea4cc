//! Changes of the map, and the conditions that they are subject to.

use super::node::{BITS, Node, SLOTS, covered, node, slot_of};
use super::{Look, Map};
use crate::sync::{MutexGuard, Relaxed, Release};
use crate::word::{Found, Item, is_node, pack, unpack};
use crossbeam_epoch::Guard;
use folioswap_slots::{Order, SwapEntry};

/// The right to change a map.
pub(crate) struct Writer<'m> {
    pub(super) map: &'m Map,
    pub(super) epoch: Guard,
    pub(super) _held: MutexGuard<'m, ()>,
}

/// The range does not hold the expected items, because another thread changed it (EEXIST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed;

/// Result of [`Writer::reach`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// The tree has the height.
    Within,
    /// It has not, so the range is empty; and no item is to be stored there.
    NothingToClear,
}

impl Writer<'_> {
    /// The item that covers `index`.
    pub(crate) fn get(&self, index: u64) -> Option<Found> {
        self.map.get(index)
    }

    /// Writes `item`, or nothing, over 2^`order` pages from `start` (naturally aligned). Everything
    /// there must lie within that range: a larger item is [split](Writer::split) first. `item` is
    /// that of the first page.
    pub(crate) fn store(&mut self, start: u64, order: Order, item: Option<Item>) {
        let level = order.index() as u32 / BITS;
        let root = self.map.root.load(Relaxed);
        if start == 0 && !is_node(root) && (order == Order::ZERO || item.is_none()) {
            let word = item.map_or(0, |item| pack(Found { item, order }));
            self.map.root.store(word, Release);
            return;
        }
        let last = start + u64::from(order.slots()) - 1;
        if self.reach(last, level, item) == Reached::NothingToClear {
            return;
        }
        let mut path: [(u64, usize); 10] = [(0, 0); 10];
        let mut depth = 0;
        let mut word = self.map.root.load(Relaxed);
        loop {
            // SAFETY: in the map, which only we change.
            let at = unsafe { node(word) };
            let slot = slot_of(start, at.level);
            path[depth] = (word, slot);
            depth += 1;
            if at.level == level {
                break;
            }
            let below = at.slots[slot].load(Relaxed);
            word = match below {
                0 if item.is_none() => return,
                0 => {
                    let made = Box::into_raw(self.map.make(at.level - 1)) as u64;
                    at.slots[slot].store(made, Release);
                    made
                }
                below if is_node(below) => below,
                _ => {
                    debug_assert!(false, "a larger item is split before a part of it is replaced");
                    return;
                }
            };
        }
        let (target, slot) = path[depth - 1];
        // SAFETY: as above.
        let target = unsafe { node(target) };
        for step in 0..1usize << (order.index() as u32 % BITS) {
            let old = target.slots[slot + step].load(Relaxed);
            let pages = (step as u64) << (BITS * level);
            let word = item.map_or(0, |item| pack(Found { item: item.step(pages), order }));
            target.set(slot + step, word);
            self.retire(old);
        }
        self.settle(&path[..depth]);
    }

    /// Splits the item that covers `index` into items of `to`, which is smaller. Lookups find one
    /// or the other in each place. Returns whether there was an item to split.
    pub(crate) fn split(&mut self, index: u64, to: Order) -> bool {
        let Some(found) = self.get(index).filter(|found| found.order > to) else { return false };
        let level = found.order.index() as u32 / BITS;
        let mut word = self.map.root.load(Relaxed);
        let at = loop {
            // SAFETY: in the map, which only we change; an item larger than a page lies in a node.
            let at = unsafe { node(word) };
            if at.level == level {
                break at;
            }
            word = at.slots[slot_of(index, at.level)].load(Relaxed);
        };
        let start = index & !(u64::from(found.order.slots()) - 1);
        let first = slot_of(start, level);
        for slot in first..first + (1 << (found.order.index() as u32 % BITS)) {
            let Some(old) = unpack(at.slots[slot].load(Relaxed)) else { continue };
            let word = self.piece(old.item, level, to);
            at.set(slot, word);
        }
        true
    }

    /// The word for a slot of `level` whose pages begin with `item`, in pieces of `to`.
    fn piece(&self, item: Item, level: u32, to: Order) -> u64 {
        if to.index() as u32 / BITS == level {
            return pack(Found { item, order: to });
        }
        let made = self.map.make(level - 1);
        for slot in 0..SLOTS {
            let pages = (slot as u64) << (BITS * (level - 1));
            made.set(slot, self.piece(item.step(pages), level - 1, to));
        }
        Box::into_raw(made) as u64
    }

    /// Checks that the whole range holds exactly the consecutive entries from `first` on, whatever
    /// their orders, and that they end where it ends (spec §5.1).
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) fn expect_swapped(&self, start: u64, order: Order, first: SwapEntry) -> Result<(), Changed> {
        let end = start + u64::from(order.slots());
        let mut index = start;
        while index < end {
            let expected = first.checked_add(index - start).map(Item::Swap);
            let found = self.get(index).ok_or(Changed)?;
            let size = u64::from(found.order.slots());
            if Some(found.item) != expected || index & (size - 1) != 0 {
                return Err(Changed);
            }
            index += size;
        }
        if index == end { Ok(()) } else { Err(Changed) }
    }

    /// Checks that the range is empty.
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) fn expect_empty(&self, start: u64, order: Order) -> Result<(), Changed> {
        match self.map.next(start, Look::Present) {
            Some((first, _)) if first < start + u64::from(order.slots()) => Err(Changed),
            _ => Ok(()),
        }
    }

    /// Checks that the range holds exactly this folio.
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) fn expect_folio(&self, start: u64, order: Order, frame: u32) -> Result<(), Changed> {
        let is = self.get(start) == Some(Found { item: Item::Folio(frame), order });
        if is { Ok(()) } else { Err(Changed) }
    }

    /// Makes the tree high enough for `last` and for an item of `level`, if `item` is to be stored.
    fn reach(&mut self, last: u64, level: u32, item: Option<Item>) -> Reached {
        loop {
            let root = self.map.root.load(Relaxed);
            let height = match is_node(root) {
                // SAFETY: in the map, which only we change.
                true => Some(unsafe { node(root) }.level),
                false => None,
            };
            if height.is_some_and(|height| height >= level && last >> covered(height).min(63) == 0) {
                return Reached::Within;
            }
            if item.is_none() && height.is_none_or(|height| height >= level) {
                return Reached::NothingToClear;
            }
            // An empty tree is made as high as it must be, so that no empty nodes hang below its
            // top.
            let enough = |height: &u32| *height >= level && last >> covered(*height).min(63) == 0;
            let height = match (root, height) {
                (0, _) => (0..10).find(enough).unwrap_or(9),
                (_, height) => height.map_or(0, |height| height + 1),
            };
            let made = self.map.make(height);
            if root != 0 {
                made.set(0, root);
            }
            self.map.root.store(Box::into_raw(made) as u64, Release);
        }
    }

    /// Sets the marks from below upwards, and takes empty nodes out.
    fn settle(&mut self, path: &[(u64, usize)]) {
        for depth in (0..path.len()).rev() {
            let (word, _) = path[depth];
            // SAFETY: in the map, which only we change.
            let empty = unsafe { node(word) }.is_empty();
            if let Some(&(parent, slot)) = depth.checked_sub(1).and_then(|above| path.get(above)) {
                // SAFETY: as above.
                let parent = unsafe { node(parent) };
                if empty {
                    parent.set(slot, 0);
                    self.retire(word);
                } else {
                    parent.mark(slot, word);
                }
            } else if empty {
                self.map.root.store(0, Release);
                self.retire(word);
            }
        }
    }

    /// Frees a subtree that is out of the map, once no lookup can be in it any more.
    fn retire(&self, word: u64) {
        if !is_node(word) {
            return;
        }
        // SAFETY: out of the map, and freed only below.
        let at = unsafe { node(word) };
        at.slots.iter().for_each(|slot| self.retire(slot.load(Relaxed)));
        self.map.discount();
        // SAFETY: made by `make`, out of the map, retired once; lookups that may be in it have the
        // epoch pinned.
        unsafe { self.epoch.defer_unchecked(move || drop(Box::from_raw(word as *mut Node))) };
    }
}

//! The map of a shmem object: index -> folio or swap entry of any order (spec §5).
//!
//! A radix tree of nodes with 64 slots. An item of order n lies at level n / 6, in 2^(n mod 6) slots there, each of which says
//! alone what covers it ([`crate::word`]); so a 2 MiB item takes eight words. An empty map has no node, and one with nothing but page 0 none either.
//!
//! Lookups take no lock: a word is read in one go, and nodes that are taken out are freed when no lookup can have them any more
//! (epochs). Who changes the map holds its lock ([`Map::lock`]). Each node has *marks*, which say for each of its slots whether there
//! are folios, or swap entries, anywhere below: walks that look for one of them pass over the rest.

use crate::sync::{Acquire, AtomicU64, Mutex, MutexGuard, Relaxed, Release, lock};
use crate::word::{Found, Item, is_node, pack, unpack};
use crossbeam_epoch::{self as epoch, Guard};
use folioswap_slots::{Order, SwapEntry};
use std::sync::Arc;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;

struct Node {
    slots: [AtomicU64; SLOTS],
    /// Marks: slots below which something is resident, or swapped out.
    resident: AtomicU64,
    swapped: AtomicU64,
    level: u32,
}

/// What a walk looks for.
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
    meter: Arc<std::sync::atomic::AtomicU64>,
}

/// The right to change a map.
pub(crate) struct Writer<'m> {
    map: &'m Map,
    epoch: Guard,
    _held: MutexGuard<'m, ()>,
}

/// The range does not hold what was expected: somebody else changed it (EEXIST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed;

fn covered(level: u32) -> u32 {
    BITS * (level + 1)
}

/// The slot of `index` in a node of this level.
fn slot_of(index: u64, level: u32) -> usize {
    (index >> (BITS * level)) as usize & (SLOTS - 1)
}

/// # Safety
/// `word` is the address of a node that is in the map now, or was when this thread's epoch was pinned.
unsafe fn node<'n>(word: u64) -> &'n Node {
    // SAFETY: the caller's.
    unsafe { &*(word as *const Node) }
}

impl Node {
    fn kinds(word: u64) -> (bool, bool) {
        match unpack(word) {
            Some(Found { item: Item::Folio(_), .. }) => (true, false),
            Some(Found { item: Item::Swap(_), .. }) => (false, true),
            Some(_) => (false, false),
            None if is_node(word) => {
                // SAFETY: asked by the writer alone, of what is in the map or was just made.
                let child = unsafe { node(word) };
                (child.resident.load(Relaxed) != 0, child.swapped.load(Relaxed) != 0)
            }
            None => (false, false),
        }
    }

    fn set(&self, slot: usize, word: u64) {
        self.slots[slot].store(word, Release);
        self.mark(slot, word);
    }

    fn mark(&self, slot: usize, word: u64) {
        let (resident, swapped) = Node::kinds(word);
        for (marks, is) in [(&self.resident, resident), (&self.swapped, swapped)] {
            let bits = marks.load(Relaxed) & !(1 << slot) | u64::from(is) << slot;
            marks.store(bits, Release);
        }
    }

    fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.load(Relaxed) == 0)
    }
}

impl Map {
    pub(crate) fn new(meter: Arc<std::sync::atomic::AtomicU64>) -> Map {
        Map { root: AtomicU64::new(0), changes: Mutex::new(()), meter }
    }

    /// What covers `index`. Takes no lock; one load for each level.
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

    /// The first item at or behind `from` that is looked for, and its first index (which may lie before `from`). Takes no lock; passes
    /// over what has no such mark.
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

    /// The right to change it. Held for a few stores; nothing else is locked under it.
    pub(crate) fn lock(&self) -> Writer<'_> {
        let held = lock(&self.changes);
        Writer { map: self, epoch: epoch::pin(), _held: held }
    }

    fn make(&self, level: u32) -> Box<Node> {
        self.meter.fetch_add(size_of::<Node>() as u64, std::sync::atomic::Ordering::Relaxed);
        Box::new(Node {
            slots: [const { AtomicU64::new(0) }; SLOTS],
            resident: AtomicU64::new(0),
            swapped: AtomicU64::new(0),
            level,
        })
    }

    fn discount(&self) {
        self.meter.fetch_sub(size_of::<Node>() as u64, std::sync::atomic::Ordering::Relaxed);
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

impl Writer<'_> {
    /// What covers `index`.
    pub(crate) fn get(&self, index: u64) -> Option<Found> {
        self.map.get(index)
    }

    /// Writes `item`, or nothing, over 2^`order` pages from `start` (naturally aligned). Everything there must lie within that range: a
    /// larger item is [split](Writer::split) first. `item` is that of the first page.
    pub(crate) fn store(&mut self, start: u64, order: Order, item: Option<Item>) {
        let level = order.index() as u32 / BITS;
        let root = self.map.root.load(Relaxed);
        if start == 0 && !is_node(root) && (order == Order::ZERO || item.is_none()) {
            let word = item.map_or(0, |item| pack(Found { item, order }));
            self.map.root.store(word, Release);
            return;
        }
        if !self.reach(start + u64::from(order.slots()) - 1, level, item.is_some()) {
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

    /// Splits the item that covers `index` into items of `to` (smaller than it is). Lookups find one or the other in each place.
    /// Returns whether there was one to split.
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

    /// The whole range holds exactly the consecutive entries from `first` on, whatever their orders, and they end where it ends
    /// (spec §5.1).
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

    /// Nothing is in the range.
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) fn expect_empty(&self, start: u64, order: Order) -> Result<(), Changed> {
        match self.map.next(start, Look::Present) {
            Some((first, _)) if first < start + u64::from(order.slots()) => Err(Changed),
            _ => Ok(()),
        }
    }

    /// Exactly this folio is in the range.
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) fn expect_folio(&self, start: u64, order: Order, frame: u32) -> Result<(), Changed> {
        let is = self.get(start) == Some(Found { item: Item::Folio(frame), order });
        if is { Ok(()) } else { Err(Changed) }
    }

    /// Makes the tree so high that `last` is within, and an item of `level` too. False: it is not, and nothing is to be stored there.
    fn reach(&mut self, last: u64, level: u32, storing: bool) -> bool {
        loop {
            let root = self.map.root.load(Relaxed);
            let height = match is_node(root) {
                // SAFETY: in the map, which only we change.
                true => Some(unsafe { node(root) }.level),
                false => None,
            };
            if height.is_some_and(|height| height >= level && last >> covered(height).min(63) == 0) {
                return true;
            }
            if !storing && height.is_none_or(|height| height >= level) {
                return false;
            }
            // An empty tree is made as high as it must be, so that no empty nodes hang below its top.
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

    /// Marks from below upwards, and nodes that became empty taken out.
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

    /// Frees a subtree that is out of the map, when no lookup can be in it any more.
    fn retire(&self, word: u64) {
        if !is_node(word) {
            return;
        }
        // SAFETY: out of the map, and freed only below.
        let at = unsafe { node(word) };
        at.slots.iter().for_each(|slot| self.retire(slot.load(Relaxed)));
        self.map.discount();
        // SAFETY: made by `make`, out of the map, retired once; lookups that may be in it have the epoch pinned.
        unsafe { self.epoch.defer_unchecked(move || drop(Box::from_raw(word as *mut Node))) };
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        fn free(map: &Map, word: u64) {
            if is_node(word) {
                // SAFETY: nobody else has the map any more.
                let at = unsafe { Box::from_raw(word as *mut Node) };
                at.slots.iter().for_each(|slot| free(map, slot.load(Relaxed)));
                map.discount();
            }
        }
        free(self, self.root.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use folioswap_slots::DeviceId;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn map() -> Map {
        Map::new(Arc::default())
    }

    fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % below
    }

    /// An item for a range of `order` whose value is aligned as a folio's is.
    fn item(state: &mut u64, order: Order) -> Item {
        let value = (1 + random(state, 1000)) << order.index();
        match random(state, 8) {
            0 => Item::Poison,
            1..=4 => Item::Folio(value as u32),
            _ => Item::Swap(SwapEntry::new(DeviceId::new(3).unwrap(), value).unwrap()),
        }
    }

    /// Random stores, removals and splits of every order, against an array of pages.
    #[test]
    fn as_an_array_of_pages_has_it() {
        const PAGES: u64 = 4096;
        for seed in 1..=20u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Near the start, and far away, where the tree is high.
            let base = if seed % 2 == 0 { 0 } else { (1 << 51) - PAGES };
            let meter: Arc<std::sync::atomic::AtomicU64> = Arc::default();
            let map = Map::new(meter.clone());
            let mut pages: Vec<Option<Found>> = vec![None; PAGES as usize];
            for _ in 0..1500 {
                let order = Order::new(random(&mut state, 10) as u32).unwrap();
                let size = u64::from(order.slots());
                let start = random(&mut state, PAGES / size) * size;
                let mut writer = map.lock();
                // What reaches beyond the range is split first, as all callers do.
                for edge in [start, start + size - 1] {
                    if let Some(found) = pages[edge as usize].filter(|found| found.order > order) {
                        assert!(writer.split(base + edge, order));
                        let first = edge & !(u64::from(found.order.slots()) - 1);
                        for page in first..first + u64::from(found.order.slots()) {
                            pages[page as usize] = pages[page as usize].map(|found| Found { order, ..found });
                        }
                    }
                }
                let new = (random(&mut state, 3) > 0).then(|| item(&mut state, order));
                writer.store(base + start, order, new);
                for page in 0..size {
                    let found = new.map(|item| Found { item: item.step(page), order });
                    pages[(start + page) as usize] = found;
                }
                for _ in 0..20 {
                    let page = random(&mut state, PAGES);
                    assert_eq!(map.get(base + page), pages[page as usize], "page {page}");
                    let expected = (page..PAGES).find(|&page| pages[page as usize].is_some());
                    let next = map.next(base + page, Look::Present);
                    assert_eq!(next.map(|(first, _)| first.max(base + page)), expected.map(|at| base + at));
                    let is_swap = |page: &u64| {
                        pages[*page as usize].is_some_and(|found| matches!(found.item, Item::Swap(_)))
                    };
                    let next = map.next(base + page, Look::Swapped);
                    let expected = (page..PAGES).find(is_swap).map(|at| base + at);
                    assert_eq!(next.map(|(first, _)| first.max(base + page)), expected);
                }
            }
            let mut writer = map.lock();
            for page in 0..PAGES {
                writer.split(base + page, Order::ZERO);
                writer.store(base + page, Order::ZERO, None);
            }
            drop(writer);
            assert_eq!(map.next(0, Look::Present), None);
            assert_eq!(meter.load(Ordering::Relaxed), 0, "no node is left");
        }
    }

    #[test]
    fn a_range_is_expected_as_it_is_whatever_the_orders() {
        let map = map();
        let entry = |offset| SwapEntry::new(DeviceId::new(0).unwrap(), offset).unwrap();
        let (four, two) = (Order::new(4).unwrap(), Order::new(2).unwrap());
        let mut writer = map.lock();
        writer.store(16, four, Some(Item::Swap(entry(32))));
        assert_eq!(writer.expect_swapped(16, four, entry(32)), Ok(()));
        assert_eq!(writer.expect_swapped(16, two, entry(32)), Err(Changed), "the entry goes beyond the end");
        assert_eq!(writer.expect_swapped(20, two, entry(36)), Err(Changed), "and begins before the start");
        assert!(writer.split(21, two));
        assert_eq!(writer.expect_swapped(16, four, entry(32)), Ok(()));
        assert_eq!(writer.expect_swapped(20, two, entry(36)), Ok(()));
        assert_eq!(writer.expect_swapped(20, two, entry(40)), Err(Changed));
        writer.store(28, two, Some(Item::Swap(entry(64))));
        assert_eq!(writer.expect_swapped(16, four, entry(32)), Err(Changed), "the last one is another");
        writer.store(28, two, None);
        assert_eq!(writer.expect_swapped(16, four, entry(32)), Err(Changed));
        assert_eq!(writer.expect_empty(28, two), Ok(()));
        assert_eq!(writer.expect_empty(16, four), Err(Changed));
    }

    /// Lookups beside a writer that stores, splits and takes out: each finds what was there at some moment, and never a freed node.
    #[test]
    fn lookups_take_no_lock_and_find_what_was_there() {
        let map = map();
        let stop = AtomicBool::new(false);
        let nine = Order::MAX;
        let entry = |offset| SwapEntry::new(DeviceId::new(0).unwrap(), offset).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (map, stop) = (&map, &stop);
                scope.spawn(move || {
                    let mut state = thread + 7;
                    let mut seen = 0u64;
                    while !stop.load(Ordering::Relaxed) || seen < 1000 {
                        let page = random(&mut state, 1024);
                        match map.get(page).map(|found| found.item) {
                            None => {}
                            Some(Item::Folio(frame)) => assert_eq!(u64::from(frame), 4096 + page),
                            Some(Item::Swap(found)) => assert_eq!(found.offset(), 8192 + page),
                            Some(Item::Poison) => panic!("nobody stored that"),
                        }
                        seen += 1;
                    }
                });
            }
            let mut state = 3;
            for _ in 0..3000 {
                let block = random(&mut state, 2) * 512;
                let mut writer = map.lock();
                match random(&mut state, 4) {
                    0 => writer.store(block, nine, Some(Item::Folio(4096 + block as u32))),
                    1 => writer.store(block, nine, Some(Item::Swap(entry(8192 + block)))),
                    2 => _ = writer.split(block + random(&mut state, 512), Order::ZERO),
                    _ => writer.store(block, nine, None),
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

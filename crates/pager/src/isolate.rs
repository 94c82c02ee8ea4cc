//! Taking pages out of the program: from a piece of 64 KiB of it into a place in staging.

use crate::engine::Engine;
use crate::staging::{FOLIO, FOLIO_PAGES};
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_core::page::{Heat, PageState, PageWord};
use folioswap_core::page_table::{BLOCK_PAGES, Block, PAGE};
use folioswap_core::reclaim::aging::Aging;
use folioswap_group::counters::SizeCounter;
use folioswap_slots::{AllocError, FolioId, Order, SwapEntry};

/// Pages of a piece, one bit each.
pub type Pages = u16;

/// What became of the pages of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// In staging now.
    pub moved: Pages,
    /// Moves that were tried.
    pub moves: u64,
    /// Shared after a fork, or pinned for I/O: the kernel does not move them.
    pub busy: Pages,
    /// Their mapping cannot be moved from (locked, read-only, changed protection).
    pub unmovable: Pages,
    /// Something stood in the place of a page that is still in the program.
    pub residue: Pages,
    /// Why nothing was tried, if so.
    pub refused: Option<Refused>,
}

/// Why a piece was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An event waits to be read: let the handler run, then try again.
    EventPending,
    /// No slots, or no memory for their tables.
    NoSlots,
    /// The staging area is full: write back first.
    StagingFull,
    /// The piece is no longer registered.
    Gone,
}

/// Pages of a piece that may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Those that have to be written.
    pub written: Pages,
    /// Those whose word says that a stored copy still stands for them.
    pub clean: Pages,
}

impl Candidates {
    /// Both.
    pub fn all(self) -> Pages {
        self.written | self.clean
    }

    /// Those that are also among `pages`.
    pub fn among(self, pages: Pages) -> Self {
        Candidates { written: self.written & pages, clean: self.clean & pages }
    }
}

/// Index of an address's page in its block.
pub fn page_index(address: usize) -> usize {
    address / PAGE % BLOCK_PAGES
}

/// A removal is trusted to have been carried out after this many epochs of the evictor (a second each).
const REMOVAL_EPOCHS: u32 = 3;

fn is_carried_out(now: u32, removal: u32) -> bool {
    now.wrapping_sub(removal) >= REMOVAL_EPOCHS
}

impl Engine {
    /// Which of the present pages of a piece may be taken now. Hot pages are cooled and passed (second chance).
    pub(crate) fn candidates(
        &self,
        block: &Block,
        piece: usize,
        present: Pages,
        aging: &mut Aging,
    ) -> Candidates {
        let epoch = self.epoch.load(Relaxed);
        let (mut wanted, mut clean) = (0, 0);
        for page in 0..FOLIO_PAGES {
            if present >> page & 1 == 0 {
                continue;
            }
            let index = page_index(piece) + page;
            let word = block.word(index);
            let take = match word.state() {
                PageState::Present(Heat::Cold) => true,
                PageState::Present(Heat::Hot) => {
                    if aging.cools()
                        && let Some(cooled) = word.cooled()
                    {
                        let _ = block.replace(index, word, cooled);
                    }
                    false
                }
                PageState::Clean(_, Heat::Cold) => {
                    clean |= 1 << page;
                    false
                }
                PageState::Clean(entry, Heat::Hot) => {
                    if aging.cools() {
                        self.pass_clean(block, index, word, entry);
                    }
                    false
                }
                PageState::Removed { epoch: then } => is_carried_out(epoch, then),
                // Present although the word says that it is away: it was served while a fork froze the words. (Or the list
                // of present pages is old; the move will tell.)
                PageState::Stored(_) => true,
                PageState::Isolated(_)
                | PageState::Leaving(_)
                | PageState::Returning(_)
                | PageState::Filling => false,
            };
            wanted |= Pages::from(take) << page;
        }
        let kept = self.kept_pages(piece);
        Candidates { written: wanted & !kept, clean: clean & !kept }
    }

    /// The pages of the piece that must stay resident.
    pub(crate) fn kept_pages(&self, piece: usize) -> Pages {
        let _guard = self.kept_lock.lock();
        // SAFETY: under its lock.
        let kept = unsafe { &*self.kept.get() };
        let mut pages = 0;
        let mut from = piece;
        while let Some(range) = kept.next(from).filter(|range| range.start < piece + FOLIO) {
            for page in 0..FOLIO_PAGES {
                let address = piece + page * PAGE;
                pages |= Pages::from((range.start..range.end).contains(&address)) << page;
            }
            from = range.end;
        }
        pages
    }

    /// Takes the pages `wanted` of the piece out of the program. Evictor only, under the gate.
    pub(crate) fn isolate(&self, piece: usize, wanted: Candidates) -> Isolation {
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        let staging = unsafe { &*self.staging.get() };
        self.isolate_to(staging.next_place_to_wait(), piece, wanted)
    }

    /// Takes clean pages of the piece out of the program at once: where write-back is stuck, what waits in staging frees nothing.
    /// Evictor only, under the gate. Of what moved, says how many pages have left (the rest was touched meanwhile).
    pub(crate) fn drop_clean(&self, piece: usize, clean: Pages) -> (Isolation, u64) {
        // SAFETY: as above.
        let staging = unsafe { &*self.staging.get() };
        let isolation = self.isolate_to(staging.next_place(), piece, Candidates { written: 0, clean });
        let left = if isolation.moved != 0 { self.let_newest_go() } else { 0 };
        (isolation, left)
    }

    fn isolate_to(&self, place: Option<u32>, piece: usize, mut wanted: Candidates) -> Isolation {
        let mut isolation = Isolation::default();
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(place) = place else {
            isolation.refused = Some(Refused::StagingFull);
            return isolation;
        };
        let mut entries = [None; FOLIO_PAGES];
        let mut allocated = Some(Order::ZERO);
        if wanted.written != 0 {
            allocated = self.allocate_entries(FolioId(place), wanted.written, &mut entries);
        }
        if allocated.is_none() {
            // What is clean needs no slots.
            isolation.refused = Some(Refused::NoSlots);
            wanted.written = 0;
        }
        if wanted.all() == 0 {
            return isolation;
        }
        let target = Target { place, address: staging.address(place) };
        {
            let _events_wait = self.move_lock.lock();
            // SAFETY: the set is used under the move lock.
            let registered = unsafe { &*self.registered.get() };
            match self.table.block(piece) {
                Some(block) if covers(registered, piece, wanted.all()) => {
                    self.move_piece(block, piece, target, wanted, &mut entries, &mut isolation);
                }
                _ => isolation.refused = Some(Refused::Gone),
            }
            if isolation.moved != 0 {
                // Under the move lock: the reader of events may look for these pages at once.
                let folio = staging.folio_mut(place);
                folio.address = piece;
                folio.clean = wanted.clean & isolation.moved;
                folio.entries =
                    core::array::from_fn(|page| entries[page].filter(|_| isolation.moved >> page & 1 != 0));
                staging.push();
                self.note_gone(isolation.moved.count_ones() as u64);
            }
        }
        if isolation.moved == 0 && isolation.residue != 0 {
            // Or each later folio would find it in its way.
            staging.empty_next_place(self.userfault());
        }
        for (page, entry) in entries.iter_mut().enumerate() {
            if isolation.moved >> page & 1 == 0
                && let Some(entry) = entry.take()
            {
                self.space.abandon(entry);
            }
        }
        let written = (isolation.moved & wanted.written).count_ones() as u64;
        match allocated {
            Some(order) if order != Order::ZERO && written > 0 => {
                self.figures().add_size(SizeCounter::SwapOut, order.index(), 1);
            }
            _ => self.figures().add_size(SizeCounter::SwapOut, 0, written),
        }
        isolation
    }

    /// Slots for pages that are to be written: one folio when the piece is whole, else one slot each. `None`: there are none, and
    /// none is held.
    fn allocate_entries(
        &self,
        folio: FolioId,
        wanted: Pages,
        entries: &mut [Option<SwapEntry>; FOLIO_PAGES],
    ) -> Option<Order> {
        self.space.reserve_frames().ok()?;
        if wanted == Pages::MAX {
            let order = Order::new(4)?;
            match self.space.allocate(order, folio) {
                Ok(first) => {
                    for (page, entry) in entries.iter_mut().enumerate() {
                        *entry = first.checked_add(page as u64);
                    }
                    return Some(order);
                }
                Err(AllocError::SplitAndRetry) => {
                    self.figures().add_size(SizeCounter::SwapOutFallback, order.index(), 1);
                }
                Err(_) => return None,
            }
        }
        for page in 0..FOLIO_PAGES {
            if wanted >> page & 1 != 0 {
                match self.space.allocate(Order::ZERO, folio) {
                    Ok(entry) => entries[page] = Some(entry),
                    Err(_) => {
                        entries
                            .iter_mut()
                            .filter_map(Option::take)
                            .for_each(|entry| self.space.abandon(entry));
                        return None;
                    }
                }
            }
        }
        Some(Order::ZERO)
    }

    /// Marks, moves, and marks again. `entries` has those of the pages that are to be written; those of clean ones that moved are
    /// added. Under the move lock.
    fn move_piece(
        &self,
        block: &Block,
        piece: usize,
        target: Target,
        wanted: Candidates,
        entries: &mut [Option<SwapEntry>; FOLIO_PAGES],
        isolation: &mut Isolation,
    ) {
        let base = page_index(piece);
        let epoch = self.epoch.load(Relaxed);
        let mut marked: Pages = 0;
        let mut old = [PageWord::PRESENT; FOLIO_PAGES];
        for (page, entry) in entries.iter().enumerate() {
            let word = block.word(base + page);
            old[page] = word;
            // It may have been given up since it became a candidate.
            let vanishes =
                matches!(word.state(), PageState::Removed { epoch: then } if !is_carried_out(epoch, then));
            let isolated = match *entry {
                Some(entry) if !vanishes => word.isolate(entry),
                None if wanted.clean >> page & 1 != 0 => word.isolate_clean(),
                _ => None,
            };
            if let Some(isolated) = isolated
                && block.replace(base + page, word, isolated).is_ok()
            {
                marked |= 1 << page;
            }
        }
        let copies = self.cache_copies(piece, marked & wanted.clean, &old, FolioId(target.place));
        let tried = marked & !wanted.clean | copies.unchanged;
        self.move_runs(piece, tried, |page| target.address + page * PAGE, isolation);
        for (page, &old) in old.iter().enumerate().filter(|(page, _)| marked >> page & 1 != 0) {
            let (word, bit) = (block.word(base + page), 1 << page);
            let moved = isolation.moved & bit != 0;
            let next = if moved {
                word.moved()
            } else if copies.written & bit != 0 {
                old.dirtied()
            } else {
                word.not_moved(old)
            };
            if moved && wanted.clean & bit != 0 {
                entries[page] = old.entry();
            }
            if let Some(next) = next {
                block.set(base + page, next);
            }
            // It was present under an old copy, which the move has proven stale.
            if let (true, PageState::Stored(stale)) = (moved, old.state()) {
                self.stale_copies.fetch_add(1, Release);
                self.space.put(stale, 1);
                self.note_returned(1);
            }
        }
        self.settle_copies(block, copies, &old, isolation.moved);
    }
}

/// Where in staging a piece goes.
#[derive(Clone, Copy)]
struct Target {
    place: u32,
    address: usize,
}

pub(crate) fn covers(registered: &crate::ranges::Ranges, piece: usize, wanted: Pages) -> bool {
    let first = piece + wanted.trailing_zeros() as usize * PAGE;
    let last = piece + (FOLIO_PAGES - wanted.leading_zeros() as usize) * PAGE;
    registered.covers(first, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory::{clean_piece, fill, map, map_at, moving_engine, word_at};
    use crate::uffd::Watch;
    use rustix::io::Errno;
    use rustix::mm::munmap;

    /// The list of mappings is old when they are registered: what is mapped in a hole afterwards is not registered, though it lies
    /// within what was.
    #[test]
    fn what_was_a_hole_when_its_surroundings_were_registered_stays() {
        let Some(engine) = moving_engine() else { return };
        let start = map(4 * FOLIO).next_multiple_of(FOLIO);
        let hole = start + FOLIO;
        // SAFETY: nobody uses it.
        unsafe { munmap(hole as *mut _, FOLIO) }.unwrap();
        engine.register_pieces(start, start + 3 * FOLIO);
        assert_eq!(map_at(hole, FOLIO), hole);
        for piece in [start, hole] {
            engine.table.block_or_insert(piece, engine.arena).unwrap();
        }
        // SAFETY: nobody else uses the set.
        let covered = || covers(unsafe { &*engine.registered.get() }, hole, Pages::MAX);
        assert!(covered());
        fill(hole);
        let isolation = engine.isolate(hole, Candidates::ALL_DIRTY);
        assert_eq!((isolation.moved, isolation.refused), (0, Some(Refused::Gone)));
        assert!(
            (0..FOLIO_PAGES).all(|page| word_at(hole + page * PAGE) == 7 + page as u64),
            "a page was lost"
        );
        assert!(!covered(), "it is looked at again");
        engine.register_pieces(start, start + 3 * FOLIO);
        assert_eq!(engine.isolate(hole, Candidates::ALL_DIRTY).moved, Pages::MAX);
    }

    #[test]
    fn the_kernel_tells_what_is_registered() {
        let Some(engine) = moving_engine() else { return };
        let (userfault, start) = (engine.userfault(), map(4 * PAGE));
        assert_eq!(userfault.check_registered(start), Err(Errno::NOENT));
        userfault.register(start, 2 * PAGE, Watch::Program).unwrap();
        assert_eq!([0, 1].map(|page| userfault.check_registered(start + page * PAGE)), [Ok(()); 2]);
        assert_eq!(userfault.check_registered(start + 2 * PAGE), Err(Errno::NOENT));
        // SAFETY: nobody uses it.
        unsafe { munmap((start + 3 * PAGE) as *mut _, PAGE) }.unwrap();
        assert_eq!(userfault.check_registered(start + 3 * PAGE), Err(Errno::NOENT));
    }

    /// Where write-back is stuck nothing leaves staging: what is clean goes past what waits there.
    #[test]
    fn what_is_clean_needs_no_turn_in_staging() {
        let Some(engine) = moving_engine() else { return };
        let (piece, entries) = clean_piece(engine);
        let start = map(66 * FOLIO).next_multiple_of(FOLIO);
        (0..65).for_each(|place| fill(start + place * FOLIO));
        engine.register_pieces(start, start + 65 * FOLIO);
        let waiting = (0..65).take_while(|place| {
            let dirty = start + place * FOLIO;
            engine.table.block_or_insert(dirty, engine.arena).unwrap();
            engine.isolate(dirty, Candidates::ALL_DIRTY).refused != Some(Refused::StagingFull)
        });
        assert_eq!(waiting.count(), 63);
        assert_eq!(engine.isolate(piece, Candidates::ALL_CLEAN).refused, Some(Refused::StagingFull));
        let (isolation, left) = engine.drop_clean(piece, Pages::MAX);
        assert_eq!((isolation.moved, left), (Pages::MAX, FOLIO_PAGES as u64));
        let block = engine.table.block(piece).unwrap();
        for (page, entry) in entries.into_iter().enumerate() {
            assert_eq!(block.word(page_index(piece) + page).state(), PageState::Stored(entry));
        }
        // SAFETY: nobody else uses the ring.
        let staging = unsafe { &*engine.staging.get() };
        assert_eq!((staging.waiting(), staging.next_place()), (63, Some(63)));
        assert_eq!(engine.validate(), Ok(64 * FOLIO_PAGES as u64));
    }
}

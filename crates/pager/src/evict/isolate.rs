//! Taking pages out of the program: from its pieces of 64 KiB into berths of staging.

use crate::engine::Engine;
use crate::engine::holds::By;
use crate::engine::ring_turn::RingTurn;
use crate::evict::candidates::is_carried_out;
use crate::kernel::pagemap::{self, Now};
use crate::staging::candidates::Candidates;
use crate::staging::isolation::{Isolation, Refused};
use crate::staging::ring::BerthIndex;
use crate::staging::row::{ROW_PIECES, Row};
use crate::staging::row_pages::RowPages;
use crate::staging::staged_folio::StagedFolio;
use crate::store::part::Part;
use crate::units::{PAGE, PIECE, PIECE_PAGES, Pages, PieceAddr};
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;
use folioswap_slots::Order;

impl RingTurn<'_> {
    /// Takes the pages `wanted` of the piece out of the program. The caller holds the gate.
    pub(crate) fn isolate(&mut self, piece: PieceAddr, wanted: Candidates) -> Isolation {
        self.isolate_row(&Row::of(piece, wanted))[0]
    }

    /// The same for a row; returns the outcome of each piece. An event that waits to be read ends
    /// it. A row for which so many berths are not free side by side is refused.
    pub(crate) fn isolate_row(&mut self, row: &Row) -> [Isolation; ROW_PIECES] {
        let first_berth = self.ring().next_berth_to_wait();
        self.isolate_to(first_berth, row)
    }

    /// Takes clean pages of the piece out of the program at once, because berths that wait in
    /// staging free nothing where write-back is stuck. The caller is the evictor and holds the
    /// gate. Returns the outcome, and how many of the moved pages have left; the rest was touched
    /// meanwhile.
    pub(crate) fn drop_clean(&mut self, piece: PieceAddr, clean: Pages) -> (Isolation, u64) {
        let first_berth = self.ring().next_berth();
        let row = Row::of(piece, Candidates { written: 0, clean });
        let [isolation, ..] = self.isolate_to(first_berth, &row);
        let left = if isolation.holds() != 0 { self.engine().let_newest_go() } else { 0 };
        (isolation, left)
    }

    fn isolate_to(&mut self, first_berth: Option<BerthIndex>, row: &Row) -> [Isolation; ROW_PIECES] {
        let mut done = [Isolation::default(); ROW_PIECES];
        let engine = self.engine();
        let staging = self.ring_mut();
        // A berth that is not free holds pages, and behind the last one lies other memory: pages
        // that were moved there would be lost.
        let Some(first_berth) = first_berth.filter(|_| staging.are_free(row.pieces().count())) else {
            done[0].refused = Some(Refused::StagingFull);
            return done;
        };
        let mut parts = [Part::default(); ROW_PIECES];
        for (number, (piece, wanted)) in row.pieces().enumerate() {
            parts[number] = Part { piece, berth: first_berth.plus(number as u32), wanted, ..Part::default() };
        }
        let parts = &mut parts[..row.pieces().count()];
        engine.allocate_entries(parts, &mut done);
        {
            let _events_wait = engine.locks.moves.lock();
            engine.move_parts(row.start().raw(), staging.address(first_berth), parts, &mut done);
            // Berths behind the last that holds anything stay for the next row. A piece between
            // that left nothing gets a berth without pages, and so does one where only residue
            // lies: a later berth there might take the residue for its own, and giving it to the
            // system at once may raise an event, for which the handler would wait in vain.
            let pushed = done.iter().rposition(|isolation| isolation.holds() != 0).map_or(0, |last| last + 1);
            for (part, isolation) in parts.iter().zip(&done).take(pushed) {
                // Set under the move lock, because the reader of events may look for these pages at
                // once.
                let folio = staging.berth_mut(part.berth);
                folio.piece = part.piece;
                folio.clean = part.wanted.clean & isolation.moved;
                folio.came = isolation.holds();
                folio.entries = core::array::from_fn(|page| {
                    part.entries[page].filter(|_| isolation.moved >> page & 1 != 0)
                });
                staging.push();
                engine.note_gone(isolation.moved.count_ones() as u64);
                engine.embedded.went(isolation.moved.count_ones().into());
            }
            let by_one_move = |(number, isolation): (usize, &Isolation)| {
                isolation.moved == Pages::MAX && isolation.moves == u64::from(number == 0)
            };
            if row.is_huge_page() && done.iter().enumerate().all(by_one_move) {
                staging.set_huge_page(first_berth);
                engine.note_left_huge(row.start().block(), staging.address(first_berth));
            }
        }
        engine.account_for(parts, &done);
        done
    }
}

impl Engine {
    /// Marks the pages, moves them, and marks the outcome. The caller holds the move lock.
    fn move_parts(
        &self,
        start: usize,
        target: usize,
        parts: &mut [Part],
        done: &mut [Isolation; ROW_PIECES],
    ) {
        for (number, part) in parts.iter_mut().enumerate().filter(|(_, part)| part.wanted.all() != 0) {
            let registered = &self.mappings.registered;
            match self.table.block(part.piece) {
                Some(block) if covers(registered, part.piece, part.wanted.all()) => self.mark(block, part),
                _ => done[number].refused = Some(Refused::Gone),
            }
        }
        let mut tried = self.choose(parts);
        let announced = self.announce_range(By::Mover, start, start + parts.len() * PIECE);
        announced.for_held(|held| tried.remove((held.start - start) / PAGE, (held.end - start) / PAGE));
        if !tried.is_empty() {
            let moves = self.move_runs(start, &tried, target);
            for (number, isolation) in done.iter_mut().enumerate() {
                isolation.note(&moves, number);
            }
        }
        for (part, isolation) in parts.iter_mut().zip(done).filter(|(part, _)| part.marked != 0) {
            if let Some(block) = self.table.block(part.piece) {
                self.settle(block, part, isolation.moved);
            }
        }
    }

    /// The claimed pages that can be moved: of the clean ones, those that are unchanged. One
    /// question covers all of them.
    fn choose(&self, parts: &mut [Part]) -> RowPages {
        let mut now = [Now::default(); ROW_PIECES];
        let mut with_clean =
            parts.iter().enumerate().filter(|(_, part)| part.marked & part.wanted.clean != 0);
        if let Some((first, part)) = with_clean.next() {
            let (last, start) = (with_clean.next_back().map_or(first, |(last, _)| last), part.piece);
            let pagemap = self.descriptors.pagemap.load(Relaxed);
            let _ = pagemap::pieces(pagemap, start.raw(), &mut now[first..=last]);
        }
        let mut tried = RowPages::NONE;
        for (number, part) in parts.iter_mut().enumerate().filter(|(_, part)| part.marked != 0) {
            let folio = StagedFolio { first: part.berth, order: Order::ZERO };
            part.copies =
                self.cache_copies(part.marked & part.wanted.clean, now[number], &part.old, folio.id());
            tried.set_piece(number, part.marked & !part.wanted.clean | part.copies.unchanged);
        }
        tried
    }

    /// Claims the pages of a part.
    fn mark(&self, block: &Block, part: &mut Part) {
        let base = part.piece.index();
        let epoch = self.mappings.epoch.load(Relaxed);
        for (page, entry) in part.entries.iter().enumerate() {
            let word = block.word(base.plus(page));
            part.old[page] = word;
            // The page may have been given up since it became a candidate.
            let vanishes =
                matches!(word.state(), PageState::Removed { epoch: then } if !is_carried_out(epoch, then));
            let isolated = match *entry {
                Some(entry) if !vanishes => word.isolate(entry),
                None if part.wanted.clean >> page & 1 != 0 => word.isolate_clean(),
                _ => None,
            };
            if let Some(isolated) = isolated
                && block.replace(base.plus(page), word, isolated).is_ok()
            {
                part.marked |= 1 << page;
            }
        }
    }

    /// Sets the words of a part to the outcome for its pages. The entries of clean pages that moved
    /// are added to the others.
    fn settle(&self, block: &Block, part: &mut Part, all_moved: Pages) {
        let base = part.piece.index();
        let marked = part.marked;
        for (page, &old) in part.old.iter().enumerate().filter(|(page, _)| marked >> page & 1 != 0) {
            let (word, bit) = (block.word(base.plus(page)), 1 << page);
            let moved = all_moved & bit != 0;
            let next = if moved {
                word.moved()
            } else if part.copies.written & bit != 0 {
                old.dirtied()
            } else {
                word.not_moved(old)
            };
            if moved && part.wanted.clean & bit != 0 {
                part.entries[page] = old.entry();
            }
            if let Some(next) = next {
                block.set(base.plus(page), next);
            }
            // The page was present under an old copy, which the move has proven stale.
            if let (true, PageState::Stored(stale)) = (moved, old.state()) {
                self.counts.stale_copies.fetch_add(1, Release);
                self.space.put(stale, 1);
                self.note_returned(1);
            }
        }
        self.settle_copies(block, part.copies, &part.old, all_moved);
        // A page table is left here, but not where all of the block leaves as one huge page, as is
        // found out next.
        block.left_huge.store(false, Relaxed);
    }
}

pub(crate) fn covers(registered: &crate::kernel::ranges::Ranges, piece: PieceAddr, wanted: Pages) -> bool {
    let first = piece.page(wanted.trailing_zeros() as usize);
    let end = piece.page(PIECE_PAGES - wanted.leading_zeros() as usize);
    registered.covers(first.raw(), end.raw())
}

#[cfg(test)]
mod tests;

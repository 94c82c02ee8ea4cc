//! MADV_PAGEOUT and MADV_COLD, followed by the evictor (spec §3.7).
//!
//! A piece that lies in the range as a whole leaves as a folio, of others the pages that do: as single ones, so the folio is split only then.
//! Hot or not, they go, and to the devices at once; what waits in staging before them goes with them.

use crate::advice::{Advice, Advised, Turn};
use crate::batch::{BATCH_PAGES, Batch, scan_end};
use crate::candidates::{Asks, Candidates, WholeLook};
use crate::evictor::Evictor;
use crate::isolate::{Pages, Refused, page_index};
use crate::pagemap;
use crate::ranges::Range;
use crate::row::Row;
use crate::staging::FOLIO;
use crate::write_back::RUN_FOLIOS;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_policy::page_table::{BLOCK, PAGE};

/// Pages that leave, and folios that are written back, in one step; and blocks of 2 MiB that are cooled: so that a fork does not wait long.
const STEP_PAGES: u64 = 4 * BATCH_PAGES;
const STEP_FOLIOS: u64 = 32;
const STEP_BLOCKS: usize = 64;

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The rest, from this address on, is for another step. At the end of the range: only what is in staging has yet to be written back.
    Until(usize),
    /// Nothing is left, or nothing more can be done.
    Over,
}

impl Evictor {
    /// Follows the next part of what the program has advised. `None`: there is nothing. Under the gate, staging being ready.
    pub(crate) fn follow_advice(&mut self) -> Option<Batch> {
        let engine = self.engine;
        let advised = engine.advices.next(self.advised_last)?;
        self.advised_last = advised.place;
        let mut batch = Batch::default();
        let step = match advised.advice {
            Advice::PageOut if advised.turn == Turn::First && !self.is_registered(advised) => {
                // What is not registered cannot leave: the mappings are looked at first.
                engine.scan_wanted.store(1, Release);
                Step::Until(advised.start)
            }
            Advice::PageOut => self.page_out(advised, &mut batch),
            Advice::Cold | Advice::WillNeed => self.cool(advised),
        };
        match step {
            // A piece may begin before the range.
            Step::Until(start) => engine.advices.go_on_from(advised, start.clamp(advised.start, advised.end)),
            Step::Over => engine.advices.done(advised),
        }
        Some(batch)
    }

    /// Nothing can be taken out of this process.
    pub(crate) fn decline_advice(&self) {
        let engine = self.engine;
        // Unless it came only now, after the look whether that is so.
        while let Some(advised) = engine.advices.next(0).filter(|_| engine.scan_wanted.load(Acquire) == 0) {
            engine.advices.done(advised);
        }
    }

    fn is_registered(&self, advised: Advised) -> bool {
        let _events_wait = self.engine.move_lock.lock();
        // SAFETY: the set is used under the move lock.
        unsafe { &*self.engine.registered.get() }.covers(advised.start, advised.end)
    }

    /// Its pages are cold, and come before those that the clock's hand meets.
    fn cool(&mut self, advised: Advised) -> Step {
        let Advised { start, end, .. } = advised;
        let (mut blocks, mut reached) = (0, end);
        self.engine.table.for_blocks_while(start, end, |first, block| {
            if blocks == STEP_BLOCKS {
                reached = first;
                return ControlFlow::Break(());
            }
            blocks += 1;
            for address in (first.max(start)..end.min(first + BLOCK)).step_by(PAGE) {
                let (index, word) = (page_index(address), block.word(page_index(address)));
                if let Some(cooled) = word.cooled() {
                    // Who was faster has touched it.
                    let _ = block.replace(index, word, cooled);
                }
            }
            ControlFlow::Continue(())
        });
        self.forget_regions();
        self.cold.add(Range { start, end: reached });
        if reached < end { Step::Until(reached) } else { Step::Over }
    }

    fn page_out(&mut self, advised: Advised, batch: &mut Batch) -> Step {
        // First of all there must be room.
        if self.drain_staging(batch).is_err() {
            return Step::Over;
        }
        let Some(Range { start, end }) = self.next_registered(advised.start, advised.end) else {
            return if self.staging().waiting() > 0 { Step::Until(advised.end) } else { Step::Over };
        };
        let end = end.min(scan_end(start));
        let pagemap = self.engine.descriptors.pagemap.load(Relaxed);
        self.forget_regions();
        let Ok(scan) = pagemap::present(pagemap, start, end, &mut self.regions) else { return Step::Over };
        (self.region_next, self.region_count) = (0, scan.regions);
        // A full list of regions ends the look early.
        let seen = if scan.end > start { scan.end.min(end) } else { end };
        let step = self.isolate_present(Range { start, end: seen }, batch);
        (self.region_next, self.region_count) = (0, 0);
        step
    }

    /// Takes what was found present out of the program.
    fn isolate_present(&mut self, range: Range, batch: &mut Batch) -> Step {
        let mut row = Row::default();
        while self.region_next < self.region_count {
            if let Some(block) = self.whole_of_regions()
                && self.whole_look(block, Asks::Program, batch) == WholeLook::Cold
                && self.fits_whole()
            {
                if let Some(step) = self.take_advised(core::mem::take(&mut row), batch) {
                    return step;
                }
                // What has just left may have taken the room.
                if batch.isolated >= STEP_PAGES || !self.staging().align_for_whole(self.engine.userfault()) {
                    return Step::Until(block);
                }
                self.pass_whole();
                if let Some(step) = self.take_advised(Row::whole(block), batch) {
                    return step;
                }
                continue;
            }
            let (piece, present) = self.piece_of_regions();
            let wanted = self.advised_of(piece, present, batch);
            if wanted.all() != 0 && !row.append(piece, wanted, self.engine.rows_at(piece)) {
                let before = core::mem::replace(&mut row, Row::of(piece, wanted));
                if let Some(step) = self.take_advised(before, batch) {
                    return step;
                }
                if batch.isolated >= STEP_PAGES {
                    return Step::Until(piece);
                }
            }
        }
        self.take_advised(row, batch).unwrap_or(Step::Until(range.end))
    }

    fn advised_of(&self, piece: usize, present: Pages, batch: &mut Batch) -> Candidates {
        let engine = self.engine;
        let present = self.without_shared(piece, present, batch);
        match engine.table.block_or_insert(piece, engine.arena) {
            Some(block) if present != 0 => engine.candidates(block, piece, present, Asks::Program),
            _ => Candidates::default(),
        }
    }

    /// Takes a row; what to do next if that was refused.
    fn take_advised(&mut self, row: Row, batch: &mut Batch) -> Option<Step> {
        let start = row.start();
        match self.isolate_in_parts(row, batch)? {
            // What has left of it is not present any more.
            Refused::EventPending | Refused::StagingFull => Some(Step::Until(start)),
            // It is another mapping now, whose turn comes when it has been looked at.
            Refused::Gone => Some(Step::Until(start + FOLIO)),
            Refused::NoSlots => Some(Step::Over),
        }
    }

    /// Writes back what waits in staging, the oldest first, as much as one step may.
    fn drain_staging(&mut self, batch: &mut Batch) -> Result<(), ()> {
        let mut result = Ok(());
        while self.staging().waiting() > 0 && batch.folios < STEP_FOLIOS && result.is_ok() {
            let most = (STEP_FOLIOS - batch.folios).min(RUN_FOLIOS as u64) as usize;
            result = self.write_back_next(batch, most);
        }
        self.stuck = batch.stuck;
        self.staging().recycle(self.engine.userfault(), 1, |address| self.engine.keep_whole(address));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::staging::FOLIO_PAGES;
    use crate::test_memory::{map, moving_engine_of, skip_without_huge_page};
    use folioswap_group::counters::SizeCounter;
    use folioswap_policy::page::PageState;
    use folioswap_policy::page_table::BLOCK_PAGES;
    use rustix::mm::{Advice as Madvise, madvise};
    use std::vec::Vec;

    /// 2 MiB of the program, of single pages or huge, registered; and an evictor with room for them. `None` where that is not possible.
    fn scene(madvised: Madvise) -> Option<(&'static Engine, Evictor, usize)> {
        // Room for a huge page is an eighth of it.
        let engine = moving_engine_of(512)?;
        engine.segment().header.limit_bytes.store(1 << 30, Relaxed);
        let start = map(4 * BLOCK).next_multiple_of(BLOCK) + BLOCK;
        // SAFETY: mapped just now.
        unsafe {
            madvise((start - BLOCK) as *mut _, 3 * BLOCK, madvised).unwrap();
            for page in 0..BLOCK_PAGES {
                ((start + page * PAGE) as *mut usize).write_volatile(9 + page);
            }
        }
        engine.register_pieces(start - BLOCK, start + 2 * BLOCK);
        Some((engine, Evictor::new(engine), start))
    }

    /// The pages of this range leave, hot ones too; the orders in which they did, each with how often.
    fn page_out(
        engine: &Engine,
        evictor: &mut Evictor,
        start: usize,
        pages: core::ops::Range<usize>,
    ) -> Vec<(usize, u64)> {
        let before: Vec<_> =
            (0..10).map(|order| engine.figures().size(SizeCounter::SwapOut, order)).collect();
        let (from, end) = (start + pages.start * PAGE, start + pages.end * PAGE);
        let advised = Advised { place: 0, advice: Advice::PageOut, turn: Turn::Later, start: from, end };
        let mut batch = Batch::default();
        assert_eq!(evictor.page_out(advised, &mut batch), Step::Until(end));
        assert_eq!(batch.isolated, pages.len() as u64);
        let block = engine.table.block(start).unwrap();
        let left = (0..BLOCK_PAGES).filter(|&page| matches!(block.word(page).state(), PageState::Leaving(_)));
        assert_eq!(left.collect::<Vec<_>>(), pages.collect::<Vec<_>>());
        let out =
            (0..10).map(|order| (order, engine.figures().size(SizeCounter::SwapOut, order) - before[order]));
        out.filter(|(_, folios)| *folios > 0).collect()
    }

    #[test]
    fn what_lies_in_the_range_leaves_in_folios_as_large_as_it_allows() {
        for (pages, expected) in [
            (0..512, &[(7, 4)][..]),
            (16..32, &[(4, 1)]),
            (17..32, &[(0, 1), (1, 1), (2, 1), (3, 1)]),
            (0..256, &[(7, 2)]),
            (128..256, &[(7, 1)]),
            (8..56, &[(3, 2), (4, 2)]),
            (5..6, &[(0, 1)]),
        ] {
            let Some((engine, mut evictor, start)) = scene(Madvise::LinuxNoHugepage) else { return };
            assert_eq!(page_out(engine, &mut evictor, start, pages.clone()), expected, "{pages:?}");
        }
    }

    /// Of hot pages, too: whoever advises knows better than the clock.
    #[test]
    fn a_huge_page_leaves_whole_if_all_of_it_lies_in_the_range_and_is_split_if_not() {
        let out: [(_, &[(usize, u64)]); 2] = [(0..512, &[(9, 1)]), (0..16, &[(4, 1)])];
        for (pages, expected) in out {
            let Some((engine, mut evictor, start)) = scene(Madvise::LinuxHugepage) else { return };
            if !pagemap::is_huge(engine.descriptors.pagemap.load(Relaxed), start) {
                skip_without_huge_page();
                return;
            }
            let block = engine.table.block_or_insert(start, engine.arena).unwrap();
            (0..BLOCK_PAGES).for_each(|page| block.set(page, folioswap_policy::page::PageWord::PRESENT_HOT));
            let is_whole = pages.len() == BLOCK_PAGES;
            assert_eq!(page_out(engine, &mut evictor, start, pages.clone()), expected, "{pages:?}");
            let staging = evictor.staging();
            let place =
                staging.waiting_places().find(|&place| staging.folio(place).address == start).unwrap();
            assert_eq!(staging.is_whole(place), is_whole);
            assert_eq!(
                pagemap::is_huge(engine.descriptors.pagemap.load(Relaxed), staging.address(place)),
                is_whole
            );
            // What is left of the one that was split is as it was.
            for page in pages.end..BLOCK_PAGES {
                assert_eq!(crate::test_memory::word_at(start + page * PAGE), 9 + page as u64);
            }
            assert_eq!(staging.waiting(), (pages.len() / FOLIO_PAGES) as u64);
        }
    }
}

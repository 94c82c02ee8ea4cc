//! MADV_PAGEOUT and MADV_COLD, followed by the evictor (spec §3.7).
//!
//! A piece that lies wholly in the range leaves as a folio; the pages of a piece that lies partly
//! in it leave as single pages, so a folio is split only then. Hot pages go as well as cold ones,
//! and to the devices at once; older berths in staging go with them.

use crate::engine::advices::{Advice, Advised, Visit};
use crate::engine::words::pages_within;
use crate::evict::batch::scan_end;
use crate::evict::candidates::{Asks, HugePageLook};
use crate::evict::evictor::Evictor;
use crate::evict::tiers::DevicesFull;
use crate::kernel::pagemap;
use crate::kernel::ranges::Range;
use crate::staging::batch::{BATCH_PAGES, Batch};
use crate::staging::candidates::Candidates;
use crate::staging::isolation::Refused;
use crate::staging::row::Row;
use crate::store::write_back::RUN_BERTHS;
use crate::units::{Pages, PieceAddr};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The pages that leave, the berths that are written back, and the blocks that are cooled in one
/// step, so that a fork does not wait long.
const STEP_PAGES: u64 = 4 * BATCH_PAGES;

const STEP_FOLIOS: u64 = 32;

const STEP_BLOCKS: usize = 64;

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The rest, from this address on, is left for another step. At the end of the range only
    /// staging has yet to be written back.
    Until(usize),
    /// Nothing is left, or nothing more can be done.
    Over,
}

/// The advice that was followed last.
pub(crate) struct AdviceFollowed {
    /// The cell of the advice that was followed last.
    pub(crate) last: usize,
    /// The last round followed one.
    pub(crate) followed: bool,
}

impl AdviceFollowed {
    pub(crate) const fn new() -> Self {
        AdviceFollowed { last: 0, followed: false }
    }
}

impl Evictor {
    /// Follows the next part of the program's advice. `None`: there is none. The caller holds the
    /// gate, and staging is ready.
    pub(crate) fn follow_advice(&mut self) -> Option<Batch> {
        let engine = self.engine;
        let advised = engine.advices.next(self.advice.last)?;
        self.advice.last = advised.place;
        let mut batch = Batch::default();
        let step = match advised.advice {
            Advice::PageOut if advised.visit == Visit::First && !self.is_registered(advised) => {
                // A range that is not registered cannot leave: the mappings are looked at first.
                engine.mappings.scan_wanted.store(1, Release);
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

    /// Declines all advice, because nothing can be taken out of this process.
    pub(crate) fn decline_advice(&self) {
        let engine = self.engine;
        // An advice that came after the look at the mappings may still be followed.
        while let Some(advised) =
            engine.advices.next(0).filter(|_| engine.mappings.scan_wanted.load(Acquire) == 0)
        {
            engine.advices.done(advised);
        }
    }

    fn is_registered(&self, advised: Advised) -> bool {
        let _events_wait = self.engine.locks.moves.lock();
        self.engine.mappings.registered.covers(advised.start, advised.end)
    }

    /// Cools the pages of the range, which come before those that the clock's hand meets from now
    /// on.
    fn cool(&mut self, advised: Advised) -> Step {
        let Advised { start, end, .. } = advised;
        let (mut blocks, mut reached) = (0, end);
        self.engine.table.for_blocks_while(start, end, |first, block| {
            if blocks == STEP_BLOCKS {
                reached = first.raw();
                return ControlFlow::Break(());
            }
            blocks += 1;
            for index in pages_within(first, start, end) {
                let word = block.word(index);
                if let Some(cooled) = word.cooled() {
                    // A faster thread has touched it.
                    let _ = block.replace(index, word, cooled);
                }
            }
            ControlFlow::Continue(())
        });
        self.clock.forget_regions();
        self.clock.cold.add(Range { start, end: reached });
        if reached < end { Step::Until(reached) } else { Step::Over }
    }

    pub(crate) fn page_out(&mut self, advised: Advised, batch: &mut Batch) -> Step {
        // Staging must have room first.
        if self.drain_staging(batch).is_err() {
            return Step::Over;
        }
        let Some(Range { start, end }) = self.next_registered(advised.start, advised.end) else {
            return if self.staging().waiting() > 0 { Step::Until(advised.end) } else { Step::Over };
        };
        let end = end.min(scan_end(start));
        let pagemap = self.engine.descriptors.pagemap.load(Relaxed);
        self.clock.forget_regions();
        let Ok(scan) = pagemap::present(pagemap, start, end, &mut self.clock.regions) else {
            return Step::Over;
        };
        (self.clock.region_next, self.clock.region_count) = (0, scan.regions);
        // A full list of regions ends the look early.
        let seen = if scan.end > start { scan.end.min(end) } else { end };
        let step = self.isolate_present(Range { start, end: seen }, batch);
        (self.clock.region_next, self.clock.region_count) = (0, 0);
        step
    }

    /// Takes the pages that were found present out of the program.
    fn isolate_present(&mut self, range: Range, batch: &mut Batch) -> Step {
        let mut row = Row::default();
        while self.clock.region_next < self.clock.region_count {
            if let Some(block) = self.huge_page_of_regions()
                && self.huge_page_look(block, Asks::Program, batch) == HugePageLook::Cold
                && self.fits_huge_page()
            {
                if let Some(step) = self.take_advised(core::mem::take(&mut row), batch) {
                    return step;
                }
                // The row that has just left may have taken the room.
                if batch.isolated >= STEP_PAGES || !self.align_for_huge_page() {
                    return Step::Until(block.raw());
                }
                self.pass_huge_page();
                if let Some(step) = self.take_advised(Row::huge_page(block), batch) {
                    return step;
                }
                continue;
            }
            let (piece, present) = self.piece_of_regions();
            let wanted = self.advised_of(piece, present, batch);
            if wanted.all() != 0 && !row.append(piece, wanted, self.engine.rows_at(piece.page(0))) {
                let before = core::mem::replace(&mut row, Row::of(piece, wanted));
                if let Some(step) = self.take_advised(before, batch) {
                    return step;
                }
                if batch.isolated >= STEP_PAGES {
                    return Step::Until(piece.raw());
                }
            }
        }
        self.take_advised(row, batch).unwrap_or(Step::Until(range.end))
    }

    fn advised_of(&self, piece: PieceAddr, present: Pages, batch: &mut Batch) -> Candidates {
        let engine = self.engine;
        let present = self.without_shared(piece, present, batch);
        match engine.table.block_or_insert(piece, engine.arena) {
            Some(block) if present != 0 => engine.candidates(block, piece, present, Asks::Program),
            _ => Candidates::default(),
        }
    }

    /// Takes a row. Returns the next step if the row was refused.
    fn take_advised(&mut self, row: Row, batch: &mut Batch) -> Option<Step> {
        let start = row.start();
        match self.isolate_in_parts(row, batch)? {
            // The pages of the row that have left are not present any more.
            Refused::EventPending | Refused::StagingFull => Some(Step::Until(start.raw())),
            // Another mapping stands there now; its turn comes when it has been looked at.
            Refused::Gone => Some(Step::Until(start.end())),
            Refused::NoSlots => Some(Step::Over),
        }
    }

    /// Writes the oldest berths of staging back, as many as one step may.
    fn drain_staging(&mut self, batch: &mut Batch) -> Result<(), DevicesFull> {
        let mut result = Ok(());
        while self.staging().waiting() > 0 && batch.folios < STEP_FOLIOS && result.is_ok() {
            let most = (STEP_FOLIOS - batch.folios).min(RUN_BERTHS as u64) as usize;
            result = self.write_back_next(batch, most);
        }
        self.shortage.stuck = batch.stuck;
        let engine = self.engine;
        self.staging_mut().recycle(engine.userfault(), 1, |address| engine.keep_huge_page(address));
        result
    }
}

#[cfg(test)]
mod tests;

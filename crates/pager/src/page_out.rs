//! MADV_PAGEOUT and MADV_COLD, followed by the evictor (spec §3.7).
//!
//! A piece that lies in the range as a whole leaves as a folio, of others the pages that do: as single ones, so the folio is split only then.
//! Hot or not, they go, and to the devices at once; what waits in staging before them goes with them.

use crate::advice::{Advice, Advised, Turn};
use crate::batch::Batch;
use crate::candidates::Candidates;
use crate::evictor::Evictor;
use crate::isolate::{Pages, Refused, page_index};
use crate::pagemap;
use crate::ranges::Range;
use crate::row::Row;
use crate::staging::FOLIO;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_core::page_table::{BLOCK, PAGE};

/// Bytes of a range that are looked at in one step, so that a fork does not wait long.
const STEP_BYTES: usize = 2 << 20;

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The rest, from this address on, is for another step.
    Until(usize),
    /// Nothing is left, or nothing more can be done.
    Over,
}

impl Evictor {
    /// Follows the next part of what the program has advised. `None`: there is nothing. Under the gate, staging being ready.
    pub(crate) fn follow_advice(&mut self) -> Option<Batch> {
        let engine = self.engine;
        let advised = engine.advices.next()?;
        if advised.turn == Turn::First && advised.advice == Advice::PageOut && !self.is_registered(advised) {
            // What is not registered cannot leave: the mappings are looked at first.
            engine.scan_wanted.store(1, Release);
            engine.advices.go_on_from(advised, advised.start);
            return Some(Batch::default());
        }
        let mut batch = Batch::default();
        let step = match advised.advice {
            Advice::PageOut => self.page_out(advised, &mut batch),
            Advice::Cold | Advice::WillNeed => self.cool(advised),
        };
        match step {
            // A piece may begin before the range.
            Step::Until(start) if start < advised.end => {
                engine.advices.go_on_from(advised, start.max(advised.start));
            }
            Step::Until(_) | Step::Over => engine.advices.done(advised),
        }
        Some(batch)
    }

    /// Nothing can be taken out of this process.
    pub(crate) fn decline_advice(&self) {
        let advices = &self.engine.advices;
        // Unless it came only now, after the look whether that is so.
        while let Some(advised) = advices.next().filter(|_| self.engine.scan_wanted.load(Acquire) == 0) {
            advices.done(advised);
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
        self.engine.table.for_blocks(start, end, |first, block| {
            for address in (first.max(start)..end.min(first + BLOCK)).step_by(PAGE) {
                let (index, word) = (page_index(address), block.word(page_index(address)));
                if let Some(cooled) = word.cooled() {
                    // Who was faster has touched it.
                    let _ = block.replace(index, word, cooled);
                }
            }
        });
        self.forget_regions();
        self.cold = Range { start, end };
        Step::Over
    }

    fn page_out(&mut self, advised: Advised, batch: &mut Batch) -> Step {
        let Some(Range { start, end }) = self.next_registered(advised.start, advised.end) else {
            return Step::Over;
        };
        let end = end.min((start & !(STEP_BYTES - 1)) + STEP_BYTES);
        let pagemap = self.engine.descriptors.pagemap.load(Relaxed);
        self.forget_regions();
        let Ok(scan) = pagemap::present(pagemap, start, end, &mut self.regions) else { return Step::Over };
        (self.region_next, self.region_count) = (0, scan.regions);
        // A full list of regions ends the look early.
        let seen = if scan.end > start { scan.end.min(end) } else { end };
        let step = self.isolate_present(Range { start, end: seen }, batch);
        (self.region_next, self.region_count) = (0, 0);
        if self.drain_staging(batch).is_err() { Step::Over } else { step }
    }

    /// Takes what was found present out of the program.
    fn isolate_present(&mut self, range: Range, batch: &mut Batch) -> Step {
        let mut row = Row::default();
        while self.region_next < self.region_count {
            let (piece, present) = self.piece_of_regions();
            let wanted = self.advised_of(piece, present, batch);
            if wanted.all() != 0 && !row.append(piece, wanted) {
                let before = core::mem::replace(&mut row, Row::of(piece, wanted));
                if let Some(step) = self.take_advised(before, batch) {
                    return step;
                }
            }
        }
        self.take_advised(row, batch).unwrap_or(Step::Until(range.end))
    }

    fn advised_of(&self, piece: usize, present: Pages, batch: &mut Batch) -> Candidates {
        let engine = self.engine;
        let present = self.without_shared(piece, present, batch);
        match engine.table.block_or_insert(piece, engine.arena) {
            Some(block) if present != 0 => engine.candidates_whatever_heat(block, piece, present),
            _ => Candidates::default(),
        }
    }

    /// Takes a row; what to do next if that was refused.
    fn take_advised(&mut self, row: Row, batch: &mut Batch) -> Option<Step> {
        let start = row.start();
        match self.take_row(row, batch)? {
            // What has left of it is not present any more.
            Refused::EventPending | Refused::StagingFull => Some(Step::Until(start)),
            // It is another mapping now, whose turn comes when it has been looked at.
            Refused::Gone => Some(Step::Until(start + FOLIO)),
            Refused::NoSlots => Some(Step::Over),
        }
    }

    /// Writes back all that waits in staging.
    fn drain_staging(&mut self, batch: &mut Batch) -> Result<(), ()> {
        let mut result = Ok(());
        while self.staging().waiting() > 0 && result.is_ok() {
            result = self.write_back_next(batch);
        }
        self.stuck = batch.stuck;
        self.staging().recycle(self.engine.userfault(), 1);
        result
    }
}

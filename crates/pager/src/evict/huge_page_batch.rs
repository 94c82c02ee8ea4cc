//! The kernel's huge pages in a batch of eviction: they leave as a whole (spec §3.6, §3.7), or stay, or are taken to pieces.

use crate::evict::candidates::{Asks, HugePageLook};
use crate::evict::evictor::Evictor;
use crate::kernel::{pagemap, sys};
use crate::staging::batch::Batch;
use crate::staging::ring::HUGE_PAGE_BERTHS;
use crate::staging::row::Row;
use crate::units::{BLOCK, BLOCK_ORDER, BLOCK_PAGES};
use folioswap_group::counters::Counter;

/// Staging must be so many times as large as a huge page for one to wait in it: half of it may wait for its turn, and what begins
/// elsewhere than a huge page can stand in the way for nearly two more.
const STAGING_OF_WHOLE: u64 = 8;

/// What became of one that the clock has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugePageTaken {
    /// It has left, or stays: the clock goes on.
    Passed,
    /// Staging has no room for it now: the clock stays here.
    NoRoom,
    /// A move was refused: the batch ends.
    Refused,
    /// It goes piece by piece.
    Pieces,
}

impl Evictor {
    /// The block, if what is listed next is one huge page.
    pub(crate) fn huge_page_of_regions(&self) -> Option<usize> {
        let region = &self.clock.regions[..self.clock.region_count].get(self.clock.region_next)?;
        pagemap::is_huge_page(region).then_some(region.start as usize)
    }

    /// The clock goes past it.
    pub(crate) fn pass_huge_page(&mut self) {
        let region = &mut self.clock.regions[self.clock.region_next];
        region.start += BLOCK as u64;
        self.clock.region_next += usize::from(region.start >= region.end);
    }

    /// Is staging large enough for huge pages?
    pub(crate) fn fits_huge_page(&self) -> bool {
        self.staging().places() >= STAGING_OF_WHOLE * HUGE_PAGE_BERTHS
    }

    /// May it leave as a whole? What relatives share stays, unless nothing else is left.
    pub(crate) fn huge_page_look(&self, start: usize, asks: Asks<'_>, batch: &mut Batch) -> HugePageLook {
        let engine = self.engine;
        if !engine.allows_order(start, BLOCK_ORDER) {
            return HugePageLook::Pieces;
        }
        if engine.fork.has_relatives() && engine.pages_now(start, 1).exclusive == 0 {
            if self.shortage.desperate {
                return HugePageLook::Pieces;
            }
            batch.shared += BLOCK_PAGES as u64;
            return HugePageLook::Hot;
        }
        match engine.table.block_or_insert(start, engine.arena) {
            Some(block) => engine.look_at_huge_page(block, start, asks),
            None => HugePageLook::Hot,
        }
    }

    /// The clock has met a huge page; `row` is what it has met before.
    pub(crate) fn take_huge_page_if_cold(
        &mut self,
        start: usize,
        row: Row,
        batch: &mut Batch,
    ) -> HugePageTaken {
        if self.take_row(row, batch).is_some() {
            return HugePageTaken::Refused;
        }
        if !self.fits_huge_page() {
            return HugePageTaken::Pieces;
        }
        if self.shortage.stuck {
            // Nothing of it is clean, and only that could leave now.
            self.pass_huge_page();
            return HugePageTaken::Passed;
        }
        if !self.staging().has_berths_for_huge_page() {
            batch.staging_full = true;
            return HugePageTaken::NoRoom;
        }
        let mut aging = core::mem::take(&mut self.clock.aging);
        let look = self.huge_page_look(start, Asks::Clock(&mut aging), batch);
        self.clock.aging = aging;
        if look == HugePageLook::Pieces {
            return HugePageTaken::Pieces;
        }
        self.pass_huge_page();
        self.clock.aging.note(BLOCK_PAGES as u64, 0);
        self.engine.figures().add(Counter::ScannedBackground, BLOCK_PAGES as u64);
        if look == HugePageLook::Cold
            && self.align_for_huge_page()
            && self.take_row(Row::huge_page(start), batch).is_some()
        {
            return HugePageTaken::Refused;
        }
        HugePageTaken::Passed
    }

    /// Leaves berths empty until the next one begins 2 MiB. False: there is no room for a huge page.
    pub(crate) fn align_for_huge_page(&mut self) -> bool {
        let userfault = self.engine.userfault();
        self.staging_mut().align_for_huge_page(userfault)
    }

    /// The kernel does not move a huge page that was shared by a fork until it knows that nobody shares it any more: makes it so by a read in the
    /// way of other processes. False: it is shared.
    pub(crate) fn take_over_huge_page(&self, start: usize) -> bool {
        let is_ours = self.engine.pages_now(start, 1).exclusive != 0;
        if is_ours {
            sys::read_bytes(&[start]);
        }
        is_ours
    }

    /// The kernel does not move it: pinned, or shared after a fork.
    pub(crate) fn note_busy_huge_page(&self, start: usize, batch: &mut Batch) {
        let engine = self.engine;
        if engine.pages_now(start, 1).exclusive == 0 {
            batch.shared += BLOCK_PAGES as u64;
        } else {
            engine.figures().add(Counter::Pinned, BLOCK_PAGES as u64);
        }
    }
}

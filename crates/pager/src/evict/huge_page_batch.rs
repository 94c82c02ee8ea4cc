//! The kernel's huge pages in a batch of eviction: each leaves as one (spec §3.6, §3.7), or stays,
//! or is taken to pieces.

use crate::evict::candidates::{Asks, HugePageLook};
use crate::evict::evictor::Evictor;
use crate::kernel::{pagemap, sys};
use crate::staging::batch::Batch;
use crate::staging::ring::HUGE_PAGE_BERTHS;
use crate::staging::row::Row;
use crate::units::{BLOCK, BLOCK_ORDER, BLOCK_PAGES, BlockAddr, PageInBlock};
use folioswap_group::counters::Counter;

/// How many times larger than a huge page staging must be for one to wait in it: half of the ring
/// may wait for its turn, and berths that begin elsewhere than a huge page can stand in the way of
/// nearly two more.
const STAGING_OF_HUGE_PAGE: u64 = 8;

/// The outcome for a huge page that the clock has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugePageTaken {
    /// It has left, or it stays: the clock goes on.
    Passed,
    /// Staging has no room for it now: the clock stays here.
    NoRoom,
    /// A move was refused: the batch ends.
    Refused,
    /// It leaves piece by piece.
    Pieces,
}

impl Evictor {
    /// The block, if the next listed region begins with one huge page.
    pub(crate) fn huge_page_of_regions(&self) -> Option<BlockAddr> {
        let region = &self.clock.regions[..self.clock.region_count].get(self.clock.region_next)?;
        pagemap::is_huge_page(region).then_some(BlockAddr::containing(region.start as usize))
    }

    /// Moves the clock past the huge page.
    pub(crate) fn pass_huge_page(&mut self) {
        let region = &mut self.clock.regions[self.clock.region_next];
        region.start += BLOCK as u64;
        self.clock.region_next += usize::from(region.start >= region.end);
    }

    /// Whether staging is large enough for huge pages.
    pub(crate) fn fits_huge_page(&self) -> bool {
        self.staging().berth_count() >= STAGING_OF_HUGE_PAGE * HUGE_PAGE_BERTHS
    }

    /// Whether a huge page may leave as one. Pages that relatives share stay, unless nothing else
    /// is left.
    pub(crate) fn huge_page_look(&self, start: BlockAddr, asks: Asks<'_>, batch: &mut Batch) -> HugePageLook {
        let engine = self.engine;
        if !engine.allows_order(start.page(PageInBlock::FIRST), BLOCK_ORDER) {
            return HugePageLook::Pieces;
        }
        if engine.fork.has_relatives() && engine.pages_now(start.page(PageInBlock::FIRST), 1).exclusive == 0 {
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

    /// Takes a huge page that the clock has met; `row` holds the pieces that it met before.
    pub(crate) fn take_huge_page_if_cold(
        &mut self,
        start: BlockAddr,
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
            // Nothing of it is clean, and only clean pages could leave now.
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

    /// Leaves berths empty until the next one begins 2 MiB. False: there is no room for a huge
    /// page.
    pub(crate) fn align_for_huge_page(&mut self) -> bool {
        let userfault = self.engine.userfault();
        self.staging_mut().align_for_huge_page(userfault)
    }

    /// Makes a huge page that was shared by a fork this process's own, by reading it in the way of
    /// other processes: the kernel does not move one until it knows that nobody shares it any more.
    /// False: it is shared.
    pub(crate) fn take_over_huge_page(&self, start: BlockAddr) -> bool {
        let is_ours = self.engine.pages_now(start.page(PageInBlock::FIRST), 1).exclusive != 0;
        if is_ours {
            sys::read_bytes(&[start.raw()]);
        }
        is_ours
    }

    /// Counts a huge page that the kernel does not move, because it is pinned or shared after a
    /// fork.
    pub(crate) fn note_busy_huge_page(&self, start: BlockAddr, batch: &mut Batch) {
        let engine = self.engine;
        if engine.pages_now(start.page(PageInBlock::FIRST), 1).exclusive == 0 {
            batch.shared += BLOCK_PAGES as u64;
        } else {
            engine.figures().add(Counter::Pinned, BLOCK_PAGES as u64);
        }
    }
}

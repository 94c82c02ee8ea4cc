//! The pages of a piece that may leave the program now.

use crate::engine::Engine;
use crate::engine::due::Due;
use crate::staging::candidates::Candidates;
use crate::units::{BLOCK, BLOCK_PAGES, BlockAddr, PIECE, PIECE_PAGES, PageInBlock, Pages, PieceAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::page::{Heat, PageState};
use folioswap_policy::page_table::Block;
use folioswap_policy::reclaim::aging::Aging;

/// After so many epochs of the evictor a removal is trusted to have been carried out.
const REMOVAL_EPOCHS: u32 = 3;

/// The shortest duration of an epoch.
const EPOCH_NS: u64 = 1 << 30;

pub(crate) fn is_carried_out(now: u32, removal: u32) -> bool {
    now.wrapping_sub(removal) >= REMOVAL_EPOCHS
}

/// The asker for pages.
pub(crate) enum Asks<'a> {
    /// The clock, which wants only cold pages.
    Clock(&'a mut Aging),
    /// The program, whose advice holds for hot pages too.
    Program,
}

impl Asks<'_> {
    /// The same asker, for another piece.
    fn again(&mut self) -> Asks<'_> {
        match self {
            Asks::Clock(aging) => Asks::Clock(aging),
            Asks::Program => Asks::Program,
        }
    }
}

/// One of the kernel's huge pages, as the asker for pages sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugePageLook {
    /// All of it may leave.
    Cold,
    /// Some of it is hot, or was until now: it stays as it is.
    Hot,
    /// Some of it has to stay, or has become something else: it is taken to pieces.
    Pieces,
}

impl Engine {
    /// Begins the next epoch of removals, if the present one has lasted long enough. The evictor
    /// calls it at each measurement.
    ///
    /// Epochs pass one at a time, however long nobody called: pages that are given up while the
    /// evictor stands still (it waits for a device, or the whole machine stood still) belong to the
    /// epoch in which it came to a stand, and have all of their margin still before them.
    pub(crate) fn pass_epoch(&self, due: &mut Due, now_ns: u64) {
        if due.take(now_ns, EPOCH_NS) {
            self.mappings.epoch.fetch_add(1, Relaxed);
        }
    }

    /// Which of the present pages of a piece may be taken now. The clock passes over hot pages and
    /// cools them (second chance).
    pub(crate) fn candidates(
        &self,
        block: &Block,
        piece: PieceAddr,
        present: Pages,
        mut asks: Asks<'_>,
    ) -> Candidates {
        let epoch = self.mappings.epoch.load(Relaxed);
        let mut candidates = Candidates::default();
        for page in (0..PIECE_PAGES).filter(|page| present >> page & 1 != 0) {
            let index = piece.index().plus(page);
            let word = block.word(index);
            match (word.state(), &mut asks) {
                (PageState::Present(Heat::Hot), Asks::Clock(aging)) => {
                    if aging.cools()
                        && let Some(cooled) = word.cooled()
                    {
                        let _ = block.replace(index, word, cooled);
                    }
                }
                (PageState::Clean(entry, Heat::Hot), Asks::Clock(aging)) => {
                    if aging.cools() {
                        self.pass_clean(block, index, word, entry);
                    }
                }
                (PageState::Clean(..), _) => candidates.clean |= 1 << page,
                (PageState::Present(_), _) => candidates.written |= 1 << page,
                // The page is present although its word says that it is away: it was served while a
                // fork froze the words. (Or the list of present pages is old; the move will tell.)
                (PageState::Stored(_), _) => candidates.written |= 1 << page,
                (PageState::Removed { epoch: then }, _) => {
                    candidates.written |= Pages::from(is_carried_out(epoch, then)) << page;
                }
                (
                    PageState::Isolated(_)
                    | PageState::Leaving(_)
                    | PageState::Returning(_)
                    | PageState::Filling,
                    _,
                ) => {}
            }
        }
        candidates.among(!self.kept_pages(piece))
    }

    /// Whether one of the kernel's huge pages may leave as one.
    pub(crate) fn look_at_huge_page(
        &self,
        block: &Block,
        start: BlockAddr,
        mut asks: Asks<'_>,
    ) -> HugePageLook {
        let is_hot = |page| {
            matches!(block.word(page).state(), PageState::Present(Heat::Hot) | PageState::Clean(_, Heat::Hot))
        };
        let some_are_hot = matches!(asks, Asks::Clock(_)) && PageInBlock::all().any(is_hot);
        let mut written = 0;
        for piece in (0..BLOCK / PIECE).map(|number| start.piece(number)) {
            written += self.candidates(block, piece, Pages::MAX, asks.again()).written.count_ones() as usize;
        }
        match (written, some_are_hot) {
            (BLOCK_PAGES, false) => HugePageLook::Cold,
            (_, true) => HugePageLook::Hot,
            _ => HugePageLook::Pieces,
        }
    }

    /// The pages of the piece that must stay resident.
    pub(crate) fn kept_pages(&self, piece: PieceAddr) -> Pages {
        let _guard = self.locks.kept.lock();
        let kept = &self.said.kept;
        let mut pages = self.demand.kept_pages(piece);
        let mut from = piece.raw();
        while let Some(range) = kept.next(from).filter(|range| range.start < piece.end()) {
            for page in 0..PIECE_PAGES {
                let address = piece.page(page).raw();
                pages |= Pages::from((range.start..range.end).contains(&address)) << page;
            }
            from = range.end;
        }
        pages
    }
}

#[cfg(test)]
mod tests;

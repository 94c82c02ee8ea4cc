//! The handler's claims: a page that is to come back is `Returning` until it is present, or is as
//! it was before.
//!
//! Only the thread that has claimed a page changes its word, so the contents of the word need not
//! be kept beside it.

use crate::units::{BLOCK_PAGES, PIECE_PAGES, PageAddr, PageInBlock, Pages, PieceAddr};
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;
use folioswap_slots::SwapEntry;

/// Claims a page that is elsewhere, and returns the state that it was in. Returns `None` if the
/// page is not elsewhere, or if another thread changed the word first.
pub(crate) fn claim(block: &Block, index: PageInBlock) -> Option<PageState> {
    claim_if(block, index, |_| true)
}

/// Claims all pages of a block, each in a state that is `wanted`, or none.
pub(crate) fn claim_all(block: &Block, wanted: impl Fn(PageState) -> bool) -> bool {
    let claimed = PageInBlock::all().take_while(|&page| claim_if(block, page, &wanted).is_some()).count();
    if claimed < BLOCK_PAGES {
        PageInBlock::range(0..claimed).for_each(|page| unclaim(block, page));
    }
    claimed == BLOCK_PAGES
}

/// Ends the claim on a page that could not come back: its word is as before.
pub(crate) fn unclaim(block: &Block, index: PageInBlock) {
    if let Some(word) = block.word(index).unclaim() {
        block.set(index, word);
    }
}

/// The check and the claim use one and the same word, since a page may be written back in between.
fn claim_if(block: &Block, index: PageInBlock, wanted: impl Fn(PageState) -> bool) -> Option<PageState> {
    let before = block.word(index);
    let claimed = before.claim().filter(|_| wanted(before.state()))?;
    block.replace(index, before, claimed).ok()?;
    Some(before.state())
}

/// The pages of a piece that the handler has claimed, with the state of each word before.
pub(crate) struct ClaimedPiece {
    /// The piece.
    pub(crate) piece: PieceAddr,
    /// Index in the block of its first page.
    pub(crate) first: PageInBlock,
    /// Number within the piece of the page that the fault is on.
    pub(crate) touched: usize,
    /// The state of each claimed page before its claim; `None` for a page that is not claimed.
    pub(crate) from: [Option<PageState>; PIECE_PAGES],
}

impl ClaimedPiece {
    /// Claims those of `pages` that are away, in the piece of `address`, which lies in `block`.
    pub(crate) fn claim(block: &Block, address: PageAddr, pages: Pages) -> Self {
        let piece = address.piece();
        let first = piece.index();
        let mut from = [None; PIECE_PAGES];
        for (page, from) in from.iter_mut().enumerate().filter(|(page, _)| pages >> page & 1 != 0) {
            *from = claim(block, first.plus(page));
        }
        ClaimedPiece { piece, first, touched: address.in_piece(), from }
    }

    /// The number of claimed pages.
    pub(crate) fn count(&self) -> usize {
        self.from.iter().flatten().count()
    }

    /// The entry of a claimed page that is stored, and not in staging.
    pub(crate) fn stored(&self, page: usize) -> Option<SwapEntry> {
        match self.from[page]? {
            PageState::Stored(entry) => Some(entry),
            _ => None,
        }
    }

    /// Ends the claim on one page: its word is as it was.
    pub(crate) fn release_page(&mut self, block: &Block, page: usize) {
        if self.from[page].take().is_some() {
            unclaim(block, self.first.plus(page));
        }
    }

    /// Ends all claims that are left.
    pub(crate) fn release(&mut self, block: &Block) {
        (0..PIECE_PAGES).for_each(|page| self.release_page(block, page));
    }
}

//! The handler's claims: a page that is to come back is `Returning` until it is there, or is as it was before.
//!
//! Whoever has claimed a page is the only one who changes its word, so what the word says needs not be kept beside it.

use crate::units::BLOCK_PAGES;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;

/// Claims a page that is elsewhere; says in which state it was. `None`: it is not, or somebody was faster.
pub(crate) fn claim(block: &Block, index: usize) -> Option<PageState> {
    claim_if(block, index, |_| true)
}

/// Claims all pages of a block, each in a state that is `wanted`, or none.
pub(crate) fn claim_all(block: &Block, wanted: impl Fn(PageState) -> bool) -> bool {
    let claimed = (0..BLOCK_PAGES).take_while(|&page| claim_if(block, page, &wanted).is_some()).count();
    if claimed < BLOCK_PAGES {
        (0..claimed).for_each(|page| unclaim(block, page));
    }
    claimed == BLOCK_PAGES
}

/// A claimed page could not come back: everything is as before.
pub(crate) fn unclaim(block: &Block, index: usize) {
    if let Some(word) = block.word(index).unclaim() {
        block.set(index, word);
    }
}

/// What is asked for and what is claimed is one and the same word: a page may be written back in between.
fn claim_if(block: &Block, index: usize, wanted: impl Fn(PageState) -> bool) -> Option<PageState> {
    let before = block.word(index);
    let claimed = before.claim().filter(|_| wanted(before.state()))?;
    block.replace(index, before, claimed).ok()?;
    Some(before.state())
}

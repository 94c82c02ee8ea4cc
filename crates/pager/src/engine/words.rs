//! The page words of a range: the pages of a block that the range covers, and the moves of words
//! after a mapping that moves.

use crate::engine::Engine;
use crate::engine::ending::certainly_taken;
use crate::units::{BLOCK_PAGES, BlockAddr, PAGE, PageAddr, PageInBlock};
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::PageTable;

/// The indices of the pages of this block that lie in `start..end`.
pub(crate) fn pages_within(block: BlockAddr, start: usize, end: usize) -> impl Iterator<Item = PageInBlock> {
    let first = start.saturating_sub(block.raw()) / PAGE;
    let last = (end.min(block.end()) - block.raw()).div_ceil(PAGE);
    PageInBlock::range(first.min(BLOCK_PAGES)..last)
}

/// Moves the words of a range to the address where its mapping went.
pub(crate) fn move_words(engine: &Engine, table: &PageTable, from: usize, to: usize, bytes: usize) {
    table.for_blocks(from, from + bytes, |base, block| {
        for index in pages_within(base, from, from + bytes) {
            let word = block.word(index);
            if word == PageWord::PRESENT {
                continue;
            }
            block.set(index, PageWord::PRESENT);
            let target = PageAddr::containing(to + (base.page(index).raw() - from));
            // Without memory for a table the words of the page would be lost.
            let there = certainly_taken(engine, || table.block_or_insert(target, engine.arena));
            there.set(target.index(), word);
        }
    });
}

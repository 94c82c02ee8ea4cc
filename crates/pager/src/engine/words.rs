//! The page words of a range: the pages of a block that the range covers, and the moves of words
//! after a mapping that moves.

use crate::engine::Engine;
use crate::units::{BLOCK, BLOCK_PAGES, PAGE, page_index};
use folioswap_group::protocol::Ending;
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::PageTable;

/// The indices of the pages of the block at `base` that lie in `start..end`.
pub(crate) fn pages_within(base: usize, start: usize, end: usize) -> core::ops::Range<usize> {
    let first = start.saturating_sub(base) / PAGE;
    let last = (end.min(base + BLOCK) - base).div_ceil(PAGE);
    first.min(BLOCK_PAGES)..last
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
            let target = to + (base + index * PAGE - from);
            match table.block_or_insert(target, engine.arena) {
                Some(there) => there.set(page_index(target), word),
                // Without memory for a table the words of the page are lost, so the process ends,
                // with a message.
                None => engine.end(Ending::NoTable, None),
            }
        }
    });
}

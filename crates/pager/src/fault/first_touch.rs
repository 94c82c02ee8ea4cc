//! Serving a fault on memory that was never touched: zeroes are filled in, for the page and for the
//! pages that the walk through its piece comes to next.

use crate::engine::Engine;
use crate::fault::handler::Handler;
use crate::fault::huge_page::HugeSwapIn;
use crate::fault::reading::Purpose;
use crate::kernel::uffd::Stopped;
use crate::units::{BLOCK_ORDER, PAGE, PIECE_PAGES, PageAddr, PageInBlock, Pages};
use core::ops::Range;
use folioswap_group::counters::Counter;
use folioswap_policy::history::Window;
use folioswap_policy::page_table::Block;
use rustix::io::Errno;

impl Handler {
    /// Fills memory that was never touched with zeroes. Returns true if the fault is resolved.
    pub(crate) fn first_touch(&mut self, block: &Block, address: PageAddr, window: Window) -> bool {
        let engine = self.engine;
        let index = address.index().get();
        if window.order == BLOCK_ORDER
            && engine.wants_huge_pages(address.block())
            && self.first_touch_huge_page(block, address.block(), Purpose::Fault) == HugeSwapIn::Done
        {
            engine.figures().add(Counter::MinorFaults, 1);
            return true;
        }
        // A word does not distinguish pages that were never touched from pages that are present.
        // Both are claimed, so that the present ones stay in memory until the kernel has told them
        // apart.
        let claimed = claim_to_fill(block, address.index(), window);
        if claimed.is_empty() {
            // The evictor changed this word first: look at it again.
            return false;
        }
        // A read gets a page of its own too: the shared zero page would be cheaper, but the write
        // that follows would make a page of it behind our back, unaccounted and at full speed.
        let fill = |pages: &Range<usize>| {
            let (to, bytes) = (address.block().raw() + pages.start * PAGE, pages.len() * PAGE);
            // SAFETY: the zeroes are the engine's memory.
            unsafe { engine.userfault().copy(to, self.buffers.zeroes(), bytes) }
        };
        let reached = |pages: &Range<usize>, result| match result {
            Ok(()) => pages.clone(),
            Err(Stopped { done, .. }) => pages.start..pages.start + done / PAGE,
        };
        // The kernel fills upwards and stops at a page that it cannot fill, so the touched page
        // comes first, then the pages below it.
        let free = self.without_guards(address, claimed.clone());
        let free = engine.registered_from(address, free.start)..free.end;
        let (mut asked, below) = (index..free.end, free.start..index);
        let mut result = fill(&asked);
        if asked.len() > 1 && matches!(result, Err(Stopped { done: 0, why: Errno::NOENT })) {
            // The window reaches past the end of the mapping.
            asked = index..index + 1;
            result = fill(&asked);
        }
        let done = reached(&asked, result);
        let done_below =
            if done.is_empty() || below.is_empty() { 0..0 } else { reached(&below, fill(&below)) };
        for page in PageInBlock::range(claimed) {
            let word = block.word(page);
            let is_filled = done.contains(&page.get()) || done_below.contains(&page.get());
            if let Some(after) = if is_filled { word.filled() } else { word.not_filled() } {
                block.set(page, after);
            }
        }
        match result {
            Err(Stopped { done: 0, why: Errno::AGAIN }) => {
                self.read_messages();
                return false;
            }
            Err(Stopped { done: 0, why: Errno::NOMEM }) => {
                rustix::thread::sched_yield();
                self.read_messages();
                return false;
            }
            // Another thread filled the page first, or the mapping is gone: let the thread look
            // again.
            Err(Stopped { done: 0, .. }) => {
                engine.userfault().wake(address.raw(), PAGE);
                return true;
            }
            _ => {}
        }
        let first = if done_below.end == index { done_below.start } else { index };
        block.history.remember(first, done.end, window.order);
        self.note_came((done.len() + done_below.len()) as u64);
        engine.figures().add(Counter::MinorFaults, 1);
        true
    }
}

impl Engine {
    /// The first page of the block, from page `first` on, that is registered together with the page
    /// at `address` and all between; that page itself where nothing lies below it, or nothing is
    /// known.
    ///
    /// Below its mapping another one may begin that a userfaultfd of somebody else's serves, and
    /// the kernel would fill that as well. A copy upwards ends with the mapping in which it begins.
    fn registered_from(&self, address: PageAddr, first: usize) -> usize {
        let index = address.index().get();
        if first == index {
            return index;
        }
        let Some(range) = self.registered_around(address) else { return index };
        let lowest = range.start.saturating_sub(address.block().raw()) / PAGE;
        first.max(lowest.min(index))
    }
}

impl Handler {
    /// The part of `claimed` around the touched page in which the program has installed no guard
    /// (MADV_GUARD_INSTALL): a copy would replace it. The fault says that the touched page is none.
    fn without_guards(&self, address: PageAddr, claimed: Range<usize>) -> Range<usize> {
        if claimed.len() < 2 {
            return claimed;
        }
        let (index, piece) = (address.index().get(), address.index().piece_start().get());
        // Without an answer the touched page comes alone.
        let guarded = self.engine.guards_now(address.piece()).unwrap_or(Pages::MAX);
        let is_guarded = |&page: &usize| guarded >> (page - piece) & 1 != 0;
        let start = (claimed.start..index).rev().find(is_guarded).map_or(claimed.start, |guard| guard + 1);
        let end = (index + 1..claimed.end).find(is_guarded).unwrap_or(claimed.end);
        start..end
    }
}

/// Claims pages that may be filled with zeroes: the page `index`, and those of its window up to the
/// next page that is elsewhere, within the piece. The range is empty if the page itself is
/// elsewhere.
fn claim_to_fill(block: &Block, index: PageInBlock, window: Window) -> Range<usize> {
    if !begin_filling(block, index) {
        return 0..0;
    }
    let piece = index.piece_start();
    let run = window.run(index.in_piece(), PIECE_PAGES, |page| begin_filling(block, piece.plus(page)));
    piece.get() + run.start..piece.get() + run.end
}

/// Claims a page that may be filled with zeroes, if nothing is there. Returns whether it is
/// claimed.
pub(crate) fn begin_filling(block: &Block, index: PageInBlock) -> bool {
    let before = block.word(index);
    before.fill().is_some_and(|filling| block.replace(index, before, filling).is_ok())
}

#[cfg(test)]
mod tests;

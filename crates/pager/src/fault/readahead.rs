//! What comes back with a page: swapin readahead.
//!
//! * Where faults go on from page to page, a growing window (`folioswap_policy::history`).
//! * Out of order, the page alone; or, where that has proven worth it, what of its 64 KiB piece is in the compressed store too
//!   (`folioswap_policy::around`).
//! * Out of the swap cache, where it costs a copy and no reading: also all of its folio that is still there. One touch then keeps all of
//!   the folio, as one accessed page does in the kernel.

use crate::engine::Engine;
use crate::units::{BLOCK, BLOCK_PAGES, PAGE, PIECE, PIECE_ORDER, PIECE_PAGES, Pages, page_index};
use core::ops::Range;
use folioswap_group::folio_orders::{Advised, FolioOrders};
use folioswap_policy::history::{Stride, WINDOW_ORDER_MAX, Window};
use folioswap_policy::page::{Heat, PageState, PageWord};
use folioswap_policy::page_table::Block;

const _: () = assert!(WINDOW_ORDER_MAX as usize == BLOCK_PAGES.ilog2() as usize);

/// What part of the limit a large window may be, where no smaller one is allowed.
const LIMIT_OF_WINDOW: u64 = 64;

/// What a fault on a page that is away should bring back of its 64 KiB piece.
#[derive(Clone, Debug)]
pub(crate) struct Readahead {
    /// The pages, those that are not away included.
    pub(crate) pages: Pages,
    /// The order of what is read from a device.
    pub(crate) order: u8,
    /// For the history: the order that it advised.
    walked: u8,
    /// For the history: the pages of the block that are its window.
    window: Range<usize>,
    reason: Reason,
}

/// Why so much comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A page was touched out of order.
    Touched,
    /// The same, and what lies around it is worth it.
    Around,
    /// Faults go on from page to page.
    InOrder,
}

impl Readahead {
    /// All of piece number `piece` of a block, by which a walk goes on.
    pub(crate) fn of_walk(piece: usize) -> Self {
        let window = piece * PIECE_PAGES..(piece + 1) * PIECE_PAGES;
        Readahead {
            pages: Pages::MAX,
            order: PIECE_ORDER,
            walked: PIECE_ORDER,
            window,
            reason: Reason::InOrder,
        }
    }

    /// Page `index` of a block, which a stride comes to.
    pub(crate) fn of_stride(index: usize) -> Self {
        let pages = 1 << (index % PIECE_PAGES);
        Readahead { pages, order: 0, walked: 0, window: index..index + 1, reason: Reason::InOrder }
    }

    /// What of it lies in the folio of this smaller order that contains page `index` of the block.
    pub(crate) fn smaller(&self, index: usize, order: u8) -> Self {
        let first = index & !((1 << order) - 1);
        let window = first..first + (1 << order);
        let piece = index & !(PIECE_PAGES - 1);
        let pages = self.pages & pages_that(piece, |page| window.contains(&page));
        Readahead { pages, order, walked: self.walked.min(order), window, reason: self.reason }
    }

    /// It was done.
    pub(crate) fn remember(&self, block: &Block) {
        let order = if self.reason == Reason::InOrder { self.walked } else { 0 };
        block.history.remember(self.window.start, self.window.end, order);
    }

    /// What the return says about its pages: that one was touched out of order proves it hot, and what comes along with it does so
    /// because it is wanted sooner than what leaves. (How long it was away may say otherwise: `workingset.rs`.)
    pub(crate) fn heat(&self) -> Heat {
        match self.reason {
            Reason::Touched | Reason::Around => Heat::Hot,
            Reason::InOrder => Heat::Cold,
        }
    }
}

impl Engine {
    /// What a fault at `address`, in `block`, should bring in, as the region's history advises.
    pub(crate) fn window(&self, block: &Block, address: usize) -> Window {
        let beside = |address| self.table.block(address).map(|block| &block.history);
        let before = || beside(address.wrapping_sub(PAGE));
        let window = block.history.window(page_index(address), before, || beside(address + PAGE));
        let (orders, advised) = self.folio_orders(address);
        let at_most = self.largest_window(orders, advised);
        // A window that grows in steps which are not allowed would never come to the one that is.
        Window { order: orders.nearest_allowed(window.order, at_most, advised), ..window }
    }

    /// The stride that a fault out of order at `address`, in `block`, continues.
    pub(crate) fn stride(&self, block: &Block, address: usize) -> Option<Stride> {
        let start = address & !(BLOCK - 1);
        let beside = |address| self.table.block(address).map(|block| &block.history);
        let before = || beside(start.wrapping_sub(PAGE));
        block.history.stride(page_index(address), before, || beside(start + BLOCK))
    }

    /// The largest window: 2 MiB, or 64 KiB where the limit is small. Where no size up to that is allowed, as much as a 64th of the limit.
    fn largest_window(&self, orders: FolioOrders, advised: Advised) -> u8 {
        if self.affords_huge_pages() {
            return WINDOW_ORDER_MAX;
        }
        if orders.largest_allowed(PIECE_ORDER, advised) > 0 {
            return PIECE_ORDER;
        }
        let pages = self.least_limit() / LIMIT_OF_WINDOW / PAGE as u64;
        pages.checked_ilog2().map_or(0, |order| (order as u8).min(WINDOW_ORDER_MAX))
    }

    /// What a fault on the page at `address`, which is away, should bring back of its piece, where the history advises `advised`. Handler only.
    pub(crate) fn readahead(&self, block: &Block, address: usize, advised: Window) -> Readahead {
        let index = page_index(address);
        let mut order = self.largest_order(address, advised.order.min(PIECE_ORDER));
        let first = index & !(PIECE_PAGES - 1);
        let in_store = |page| self.is_in_store(block, page);
        let mut reason = if advised.order > 0 { Reason::InOrder } else { Reason::Touched };
        let mut pages: Pages = 1 << (index - first);
        if reason == Reason::Touched && in_store(index) {
            let neighbours = pages_that(first, |page| page != index && in_store(page));
            if self.allows_order(address, PIECE_ORDER) && self.around.brings(address / PIECE, neighbours) {
                (reason, order) = (Reason::Around, PIECE_ORDER);
                pages |= neighbours;
            }
        }
        let aligned = index & !((1 << order) - 1);
        let window = aligned..aligned + (1 << order);
        if reason == Reason::InOrder {
            pages = pages_that(first, |page| window.contains(&page));
        }
        if let Some(folio) = self.folio_of(block.word(index)) {
            pages |= pages_that(first, |page| self.folio_of(block.word(page)) == Some(folio));
        }
        Readahead { pages, order, walked: advised.order, window, reason }
    }

    /// Where in the swap cache the page's folio waits for its write-back, if it does.
    fn folio_of(&self, word: PageWord) -> Option<u32> {
        match word.state() {
            PageState::Leaving(entry) => self.staging_berth(entry),
            _ => None,
        }
    }
}

/// Those of the piece that begins at page `first` of its block.
fn pages_that(first: usize, wanted: impl Fn(usize) -> bool) -> Pages {
    (0..PIECE_PAGES).fold(0, |pages, page| pages | Pages::from(wanted(first + page)) << page)
}

#[cfg(test)]
mod tests;

//! The pages that come back along with a page: swapin readahead.
//!
//! * Where faults go on from page to page, a growing window (`folioswap_policy::history`).
//! * Out of order, the page alone; or, where that has proven worth it, also the pages of its piece
//!   that are in the compressed store (`folioswap_policy::around`).
//! * Out of the swap cache, where a page costs a copy and no reading: also all pages of its folio
//!   that are still there. One touch then keeps all of the folio, as one accessed page does in the
//!   kernel.

use crate::engine::Engine;
use crate::staging::ring::BerthIndex;
use crate::units::{BLOCK_PAGES, BlockAddr, PAGE, PIECE_ORDER, PIECE_PAGES, PageAddr, PageInBlock, Pages};
use core::ops::Range;
use folioswap_group::folio_orders::{Advised, FolioOrders};
use folioswap_policy::history::{Stride, WINDOW_ORDER_MAX, Window};
use folioswap_policy::page::{Heat, PageState, PageWord};
use folioswap_policy::page_table::Block;

const _: () = assert!(WINDOW_ORDER_MAX as usize == BLOCK_PAGES.ilog2() as usize);

/// A large window may take a 64th of the limit where no smaller one is allowed.
const LIMIT_OF_WINDOW: u64 = 64;

/// The pages that a fault on a page that is away should bring back of its piece.
#[derive(Clone, Debug)]
pub(crate) struct Readahead {
    /// The pages, those that are not away included.
    pub(crate) pages: Pages,
    /// The order of the folio that is read from a device.
    pub(crate) order: u8,
    /// For the history: the order that it advised.
    walked: u8,
    /// For the history: the pages of the block that are its window.
    window: Range<usize>,
    reason: Reason,
}

/// The reason why so many pages come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A page was touched out of order.
    Touched,
    /// A page was touched out of order, and the pages around it are worth bringing.
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

    /// The part of it that lies in the folio of this smaller order that contains page `index` of
    /// the block.
    pub(crate) fn smaller(&self, index: usize, order: u8) -> Self {
        let first = index & !((1 << order) - 1);
        let window = first..first + (1 << order);
        let piece = index & !(PIECE_PAGES - 1);
        let pages = self.pages & pages_that(piece, |page| window.contains(&page));
        Readahead { pages, order, walked: self.walked.min(order), window, reason: self.reason }
    }

    /// Notes in the history that the read-ahead is done.
    pub(crate) fn remember(&self, block: &Block) {
        let order = if self.reason == Reason::InOrder { self.walked } else { 0 };
        block.history.remember(self.window.start, self.window.end, order);
    }

    /// The heat that the return suggests for its pages. A page that was touched out of order is
    /// proven hot, and so are the pages that come along with it, because they are wanted sooner
    /// than those that leave. (The time that a page was away may say otherwise: `workingset.rs`.)
    pub(crate) fn heat(&self) -> Heat {
        match self.reason {
            Reason::Touched | Reason::Around => Heat::Hot,
            Reason::InOrder => Heat::Cold,
        }
    }
}

impl Engine {
    /// The window that a fault at `address`, in `block`, should bring in, as the block's history
    /// advises.
    pub(crate) fn window(&self, block: &Block, address: PageAddr) -> Window {
        let beside = |page: PageAddr| self.table.block(page).map(|block| &block.history);
        let before = || beside(address.before());
        let window = block.history.window(address.index().get(), before, || beside(address.plus(1)));
        let (orders, advised) = self.folio_orders(address);
        let at_most = self.largest_window(orders, advised);
        // A window that grew in steps that are not allowed would never reach the step that is.
        Window { order: orders.nearest_allowed(window.order, at_most, advised), ..window }
    }

    /// The stride that a fault out of order at `address`, in `block`, continues.
    pub(crate) fn stride(&self, block: &Block, address: PageAddr) -> Option<Stride> {
        let beside = |block: BlockAddr| self.table.block(block).map(|block| &block.history);
        let before = || beside(address.block().before());
        block.history.stride(address.index().get(), before, || beside(address.block().plus(1)))
    }

    /// The order of the largest window: 2 MiB, or 64 KiB where the limit is small. Where no size up
    /// to 64 KiB is allowed, as much as a 64th of the limit.
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

    /// The pages that a fault on the page at `address`, which is away, should bring back of its
    /// piece, where the history advises `advised`. Only the handler calls this.
    pub(crate) fn readahead(&self, block: &Block, address: PageAddr, advised: Window) -> Readahead {
        let page = address.index();
        let index = page.get();
        let mut order = self.largest_order(address, advised.order.min(PIECE_ORDER));
        let first = index & !(PIECE_PAGES - 1);
        let in_store = |page| self.is_in_store(block, PageInBlock::new(page));
        let mut reason = if advised.order > 0 { Reason::InOrder } else { Reason::Touched };
        let mut pages: Pages = 1 << (index - first);
        if reason == Reason::Touched && in_store(index) {
            let neighbours = pages_that(first, |page| page != index && in_store(page));
            if self.allows_order(address, PIECE_ORDER)
                && self.around.brings(address.piece().number(), neighbours)
            {
                (reason, order) = (Reason::Around, PIECE_ORDER);
                pages |= neighbours;
            }
        }
        let aligned = index & !((1 << order) - 1);
        let window = aligned..aligned + (1 << order);
        if reason == Reason::InOrder {
            pages = pages_that(first, |page| window.contains(&page));
        }
        if let Some(folio) = self.folio_of(block.word(page)) {
            pages |=
                pages_that(first, |page| self.folio_of(block.word(PageInBlock::new(page))) == Some(folio));
        }
        Readahead { pages, order, walked: advised.order, window, reason }
    }

    /// The berth in the swap cache where the page's folio waits for its write-back, if it does.
    fn folio_of(&self, word: PageWord) -> Option<BerthIndex> {
        match word.state() {
            PageState::Leaving(entry) => self.staging_berth(entry),
            _ => None,
        }
    }
}

/// The pages that are `wanted` of the piece that begins at page `first` of its block.
fn pages_that(first: usize, wanted: impl Fn(usize) -> bool) -> Pages {
    (0..PIECE_PAGES).fold(0, |pages, page| pages | Pages::from(wanted(first + page)) << page)
}

#[cfg(test)]
mod tests;

//! The folio sizes in which memory may come and leave: by the program's advice and the group's
//! options (`run --thp`).

use crate::engine::Engine;
use crate::staging::row::{LONG_PIECES, Rows};
use crate::units::{BLOCK, BlockAddr, PIECE_PAGES, PageAddr, PageInBlock};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::folio_orders::{Advised, FolioOrders};

/// The order of a folio that fills a long row.
const LONG_ORDER: u8 = (LONG_PIECES * PIECE_PAGES).ilog2() as u8;

/// Huge pages are made where the limit is at least this many times as large as one.
const LIMIT_OF_HUGE_PAGE: u64 = 64;

impl Engine {
    /// The program's advice on the memory of this page. Costs a load where the program never gave
    /// any.
    pub(crate) fn advised(&self, page: PageAddr) -> Advised {
        if self.said.huge_advised.load(Relaxed) == 0 {
            return Advised::Nothing;
        }
        let _guard = self.locks.kept.lock();
        let (huge, single) = (&self.said.huge_pages, &self.said.no_huge_pages);
        if huge.covers(page.raw(), page.end()) {
            Advised::HugePages
        } else if single.covers(page.raw(), page.end()) {
            Advised::NoHugePages
        } else {
            Advised::Nothing
        }
    }

    /// Whether the program has asked for huge pages in all of this block.
    pub(crate) fn wants_huge_pages(&self, block: BlockAddr) -> bool {
        let ends = [PageInBlock::FIRST, PageInBlock::LAST];
        ends.iter().all(|&page| self.advised(block.page(page)) == Advised::HugePages)
    }

    /// The folio sizes of the memory of this page, and the program's advice on it.
    pub(crate) fn folio_orders(&self, page: PageAddr) -> (FolioOrders, Advised) {
        (self.decisions().folio_orders(), self.advised(page))
    }

    /// Whether this page may come or leave in folios of this order.
    pub(crate) fn allows_order(&self, page: PageAddr, order: u8) -> bool {
        let (orders, advised) = self.folio_orders(page);
        orders.allows(order, advised)
    }

    /// The largest order, at most `at_most`, in which this page may come or leave.
    pub(crate) fn largest_order(&self, page: PageAddr, at_most: u8) -> u8 {
        let (orders, advised) = self.folio_orders(page);
        orders.largest_allowed(at_most, advised)
    }

    /// The length of the rows that leave from this page on. Rows are long only where 1 MiB may
    /// leave as one folio and 512 KiB may not, because long rows make the evictor's batches longer,
    /// and faults at the limit wait for these. In addition, 1 MiB must be a small part of the
    /// limit, or no smaller folio may leave unsplit.
    pub(crate) fn rows_at(&self, page: PageAddr) -> Rows {
        let (orders, advised) = self.folio_orders(page);
        let is_wanted = orders.allows(LONG_ORDER, advised) && !orders.allows(LONG_ORDER - 1, advised);
        let is_only_one = || orders.largest_allowed(LONG_ORDER - 1, advised) == 0;
        if is_wanted && (self.affords_huge_pages() || is_only_one()) { Rows::Long } else { Rows::Joined }
    }

    /// Whether the group's limit is so large that a huge page more or less does not matter.
    pub(crate) fn affords_huge_pages(&self) -> bool {
        self.least_limit() >= LIMIT_OF_HUGE_PAGE * BLOCK as u64
    }
}

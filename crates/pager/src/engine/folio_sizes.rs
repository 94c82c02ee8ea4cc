//! Which folio sizes memory may come and leave in: what the program advised, and the group's options (`run --thp`).

use crate::engine::Engine;
use crate::staging::row::{LONG_PIECES, Rows};
use crate::units::{BLOCK, PAGE, PIECE_PAGES};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::folio_orders::{Advised, FolioOrders};

/// Order of a folio that fills a long row.
const LONG_ORDER: u8 = (LONG_PIECES * PIECE_PAGES).ilog2() as u8;

/// Huge pages are made where the limit is at least so many times as large.
const LIMIT_OF_WHOLE: u64 = 64;

impl Engine {
    /// What the program has said of the memory at `address`. Costs a load where it never said anything.
    pub(crate) fn advised(&self, address: usize) -> Advised {
        if self.said.huge_advised.load(Relaxed) == 0 {
            return Advised::Nothing;
        }
        let _guard = self.locks.kept.lock();
        // SAFETY: under their lock.
        let (huge, single) = unsafe { (&*self.said.huge_pages.get(), &*self.said.no_huge_pages.get()) };
        if huge.covers(address, address + PAGE) {
            Advised::HugePages
        } else if single.covers(address, address + PAGE) {
            Advised::NoHugePages
        } else {
            Advised::Nothing
        }
    }

    /// Has the program asked for huge pages in the 2 MiB from `start` on?
    pub(crate) fn wants_huge_pages(&self, start: usize) -> bool {
        self.advised(start) == Advised::HugePages && self.advised(start + BLOCK - PAGE) == Advised::HugePages
    }

    /// The sizes of folios of the memory at `address`, and what the program said of it.
    pub(crate) fn folio_orders(&self, address: usize) -> (FolioOrders, Advised) {
        (self.segment().folio_orders(), self.advised(address))
    }

    /// May memory at `address` come or leave in folios of this order?
    pub(crate) fn allows_order(&self, address: usize, order: u8) -> bool {
        let (orders, advised) = self.folio_orders(address);
        orders.allows(order, advised)
    }

    /// The largest order, `at_most` at most, in which memory at `address` may come or leave.
    pub(crate) fn largest_order(&self, address: usize, at_most: u8) -> u8 {
        let (orders, advised) = self.folio_orders(address);
        orders.largest_allowed(at_most, advised)
    }

    /// How long rows of what is taken out at `address` become. Long ones only where 1 MiB may leave as a whole and 512 KiB may not: batches of the
    /// evictor become longer with them, for which faults at the limit wait. And where 1 MiB is a small part of the limit, or nothing smaller
    /// may leave as a whole.
    pub(crate) fn rows_at(&self, address: usize) -> Rows {
        let (orders, advised) = self.folio_orders(address);
        let is_wanted = orders.allows(LONG_ORDER, advised) && !orders.allows(LONG_ORDER - 1, advised);
        let is_only_one = || orders.largest_allowed(LONG_ORDER - 1, advised) == 0;
        if is_wanted && (self.affords_huge_pages() || is_only_one()) { Rows::Long } else { Rows::Joined }
    }

    /// Is the group's limit so large that a huge page more or less does not matter?
    pub(crate) fn affords_huge_pages(&self) -> bool {
        self.least_limit() >= LIMIT_OF_WHOLE * BLOCK as u64
    }
}

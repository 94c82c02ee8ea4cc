//! The folio sizes in which memory may come and leave: by the program's advice and the group's
//! options (`run --thp`).

use crate::engine::Engine;
use crate::staging::row::{LONG_PIECES, Rows};
use crate::units::{BLOCK, PAGE, PIECE_PAGES};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::folio_orders::{Advised, FolioOrders};

/// The order of a folio that fills a long row.
const LONG_ORDER: u8 = (LONG_PIECES * PIECE_PAGES).ilog2() as u8;

/// Huge pages are made where the limit is at least this many times as large as one.
const LIMIT_OF_WHOLE: u64 = 64;

impl Engine {
    /// The program's advice on the memory at `address`. Costs a load where the program never gave
    /// any.
    pub(crate) fn advised(&self, address: usize) -> Advised {
        if self.said.huge_advised.load(Relaxed) == 0 {
            return Advised::Nothing;
        }
        let _guard = self.locks.kept.lock();
        // SAFETY: under the lock of both sets.
        let (huge, single) = unsafe { (&*self.said.huge_pages.get(), &*self.said.no_huge_pages.get()) };
        if huge.covers(address, address + PAGE) {
            Advised::HugePages
        } else if single.covers(address, address + PAGE) {
            Advised::NoHugePages
        } else {
            Advised::Nothing
        }
    }

    /// Whether the program has asked for huge pages in the 2 MiB from `start` on.
    pub(crate) fn wants_huge_pages(&self, start: usize) -> bool {
        self.advised(start) == Advised::HugePages && self.advised(start + BLOCK - PAGE) == Advised::HugePages
    }

    /// The folio sizes of the memory at `address`, and the program's advice on it.
    pub(crate) fn folio_orders(&self, address: usize) -> (FolioOrders, Advised) {
        (self.segment().folio_orders(), self.advised(address))
    }

    /// Whether memory at `address` may come or leave in folios of this order.
    pub(crate) fn allows_order(&self, address: usize, order: u8) -> bool {
        let (orders, advised) = self.folio_orders(address);
        orders.allows(order, advised)
    }

    /// The largest order, at most `at_most`, in which memory at `address` may come or leave.
    pub(crate) fn largest_order(&self, address: usize, at_most: u8) -> u8 {
        let (orders, advised) = self.folio_orders(address);
        orders.largest_allowed(at_most, advised)
    }

    /// The length of the rows that leave from `address` on. Rows are long only where 1 MiB may
    /// leave as one folio and 512 KiB may not, because long rows make the evictor's batches longer,
    /// and faults at the limit wait for these. In addition, 1 MiB must be a small part of the
    /// limit, or no smaller folio may leave unsplit.
    pub(crate) fn rows_at(&self, address: usize) -> Rows {
        let (orders, advised) = self.folio_orders(address);
        let is_wanted = orders.allows(LONG_ORDER, advised) && !orders.allows(LONG_ORDER - 1, advised);
        let is_only_one = || orders.largest_allowed(LONG_ORDER - 1, advised) == 0;
        if is_wanted && (self.affords_huge_pages() || is_only_one()) { Rows::Long } else { Rows::Joined }
    }

    /// Whether the group's limit is so large that a huge page more or less does not matter.
    pub(crate) fn affords_huge_pages(&self) -> bool {
        self.least_limit() >= LIMIT_OF_WHOLE * BLOCK as u64
    }
}

//! The outcome of one batch of eviction.

use crate::staging::isolation::{Isolation, Refused};

/// The number of pages that one batch isolates, and as many that it writes back.
pub(crate) const BATCH_PAGES: u64 = 128;

/// A row or a batch counts as scattered when one move takes fewer pages than this on average.
const SCATTERED_RUN: u64 = 4;

/// The outcome of one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    /// Pages that left the program. (`moves` counts the moves that these took.)
    pub(crate) isolated: u64,
    pub(crate) moves: u64,
    /// Pages that the handler is to move out; `None` where the evictor moves candidates at once.
    pub(crate) planned: Option<u64>,
    /// Pages (clean ones included) and folios that left staging.
    pub(crate) written: u64,
    pub(crate) folios: u64,
    pub(crate) shared: u64,
    pub(crate) event_pending: bool,
    /// Staging had no free berth for a page that was found.
    pub(crate) staging_full: bool,
    pub(crate) stuck: bool,
}

impl Batch {
    pub(crate) fn note(&mut self, isolation: &Isolation) {
        self.isolated += isolation.moved.count_ones() as u64;
        self.moves += isolation.moves;
        self.event_pending |= isolation.refused == Some(Refused::EventPending);
    }

    /// The number of pages that were found.
    pub(crate) fn found(&self) -> u64 {
        self.isolated + self.planned.unwrap_or(0)
    }
}

/// How present pages lie in the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scattered {
    /// Many side by side: the cost of a move is its pages.
    No,
    /// Single pages here and there: the cost of a move is the invalidation of other CPUs' TLBs.
    Yes,
}

impl Scattered {
    /// The verdict on this many pages that this many moves take.
    pub(crate) fn of(pages: u64, moves: u64) -> Self {
        if pages < SCATTERED_RUN * moves { Scattered::Yes } else { Scattered::No }
    }
}

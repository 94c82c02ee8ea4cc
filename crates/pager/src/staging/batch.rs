//! The outcome of one batch of eviction.

use crate::staging::isolation::{Isolation, Refused};

/// Pages isolated in one batch, and as many written back.
pub(crate) const BATCH_PAGES: u64 = 128;

/// Pages that one move takes, on average, below which a row or a batch counts as scattered.
const SCATTERED_RUN: u64 = 4;

/// What one batch achieved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    /// Pages that left the program, and how many moves that took.
    pub(crate) isolated: u64,
    pub(crate) moves: u64,
    /// Pages that are to leave by the handler's hand; `None`: what is found leaves at once.
    pub(crate) planned: Option<u64>,
    /// Pages (clean ones included) and folios that left staging.
    pub(crate) written: u64,
    pub(crate) folios: u64,
    pub(crate) shared: u64,
    pub(crate) event_pending: bool,
    /// There was no room in staging for what was found.
    pub(crate) staging_full: bool,
    pub(crate) stuck: bool,
}

impl Batch {
    pub(crate) fn note(&mut self, isolation: &Isolation) {
        self.isolated += isolation.moved.count_ones() as u64;
        self.moves += isolation.moves;
        self.event_pending |= isolation.refused == Some(Refused::EventPending);
    }

    /// Pages that were found.
    pub(crate) fn found(&self) -> u64 {
        self.isolated + self.planned.unwrap_or(0)
    }
}

/// How present pages lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scattered {
    /// Many in a row: what a move costs is its pages.
    No,
    /// Single ones here and there: what a move costs is the invalidation of other CPUs' TLBs.
    Yes,
}

impl Scattered {
    /// So many pages, which that many moves take.
    pub(crate) fn of(pages: u64, moves: u64) -> Self {
        if pages < SCATTERED_RUN * moves { Scattered::Yes } else { Scattered::No }
    }
}

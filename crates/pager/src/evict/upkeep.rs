//! The evictor's upkeep, when nothing is short: recompression, compaction, validation.

use crate::engine::due::Due;
use crate::store::recompress::Rounds;

/// When each kind of upkeep is due.
pub(crate) struct Upkeep {
    pub(crate) recompression: Rounds,
    pub(crate) compact_due: Due,
    pub(crate) validation_next_ns: u64,
    /// Where a sweep goes on.
    pub(crate) sweep_at: usize,
}

impl Upkeep {
    pub(crate) const fn new() -> Self {
        Upkeep {
            recompression: Rounds::new(),
            compact_due: Due::at_once(),
            validation_next_ns: 0,
            sweep_at: 0,
        }
    }
}

//! The size of an embedder's managed memory, as the evictor measures it.

use crate::evict::evictor::Evictor;
use crate::kernel::sys;
use folioswap_group::counters::Gauge;

/// The least time between two counts of resident pages, and how many times longer than the last
/// count it is.
const COUNT_NS: u64 = 200_000_000;

const COUNT_PACE: u64 = 50;

impl Evictor {
    /// The bytes that an embedder's limit counts: managed memory, staging, spare huge pages, store
    /// and tables.
    pub(crate) fn measure_managed(&mut self, now: u64) -> u64 {
        let engine = self.engine;
        let embedded = &engine.embedded;
        if now >= self.survey.count_next_ns {
            let before = embedded.managed_pages();
            let counted = engine.count_managed();
            embedded.correct(counted - before);
            let done = sys::now_ns();
            self.survey.count_next_ns = done + ((done - now) * COUNT_PACE).max(COUNT_NS);
        }
        let staged = self.staging().held_bytes();
        engine.managed_bytes() + staged + engine.pool.bytes() + engine.own_bytes()
    }

    /// Publishes the embedder's memory, without the engine's own.
    pub(crate) fn publish_managed(&self) {
        self.engine.figures().set(Gauge::Resident, self.engine.managed_bytes());
    }
}

//! What the evictor measures of an embedder's managed memory.

use crate::evict::evictor::Evictor;
use crate::kernel::sys;
use folioswap_group::counters::Gauge;

/// Between two counts of what is resident, at least, and how many times longer than the last one took.
const COUNT_NS: u64 = 200_000_000;

const COUNT_PACE: u64 = 50;

impl Evictor {
    /// What an embedder's limit counts, in bytes: managed memory, what waits in staging, spare huge pages, store and tables.
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

    /// The gauge is what the embedder has, without the engine's own.
    pub(crate) fn publish_managed(&self) {
        self.engine.figures().set(Gauge::Resident, self.engine.managed_bytes());
    }
}

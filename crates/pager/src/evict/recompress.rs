//! When the evictor recompresses idle pages (`store/recompress.rs` does it).

use crate::evict::evictor::Evictor;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::store::recompress::{IDLE_NS, Idle, PROCESSOR_PART, REST_MIN_NS, STORED_MIN};
use folioswap_group::counters::Counter;
use folioswap_group::decisions::Scope;

impl Evictor {
    /// Recompresses some idle pages, when it is time. The caller holds the gate and has nothing
    /// else to do. Returns how long the evictor may sleep, in nanoseconds.
    pub(crate) fn recompress_idle(&mut self) -> u64 {
        let engine = self.engine;
        let stored = engine.space.mm_stat().compr_data_size;
        if engine.decisions().scope() == Scope::Resident || stored < STORED_MIN || engine.shares_memory() {
            return u64::MAX;
        }
        let now = sys::now_ns();
        let rounds = &mut self.upkeep.recompression;
        let (written, young) = (engine.figures().counter(Counter::PagesOut), engine.space.ages().young());
        let idle = rounds.idle.get_or_insert(Idle::since(now, written, young));
        let before = idle.look(now, written, young);
        if rounds.ended == Some(written) {
            return u64::MAX;
        }
        if now < rounds.next_ns {
            return rounds.next_ns - now;
        }
        let step = engine.recompress(rounds, before);
        let took = sys::now_ns() - now;
        let members = engine.group().live_members().count().max(1) as u64;
        let mut rest = (took * (PROCESSOR_PART * members - 1)).max(REST_MIN_NS);
        if step.is_round {
            rest = rest.max(IDLE_NS);
            let is_over = core::mem::take(&mut rounds.tried) == 0 && young.is_older_than(before);
            rounds.ended = is_over.then_some(written);
            if core::mem::take(&mut rounds.this_round) > 0 {
                engine.space.trim();
                futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
            }
        }
        rounds.next_ns = now + took + rest;
        rest
    }
}

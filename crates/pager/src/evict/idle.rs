//! An idle process is looked at as often as another, because it may begin to touch memory at any
//! time; but between two rounds its evictor looks at the process's size alone. A round also sums up
//! what all members of the group have: in a group of 500 that was half of its cost.

use crate::engine::threads::Life;
use crate::evict::evictor::Evictor;
use crate::evict::measure::IDLE_NS;
use crate::kernel::proc::{parse_statm, read_proc};
use crate::kernel::sys;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::decisions::GroupState;

/// The time between two rounds of an idle process, and that for which every pass is a whole one
/// once a member has come near the limit.
const ROUND_NS: u64 = 250_000_000;

/// What the evictor remembers of its last round.
#[derive(Clone, Copy)]
pub(crate) struct LastRound {
    /// The time of it, in nanoseconds.
    at_ns: u64,
    /// The sleep that it ended with, in nanoseconds.
    sleep_ns: u64,
    /// The wake word before it.
    wake: u32,
}

impl LastRound {
    /// Notes a round that began when the wake word was `wake`, and ends now with a sleep.
    pub(crate) fn new(wake: u32, sleep_ns: u64) -> Self {
        LastRound { at_ns: sys::now_ns(), sleep_ns, wake }
    }
}

impl Evictor {
    /// Returns how long the evictor may sleep on, in nanoseconds, if nothing has changed since
    /// `last` that asks for a round: nobody has woken it, the process is idle, has the size that it
    /// had, and is not near the limit. Cost: one small file of `/proc`.
    pub(crate) fn may_sleep_on(&mut self, last: LastRound) -> Option<u64> {
        let engine = self.engine;
        let now = sys::now_ns();
        let rests = engine.life() == Life::Running
            && !engine.is_engaged()
            && !engine.embedded.is_on()
            // Writes to pages that relatives share change no size.
            && !engine.fork.has_relatives()
            && now >= engine.segment().header.near_limit_ns.load(Relaxed).saturating_add(ROUND_NS)
            && engine.member().wake.load(Relaxed) == last.wake
            && engine.mappings.scan_wanted.load(Relaxed) == 0
            && engine.decisions().state() == GroupState::Running
            && self.survey.idle_ns(now) > IDLE_NS
            && now < last.at_ns + ROUND_NS;
        if !rests {
            return None;
        }
        let size = parse_statm(read_proc(engine.descriptors.statm.load(Relaxed), &mut self.survey.text))?;
        (size == self.survey.size).then_some(last.sleep_ns)
    }
}

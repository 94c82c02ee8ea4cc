//! The decision that a group is out of memory: it is at its limit, no member has anything left to
//! give, and nothing changes; or it only crawls ([`crawl`](crate::reclaim::crawl)).
//!
//! Time alone proves nothing: on a loaded machine an evictor that has work to do may not run for
//! seconds.

use crate::reclaim::crawl::{Crawl, Fill, Patience};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::group::Group;
use folioswap_group::nested::Bound;
use folioswap_group::sums::saturating_sum;

/// How long the group must be at its limit without any progress anywhere.
const STUCK_NS: u64 = 3_000_000_000;
/// How often, in [`STUCK_NS`], an evictor must have found that no member had anything left to give.
const WITNESSES: u32 = 100;

/// The situation that an evictor sees after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The group is below its limit, a fault was served, or something was taken.
    Progress,
    /// Some member has something left to give, and may only not have run.
    Waiting,
    /// No member has anything left to give.
    NothingLeft,
}

/// The observations of an evictor since the last progress.
#[derive(Clone, Copy, Debug)]
pub struct Standstill {
    since_ns: u64,
    witnesses: u32,
    /// Faults that the group had served at the last look.
    served: u64,
    crawl: Crawl,
}

impl Standstill {
    /// Creates the state before the first observation.
    pub const fn new(now_ns: u64) -> Self {
        Standstill { since_ns: now_ns, witnesses: 0, served: 0, crawl: Crawl::new() }
    }

    /// Looks at the group of this limit in `shared`, after `freed` bytes were taken.
    ///
    /// Only the certain charge counts here. Bytes that may be counted twice keep faults waiting
    /// until a member has measured, but are no reason to end anything.
    pub fn look(&mut self, shared: Group<'_>, bound: Bound, freed: u64) -> Sight {
        let members = shared.members_within(bound.group);
        let served = saturating_sum(members.map(|member| member.figures.faults_served()));
        let is_certain = shared.certain_charge_within(bound.group) >= bound.limit;
        if !bound.is_reached() || freed > 0 || served != self.served || !is_certain {
            self.served = served;
            return Sight::Progress;
        }
        if nothing_is_evictable(shared, bound.group) { Sight::NothingLeft } else { Sight::Waiting }
    }

    /// Notes how full the group was at the [`Standstill::look`] before, and returns whether it only
    /// crawls: there is no hope left. Then the observation begins anew.
    pub fn crawls(&mut self, fill: Fill, now_ns: u64) -> bool {
        self.crawl.look(fill, self.served, now_ns);
        let crawls = self.crawl.exceeds(Patience::MEMBER, now_ns);
        if crawls {
            self.crawl = Crawl::new();
        }
        crawls
    }

    fn begin_anew(&mut self, now_ns: u64) {
        (self.since_ns, self.witnesses) = (now_ns, 0);
    }

    /// Records a sight and returns whether there is no hope left. Then the observation begins anew.
    pub fn is_final(&mut self, sight: Sight, now_ns: u64) -> bool {
        match sight {
            Sight::Progress => self.begin_anew(now_ns),
            Sight::Waiting => {}
            Sight::NothingLeft => self.witnesses += 1,
        }
        let is_final = self.witnesses >= WITNESSES && now_ns.saturating_sub(self.since_ns) > STUCK_NS;
        if is_final {
            self.begin_anew(now_ns);
        }
        is_final
    }
}

/// The bytes that the members of a group in `shared` could take out, as last measured.
pub fn swappable_bytes(shared: Group<'_>, group: u32) -> u64 {
    saturating_sum(shared.members_within(group).map(|member| member.evictable_bytes.load(Relaxed)))
}

/// Whether no member of a group in `shared` has anything left to give, as last measured.
pub fn nothing_is_evictable(shared: Group<'_>, group: u32) -> bool {
    shared.members_within(group).all(|member| member.evictable_bytes.load(Relaxed) == 0)
}

#[cfg(test)]
mod tests;

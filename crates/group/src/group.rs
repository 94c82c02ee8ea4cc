//! Both memories of a group together: the decisions, and the segment with the figures that its
//! members publish.

use crate::decisions::{Decisions, Scope};
use crate::seat::Seat;
use crate::segment::{Member, Segment};
use crate::sharing;
use crate::sums::saturating_sum;
use core::sync::atomic::Ordering::Relaxed;

/// A group, as its owner and each of its members see it. Which entries are in use, and which limits
/// hold, is read from the decisions; what the members take, from the segment.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    /// The words that its owner writes.
    pub decisions: &'a Decisions,
    /// The words that its members write.
    pub segment: &'a Segment,
}

impl<'a> Group<'a> {
    /// The live members, each with its seat. Cost: a load per seat.
    pub fn taken(self) -> impl Iterator<Item = (&'a Seat, &'a Member)> {
        self.decisions.seats_in_use().iter().zip(&self.segment.members).filter(|(seat, _)| seat.is_live())
    }

    /// The live members. Cost: a load per seat.
    pub fn live_members(self) -> impl Iterator<Item = &'a Member> {
        self.taken().map(|(_, member)| member)
    }

    /// Sum of the bytes that all members, the unmanaged rest and devices in memory count towards
    /// the limit. Memory that members share is counted once, and rather too high than too low
    /// ([`sharing`]). Cost: a few loads per member.
    pub fn charge_bytes(self) -> u64 {
        let unfound = self.live_members().map(|member| member.unfound_bytes.load(Relaxed));
        let uncertain = sharing::uncertain_bytes(&self.segment.header, self.live_members());
        saturating_sum(unfound.chain([self.certain_charge_bytes(), uncertain]))
    }

    /// The measured part of [`Group::charge_bytes`]: without bytes that may be counted twice, or
    /// may be gone, until the next measurement. The decision to end the group uses this value.
    /// Cost: as there.
    pub fn certain_charge_bytes(self) -> u64 {
        let devices = match self.decisions.scope() {
            Scope::Total => self.decisions.device_bytes(),
            Scope::Resident => 0,
        };
        let unmanaged = self.decisions.unmanaged_bytes();
        saturating_sum(self.live_members().map(Member::charge).chain([unmanaged, devices]))
    }

    /// Bytes that all members are about to take in at once. Cost: a few loads per member.
    pub fn announced_bytes(self) -> u64 {
        saturating_sum(self.live_members().map(|member| member.announced_bytes.load(Relaxed)))
    }

    /// Faults that all members together have served. Cost: two loads per member.
    pub fn faults_served(self) -> u64 {
        saturating_sum(self.live_members().map(|member| member.figures.faults_served()))
    }
}

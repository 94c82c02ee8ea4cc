//! Groups within the group, each with a limit of its own: what a member takes counts towards its own group's limit and towards those of all groups
//! around it, up to the whole. Only an embedder makes such groups; elsewhere every member is in the whole, number 0.

use crate::segment::{Member, Segment};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Groups that there can be within one, at a time; number 0 is the whole.
pub const GROUPS_MAX: usize = 64;
/// How deep they can be nested in each other, the whole included.
pub const DEPTH_MAX: usize = 8;
/// The number of the whole.
pub const WHOLE: u32 = 0;

/// One group's place. Written by whoever makes and ends groups, under a lock of his; read by members.
#[repr(C)]
#[derive(Debug)]
pub struct Group {
    /// In bytes; 0: nobody's place.
    pub limit_bytes: AtomicU64,
    /// What counts towards it besides its members, and those of the groups within it: memory of devices, and what is set aside.
    pub outside_bytes: AtomicU64,
    /// The group around it.
    pub parent: AtomicU32,
}

/// A limit that holds for a member, and what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Whose limit it is.
    pub group: u32,
    /// In bytes.
    pub limit: u64,
    /// What counts towards it, in bytes.
    pub charge: u64,
}

impl Bound {
    /// Is the limit reached?
    pub const fn is_reached(&self) -> bool {
        self.charge >= self.limit
    }

    /// How far beyond the limit it is; what is left of it is negative.
    const fn excess(&self) -> i128 {
        self.charge as i128 - self.limit as i128
    }
}

impl Segment {
    /// Makes a group of this limit within another. `None`: there are [`GROUPS_MAX`] already, or they are [`DEPTH_MAX`] deep. For the one who
    /// writes groups.
    pub fn begin_group(&self, parent: u32, limit_bytes: u64) -> Option<u32> {
        if self.around(parent).count() >= DEPTH_MAX {
            return None;
        }
        let mut places = self.groups.iter().enumerate().skip(1);
        let (number, group) = places.find(|(_, group)| group.limit_bytes.load(Relaxed) == 0)?;
        group.outside_bytes.store(0, Relaxed);
        group.parent.store(parent, Relaxed);
        group.limit_bytes.store(limit_bytes, Release);
        Some(number as u32)
    }

    /// Frees the place of a group, in which there is no member and no group any more. For the one who writes groups.
    pub fn end_group(&self, group: u32) {
        self.groups[group as usize].limit_bytes.store(0, Relaxed);
    }

    /// A group and those around it, from the inside out; the whole comes last.
    pub fn around(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let outer =
            |group: &u32| (*group != WHOLE).then(|| self.groups[*group as usize].parent.load(Relaxed));
        core::iter::successors(Some(group), outer).take(DEPTH_MAX)
    }

    /// Is a group another, or somewhere within it?
    pub fn is_within(&self, group: u32, outer: u32) -> bool {
        outer == WHOLE || self.around(group).any(|number| number == outer)
    }

    /// The live members of a group and of those within it. Cost: some loads per member.
    pub fn members_within(&self, outer: u32) -> impl Iterator<Item = &Member> {
        self.live_members().filter(move |member| self.is_within(member.group.load(Relaxed), outer))
    }

    /// The limit of a group, in bytes.
    pub fn limit_of(&self, group: u32) -> &AtomicU64 {
        match group {
            WHOLE => &self.header.limit_bytes,
            group => &self.groups[group as usize].limit_bytes,
        }
    }

    /// What counts towards the limit of a group, in bytes. Cost: some loads per member.
    pub fn charge_within(&self, group: u32) -> u64 {
        if group == WHOLE {
            return self.charge_bytes();
        }
        let members: u64 = self.members_within(group).map(Member::charge).sum();
        members + self.groups[group as usize].outside_bytes.load(Relaxed)
    }

    /// The part of [`Segment::charge_within`] that was measured: see [`Segment::certain_charge_bytes`].
    pub fn certain_charge_within(&self, group: u32) -> u64 {
        if group == WHOLE { self.certain_charge_bytes() } else { self.charge_within(group) }
    }

    /// Memory outside of members begins to count towards a group and those around it, but for the whole, which the header has for it.
    pub fn charge_outside(&self, group: u32, bytes: u64) {
        self.around(group).filter(|&group| group != WHOLE).for_each(|group| {
            self.groups[group as usize].outside_bytes.fetch_add(bytes, Relaxed);
        });
    }

    /// The opposite of [`Segment::charge_outside`].
    pub fn uncharge_outside(&self, group: u32, bytes: u64) {
        self.around(group).filter(|&group| group != WHOLE).for_each(|group| {
            self.groups[group as usize].outside_bytes.fetch_sub(bytes, Relaxed);
        });
    }

    /// The limits that hold for a member, from the inside out. Cost: as [`Segment::charge_within`] for each.
    pub fn bounds(&self, member: &Member) -> impl Iterator<Item = Bound> + '_ {
        self.around(member.group.load(Acquire)).map(|group| Bound {
            group,
            limit: self.limit_of(group).load(Relaxed),
            charge: self.charge_within(group),
        })
    }

    /// The one of them that leaves the least room.
    pub fn tightest(&self, member: &Member) -> Bound {
        let whole = || Bound {
            group: WHOLE,
            limit: self.header.limit_bytes.load(Relaxed),
            charge: self.charge_bytes(),
        };
        if member.group.load(Relaxed) == WHOLE {
            return whole();
        }
        self.bounds(member).max_by_key(Bound::excess).unwrap_or_else(whole)
    }

    /// The least limit that holds for a member, in bytes.
    pub fn least_limit(&self, member: &Member) -> u64 {
        let limits = self.around(member.group.load(Relaxed)).map(|group| self.limit_of(group).load(Relaxed));
        limits.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    fn segment() -> Box<Segment> {
        // SAFETY: all-zero is a valid segment.
        let segment = unsafe { Box::<Segment>::new_zeroed().assume_init() };
        segment.header.limit_bytes.store(100, Relaxed);
        segment
    }

    fn member(segment: &Segment, group: u32, charge: u64) -> u32 {
        let id = segment.assign(1).unwrap();
        segment.members[id as usize].group.store(group, Relaxed);
        segment.members[id as usize].charge_bytes.store(charge, Relaxed);
        id
    }

    #[test]
    fn what_a_member_takes_counts_in_all_groups_around_it() {
        let segment = segment();
        let outer = segment.begin_group(WHOLE, 60).unwrap();
        let inner = segment.begin_group(outer, 20).unwrap();
        let beside = segment.begin_group(WHOLE, 30).unwrap();
        let ids = [(WHOLE, 1), (outer, 10), (inner, 15), (beside, 5)];
        let ids = ids.map(|(group, charge)| member(&segment, group, charge));
        let charges = [WHOLE, outer, inner, beside].map(|group| segment.charge_within(group));
        assert_eq!(charges, [31, 25, 15, 5]);
        segment.charge_outside(inner, 4);
        segment.header.unmanaged_bytes.store(4, Relaxed);
        let charges = [WHOLE, outer, inner, beside].map(|group| segment.charge_within(group));
        assert_eq!(charges, [35, 29, 19, 5]);
        segment.uncharge_outside(inner, 4);
        assert_eq!(segment.charge_within(outer), 25);
        assert!(segment.is_within(inner, outer) && segment.is_within(inner, WHOLE));
        assert!(!segment.is_within(outer, inner) && !segment.is_within(beside, outer));
        assert_eq!(segment.members_within(outer).count(), 2);
        assert_eq!(segment.members[ids[0] as usize].group.load(Relaxed), WHOLE);
    }

    #[test]
    fn the_limit_that_leaves_the_least_room_holds() {
        let segment = segment();
        let outer = segment.begin_group(WHOLE, 60).unwrap();
        let inner = segment.begin_group(outer, 20).unwrap();
        let [whole, in_outer, in_inner] = [(WHOLE, 0), (outer, 0), (inner, 15)]
            .map(|(group, charge)| &segment.members[member(&segment, group, charge) as usize]);
        assert_eq!(segment.tightest(in_inner), Bound { group: inner, limit: 20, charge: 15 });
        in_outer.charge_bytes.store(42, Relaxed);
        assert_eq!(segment.tightest(in_inner), Bound { group: outer, limit: 60, charge: 57 });
        assert_eq!(segment.tightest(in_outer).group, outer);
        whole.charge_bytes.store(50, Relaxed);
        assert_eq!(segment.tightest(in_inner), Bound { group: WHOLE, limit: 100, charge: 107 });
        assert!(segment.tightest(whole).is_reached());
        assert_eq!([whole, in_outer, in_inner].map(|member| segment.least_limit(member)), [100, 60, 20]);
    }

    #[test]
    fn places_are_used_again_and_have_an_end() {
        let segment = segment();
        let all: Vec<_> = (1..GROUPS_MAX).map(|_| segment.begin_group(WHOLE, 1).unwrap()).collect();
        assert_eq!(segment.begin_group(WHOLE, 1), None);
        segment.end_group(all[7]);
        assert_eq!(segment.begin_group(WHOLE, 1), Some(all[7]));
        let segment = self::segment();
        let mut deepest = WHOLE;
        for _ in 1..DEPTH_MAX {
            deepest = segment.begin_group(deepest, 1).unwrap();
        }
        assert_eq!(segment.begin_group(deepest, 1), None, "too deep");
        assert_eq!(segment.around(deepest).count(), DEPTH_MAX);
        assert_eq!(segment.around(deepest).last(), Some(WHOLE));
    }
}

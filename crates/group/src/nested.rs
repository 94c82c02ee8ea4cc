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
mod tests;

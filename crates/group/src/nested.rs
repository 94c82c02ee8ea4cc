//! Groups within the group, each with a limit of its own. A member's memory counts towards the
//! limit of its own group and of all groups around it, up to the root. Only an embedder makes such
//! groups; elsewhere every member is in the root, number 0.
//!
//! The entries are decisions, because a limit is one, and the number of a member's group is in its
//! [`Seat`].

use crate::decisions::{Decisions, DecisionsWriter};
use crate::group::Group;
use crate::seat::Seat;
use crate::segment::Member;
use crate::sums::saturating_sum;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

/// Most groups at a time; number 0 is the root.
pub const GROUPS_MAX: usize = 64;
/// Deepest nesting of groups, the root included.
pub const DEPTH_MAX: usize = 8;
/// The number of the root group.
pub const WHOLE: u32 = 0;

/// One group's entry. Written by the thread that makes and ends groups, under a lock of its own;
/// read by members, through the methods of [`Decisions`] and [`Group`].
#[repr(C)]
#[derive(Debug)]
pub struct NestedGroup {
    /// The limit in bytes; 0: the entry is unused.
    limit_bytes: AtomicU64,
    /// Bytes that count towards the limit besides those of its members and of the groups within it:
    /// memory of devices, and reserved memory.
    outside_bytes: AtomicU64,
    /// The group around it.
    parent: AtomicU32,
    /// The devices that take none of its new pages, a bit each.
    masked_devices: AtomicU32,
}

/// The number of a group as it was read: any number that names no entry means the root, so that a
/// wrong word moves a member and ends nothing.
pub(crate) const fn known(group: u32) -> u32 {
    if (group as usize) < GROUPS_MAX { group } else { WHOLE }
}

/// A limit that holds for a member, and the charge with which it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The group whose limit it is.
    pub group: u32,
    /// The limit in bytes.
    pub limit: u64,
    /// Bytes that count towards it.
    pub charge: u64,
}

impl Bound {
    /// Whether the limit is reached.
    pub const fn is_reached(&self) -> bool {
        self.charge >= self.limit
    }

    /// Bytes beyond the limit; negative below it.
    const fn excess(&self) -> i128 {
        self.charge as i128 - self.limit as i128
    }
}

impl DecisionsWriter<'_> {
    /// Makes a group with this limit, in bytes, within another. `None`: there are [`GROUPS_MAX`]
    /// already, or they are [`DEPTH_MAX`] deep. Only the thread that makes groups calls it.
    pub fn begin_group(self, parent: u32, limit_bytes: u64) -> Option<u32> {
        let decisions = self.decisions();
        if decisions.around(parent).count() >= DEPTH_MAX {
            return None;
        }
        let mut places = decisions.groups.iter().enumerate().skip(1);
        let (number, group) = places.find(|(_, group)| group.limit_bytes.load(Relaxed) == 0)?;
        group.outside_bytes.store(0, Relaxed);
        group.parent.store(parent, Relaxed);
        group.masked_devices.store(0, Relaxed);
        group.limit_bytes.store(limit_bytes, Release);
        Some(number as u32)
    }

    /// Frees the entry of a group that has no members and no groups within it. Only the thread that
    /// makes groups calls it.
    pub fn end_group(self, group: u32) {
        if let Some(group) = self.decisions().nested(group) {
            group.limit_bytes.store(0, Relaxed);
        }
    }

    /// Puts a member into a nested group. For the thread that makes the member, before the member's
    /// threads begin; a number that no seat has changes nothing.
    pub fn set_group(self, member: u32, group: u32) {
        if let Some(seat) = self.decisions().seat(member) {
            seat.set_group(group);
        }
    }

    /// Changes the limit of a group. Only the thread that makes groups calls it; a number that
    /// names no group changes nothing.
    pub fn set_limit_of(self, group: u32, bytes: u64) {
        if group == WHOLE {
            self.set_limit_bytes(bytes);
        } else if let Some(entry) = self.decisions().nested(group) {
            entry.limit_bytes.store(bytes, Relaxed);
        }
    }

    /// Sets the devices, a bit each, that take none of a group's new pages, nor those of the groups
    /// within it. Pages that are there stay. The caller wakes the members. A number that names no
    /// group changes nothing.
    pub fn set_masked_devices_of(self, group: u32, devices: u32) {
        let decisions = self.decisions();
        let masked = match decisions.nested(group) {
            Some(entry) => &entry.masked_devices,
            None if group == WHOLE => &decisions.masked_devices,
            None => return,
        };
        masked.store(devices, Relaxed);
        self.devices_have_changed();
    }

    /// Charges memory outside of members to a group and those around it, except the root, which has
    /// [`unmanaged_bytes`](Decisions::unmanaged_bytes) and
    /// [`device_bytes`](Decisions::device_bytes) for it.
    pub fn charge_outside(self, group: u32, bytes: u64) {
        let decisions = self.decisions();
        decisions.around(group).filter_map(|group| decisions.nested(group)).for_each(|entry| {
            entry.outside_bytes.fetch_add(bytes, Relaxed);
        });
    }

    /// The inverse of [`DecisionsWriter::charge_outside`].
    pub fn uncharge_outside(self, group: u32, bytes: u64) {
        let decisions = self.decisions();
        decisions.around(group).filter_map(|group| decisions.nested(group)).for_each(|entry| {
            entry.outside_bytes.fetch_sub(bytes, Relaxed);
        });
    }
}

impl Decisions {
    /// The entry of a nested group; `None` for the root, and for a number that names no group.
    fn nested(&self, group: u32) -> Option<&NestedGroup> {
        if group == WHOLE { None } else { self.groups.get(group as usize) }
    }

    /// A group and those around it, from the inside out; the root comes last. Every number is below
    /// [`GROUPS_MAX`], and there are at most [`DEPTH_MAX`], whatever the entries say.
    pub fn around(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        let outer = |group: &u32| self.nested(*group).map(|entry| known(entry.parent.load(Relaxed)));
        core::iter::successors(Some(known(group)), outer).take(DEPTH_MAX)
    }

    /// Whether a group is `outer`, or somewhere within it.
    pub fn is_within(&self, group: u32, outer: u32) -> bool {
        outer == WHOLE || self.around(group).any(|number| number == outer)
    }

    /// The limit of a group, in bytes; `u64::MAX` for a number that names no group, since nothing
    /// is bounded by it.
    pub fn limit_of(&self, group: u32) -> u64 {
        if group == WHOLE {
            return self.limit_bytes();
        }
        match self.nested(group).map_or(0, |entry| entry.limit_bytes.load(Relaxed)) {
            0 => u64::MAX,
            limit => limit,
        }
    }

    /// The devices, a bit each, that take no new pages of a group, because of it or of those around
    /// it. Cost: two loads per group.
    pub fn masked_devices_around(&self, group: u32) -> u32 {
        let own = |group| self.nested(group).map(|entry| entry.masked_devices.load(Relaxed));
        self.around(group).filter_map(own).fold(self.masked_devices(), |masked, own| masked | own)
    }

    /// Whether a group and every one within it would have one of these devices left, if it masked
    /// those, a bit each.
    pub fn would_have_devices(&self, changed: u32, masked: u32, devices: u32) -> bool {
        let own = |group| match self.nested(group) {
            _ if group == changed => masked,
            Some(entry) => entry.masked_devices.load(Relaxed),
            None => self.masked_devices(),
        };
        let is_used =
            |&group: &u32| self.nested(group).is_none_or(|entry| entry.limit_bytes.load(Relaxed) != 0);
        let within = (0..GROUPS_MAX as u32).filter(is_used).filter(|group| self.is_within(*group, changed));
        within
            .map(|group| self.around(group).fold(0, |masked, group| masked | own(group)))
            .all(|masked| devices & !masked != 0)
    }

    /// The lowest limit that holds for the member with this seat, in bytes.
    pub fn least_limit(&self, seat: &Seat) -> u64 {
        self.around(seat.group()).map(|group| self.limit_of(group)).min().unwrap_or(u64::MAX)
    }
}

impl<'a> Group<'a> {
    /// The live members of a group and of those within it. Cost: a few loads per member.
    pub fn members_within(self, outer: u32) -> impl Iterator<Item = &'a Member> {
        self.taken_within(outer).map(|(_, member)| member)
    }

    /// [`Group::members_within`], each with its seat.
    pub fn taken_within(self, outer: u32) -> impl Iterator<Item = (&'a Seat, &'a Member)> {
        let is_within = move |(seat, _): &(&Seat, &Member)| self.decisions.is_within(seat.group(), outer);
        self.taken().filter(is_within)
    }

    /// Bytes that count towards the limit of a group. Cost: a few loads per member.
    pub fn charge_within(self, group: u32) -> u64 {
        if group == WHOLE {
            return self.charge_bytes();
        }
        let outside = self.decisions.nested(group).map_or(0, |entry| entry.outside_bytes.load(Relaxed));
        saturating_sum(self.members_within(group).map(Member::charge)).saturating_add(outside)
    }

    /// The measured part of [`Group::charge_within`]: see [`Group::certain_charge_bytes`].
    pub fn certain_charge_within(self, group: u32) -> u64 {
        if group == WHOLE { self.certain_charge_bytes() } else { self.charge_within(group) }
    }

    /// The limits that hold for the member with this seat, from the inside out. Cost: as
    /// [`Group::charge_within`] for each.
    pub fn bounds(self, seat: &Seat) -> impl Iterator<Item = Bound> {
        self.decisions.around(seat.group()).map(move |group| Bound {
            group,
            limit: self.decisions.limit_of(group),
            charge: self.charge_within(group),
        })
    }

    /// The bound of the member with this seat that leaves the least free memory.
    pub fn tightest(self, seat: &Seat) -> Bound {
        let whole =
            || Bound { group: WHOLE, limit: self.decisions.limit_bytes(), charge: self.charge_bytes() };
        if seat.group() == WHOLE {
            return whole();
        }
        self.bounds(seat).max_by_key(Bound::excess).unwrap_or_else(whole)
    }
}

#[cfg(test)]
mod tests;

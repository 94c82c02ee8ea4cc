//! Who has which number in a group.

use crate::nested::{self, WHOLE};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Whether a seat is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemberState {
    /// The seat is free, and the entry in the segment unused.
    Free = 0,
    /// The owner of the group has assigned the seat, and one process uses it.
    Live = 1,
}

/// The weight of a member of which nobody has said otherwise, as that of a cgroup (`io.weight`).
pub const WEIGHT_DEFAULT: u32 = 100;
/// The highest weight; the least is 1.
pub const WEIGHT_MAX: u32 = 10_000;

/// What the owner of the group says of one member; its index is the member id. The member's own
/// figures are in its entry of the segment ([`Member`](crate::segment::Member)).
#[repr(C)]
#[derive(Debug)]
pub struct Seat {
    /// [`MemberState`] as a number.
    state: AtomicU32,
    /// Process id as the supervisor sees it.
    pid: AtomicU32,
    /// The nested group of the member; 0: none.
    group: AtomicU32,
    /// The member's weight; 0: [`WEIGHT_DEFAULT`].
    weight: AtomicU32,
}

impl Seat {
    /// Whether a process uses this seat.
    pub fn is_live(&self) -> bool {
        self.state.load(Acquire) == MemberState::Live as u32
    }

    /// The process id as the supervisor sees it.
    pub fn pid(&self) -> u32 {
        self.pid.load(Relaxed)
    }

    /// The nested group of the member, below [`GROUPS_MAX`](nested::GROUPS_MAX); a number that
    /// names no group is the root's.
    pub fn group(&self) -> u32 {
        nested::known(self.group.load(Acquire))
    }

    /// The member's weight, 1 to [`WEIGHT_MAX`]: where all are busy, it gives memory in inverse
    /// proportion to this.
    pub fn weight(&self) -> u32 {
        match self.weight.load(Relaxed) {
            0 => WEIGHT_DEFAULT,
            weight => weight.min(WEIGHT_MAX),
        }
    }

    pub(crate) fn set_weight(&self, weight: u32) {
        self.weight.store(weight, Relaxed);
    }

    pub(crate) fn set_group(&self, group: u32) {
        self.group.store(group, Release);
    }

    pub(crate) fn take(&self, pid: u32) {
        self.group.store(WHOLE, Relaxed);
        self.weight.store(0, Relaxed);
        self.pid.store(pid, Relaxed);
        self.state.store(MemberState::Live as u32, Release);
    }

    pub(crate) fn leave(&self) {
        self.state.store(MemberState::Free as u32, Release);
    }
}

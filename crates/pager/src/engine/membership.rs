//! The group that a process belongs to, as its engine sees it.

use crate::engine::{Engine, Life};
use crate::kernel::futex::{self, Sharing};
use crate::kernel::ranges::Range;
use crate::kernel::{image, pagemap};
use crate::units::PAGE;
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use folioswap_group::counters::Figures;
use folioswap_group::decisions::{Decisions, Forks};
use folioswap_group::group::Group;
use folioswap_group::seat::Seat;
use folioswap_group::segment::{Faulting, Member, Segment};

/// The longest name of a group's socket.
pub const GROUP_NAME_MAX: usize = 96;

/// The group that the process belongs to.
#[repr(C)]
pub struct Membership {
    /// The group's decisions, which this process can only read; null until the handler has joined.
    pub(crate) decisions: AtomicPtr<Decisions>,
    /// The group's segment; null until then.
    pub(crate) segment: AtomicPtr<Segment>,
    /// The index of this process's member in the segment.
    pub(crate) member: AtomicU32,
    pub(crate) group_name: [u8; GROUP_NAME_MAX],
    pub(crate) group_name_length: usize,
    pub(crate) agent_path: [u8; GROUP_NAME_MAX],
    pub(crate) agent_path_length: usize,
    /// 1 where the gate makes the forks of this process whatever the group's way is.
    pub(crate) gated: AtomicU32,
}

impl Engine {
    /// The group's name.
    pub fn group_name(&self) -> &[u8] {
        &self.membership.group_name[..self.membership.group_name_length]
    }

    /// The path that the agent was loaded from; empty for an embedder.
    pub fn agent_path(&self) -> &[u8] {
        &self.membership.agent_path[..self.membership.agent_path_length]
    }

    /// The group's segment. Valid once the handler has joined the group.
    pub(crate) fn segment(&self) -> &'static Segment {
        // SAFETY: set before any caller runs, to a mapping that is never taken away.
        unsafe { &*self.membership.segment.load(Acquire) }
    }

    /// The group's decisions. Valid once the handler has joined the group.
    pub(crate) fn decisions(&self) -> &'static Decisions {
        // SAFETY: set before any caller runs, to a mapping that is never taken away. It may be one
        // for reading, and the type has no method that stores.
        unsafe { &*self.membership.decisions.load(Acquire) }
    }

    /// Decisions and segment together. Valid once the handler has joined the group.
    pub(crate) fn group(&self) -> Group<'static> {
        Group { decisions: self.decisions(), segment: self.segment() }
    }

    /// The bytes of shared memory, resident in this process, of which all processes of the group
    /// have one copy: the agent and the memories of the group. Cost: three looks at page tables,
    /// 5 ns for each page that is there.
    pub(crate) fn shared_of_all_bytes(&self) -> u64 {
        let pagemap = self.descriptors.pagemap.load(Relaxed);
        let resident = |range: Range| pagemap::file_bytes(pagemap, range.start, range.end).unwrap_or(0);
        let [decisions, segment] = self.memories_of_group();
        [image::range(), decisions, segment].into_iter().map(resident).sum()
    }

    /// Where the memories of the group lie in this process; nowhere before it has joined.
    pub(crate) fn memories_of_group(&self) -> [Range; 2] {
        let at = |start: usize, bytes: usize| match start {
            0 => Range { start, end: start },
            _ => Range { start, end: start + bytes.next_multiple_of(PAGE) },
        };
        let membership = &self.membership;
        [
            at(membership.decisions.load(Acquire) as usize, Decisions::BYTES),
            at(membership.segment.load(Acquire) as usize, Segment::BYTES),
        ]
    }

    /// This process's seat in the group.
    pub(crate) fn seat(&self) -> &'static Seat {
        &self.decisions().seats[self.membership.member.load(Acquire) as usize]
    }

    /// Has the gate make the forks of this process and its children, whatever the group's way is:
    /// no C library tells of them. Before the pager starts.
    pub fn gate_forks(&self) {
        self.membership.gated.store(1, Relaxed);
    }

    /// How forked children of this process get a userfaultfd. Valid once the handler has joined.
    pub(crate) fn forks(&self) -> Forks {
        match self.membership.gated.load(Relaxed) {
            0 => self.decisions().forks(),
            _ => Forks::Gated,
        }
    }

    /// Whether the system-call gate is to stand before the calls of this process, because the
    /// kernel reports no forks. False for a process that is no member.
    pub fn forks_are_gated(&self) -> bool {
        self.life() == Life::Running && self.forks() == Forks::Gated
    }

    /// This process's member in the segment.
    pub(crate) fn member(&self) -> &'static Member {
        &self.segment().members[self.membership.member.load(Acquire) as usize]
    }

    /// This process's figures.
    pub(crate) fn figures(&self) -> &'static Figures {
        &self.member().figures
    }

    /// Reports that one thread of this process faults again and again, on `cpu`: the supervisor's
    /// vigil then keeps other CPUs awake. Costs two loads while the vigil is at work, a system call
    /// where it slept.
    pub(crate) fn ask_for_vigil(&self, cpu: u32) {
        let header = &self.segment().header;
        let faulting = Faulting { member: self.membership.member.load(Relaxed), cpu }.pack();
        if header.faulting.load(Relaxed) != faulting {
            header.faulting.store(faulting, Relaxed);
        }
        if header.vigil_sleeps.load(Relaxed) == 1 && header.vigil_sleeps.swap(0, AcqRel) == 1 {
            futex::wake(&header.vigil_sleeps, Sharing::Shared);
        }
    }

    /// Whether another member of the group runs now.
    pub(crate) fn others_are_active(&self) -> bool {
        let (group, me) = (self.group(), self.member());
        let is_other = |member: &&Member| !core::ptr::eq(*member, me);
        group.live_members().filter(is_other).any(|member| member.active.load(Relaxed) != 0)
    }
}

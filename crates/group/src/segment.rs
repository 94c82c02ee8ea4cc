//! The shared segment: fixed layout, atomics only, no locks. Members write it; what their
//! supervisor decides lies in another memory, which they can only read
//! ([`decisions`](crate::decisions)).
//!
//! The supervisor creates it as a memfd of [`Segment::BYTES`] (sparse: only the pages of live
//! members become resident) and hands the descriptor to each member in its welcome. All-zero is the
//! valid empty state.
//!
//! Every member can write every word, so no word is trusted to be in range: a number that is used
//! as an index, a shift or an order comes from a method that bounds it, and sums of bytes saturate.
//! A wrong word may make a figure wrong, and what follows from it; it ends no process.

use crate::counters::Figures;
use crate::moments::Course;
use crate::sharing::Sharing;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Most members of one group at a time.
pub const MEMBERS_MAX: usize = 4096;
/// Charge of a process before its first measurement: its own data, stacks, and the memory with
/// which its pager begins.
pub const UNMEASURED_BYTES: u64 = 1 << 20;

pub use crate::units::CLUSTER_BYTES;

/// The words that all members of the group write.
#[repr(C, align(64))]
pub struct Header {
    /// Bytes that stopped being shared between members, since the beginning. Every member adds to
    /// it; see [`sharing`](crate::sharing).
    pub unshared_bytes: AtomicU64,
    /// Incremented whenever the group's charge falls: threads that wait for memory wait on it
    /// (futex).
    pub charge_sank: AtomicU32,
    /// 1 while the supervisor's vigil sleeps (futex); a member that has set [`Header::faulting`]
    /// makes it 0 and wakes the vigil.
    pub vigil_sleeps: AtomicU32,
    /// [`Faulting`], packed. Written by the member it names.
    pub faulting: AtomicU64,
    /// When a member saw the group near its limit last, in nanoseconds of CLOCK_MONOTONIC: from
    /// there on every member registers its memory.
    pub near_limit_ns: AtomicU64,
}

/// A thread that faults repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulting {
    /// Member id of its process.
    pub member: u32,
    /// The CPU on which it runs.
    pub cpu: u32,
}

impl Faulting {
    /// Packs it into one word.
    pub const fn pack(self) -> u64 {
        (self.member as u64) << 32 | self.cpu as u64
    }
    /// The inverse of [`Faulting::pack`].
    pub const fn unpack(word: u64) -> Self {
        Faulting { member: (word >> 32) as u32, cpu: word as u32 }
    }
}

/// One member's entry. Its member alone writes it, except [`Member::reclaim_request_bytes`] and
/// [`Member::wake`], which every member may raise, and [`Member::fork_ack`]; the supervisor empties
/// it for the next member. Who that is stands in its [`Seat`](crate::seat::Seat).
#[repr(C, align(64))]
pub struct Member {
    /// Incremented to wake the member's evictor (futex).
    pub wake: AtomicU32,
    /// 1 while the member's threads take in memory (faults or growth in the last interval), else 0.
    pub active: AtomicU32,
    /// Bytes that other members ask this member to evict.
    pub reclaim_request_bytes: AtomicU64,
    /// Resident bytes of the member that count towards the limit, by the group's
    /// [`Scope`](crate::decisions::Scope).
    pub charge_bytes: AtomicU64,
    /// The part of it that is shared with relatives; [`Member::charge`] is the member's charge
    /// without that.
    pub sharing: Sharing,
    /// Bytes that the supervisor may not have counted yet: memory that non-member children of this
    /// member took in or made their own, and memory that this member made its own of the memory it
    /// shares with them.
    pub unfound_bytes: AtomicU64,
    /// Bytes that the member is about to take in at once. Other members make room for them, but
    /// they are not resident yet and no part of the charge.
    pub announced_bytes: AtomicU64,
    /// Resident managed bytes that the member could evict.
    pub evictable_bytes: AtomicU64,
    /// Number of the fork whose child has its userfaultfd and asks to become independent; it holds
    /// the member's process id, so that a child of an earlier owner of this entry is told apart.
    /// Written by that child.
    pub fork_ack: AtomicU64,
    /// Number of the fork whose child is independent: this member no longer serves it.
    pub fork_done: AtomicU64,
    /// The errno with which a child that this member forked could not join, 0 for none. Written by
    /// that child, which ends and can tell nobody else.
    pub child_failed: AtomicU32,
    /// Counters and gauges.
    pub figures: Figures,
    /// Refault distances, latencies and the moments that took long.
    pub course: Course,
}

impl Member {
    /// Empties the entry for a process that is about to get it.
    pub(crate) fn begin(&self) {
        self.figures.clear();
        self.course.clear();
        self.wake.store(0, Relaxed);
        self.active.store(1, Relaxed);
        self.reclaim_request_bytes.store(0, Relaxed);
        self.charge_bytes.store(UNMEASURED_BYTES, Relaxed);
        self.sharing.clear();
        self.unfound_bytes.store(0, Relaxed);
        self.announced_bytes.store(0, Relaxed);
        self.evictable_bytes.store(0, Relaxed);
        self.fork_ack.store(0, Relaxed);
        self.fork_done.store(0, Relaxed);
        self.child_failed.store(0, Relaxed);
    }

    /// Takes back what a process that has ended counted.
    pub(crate) fn end(&self, header: &Header) {
        self.end_sharing(header);
        self.charge_bytes.store(0, Relaxed);
        self.unfound_bytes.store(0, Relaxed);
    }
}

/// The complete segment.
#[repr(C)]
pub struct Segment {
    /// The words of the whole group.
    pub header: Header,
    /// The members' entries, by member id.
    pub members: [Member; MEMBERS_MAX],
}

impl Segment {
    /// Size of the memfd. Sparse: an idle segment occupies a few pages.
    pub const BYTES: usize = size_of::<Segment>();

    /// The entry of a member; `None` for a number that no entry has.
    pub fn member(&self, id: u32) -> Option<&Member> {
        self.members.get(id as usize)
    }
}

//! The shared segment: fixed layout, atomics only, no locks.
//!
//! The supervisor creates it as a memfd of [`Segment::BYTES`] (sparse: only the pages of live
//! members become resident) and hands the descriptor to each member in its welcome. All-zero is the
//! valid empty state of everything except the [`Header`], which the supervisor fills in before the
//! first member connects.
//!
//! Every member can write every word, so no word is trusted to be in range: a number that is used
//! as an index, a shift or an order comes from a method that bounds it, and sums of bytes saturate.
//! A wrong word may make a figure or a decision wrong; it ends no process.

use crate::counters::Figures;
use crate::devices::{DEVICES_MAX, DeviceDescription, DeviceEntry};
use crate::folio_orders::FolioOrders;
use crate::nested::{GROUPS_MAX, Group};
use crate::sharing::{self, Sharing};
use crate::sums::saturating_sum;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// "folioswp" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"folioswp");
/// Layout version; a member refuses a segment of another version.
pub const VERSION: u32 = 11;
/// Most members of one group at a time.
pub const MEMBERS_MAX: usize = 4096;
/// Charge of a process before its first measurement: its own data, stacks, and the memory with
/// which its pager begins.
pub const UNMEASURED_BYTES: u64 = 1 << 20;
/// Most clusters (2 MiB each) of all shared devices together whose owner count can be published: 1
/// TiB.
pub const CLUSTERS_MAX: usize = 1 << 19;

pub use crate::units::CLUSTER_BYTES;

/// Largest `vm.page-cluster` that makes a difference: 32 pages. The kernel clamps to the same value
/// (SWAP_RA_ORDER_CEILING).
pub const PAGE_CLUSTER_MAX: u32 = 5;
/// Default of the kernel's `vm.page-cluster`: 8 pages.
pub const PAGE_CLUSTER_DEFAULT: u32 = 3;

/// The memory that the limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// Resident memory, compressed store and metadata, as a container's limit counts.
    Total = 0,
    /// The program's own resident memory only, for comparisons with kernel zram, whose store is
    /// charged to no group.
    Resident = 1,
}

impl Scope {
    /// The name on the command line and in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Total => "total",
            Scope::Resident => "resident",
        }
    }
}

/// The state of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GroupState {
    /// Members run.
    Running = 0,
    /// The supervisor is ending the group; members evict nothing more.
    Ending = 1,
}

/// The state of the whole group. Written by the supervisor, unless a field says otherwise.
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The supervisor's process id.
    pub supervisor_pid: AtomicU32,
    /// The limit in bytes.
    pub limit_bytes: AtomicU64,
    /// [`Scope`] as a number.
    pub scope: AtomicU32,
    /// [`GroupState`] as a number.
    pub state: AtomicU32,
    /// Anonymous and shared-memory bytes that no member counts: descendants without an agent, and
    /// the supervisor itself.
    pub unmanaged_bytes: AtomicU64,
    /// Bytes that stopped being shared between members, since the beginning. Every member adds to
    /// it; see [`sharing`].
    pub unshared_bytes: AtomicU64,
    /// Number of times that the supervisor has measured the memory that no member counts.
    pub census_walks: AtomicU32,
    /// Only members in `0..members_high` may be live; those above never were.
    pub members_high: AtomicU32,
    /// Bytes of memory that shared devices hold (`ram`).
    pub device_bytes: AtomicU64,
    /// Incremented whenever the group's charge falls: threads that wait for memory wait on it
    /// (futex).
    pub charge_sank: AtomicU32,
    /// 1: members check every invariant from time to time (for tests).
    pub validate: AtomicU32,
    /// 1 while the supervisor's vigil sleeps (futex); a member that has set [`Header::faulting`]
    /// makes it 0 and wakes the vigil.
    pub vigil_sleeps: AtomicU32,
    /// [`Faulting`], packed. Written by the member it names.
    pub faulting: AtomicU64,
    /// [`FolioOrders::always`].
    pub orders_always: AtomicU32,
    /// [`FolioOrders::madvise`].
    pub orders_madvise: AtomicU32,
    /// 0 to [`PAGE_CLUSTER_MAX`]: at most 2^`page_cluster` pages around a fault are read from a
    /// slow device; 0: the page alone.
    pub page_cluster: AtomicU32,
    /// Incremented whenever a device is added, or its [`usage`](DeviceEntry::usage) changes.
    pub devices_changed: AtomicU32,
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

/// Whether a member's entry is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemberState {
    /// The entry is unused.
    Free = 0,
    /// The supervisor has assigned the entry, and one process uses it.
    Live = 1,
}

/// One member's entry. The supervisor assigns and frees it. Between the two only its member writes
/// it, except [`Member::reclaim_request_bytes`] and [`Member::wake`], which every member may raise,
/// and [`Member::fork_ack`].
#[repr(C, align(64))]
pub struct Member {
    /// [`MemberState`] as a number. Written by the supervisor.
    pub state: AtomicU32,
    /// Process id as the supervisor sees it. Written by the supervisor.
    pub pid: AtomicU32,
    /// Incremented to wake the member's evictor (futex).
    pub wake: AtomicU32,
    /// The nested group of the member; 0: none. Read and written by [`Member::group`] and
    /// [`Member::set_group`].
    pub(crate) group: AtomicU32,
    /// 1 while the member's threads take in memory (faults or growth in the last interval), else 0.
    pub active: AtomicU32,
    /// Bytes that other members ask this member to evict.
    pub reclaim_request_bytes: AtomicU64,
    /// Resident bytes of the member that count towards the limit, by the group's [`Scope`].
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
    /// Counters and gauges.
    pub figures: Figures,
}

impl Member {
    /// Whether a process uses this entry.
    pub fn is_live(&self) -> bool {
        self.state.load(Acquire) == MemberState::Live as u32
    }
}

/// The complete segment.
#[repr(C)]
pub struct Segment {
    /// The state of the whole group.
    pub header: Header,
    /// The group's devices, by number.
    pub devices: [DeviceEntry; DEVICES_MAX],
    /// The members' entries, indexed by member id.
    pub members: [Member; MEMBERS_MAX],
    /// The nested groups, by number; entry 0 is unused. All-zero outside of an embedder. Used by
    /// the methods of [`nested`](crate::nested).
    pub(crate) groups: [Group; GROUPS_MAX],
    /// Owners of each cluster of the shared devices. Written by the supervisor.
    pub cluster_owners: [AtomicU32; CLUSTERS_MAX],
}

/// The segment has a layout that this build does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignSegment;

impl Segment {
    /// Size of the memfd. Sparse: an idle segment occupies a few pages.
    pub const BYTES: usize = size_of::<Segment>();

    /// Fills in header and devices of a new, all-zero segment. Folios of every size are allowed,
    /// and readahead is as in the kernel. For the supervisor, before any member connects.
    pub fn initialise(
        &self,
        supervisor_pid: u32,
        limit_bytes: u64,
        scope: Scope,
        devices: impl IntoIterator<Item = DeviceDescription>,
    ) {
        let header = &self.header;
        header.supervisor_pid.store(supervisor_pid, Relaxed);
        header.limit_bytes.store(limit_bytes, Relaxed);
        header.scope.store(scope as u32, Relaxed);
        for (entry, device) in self.devices.iter().zip(devices) {
            entry.describe(device);
        }
        header.page_cluster.store(PAGE_CLUSTER_DEFAULT, Relaxed);
        self.set_folio_orders(FolioOrders::ALL);
        header.version.store(VERSION, Relaxed);
        header.magic.store(MAGIC, Release);
    }

    /// Checks magic and version. For a member, after mapping.
    ///
    /// # Errors
    /// [`ForeignSegment`] when another version made the segment.
    pub fn check(&self) -> Result<(), ForeignSegment> {
        let known = self.header.magic.load(Acquire) == MAGIC && self.header.version.load(Relaxed) == VERSION;
        if known { Ok(()) } else { Err(ForeignSegment) }
    }

    /// The memory that the limit counts.
    pub fn scope(&self) -> Scope {
        if self.header.scope.load(Relaxed) == Scope::Resident as u32 { Scope::Resident } else { Scope::Total }
    }

    /// The folio sizes that members may make. No bit is set above the largest order. Cost: two
    /// loads.
    pub fn folio_orders(&self) -> FolioOrders {
        let Header { orders_always, orders_madvise, .. } = &self.header;
        FolioOrders { always: orders_always.load(Relaxed), madvise: orders_madvise.load(Relaxed) }.known()
    }

    /// The readahead from slow devices, as a power of two of pages: 0 to [`PAGE_CLUSTER_MAX`].
    pub fn page_cluster(&self) -> u32 {
        self.header.page_cluster.load(Relaxed).min(PAGE_CLUSTER_MAX)
    }

    /// Sets the folio sizes that members may make. For the supervisor, before any member connects.
    pub fn set_folio_orders(&self, orders: FolioOrders) {
        self.header.orders_always.store(orders.always, Relaxed);
        self.header.orders_madvise.store(orders.madvise, Relaxed);
    }

    /// The existing devices, by number.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceDescription, &DeviceEntry)> {
        self.devices.iter().map_while(|entry| Some((entry.description()?, entry)))
    }

    /// The entries that may be live.
    pub fn members(&self) -> &[Member] {
        let high = self.header.members_high.load(Acquire) as usize;
        &self.members[..high.min(MEMBERS_MAX)]
    }

    /// The entry of a member; `None` for a number that no entry has.
    pub fn member(&self, id: u32) -> Option<&Member> {
        self.members.get(id as usize)
    }

    /// The live members. Cost: a load per entry.
    pub fn live_members(&self) -> impl Iterator<Item = &Member> {
        self.members().iter().filter(|member| member.is_live())
    }

    /// Sum of the bytes that all members, the unmanaged rest and devices in memory count towards
    /// the limit. Memory that members share is counted once, and rather too high than too low
    /// ([`sharing`]). Cost: a few loads per member.
    pub fn charge_bytes(&self) -> u64 {
        let unfound = self.live_members().map(|member| member.unfound_bytes.load(Relaxed));
        let uncertain = sharing::uncertain_bytes(&self.header, self.live_members());
        saturating_sum(unfound.chain([self.certain_charge_bytes(), uncertain]))
    }

    /// The measured part of [`Segment::charge_bytes`]: without bytes that may be counted twice, or
    /// may be gone, until the next measurement. The decision to end the group uses this value.
    /// Cost: as there.
    pub fn certain_charge_bytes(&self) -> u64 {
        let devices = match self.scope() {
            Scope::Total => self.header.device_bytes.load(Relaxed),
            Scope::Resident => 0,
        };
        let unmanaged = self.header.unmanaged_bytes.load(Relaxed);
        saturating_sum(self.live_members().map(Member::charge).chain([unmanaged, devices]))
    }

    /// Bytes that all members are about to take in at once. Cost: a few loads per member.
    pub fn announced_bytes(&self) -> u64 {
        saturating_sum(self.live_members().map(|member| member.announced_bytes.load(Relaxed)))
    }

    /// Faults that all members together have served. Cost: two loads per member.
    pub fn faults_served(&self) -> u64 {
        saturating_sum(self.live_members().map(|member| member.figures.faults_served()))
    }

    /// Takes a free entry for a process; `None` when all are taken. For the supervisor alone.
    pub fn assign(&self, pid: u32) -> Option<u32> {
        let index = self.members.iter().position(|member| !member.is_live())?;
        let member = &self.members[index];
        member.figures.clear();
        member.wake.store(0, Relaxed);
        member.group.store(0, Relaxed);
        member.active.store(1, Relaxed);
        member.reclaim_request_bytes.store(0, Relaxed);
        member.charge_bytes.store(UNMEASURED_BYTES, Relaxed);
        member.sharing.clear();
        member.unfound_bytes.store(0, Relaxed);
        member.announced_bytes.store(0, Relaxed);
        member.evictable_bytes.store(0, Relaxed);
        member.fork_ack.store(0, Relaxed);
        member.fork_done.store(0, Relaxed);
        member.pid.store(pid, Relaxed);
        member.state.store(MemberState::Live as u32, Release);
        self.header.members_high.fetch_max(index as u32 + 1, AcqRel);
        Some(index as u32)
    }

    /// Frees the entry of a process that has ended. For the supervisor alone, after it read the
    /// figures.
    pub fn release(&self, id: u32) {
        let Some(member) = self.member(id) else { return };
        member.end_sharing(&self.header);
        member.charge_bytes.store(0, Relaxed);
        member.unfound_bytes.store(0, Relaxed);
        member.state.store(MemberState::Free as u32, Release);
        self.header.charge_sank.fetch_add(1, Release);
    }
}

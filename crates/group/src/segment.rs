//! The shared segment: fixed layout, atomics only, no locks.
//!
//! The supervisor creates it as a memfd of [`Segment::BYTES`] (sparse: only the pages of live members become resident)
//! and hands the descriptor to each member in its welcome. All-zero is the valid empty state of everything except the
//! [`Header`], which the supervisor fills in before the first member connects.

use crate::counters::Figures;
use crate::devices::{DEVICES_MAX, DeviceDescription, DeviceEntry};
use crate::folio_orders::FolioOrders;
use crate::nested::{GROUPS_MAX, Group};
use crate::sharing::{self, Sharing};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// "folioswp" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"folioswp");
/// Layout version; a member refuses a segment of another version.
pub const VERSION: u32 = 11;
/// Members that one group can have at a time.
pub const MEMBERS_MAX: usize = 4096;
/// What a process counts before it has measured itself: its own data, stacks, and what its pager takes to begin.
pub const UNMEASURED_BYTES: u64 = 1 << 20;
/// Clusters (2 MiB each) of all shared devices together that can have their owner count published: 1 TiB.
pub const CLUSTERS_MAX: usize = 1 << 19;
/// Bytes of a cluster: 512 slots of 4 KiB.
pub const CLUSTER_BYTES: u64 = 2 << 20;

/// Largest `vm.page-cluster` that makes a difference: 32 pages. The kernel cuts what is asked for at the same (SWAP_RA_ORDER_CEILING).
pub const PAGE_CLUSTER_MAX: u32 = 5;
/// `vm.page-cluster` of the kernel unless it is changed: 8 pages.
pub const PAGE_CLUSTER_DEFAULT: u32 = 3;

/// What the limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// Resident memory, compressed store and metadata: what a container's limit counts.
    Total = 0,
    /// Only the program's own resident memory, for comparisons with kernel zram, whose store no group is charged for.
    Resident = 1,
}

impl Scope {
    /// As on the command line and in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Total => "total",
            Scope::Resident => "resident",
        }
    }
}

/// What the group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GroupState {
    /// Members run.
    Running = 0,
    /// The supervisor is ending the group; members evict nothing more.
    Ending = 1,
}

/// What concerns the whole group. Written by the supervisor.
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
    /// Anonymous and shared-memory bytes that no member counts: descendants without an agent, and the supervisor itself.
    pub unmanaged_bytes: AtomicU64,
    /// Bytes that stopped being shared between members, since the beginning. Every member adds to it; see [`sharing`].
    pub unshared_bytes: AtomicU64,
    /// Looks of the supervisor at what no member counts.
    pub census_walks: AtomicU32,
    /// Members in `0..members_high` may be live; those above never were.
    pub members_high: AtomicU32,
    /// Bytes of memory that shared devices hold (`ram`).
    pub device_bytes: AtomicU64,
    /// Counts up whenever the group's charge sinks: threads that wait for memory wait on it (futex).
    pub charge_sank: AtomicU32,
    /// 1: members check every invariant now and then (for tests).
    pub validate: AtomicU32,
    /// 1 while the supervisor's vigil sleeps (futex); a member that has set [`Header::faulting`] makes it 0 and wakes it up.
    pub vigil_sleeps: AtomicU32,
    /// [`Faulting`], packed. Written by the member it names.
    pub faulting: AtomicU64,
    /// [`FolioOrders::always`].
    pub orders_always: AtomicU32,
    /// [`FolioOrders::madvise`].
    pub orders_madvise: AtomicU32,
    /// 0 to [`PAGE_CLUSTER_MAX`]: at most 2^`page_cluster` pages around a fault are read from a slow device; 0: the page alone.
    pub page_cluster: AtomicU32,
    /// Counts up whenever a device is added, or its [`usage`](DeviceEntry::usage) changes.
    pub devices_changed: AtomicU32,
}

/// Where one thread faults again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulting {
    /// Its process's place in the group.
    pub member: u32,
    /// The CPU on which it runs.
    pub cpu: u32,
}

impl Faulting {
    /// As one word.
    pub const fn pack(self) -> u64 {
        (self.member as u64) << 32 | self.cpu as u64
    }
    /// The opposite of [`Faulting::pack`].
    pub const fn unpack(word: u64) -> Self {
        Faulting { member: (word >> 32) as u32, cpu: word as u32 }
    }
}

/// Life of a member's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemberState {
    /// Nobody's.
    Free = 0,
    /// Assigned by the supervisor, in use by one process.
    Live = 1,
}

/// One member's place. The supervisor assigns and frees it; between the two only its member writes it, except
/// [`Member::reclaim_request_bytes`] and [`Member::wake`], which everybody may raise, and [`Member::fork_ack`].
#[repr(C, align(64))]
pub struct Member {
    /// [`MemberState`] as a number. Written by the supervisor.
    pub state: AtomicU32,
    /// Process id as the supervisor sees it. Written by the supervisor.
    pub pid: AtomicU32,
    /// Counts up to wake the member's evictor (futex).
    pub wake: AtomicU32,
    /// The group within the whole that it is in; 0: none. Written by who makes it a member, before its threads begin.
    pub group: AtomicU32,
    /// 1 while the member's threads take in memory (faults or growth in the last interval), else 0.
    pub active: AtomicU32,
    /// Bytes that others ask this member to evict.
    pub reclaim_request_bytes: AtomicU64,
    /// What is resident in it that counts towards the limit, in bytes, by the group's [`Scope`].
    pub charge_bytes: AtomicU64,
    /// What of it is shared with relatives; [`Member::charge`] is what it counts.
    pub sharing: Sharing,
    /// What children that are no members took in or made their own by its doing, and what it made its own of what they share,
    /// as long as the supervisor may not have counted it; in bytes.
    pub unfound_bytes: AtomicU64,
    /// What it is about to take in all at once, in bytes: others make room for it, but it is not there yet and no part of the charge.
    pub announced_bytes: AtomicU64,
    /// Resident managed bytes that it could evict.
    pub evictable_bytes: AtomicU64,
    /// Token of the fork whose child has its userfaultfd and asks to be on its own. Written by that child.
    pub fork_ack: AtomicU64,
    /// Token of the fork whose child is on its own: this member serves it no more.
    pub fork_done: AtomicU64,
    /// Counters and gauges.
    pub figures: Figures,
}

impl Member {
    /// True while a process has this place.
    pub fn is_live(&self) -> bool {
        self.state.load(Acquire) == MemberState::Live as u32
    }
}

/// The whole segment.
#[repr(C)]
pub struct Segment {
    /// What concerns the whole group.
    pub header: Header,
    /// The group's devices, by number.
    pub devices: [DeviceEntry; DEVICES_MAX],
    /// The places, indexed by member id.
    pub members: [Member; MEMBERS_MAX],
    /// The groups within this one, by number; the first place is nobody's. All-zero elsewhere than in an embedder.
    pub groups: [Group; GROUPS_MAX],
    /// Owners of each cluster of the shared devices. Written by the supervisor.
    pub cluster_owners: [AtomicU32; CLUSTERS_MAX],
}

/// The segment is not one that this build understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignSegment;

impl Segment {
    /// Size of the memfd. Sparse: an idle segment occupies a few pages.
    pub const BYTES: usize = size_of::<Segment>();

    /// Fills in header and devices of a new, all-zero segment; folios of every size are allowed, and readahead is as in the kernel. For the supervisor, before any member
    /// connects.
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
    /// [`ForeignSegment`] when another version made it.
    pub fn check(&self) -> Result<(), ForeignSegment> {
        let known = self.header.magic.load(Acquire) == MAGIC && self.header.version.load(Relaxed) == VERSION;
        if known { Ok(()) } else { Err(ForeignSegment) }
    }

    /// What the limit counts.
    pub fn scope(&self) -> Scope {
        if self.header.scope.load(Relaxed) == Scope::Resident as u32 { Scope::Resident } else { Scope::Total }
    }

    /// The folio sizes that members may make. Cost: two loads.
    pub fn folio_orders(&self) -> FolioOrders {
        let Header { orders_always, orders_madvise, .. } = &self.header;
        FolioOrders { always: orders_always.load(Relaxed), madvise: orders_madvise.load(Relaxed) }
    }

    /// Sets them. For the supervisor, before any member connects.
    pub fn set_folio_orders(&self, orders: FolioOrders) {
        self.header.orders_always.store(orders.always, Relaxed);
        self.header.orders_madvise.store(orders.madvise, Relaxed);
    }

    /// The devices that there are, by number.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceDescription, &DeviceEntry)> {
        self.devices.iter().map_while(|entry| Some((entry.description()?, entry)))
    }

    /// The places that may be live.
    pub fn members(&self) -> &[Member] {
        let high = self.header.members_high.load(Acquire) as usize;
        &self.members[..high.min(MEMBERS_MAX)]
    }

    /// The places that are live. Cost: a load per place.
    pub fn live_members(&self) -> impl Iterator<Item = &Member> {
        self.members().iter().filter(|member| member.is_live())
    }

    /// Sum of what all members, the unmanaged rest and devices in memory count towards the limit, in bytes; what members share is
    /// counted once, and rather too high than too low ([`sharing`]). Cost: some loads per member.
    pub fn charge_bytes(&self) -> u64 {
        let unfound: u64 = self.live_members().map(|member| member.unfound_bytes.load(Relaxed)).sum();
        self.certain_charge_bytes() + unfound + sharing::uncertain_bytes(&self.header, self.live_members())
    }

    /// The part of [`Segment::charge_bytes`] that was measured: without what may be counted twice, or not be there any more,
    /// until somebody has measured again. Whoever ends the group goes by this. Cost: as there.
    pub fn certain_charge_bytes(&self) -> u64 {
        let devices = match self.scope() {
            Scope::Total => self.header.device_bytes.load(Relaxed),
            Scope::Resident => 0,
        };
        let managed: u64 = self.live_members().map(Member::charge).sum();
        managed + self.header.unmanaged_bytes.load(Relaxed) + devices
    }

    /// What all members are about to take in at once, in bytes. Cost: some loads per member.
    pub fn announced_bytes(&self) -> u64 {
        self.live_members().map(|member| member.announced_bytes.load(Relaxed)).sum()
    }

    /// Faults that all members together have served. Cost: two loads per member.
    pub fn faults_served(&self) -> u64 {
        self.live_members().map(|member| member.figures.faults_served()).sum()
    }

    /// Takes a free place for a process. For the supervisor alone. `None` when all are taken.
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

    /// Frees the place of a process that has ended. For the supervisor alone, after it read the figures.
    pub fn release(&self, id: u32) {
        self.members[id as usize].end_sharing(&self.header);
        self.members[id as usize].charge_bytes.store(0, Relaxed);
        self.members[id as usize].unfound_bytes.store(0, Relaxed);
        self.members[id as usize].state.store(MemberState::Free as u32, Release);
        self.header.charge_sank.fetch_add(1, Release);
    }
}

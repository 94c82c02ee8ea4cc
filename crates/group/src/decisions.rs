//! The decisions of a group: the words that its supervisor alone writes and every member reads.
//!
//! They lie in a memory of their own beside the segment, because a member that could write them
//! could lift the limit of the whole group. The supervisor of `folioswap run` makes the memory as a
//! memfd of [`Decisions::BYTES`] (sparse), maps it for writing and then seals it: from there on the
//! kernel refuses every further writable mapping, every write and every change of the length, to
//! the supervisor as well. Members get the sealed descriptor in their welcome and map it for
//! reading (`docs/decisions/0039-decisions-are-read-only.md`).
//!
//! A store to a mapping for reading ends the process by SIGSEGV. [`Decisions`] therefore has no
//! method that stores: those are [`DecisionsWriter`]'s, which only the maker of the memory has.
//!
//! All-zero is the valid empty state of everything except what
//! [`DecisionsWriter::initialise`] fills in.

mod writer;

pub use writer::DecisionsWriter;

use crate::counters::{Counter, Figures, SizeCounter};
use crate::devices::{DEVICES_MAX, DeviceDescription, DeviceEntry};
use crate::folio_orders::FolioOrders;
use crate::nested::{GROUPS_MAX, NestedGroup};
use crate::seat::Seat;
use crate::segment::MEMBERS_MAX;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};

/// "folioswp" in ASCII.
pub const MAGIC: u64 = u64::from_le_bytes(*b"folioswp");
/// Layout version of decisions and segment; a member refuses those of another version.
pub const VERSION: u32 = 20;
/// Most clusters (2 MiB each) of all shared devices together whose owner count can be published: 1
/// TiB.
pub const CLUSTERS_MAX: usize = 1 << 19;

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

/// How a forked child gets a userfaultfd, before any code of the program runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Forks {
    /// The kernel makes it, and reports the fork to the parent's pager (UFFD_FEATURE_EVENT_FORK,
    /// which takes CAP_SYS_PTRACE).
    Reported = 0,
    /// The child opens one of its own: the system-call gate stands before each call of the program,
    /// and makes its forks.
    Gated = 1,
}

/// Who brings in the memory that a system call of the program uses, where it is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CallFaults {
    /// The pager: the kernel reports faults of system calls too.
    Served = 0,
    /// The system-call gate, before the call, which then holds it: the kernel reports faults of the
    /// program alone (UFFD_USER_MODE_ONLY, which takes no permission), and a call on memory that is
    /// away fails with EFAULT. [`Forks::Gated`] goes with it.
    Held = 1,
}

/// The way in which programs are managed: what the kernel allows decides, and each takes fewer
/// permissions than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Way {
    /// The kernel reports forks and faults of system calls: CAP_SYS_PTRACE.
    #[default]
    Kernel = 0,
    /// The gate makes forks; the kernel reports faults of system calls: `/dev/userfaultfd`, or
    /// `vm.unprivileged_userfaultfd=1`.
    GatedForks = 1,
    /// The gate makes forks and holds what calls use: no permission.
    GatedCalls = 2,
}

impl Way {
    /// All of them, the cheapest first.
    pub const ALL: [Way; 3] = [Way::Kernel, Way::GatedForks, Way::GatedCalls];

    /// The name in statistics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Kernel => "kernel",
            Way::GatedForks => "gated-forks",
            Way::GatedCalls => "gated-calls",
        }
    }

    /// How forked children get a userfaultfd.
    pub const fn forks(self) -> Forks {
        match self {
            Way::Kernel => Forks::Reported,
            Way::GatedForks | Way::GatedCalls => Forks::Gated,
        }
    }

    /// Who brings in what system calls use.
    pub const fn call_faults(self) -> CallFaults {
        match self {
            Way::Kernel | Way::GatedForks => CallFaults::Served,
            Way::GatedCalls => CallFaults::Held,
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

/// Calls of members that fail at random, for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Where the series of a member begins, together with its number.
    pub seed: u64,
    /// One call in so many fails; 0: none does.
    pub rate: u32,
}

/// Whether the processes of the group go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Progress {
    /// They go on.
    GoesOn = 0,
    /// The supervisor has stopped them all; they are to go on later.
    Frozen = 1,
}

/// Pressure stall information of the group, as a memory.pressure file of the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// The share of time in which a thread waited for memory: averages over 10, 60 and 300 s, in
    /// hundredths of a percent.
    pub some: [u32; 3],
    /// That time since the beginning, in microseconds.
    pub some_total_us: u64,
    /// The same of the time in which no other thread ran meanwhile.
    pub full: [u32; 3],
    /// That time since the beginning, in microseconds.
    pub full_total_us: u64,
}

/// What the supervisor has decided, and what it has counted by itself. Written by the owner of the
/// group alone: the supervisor, or the embedder.
#[repr(C, align(64))]
pub struct Decisions {
    /// [`MAGIC`].
    magic: AtomicU64,
    /// [`VERSION`].
    version: AtomicU32,
    supervisor_pid: AtomicU32,
    limit_bytes: AtomicU64,
    /// [`Scope`] as a number.
    scope: AtomicU32,
    /// [`GroupState`] as a number.
    state: AtomicU32,
    unmanaged_bytes: AtomicU64,
    device_bytes: AtomicU64,
    census_walks: AtomicU32,
    /// Only seats in `0..seats_high` may be taken; those above never were.
    seats_high: AtomicU32,
    validate: AtomicU32,
    evict_all: AtomicU32,
    /// [`Failures::rate`].
    failure_rate: AtomicU32,
    /// [`Failures::seed`].
    failure_seed: AtomicU64,
    /// [`FolioOrders::always`].
    orders_always: AtomicU32,
    /// [`FolioOrders::madvise`].
    orders_madvise: AtomicU32,
    page_cluster: AtomicU32,
    devices_changed: AtomicU32,
    /// The devices that take none of the group's new pages, a bit each.
    pub(crate) masked_devices: AtomicU32,
    /// [`Progress`] as a number.
    progress: AtomicU32,
    /// [`Way`] as a number.
    way: AtomicU32,
    /// Odd while a member's figures go over into `ended`.
    ended_changes: AtomicU32,
    /// The counters of members that have ended, added up.
    ended: Figures,
    /// [`Pressure::some`] and [`Pressure::full`].
    pressure: [AtomicU32; 6],
    /// Their totals.
    pressure_totals_us: [AtomicU64; 2],
    /// The group's devices, by number.
    pub devices: [DeviceEntry; DEVICES_MAX],
    /// The nested groups, by number; entry 0 is unused. All-zero outside of an embedder. Used by
    /// the methods of [`nested`](crate::nested).
    pub(crate) groups: [NestedGroup; GROUPS_MAX],
    /// The seats, by member id.
    pub seats: [Seat; MEMBERS_MAX],
    /// Owners of each cluster of the shared devices.
    cluster_owners: [AtomicU32; CLUSTERS_MAX],
}

/// The memory has a layout that this build does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignLayout;

impl Decisions {
    /// Size of the memfd. Sparse: idle decisions occupy a few pages.
    pub const BYTES: usize = size_of::<Decisions>();

    /// Checks magic and version, which hold for the segment as well. For a member, after mapping.
    ///
    /// # Errors
    /// [`ForeignLayout`] when another version made the memory.
    pub fn check(&self) -> Result<(), ForeignLayout> {
        let known = self.magic.load(Acquire) == MAGIC && self.version.load(Relaxed) == VERSION;
        if known { Ok(()) } else { Err(ForeignLayout) }
    }

    /// The supervisor's process id.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor_pid.load(Relaxed)
    }

    /// The limit of the whole group, in bytes. Those of nested groups:
    /// [`limit_of`](Decisions::limit_of).
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// The memory that the limit counts.
    pub fn scope(&self) -> Scope {
        if self.scope.load(Relaxed) == Scope::Resident as u32 { Scope::Resident } else { Scope::Total }
    }

    /// Whether the group runs, or is being ended.
    pub fn state(&self) -> GroupState {
        let is_running = self.state.load(Relaxed) == GroupState::Running as u32;
        if is_running { GroupState::Running } else { GroupState::Ending }
    }

    /// Whether the processes of the group go on, or are frozen.
    pub fn progress(&self) -> Progress {
        let is_frozen = self.progress.load(Relaxed) == Progress::Frozen as u32;
        if is_frozen { Progress::Frozen } else { Progress::GoesOn }
    }

    /// The way in which the programs of the group are managed.
    pub fn way(&self) -> Way {
        let way = self.way.load(Relaxed);
        Way::ALL.into_iter().find(|known| *known as u32 == way).unwrap_or_default()
    }

    /// How a forked child gets a userfaultfd.
    pub fn forks(&self) -> Forks {
        self.way().forks()
    }

    /// Who brings in what a system call uses.
    pub fn call_faults(&self) -> CallFaults {
        self.way().call_faults()
    }

    /// The pressure of the group, as of at most 2 s ago. Cost: eight loads.
    pub fn pressure(&self) -> Pressure {
        let [some, full] = [0, 3].map(|first| [0, 1, 2].map(|n| self.pressure[first + n].load(Relaxed)));
        let [some_total_us, full_total_us] = [0, 1].map(|n| self.pressure_totals_us[n].load(Relaxed));
        Pressure { some, some_total_us, full, full_total_us }
    }

    /// The sum of a counter over the members that have ended.
    pub fn ended_counter(&self, counter: Counter) -> u64 {
        self.ended.counter(counter)
    }

    /// The sum of a counter of one folio order (0..=9) over the members that have ended.
    pub fn ended_size(&self, counter: SizeCounter, order: usize) -> u64 {
        self.ended.size(counter, order)
    }

    /// A number that is odd while the counters of a member go over into those of the ended ones,
    /// and another one afterwards. A reader that finds the same even number before and after it has
    /// read all counters has counted each member once.
    pub fn ended_changes(&self) -> u32 {
        self.ended_changes.load(SeqCst)
    }

    /// Anonymous and shared-memory bytes that no member counts: descendants without an agent, and
    /// the supervisor itself. In an embedder: bytes that are set aside.
    pub fn unmanaged_bytes(&self) -> u64 {
        self.unmanaged_bytes.load(Relaxed)
    }

    /// Bytes of memory that shared devices hold (`ram`).
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes.load(Relaxed)
    }

    /// Number of times that the supervisor has measured the memory that no member counts.
    pub fn census_walks(&self) -> u32 {
        self.census_walks.load(Relaxed)
    }

    /// Whether members check every invariant from time to time (for tests).
    pub fn wants_validation(&self) -> bool {
        self.validate.load(Relaxed) != 0
    }

    /// Whether members take out everything that may leave, at once and again and again: for tests.
    pub fn evicts_all(&self) -> bool {
        self.evict_all.load(Relaxed) != 0
    }

    /// The calls of members that fail at random (for tests).
    pub fn failures(&self) -> Failures {
        Failures { seed: self.failure_seed.load(Relaxed), rate: self.failure_rate.load(Relaxed) }
    }

    /// The folio sizes that members may make. No bit is set above the largest order. Cost: two
    /// loads.
    pub fn folio_orders(&self) -> FolioOrders {
        let Decisions { orders_always, orders_madvise, .. } = self;
        FolioOrders { always: orders_always.load(Relaxed), madvise: orders_madvise.load(Relaxed) }.known()
    }

    /// The readahead from slow devices, as a power of two of pages, 0 to [`PAGE_CLUSTER_MAX`]: at
    /// most so many pages around a fault are read; 0: the page alone.
    pub fn page_cluster(&self) -> u32 {
        self.page_cluster.load(Relaxed).min(PAGE_CLUSTER_MAX)
    }

    /// A number that changes whenever a device is added, or its [`usage`](DeviceEntry::usage)
    /// changes.
    pub fn devices_changed(&self) -> u32 {
        self.devices_changed.load(Acquire)
    }

    /// The devices that take no new pages of the whole group, a bit each: their tiers are not among
    /// its own. Those of nested groups:
    /// [`masked_devices_around`](Decisions::masked_devices_around).
    pub fn masked_devices(&self) -> u32 {
        self.masked_devices.load(Relaxed)
    }

    /// The existing devices, by number.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceDescription, &DeviceEntry)> {
        self.devices.iter().map_while(|entry| Some((entry.description()?, entry)))
    }

    /// The seats that may be taken, by member id.
    pub fn seats_in_use(&self) -> &[Seat] {
        let high = self.seats_high.load(Acquire) as usize;
        &self.seats[..high.min(MEMBERS_MAX)]
    }

    /// The seat of a member; `None` for a number that no seat has.
    pub fn seat(&self, id: u32) -> Option<&Seat> {
        self.seats.get(id as usize)
    }

    /// The number of owners of a cluster; 0 for a number that no cluster can have.
    pub fn owners_of(&self, cluster: u32) -> u32 {
        self.cluster_owners.get(cluster as usize).map_or(0, |owners| owners.load(Relaxed))
    }
}

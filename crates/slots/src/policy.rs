//! Policies: the behaviour from before each series stays available as a variant (spec §1 to §4).
//!
//! A policy is a type. Its constants are folded at compile time, so a variant that is not chosen
//! costs nothing.

use crate::list_order::{DeviceView, ListOrder, Search, Searches};
use crate::lock::{Relax, SpinOnly};

/// Number of FRAG clusters that an allocation of order above 0 scans (spec §1, patch 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentScan {
    /// At most one, which then goes to the tail, so that the list rotates.
    One,
    /// The whole list, bounded by its length at the start.
    All,
}

/// The list that comes first when the CPU's own cluster is consumed (spec §1, patch 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterPreference {
    /// NONFULL first, but FREE first on devices that discard per cluster, and for order 0 while
    /// free clusters are plentiful ("Free while plentiful" among the design decisions).
    FreeWhilePlentiful,
    /// NONFULL first, but FREE first on devices that discard per cluster: series 1 as it was
    /// merged.
    ByDiscard,
    /// FREE first on every device.
    FreeFirst,
    /// NONFULL first on every device.
    NonfullFirst,
}

/// When full clusters are searched for slots that are only cached (spec §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullReclaim {
    /// When FREE and NONFULL are drained.
    AfterFreeAndNonfull,
    /// When FREE is drained.
    AfterFree,
}

/// Where a waiting discard may run (spec §1, "later fix to adopt").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardPlace {
    /// After an order-0 allocation failed on all devices, with no lock held.
    Outside,
    /// Inside the device's allocation, under the local lock.
    Inside,
}

/// Priority of a device that was added without one (spec §4, patch 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPriority {
    /// -1 for all: they rotate.
    Equal,
    /// -2, -3, ... by order of swapon: first come, first drained.
    Descending,
}

/// Origin of order-0 slots (spec §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotCache {
    /// From this CPU's cluster.
    None,
    /// From an array of 64 per logical CPU, filled in one go; its slots look used until they are
    /// handed out.
    PerCpu,
}

/// When the next of several equal devices is used (spec §2.5, "rotation rule").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// When this CPU's cluster is consumed: one global hint per CPU and order.
    PerCluster,
    /// After 64 order-0 slots and after each larger allocation: hints per device, CPU and order.
    PerAllocation,
}

/// How far a logical CPU's hint reaches: which allocations go on where the last one ended. Beside
/// the kernel's, two proposals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintScope {
    /// One hint per CPU and order (spec §2.5). Groups with different device masks that take turns
    /// on a CPU overwrite each other's.
    Cpu,
    /// One per CPU, order and device: a per-CPU cache of each device.
    Device,
    /// One per CPU, order and device mask, for the last four masks.
    Mask,
}

/// Whether a node prefers its own device of default priority (spec §4, patch 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodePreference {
    /// One available list for all.
    Off,
    /// One available list per node. It is the behaviour from before only together with
    /// [`DefaultPriority::Descending`].
    On,
}

/// How a range of slots is freed (spec §3, patch 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frees {
    /// All slots of one cluster under one lock and with one change of the counters.
    Batched,
    /// One slot after the other; the folio of a slot that is left only cached is tried at once.
    PerSlot,
}

/// Whether lock acquisitions are counted, for experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockCounting {
    /// Not at all.
    Off,
    /// Each one is counted, by kind of lock, and whether it found the lock taken:
    /// [`Slots::lock_stats`](crate::Slots::lock_stats).
    On,
}

/// The choices of one allocator.
pub trait Policy: 'static {
    /// How a thread waits for a lock that stays taken.
    type Relax: Relax;
    /// See [`FragmentScan`].
    const FRAGMENT_SCAN: FragmentScan = FragmentScan::One;
    /// See [`ClusterPreference`].
    const CLUSTER_PREFERENCE: ClusterPreference = ClusterPreference::FreeWhilePlentiful;
    /// See [`FullReclaim`].
    const FULL_RECLAIM: FullReclaim = FullReclaim::AfterFreeAndNonfull;
    /// See [`DiscardPlace`].
    const DISCARD_PLACE: DiscardPlace = DiscardPlace::Outside;
    /// See [`DefaultPriority`].
    const DEFAULT_PRIORITY: DefaultPriority = DefaultPriority::Equal;
    /// See [`SlotCache`].
    const SLOT_CACHE: SlotCache = SlotCache::None;
    /// See [`Rotation`].
    const ROTATION: Rotation = Rotation::PerCluster;
    /// See [`HintScope`].
    const HINT_SCOPE: HintScope = HintScope::Cpu;
    /// See [`NodePreference`].
    const NODE_PREFERENCE: NodePreference = NodePreference::Off;
    /// See [`Frees`].
    const FREES: Frees = Frees::Batched;
    /// See [`LockCounting`].
    const LOCK_COUNTING: LockCounting = LockCounting::Off;
    /// See [`ListOrder`]. With a list order of its own, a policy's `FRAGMENT_SCAN`,
    /// `CLUSTER_PREFERENCE` and `FULL_RECLAIM` have no effect.
    const LIST_ORDER: ListOrder = ListOrder::ByConstants;

    /// The lists to be searched, asked once per device and allocation that the CPU's own cluster
    /// cannot serve, if `LIST_ORDER` is [`ListOrder::Own`]. The local lock is held.
    fn list_order(view: &DeviceView) -> Searches {
        let _ = view;
        [
            Some(Search::Nonfull),
            Some(Search::Free),
            Some(Search::ReclaimFull),
            Some(Search::OneFragment),
            None,
            None,
        ]
    }
}

/// The behaviour after all five series, spinning without an operating system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Current;

impl Policy for Current {
    type Relax = SpinOnly;
}

//! The behaviours from before each series, each a type that changes one choice of another policy,
//! and the state that only they need. Two are proposals, and say so.
//!
//! They combine: `ScanAllFragments<FreeFirst>` is the state that series 1 started from. The
//! allocator asks a constant and calls into this folder; under today's policy neither the call nor
//! the state exists.

mod hint_scope;
mod nodes;
mod per_slot;
mod rotation;
mod slot_cache;
mod state;

pub(crate) use hint_scope::are_per_device;
pub use nodes::{NODES_MAX, Node};
pub(crate) use slot_cache::is_slot_cached;
pub(crate) use state::{VariantCpu, VariantShared, needs_state};

use crate::list_order::{DeviceView, ListOrder, Searches};
use crate::lock::Relax;
use crate::policy::{
    ClusterPreference, Current, DefaultPriority, DiscardPlace, FragmentScan, Frees, FullReclaim, HintScope,
    LockCounting, NodePreference, Policy, Rotation, SlotCache,
};
use core::marker::PhantomData;

/// The value for the constant that a variant changes, and `P`'s for all others.
#[rustfmt::skip]
macro_rules! pick {
    (FRAGMENT_SCAN, FRAGMENT_SCAN, $value:expr) => { $value };
    (CLUSTER_PREFERENCE, CLUSTER_PREFERENCE, $value:expr) => { $value };
    (FULL_RECLAIM, FULL_RECLAIM, $value:expr) => { $value };
    (DISCARD_PLACE, DISCARD_PLACE, $value:expr) => { $value };
    (DEFAULT_PRIORITY, DEFAULT_PRIORITY, $value:expr) => { $value };
    (SLOT_CACHE, SLOT_CACHE, $value:expr) => { $value };
    (ROTATION, ROTATION, $value:expr) => { $value };
    (HINT_SCOPE, HINT_SCOPE, $value:expr) => { $value };
    (NODE_PREFERENCE, NODE_PREFERENCE, $value:expr) => { $value };
    (FREES, FREES, $value:expr) => { $value };
    (LOCK_COUNTING, LOCK_COUNTING, $value:expr) => { $value };
    ($wanted:ident, $changed:ident, $value:expr) => { P::$wanted };
}

macro_rules! choices {
    ($changed:ident, $value:expr) => {
        const FRAGMENT_SCAN: FragmentScan = pick!(FRAGMENT_SCAN, $changed, $value);
        const CLUSTER_PREFERENCE: ClusterPreference = pick!(CLUSTER_PREFERENCE, $changed, $value);
        const FULL_RECLAIM: FullReclaim = pick!(FULL_RECLAIM, $changed, $value);
        const DISCARD_PLACE: DiscardPlace = pick!(DISCARD_PLACE, $changed, $value);
        const DEFAULT_PRIORITY: DefaultPriority = pick!(DEFAULT_PRIORITY, $changed, $value);
        const SLOT_CACHE: SlotCache = pick!(SLOT_CACHE, $changed, $value);
        const ROTATION: Rotation = pick!(ROTATION, $changed, $value);
        const HINT_SCOPE: HintScope = pick!(HINT_SCOPE, $changed, $value);
        const NODE_PREFERENCE: NodePreference = pick!(NODE_PREFERENCE, $changed, $value);
        const FREES: Frees = pick!(FREES, $changed, $value);
        const LOCK_COUNTING: LockCounting = pick!(LOCK_COUNTING, $changed, $value);
        const LIST_ORDER: ListOrder = P::LIST_ORDER;
        fn list_order(view: &DeviceView) -> Searches {
            P::list_order(view)
        }
    };
}

macro_rules! variants {
    ($($(#[$doc:meta])* $name:ident: $changed:ident = $value:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name<P = Current>(PhantomData<P>);

        impl<P: Policy> Policy for $name<P> {
            type Relax = P::Relax;
            choices!($changed, $value);
        }
    )* };
}

variants! {
    /// Before series 1, patch 1: an allocation of order above 0 scans every FRAG cluster of its
    /// order.
    ScanAllFragments: FRAGMENT_SCAN = FragmentScan::All;
    /// Series 1 as it was merged, and the kernel to this day: NONFULL before FREE unless the device
    /// discards per cluster, however many are free.
    NonfullUnlessDiscard: CLUSTER_PREFERENCE = ClusterPreference::ByDiscard;
    /// Before series 1, patch 2: FREE before NONFULL on every device.
    FreeFirst: CLUSTER_PREFERENCE = ClusterPreference::FreeFirst;
    /// NONFULL before FREE also on devices that discard per cluster. The kernel never had this
    /// rule: it is patch 2 without its exception.
    NonfullFirst: CLUSTER_PREFERENCE = ClusterPreference::NonfullFirst;
    /// Before series 1, patch 2: full clusters are searched as soon as FREE is drained.
    ReclaimAfterFree: FULL_RECLAIM = FullReclaim::AfterFree;
    /// Before the later fix to series 1: waiting discards run inside the allocator.
    DiscardInside: DISCARD_PLACE = DiscardPlace::Inside;
    /// Before series 2: 64 slots of order 0 cached per logical CPU.
    SlotCachePerCpu: SLOT_CACHE = SlotCache::PerCpu;
    /// Before series 2: devices rotate per 64 order-0 slots and per large allocation.
    RotatePerAllocation: ROTATION = Rotation::PerAllocation;
    /// Proposed, not from before: each device has hints of its own on every logical CPU.
    HintPerDevice: HINT_SCOPE = HintScope::Device;
    /// Proposed, not from before: each device mask has hints of its own on every logical CPU.
    HintPerMask: HINT_SCOPE = HintScope::Mask;
    /// Before series 3: slots are freed one by one.
    FreePerSlot: FREES = Frees::PerSlot;
    /// Before series 4, patch 1: a node drains its own device first. To be combined with
    /// [`DescendingPriorities`].
    PreferOwnNode: NODE_PREFERENCE = NodePreference::On;
    /// Before series 4, patch 2: devices without a priority get -2, -3, ... by order of swapon.
    DescendingPriorities: DEFAULT_PRIORITY = DefaultPriority::Descending;
    /// Not a behaviour: counts lock acquisitions.
    CountLocks: LOCK_COUNTING = LockCounting::On;
}

/// Not a behaviour: another way to wait for a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelaxBy<R, P = Current>(PhantomData<(R, P)>);

/// Expands for constants that no variant changes: every choice is `P`'s.
macro_rules! unchanged {
    () => {
        choices!(NOTHING, ());
    };
}

impl<R: Relax + 'static, P: Policy> Policy for RelaxBy<R, P> {
    type Relax = R;
    unchanged!();
}

/// Undoes all changes of series 1 ("improve cluster scan strategy").
pub type BeforeClusterScan<P = Current> = ScanAllFragments<FreeFirst<ReclaimAfterFree<DiscardInside<P>>>>;
/// Undoes all changes of series 2 ("remove swap slot cache").
pub type BeforeSlotCacheRemoval<P = Current> = SlotCachePerCpu<RotatePerAllocation<NonfullUnlessDiscard<P>>>;
/// Undoes all changes of series 4 ("round robin").
pub type BeforeRoundRobin<P = Current> = PreferOwnNode<DescendingPriorities<NonfullUnlessDiscard<P>>>;

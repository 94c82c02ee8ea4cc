#![no_std]
#![doc = include_str!("../README.md")]

mod alloc;
mod available;
mod before;
mod cache;
mod cluster;
mod counting;
mod cpu;
mod device;
mod device_alloc;
mod discard;
mod duplicate;
mod entry;
mod folio;
mod frames;
mod free;
mod groups;
mod guard;
mod hooks;
mod layout;
mod list_order;
mod lists;
mod lock;
mod observe;
mod order;
mod policy;
mod range;
mod reclaim;
mod scan;
mod slots;
mod stats;
mod swapoff;
mod swapon;
mod sync;
mod usage;
mod validate;
mod word;
mod words;

pub use alloc::AllocError;
pub use before::{
    BeforeClusterScan, BeforeRoundRobin, BeforeSlotCacheRemoval, CountLocks, DescendingPriorities,
    DiscardInside, FreeFirst, FreePerSlot, HintPerDevice, HintPerMask, NODES_MAX, Node, NonfullFirst,
    NonfullUnlessDiscard, PreferOwnNode, ReclaimAfterFree, RelaxBy, RotatePerAllocation, ScanAllFragments,
    SlotCachePerCpu,
};
pub use cache::{CacheError, InsertError, Inserted};
pub use counting::{AllLockStats, LockStats};
pub use device::{DeviceFlags, DeviceInfo};
pub use duplicate::DupError;
pub use entry::{DEVICES_MAX, DeviceId, DeviceMask, FolioId, LogicalCpu, SwapEntry};
pub use frames::{AddFramesError, FrameContent};
pub use free::Put;
pub use groups::{ChargeTo, GROUPS_MAX, GroupError, GroupId, GroupStats, Groups, Uncharge};
pub use hooks::{ChargeRefused, DiscardOutcome, Hooks, NoHooks, Reclaimed};
pub use layout::{Config, ConfigError, METADATA_ALIGN};
pub use list_order::{DeviceView, ListOrder, Search, Searches};
pub use lock::{Relax, SpinOnly};
pub use observe::{LockName, Step};
pub use order::{CLUSTER_SLOTS, ORDERS, Order, OrderMask};
pub use policy::{
    ClusterPreference, Current, DefaultPriority, DiscardPlace, FragmentScan, Frees, FullReclaim, HintScope,
    LockCounting, NodePreference, Policy, Rotation, SlotCache,
};
pub use reclaim::FullClusters;
pub use slots::{EntryError, Slots};
pub use stats::{ClusterUse, DeviceLists, Stats};
pub use swapoff::{DeviceReference, SwapoffError};
pub use swapon::{DeviceSpec, SwaponError};
pub use validate::{Report, Violation};
pub use word::{Shadow, SlotWord, ZeroMark};

//! The real source files under shuttle's scheduler. Every module of the crate is compiled into this
//! test with a `sync` whose types let the scheduler switch threads at each atomic operation.
//!
//! `FOLIOSWAP_SLOTS_SCHEDULES=100000 cargo test --release -p folioswap-slots --test shuttle` is the
//! long form (default 600 schedules per model). A failure prints the schedule, to be replayed with
//! `shuttle::replay`.
#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../../src/alloc.rs"]
mod alloc;
#[path = "../../src/available.rs"]
mod available;
#[path = "../../src/before/mod.rs"]
mod before;
#[path = "../../src/cache.rs"]
mod cache;
#[path = "../../src/cluster.rs"]
mod cluster;
#[path = "../../src/counting.rs"]
mod counting;
#[path = "../../src/cpu.rs"]
mod cpu;
#[path = "../../src/device.rs"]
mod device;
#[path = "../../src/device_alloc.rs"]
mod device_alloc;
#[path = "../../src/discard.rs"]
mod discard;
#[path = "../../src/duplicate.rs"]
mod duplicate;
#[path = "../../src/entry.rs"]
mod entry;
#[path = "../../src/folio.rs"]
mod folio;
#[path = "../../src/frames.rs"]
mod frames;
#[path = "../../src/free.rs"]
mod free;
#[path = "../../src/guard.rs"]
mod guard;
#[path = "../../src/hooks.rs"]
mod hooks;
mod interruptions;
#[path = "../../src/layout.rs"]
mod layout;
#[path = "../../src/list_order.rs"]
mod list_order;
#[path = "../../src/lists.rs"]
mod lists;
#[path = "../../src/lock.rs"]
mod lock;
mod models;
#[path = "../../src/observe.rs"]
mod observe;
#[path = "../../src/order.rs"]
mod order;
#[path = "../../src/policy.rs"]
mod policy;
#[path = "../../src/range.rs"]
mod range;
#[path = "../../src/reclaim.rs"]
mod reclaim;
#[path = "../../src/scan.rs"]
mod scan;
#[path = "../../src/slots.rs"]
mod slots;
#[path = "../../src/stats.rs"]
mod stats;
#[path = "../../src/swapoff.rs"]
mod swapoff;
#[path = "../../src/swapon.rs"]
mod swapon;
#[path = "sync.rs"]
mod sync;
#[path = "../../src/usage.rs"]
mod usage;
#[path = "../../src/validate.rs"]
mod validate;
#[path = "../../src/word.rs"]
mod word;
#[path = "../../src/words.rs"]
mod words;

pub use alloc::AllocError;
pub use before::{
    BeforeClusterScan, BeforeRoundRobin, BeforeSlotCacheRemoval, CountLocks, DescendingPriorities,
    DiscardInside, FreeFirst, FreePerSlot, NODES_MAX, Node, NonfullFirst, PreferOwnNode, ReclaimAfterFree,
    RelaxBy, RotatePerAllocation, ScanAllFragments, SlotCachePerCpu,
};
pub use cache::{CacheError, InsertError, Inserted};
pub use counting::{AllLockStats, LockStats};
pub use device::{DeviceFlags, DeviceInfo};
pub use duplicate::DupError;
pub use entry::{DEVICES_MAX, DeviceId, DeviceMask, FolioId, LogicalCpu, SwapEntry};
pub use frames::{AddFramesError, FrameContent};
pub use free::Put;
pub use hooks::{ChargeRefused, DiscardOutcome, Hooks, NoHooks, Reclaimed};
pub use layout::{Config, ConfigError, METADATA_ALIGN};
pub use lock::{Relax, SpinOnly};
pub use order::{CLUSTER_SLOTS, ORDERS, Order, OrderMask};
pub use policy::{
    ClusterPreference, Current, DefaultPriority, DiscardPlace, FragmentScan, Frees, FullReclaim,
    LockCounting, NodePreference, Policy, Rotation, SlotCache,
};
pub use reclaim::FullClusters;
pub use slots::{EntryError, Slots};
pub use stats::{DeviceLists, Stats};
pub use swapoff::{DeviceReference, SwapoffError};
pub use swapon::{DeviceSpec, SwaponError};
pub use validate::{Report, Violation};
pub use word::{Shadow, SlotWord, ZeroMark};

//! One swap device as the slot allocator sees it (spec §0, `swap_info_struct`).

use crate::before::Node;
use crate::entry::DEVICES_MAX;
use crate::lists::Lists;
use crate::lock::SpinLock;
use crate::order::{CLUSTER_SLOTS, ORDERS, OrderMask};
use crate::swapon::DeviceSpec;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::usage::Usage;
use core::num::NonZeroU64;

/// Properties of a device, given at swapon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceFlags(u32);

impl DeviceFlags {
    /// No property.
    pub const NONE: DeviceFlags = DeviceFlags(0);
    /// Reads and writes end before the call returns, as with compressed RAM.
    pub const SYNCHRONOUS: DeviceFlags = DeviceFlags(1 << 0);
    /// A rotating disk: one next offset per order for all CPUs.
    pub const ROTATIONAL: DeviceFlags = DeviceFlags(1 << 1);
    /// Empty clusters wait for a discard before they are free.
    pub const DISCARD: DeviceFlags = DeviceFlags(1 << 2);

    /// The properties of both sets.
    pub const fn with(self, other: DeviceFlags) -> DeviceFlags {
        DeviceFlags(self.0 | other.0)
    }

    /// Whether all of `other` is set.
    #[inline]
    pub const fn contains(self, other: DeviceFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for DeviceFlags {
    type Output = DeviceFlags;
    fn bitor(self, other: DeviceFlags) -> DeviceFlags {
        self.with(other)
    }
}

/// The device number is taken.
const STATE_ON: u32 = 1 << 0;
/// Slots may be allocated.
const STATE_WRITEOK: u32 = 1 << 1;
/// References may be obtained.
const STATE_LIVE: u32 = 1 << 2;

/// A step in the life of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// No device.
    Off,
    /// On, references may be obtained, slots may be allocated.
    Writable,
    /// swapoff: no allocation any more, references may be obtained.
    Draining,
    /// swapoff: the reference is killed.
    Dead,
}

/// The usage, on cache lines of its own, because every allocation and every free writes it.
#[repr(C, align(128))]
pub(crate) struct Contended {
    pub(crate) usage: Usage,
}

/// Next offsets of a rotating disk, with a lock of their own.
#[repr(C)]
pub(crate) struct GlobalCluster {
    pub(crate) lock: SpinLock,
    pub(crate) next: [AtomicU64; ORDERS],
}

/// Zeroed memory is no device.
#[repr(C, align(128))]
pub(crate) struct Device {
    state: AtomicU32,
    flags: AtomicU32,
    orders: AtomicU32,
    /// Priority as the bits of an i32.
    priority: AtomicU32,
    /// Node number + 1; 0 = none.
    node: AtomicU32,
    /// 0 = none.
    identity: AtomicU64,
    /// Index of the first descriptor in the cluster array.
    pub(crate) first_cluster: AtomicU32,
    /// Descriptors reserved.
    pub(crate) clusters_reserved: AtomicU32,
    /// Slots, header and bad ones included.
    max: AtomicU64,
    /// Slots that can be allocated.
    pages: AtomicU64,
    /// Clusters of this index and above were never taken from the free list's end. Written under
    /// the list lock.
    pub(crate) high_water: AtomicU32,
    /// Number of complete clusters; a partial last one follows them. Written under the list lock.
    pub(crate) whole_clusters: AtomicU32,
    /// Discards under way, each of a cluster that is off-list with a flag.
    pub(crate) discards_running: AtomicU32,
    pub(crate) global_cluster: GlobalCluster,
    pub(crate) contended: Contended,
    pub(crate) lists: Lists,
}

impl Device {
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE_WRITEOK != 0
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.state.load(Ordering::SeqCst) & STATE_LIVE != 0
    }

    pub(crate) fn state(&self) -> DeviceState {
        let state = self.state.load(Ordering::Acquire);
        if state & STATE_WRITEOK != 0 {
            DeviceState::Writable
        } else if state & STATE_LIVE != 0 {
            DeviceState::Draining
        } else if state & STATE_ON != 0 {
            DeviceState::Dead
        } else {
            DeviceState::Off
        }
    }

    pub(crate) fn set_state(&self, state: DeviceState) {
        let bits = match state {
            DeviceState::Off => 0,
            DeviceState::Dead => STATE_ON,
            DeviceState::Draining => STATE_ON | STATE_LIVE,
            DeviceState::Writable => STATE_ON | STATE_LIVE | STATE_WRITEOK,
        };
        self.state.store(bits, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn has(&self, flags: DeviceFlags) -> bool {
        DeviceFlags(self.flags.load(Ordering::Relaxed)).contains(flags)
    }

    #[inline]
    pub(crate) fn orders(&self) -> OrderMask {
        OrderMask::from_bits(self.orders.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed) as i32
    }

    /// One past the largest offset; 0 while the device is off.
    #[inline]
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Acquire)
    }

    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Release);
    }

    #[inline]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    pub(crate) fn set_pages(&self, pages: u64) {
        self.pages.store(pages, Ordering::Release);
    }

    #[inline]
    pub(crate) fn usage(&self) -> &Usage {
        &self.contended.usage
    }

    /// Number of clusters, a partial last one included.
    pub(crate) fn clusters(&self) -> u32 {
        self.max().div_ceil(u64::from(CLUSTER_SLOTS)) as u32
    }

    /// Fills the descriptor in. Context: swap lock held, device not on yet.
    pub(crate) fn describe(&self, spec: &DeviceSpec<'_>, priority: i32) {
        self.flags.store(spec.flags.0, Ordering::Relaxed);
        self.orders.store(spec.orders.bits(), Ordering::Relaxed);
        self.node.store(spec.node.map_or(0, |node| node.index() as u32 + 1), Ordering::Relaxed);
        self.identity.store(spec.identity.map_or(0, NonZeroU64::get), Ordering::Relaxed);
        self.priority.store(priority as u32, Ordering::Relaxed);
    }

    pub(crate) fn node(&self) -> Option<Node> {
        self.node.load(Ordering::Relaxed).checked_sub(1).and_then(Node::new)
    }

    pub(crate) fn identity(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.identity.load(Ordering::Relaxed))
    }

    /// Context: swap lock held.
    pub(crate) fn set_priority(&self, priority: i32) {
        self.priority.store(priority as u32, Ordering::Relaxed);
    }
}

/// Description of a device for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Slots that can be allocated: without header and bad ones.
    pub pages: u64,
    /// Slots in use.
    pub inuse: u64,
    /// Priority; higher is used first.
    pub prio: i32,
    /// One past the largest offset.
    pub max: u64,
    /// Properties.
    pub flags: DeviceFlags,
    /// Orders that it accepts.
    pub orders: OrderMask,
    /// Whether slots may be allocated; false from the start of swapoff on.
    pub writable: bool,
    /// Whether it is on the available list; false while full and from the start of swapoff on.
    pub available: bool,
}

impl Device {
    pub(crate) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            pages: self.pages(),
            inuse: self.usage().inuse(),
            prio: self.priority(),
            max: self.max(),
            flags: DeviceFlags(self.flags.load(Ordering::Relaxed)),
            orders: self.orders(),
            writable: self.is_writable(),
            available: self.usage().listing() == crate::usage::Listing::OnList,
        }
    }
}

const _: () = assert!(DEVICES_MAX == 32, "device masks have 32 bits");

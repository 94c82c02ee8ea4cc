//! Counters, read without locks: each sum was true at a slightly different moment.

use crate::entry::DeviceId;
use crate::lists::ListId;
use crate::order::{CLUSTER_SLOTS, ORDERS, Order};
use crate::policy::{Policy, SlotCache};
use crate::slots::Slots;
use crate::sync::Ordering;

/// Counters of all devices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Slots that can be allocated, of all writable devices.
    pub slots: u64,
    /// Slots in use, of all writable devices.
    pub inuse: u64,
    /// Successful allocations per order (`swpout` of that size).
    pub allocated: [u64; ORDERS],
    /// Failed allocations per order (`swpout_fallback` of that size).
    pub fallback: [u64; ORDERS],
    /// Allocations served from the CPU's own cluster.
    pub hint_hits: u64,
    /// Clusters isolated and scanned, per order of the allocation. Scans of a CPU's own cluster are
    /// not counted.
    pub clusters_scanned: [u64; ORDERS],
    /// Slots that lie in slot caches: in use, but without an owner
    /// ([`SlotCache`](crate::SlotCache)).
    pub slot_cached: u64,
    /// Frames ever added.
    pub frames: u32,
    /// Frames that no cluster has.
    pub frames_free: u32,
}

/// The use of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterUse {
    /// Slots in use, bad ones included.
    pub used: u32,
    /// Slots that exist.
    pub slots: u32,
}

/// Clusters of one device, by list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceLists {
    /// Clusters never used, behind the high-water mark. Those with bad slots are counted both here
    /// and on their list.
    pub never_used: u32,
    /// Empty clusters without a table.
    pub free: u32,
    /// Clusters with all slots used.
    pub full: u32,
    /// Empty clusters that wait for a discard.
    pub discard: u32,
    /// Partly used clusters in which a slot was freed since the last scan, per order.
    pub nonfull: [u32; ORDERS],
    /// Partly used clusters whose last scan used or failed them, per order.
    pub frag: [u32; ORDERS],
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Counters of all devices together. Cost: some loads per logical CPU and device.
    pub fn stats(&self) -> Stats {
        let (free, slots) = self.free_and_total(crate::DeviceMask::ALL);
        let mut stats = Stats {
            slots,
            inuse: slots - free,
            frames: self.frames_total(),
            frames_free: self.frames_free(),
            ..Stats::default()
        };
        if P::SLOT_CACHE == SlotCache::PerCpu {
            stats.slot_cached = self.count_slot_cached();
        }
        for cpu in self.cpus() {
            for order in Order::all() {
                stats.allocated[order.index()] += cpu.allocated(order);
                stats.fallback[order.index()] += cpu.fallback(order);
                stats.clusters_scanned[order.index()] += cpu.scanned(order);
            }
            stats.hint_hits += cpu.hint_hits();
        }
        stats
    }

    /// Clusters of `device` by list; `None` if it is off.
    pub fn device_lists(&self, device: DeviceId) -> Option<DeviceLists> {
        if !self.devices().contains(device) {
            return None;
        }
        let device = self.device(device);
        let whole = device.whole_clusters.load(Ordering::Relaxed);
        let mut lists = DeviceLists {
            never_used: whole.saturating_sub(device.high_water.load(Ordering::Relaxed)),
            free: device.lists.length(ListId::FREE),
            full: device.lists.length(ListId::FULL),
            discard: device.lists.length(ListId::DISCARD),
            ..DeviceLists::default()
        };
        for order in Order::all() {
            lists.nonfull[order.index()] = device.lists.length(ListId::nonfull(order));
            lists.frag[order.index()] = device.lists.length(ListId::frag(order));
        }
        Some(lists)
    }

    /// The use of one cluster of `device`, counted from the device's first; `None` if the device is
    /// off, or has no such cluster. Cost: some loads.
    pub fn cluster_use(&self, device: DeviceId, cluster: u32) -> Option<ClusterUse> {
        if !self.devices().contains(device) {
            return None;
        }
        let device = self.device(device);
        if cluster >= device.clusters() {
            return None;
        }
        // The last cluster's slots behind the end of the device count as bad.
        let left = device.max().saturating_sub(u64::from(cluster) * u64::from(CLUSTER_SLOTS));
        let slots = left.min(u64::from(CLUSTER_SLOTS)) as u32;
        let used = self.cluster(device, cluster).used();
        Some(ClusterUse { used: used.saturating_sub(CLUSTER_SLOTS - slots), slots })
    }
}

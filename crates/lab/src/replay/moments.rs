//! The allocator over the course of a replay: clusters by list, failures, wear, and how full each
//! part of the devices is.
//!
//! The figures of a whole replay do not tell when folios began to fail, nor whether what is used
//! lies together. A moment is taken between two operations, so nothing changes meanwhile.

use crate::wear::Wear;
use folioswap_slots::{ClusterUse, DeviceId, DeviceLists, ORDERS, Policy, Slots, Stats};
use serde::Serialize;

/// The most cells into which the clusters of all devices are put together.
const CELLS_MAX: u32 = 128;

/// The moments of a replay, evenly spaced over its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moments {
    /// Clusters of all devices.
    pub clusters: u32,
    /// Neighbouring clusters in a cell of [`Moment::used_percent`]; the last cell may have fewer.
    pub clusters_per_cell: u32,
    /// The moments, the first before any operation.
    pub moments: Vec<Moment>,
}

/// The allocator after so many operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Operations of the trace that are done.
    pub operations: u64,
    /// Slots in use.
    pub slots_in_use: u64,
    /// Allocations since the moment before that succeeded, per order.
    pub allocated: [u64; ORDERS],
    /// The same that failed.
    pub fallback: [u64; ORDERS],
    /// Clusters by list.
    pub lists: Lists,
    /// Slots that were ever written.
    pub slots_ever_written: u64,
    /// Clusters discarded.
    pub clusters_discarded: u64,
    /// How full each cell is, in percent, from the first cluster of the first device on.
    pub used_percent: Vec<u8>,
}

/// Clusters of all devices, by list. Those that logical CPUs allocate from are on none; a cluster
/// that was never used and has a bad slot (the first and the last of a device) counts twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Lists {
    /// Never used.
    pub never_used: u32,
    /// Empty.
    pub free: u32,
    /// Empty, and waiting for a discard.
    pub discard: u32,
    /// Partly used, with a slot freed since the last scan; of all orders.
    pub nonfull: u32,
    /// Partly used, and used or failed by the last scan; of all orders.
    pub frag: u32,
    /// Full.
    pub full: u32,
}

/// Takes moments of a replay.
pub(super) struct Watch<'a, P: Policy> {
    slots: &'a Slots<0, P>,
    wear: &'a Wear,
    /// Each device, and its clusters.
    devices: Vec<(DeviceId, u32)>,
    before: Stats,
    taken: Moments,
}

impl<'a, P: Policy> Watch<'a, P> {
    pub(super) fn new(slots: &'a Slots<0, P>, wear: &'a Wear, ids: &[DeviceId]) -> Self {
        let clusters_of = |&id: &DeviceId| {
            let count = (0..).take_while(|&cluster| slots.cluster_use(id, cluster).is_some()).count();
            (id, count as u32)
        };
        let devices: Vec<_> = ids.iter().map(clusters_of).collect();
        let clusters: u32 = devices.iter().map(|device| device.1).sum();
        let clusters_per_cell = clusters.div_ceil(CELLS_MAX).max(1);
        let taken = Moments { clusters, clusters_per_cell, moments: Vec::new() };
        Watch { slots, wear, devices, before: Stats::default(), taken }
    }

    /// Takes the moment after so many operations.
    pub(super) fn take(&mut self, operations: u64) {
        let now = self.slots.stats();
        let since = |now: [u64; ORDERS], before: [u64; ORDERS]| {
            std::array::from_fn(|order| now[order] - before[order])
        };
        let moment = Moment {
            operations,
            slots_in_use: now.inuse,
            allocated: since(now.allocated, self.before.allocated),
            fallback: since(now.fallback, self.before.fallback),
            lists: self.lists(),
            slots_ever_written: self.wear.slots_ever_written(),
            clusters_discarded: self.wear.clusters_discarded(),
            used_percent: self.used_percent(),
        };
        self.before = now;
        self.taken.moments.push(moment);
    }

    pub(super) fn end(self) -> Moments {
        self.taken
    }

    fn lists(&self) -> Lists {
        let mut lists = Lists::default();
        for of in self.devices.iter().filter_map(|&(id, _)| self.slots.device_lists(id)) {
            let DeviceLists { never_used, free, full, discard, nonfull, frag } = of;
            lists.never_used += never_used;
            lists.free += free;
            lists.full += full;
            lists.discard += discard;
            lists.nonfull += nonfull.iter().sum::<u32>();
            lists.frag += frag.iter().sum::<u32>();
        }
        lists
    }

    fn used_percent(&self) -> Vec<u8> {
        let of_device = |&(id, clusters): &(DeviceId, u32)| {
            (0..clusters).filter_map(move |cluster| self.slots.cluster_use(id, cluster))
        };
        let used: Vec<ClusterUse> = self.devices.iter().flat_map(of_device).collect();
        let percent = |cell: &[ClusterUse]| {
            let sum =
                |of: fn(&ClusterUse) -> u32| cell.iter().map(|cluster| u64::from(of(cluster))).sum::<u64>();
            (sum(|cluster| cluster.used) * 100 / sum(|cluster| cluster.slots).max(1)) as u8
        };
        used.chunks(self.taken.clusters_per_cell as usize).map(percent).collect()
    }
}

impl Moments {
    /// The names of the columns of [`Moments::rows`].
    pub fn head() -> Vec<String> {
        let fixed = [
            "operations",
            "slots_in_use",
            "never_used",
            "free",
            "discard",
            "nonfull",
            "frag",
            "full",
            "slots_ever_written",
            "clusters_discarded",
        ];
        let of_order = |name: &'static str| (0..ORDERS).map(move |order| format!("{name}_{order}"));
        let fixed = fixed.into_iter().map(str::to_owned);
        fixed.chain(of_order("allocated")).chain(of_order("fallback")).collect()
    }

    /// A row of numbers for each moment, for a table; without how full the cells are.
    pub fn rows(&self) -> impl Iterator<Item = Vec<u64>> + '_ {
        self.moments.iter().map(|moment| {
            let Lists { never_used, free, discard, nonfull, frag, full } = moment.lists;
            let clusters = [never_used, free, discard, nonfull, frag, full].map(u64::from);
            let mut row = vec![moment.operations, moment.slots_in_use];
            row.extend(clusters);
            row.extend([moment.slots_ever_written, moment.clusters_discarded]);
            row.extend(moment.allocated.iter().chain(&moment.fallback));
            row
        })
    }
}

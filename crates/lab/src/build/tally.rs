//! The device that a run swaps to, and the counts of a run.

use folioswap_slots::{AllLockStats, DeviceFlags, ORDERS};

/// The device that the group swaps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapDevice {
    /// Size in pages.
    pub pages: u64,
    /// [`DeviceFlags::SYNCHRONOUS`], [`DeviceFlags::DISCARD`] or none.
    pub flags: DeviceFlags,
}

/// The fate of the folios of one order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Swapped out whole (`swpout`).
    pub allocated: u64,
    /// Split because no slots were found (`swpout_fallback`); for order 0: out of swap.
    pub fallback: u64,
    /// Clusters isolated and scanned for them.
    pub clusters_scanned: u64,
}

/// The counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Folios by order.
    pub orders: [OrderCounts; ORDERS],
    /// Slots freed.
    pub slots_freed: u64,
    /// Slots that became only cached.
    pub slots_retained: u64,
    /// Slots that were only cached and swapped out again without being written.
    pub slots_reused: u64,
    /// Slots that were only cached and taken back by the allocator.
    pub slots_reclaimed: u64,
    /// Peak of the slots in use at a time.
    pub inuse_peak: u64,
    /// Peak of the slots that were only cached at a time.
    pub retained_peak: u64,
    /// Slots that were ever written.
    pub slots_ever_written: u64,
    /// Clusters discarded.
    pub clusters_discarded: u64,
    /// Slots that the forced search of full clusters took back, which the kernel queues when the
    /// device becomes full.
    pub slots_reclaimed_forced: u64,
    /// Steps with more than half of the swap in use.
    pub steps_full: u64,
    /// All steps.
    pub steps: u64,
    /// Lock acquisitions, if the policy counts them.
    pub locks: Option<AllLockStats>,
}

impl Tally {
    /// The sum over all orders above 0.
    pub fn large(&self) -> OrderCounts {
        self.orders[1..].iter().fold(OrderCounts::default(), |sum, order| OrderCounts {
            allocated: sum.allocated + order.allocated,
            fallback: sum.fallback + order.fallback,
            clusters_scanned: sum.clusters_scanned + order.clusters_scanned,
        })
    }
}

//! Discards of empty clusters, outside the allocator (spec §1, "later fix to adopt").

use crate::entry::{DeviceId, DeviceMask, LogicalCpu};
use crate::hooks::{DiscardOutcome, Hooks};
use crate::lists::ListId;
use crate::order::CLUSTER_SLOTS;
use crate::policy::Policy;
use crate::slots::Slots;
use crate::sync::Ordering;

/// The CPU whose counter holds the references of work that is done for no CPU.
pub(crate) const PINNED_ON: LogicalCpu = LogicalCpu(0);

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Number of clusters of `device` that wait for their discard.
    pub fn discards_pending(&self, device: DeviceId) -> u32 {
        self.device(device).lists.length(ListId::DISCARD)
    }

    /// Runs the discards of `device` that wait now, through [`Hooks::discard`], with no lock held
    /// during each; the cluster is FREE afterwards. Ends at the first one that is deferred. Pins
    /// the device; does nothing once swapoff has killed its reference. Returns the number of
    /// clusters freed.
    pub fn run_discards<H: Hooks>(&self, device: DeviceId, hooks: &H) -> u32 {
        // Between two discards nothing else would keep swapoff from taking the lists away.
        let Some(_pinned) = self.device_get(PINNED_ON, device) else { return 0 };
        let mut done = 0;
        for _ in 0..self.discards_pending(device) {
            let Some(cluster) = self.isolate(device, ListId::DISCARD) else { break };
            let first = u64::from(cluster.index) * u64::from(CLUSTER_SLOTS);
            // The cluster is off-list with its flag: hints see that it is not usable.
            match cluster.unlocked(|| hooks.discard(device, first, CLUSTER_SLOTS)) {
                DiscardOutcome::Done => cluster.discard_done(),
                DiscardOutcome::Deferred => break,
            }
            done += 1;
        }
        done
    }

    /// Runs the pending discards of the permitted devices, by priority, until one device has got a
    /// free cluster by it; says whether one has.
    #[cold]
    pub(crate) fn run_first_pending_discards<H: Hooks>(&self, mask: DeviceMask, hooks: &H) -> bool {
        let mut left = self.devices().intersection(mask);
        // Of equal devices the one with the lowest number comes first.
        while let Some(id) = left.iter().min_by_key(|id| -self.device(*id).priority()) {
            left = left.without(id);
            if self.discards_pending(id) > 0 && self.run_discards(id, hooks) > 0 {
                return true;
            }
        }
        false
    }

    /// Free slots of the permitted devices that an allocation can reach now: those of clusters that
    /// wait for a discard, or are being discarded, are not among them.
    #[cold]
    pub(crate) fn free_within_reach(&self, mask: DeviceMask) -> u64 {
        let waiting = |id: DeviceId| {
            let running = self.device(id).discards_running.load(Ordering::Relaxed);
            // A cluster with bad slots is never empty, so each of these is whole.
            u64::from(self.discards_pending(id) + running) * u64::from(CLUSTER_SLOTS)
        };
        let devices = self.devices().intersection(mask);
        let reach = |id| self.free_and_total(DeviceMask::only(id)).0.saturating_sub(waiting(id));
        devices.iter().map(reach).sum()
    }
}

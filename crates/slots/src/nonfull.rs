//! Which NONFULL cluster a CPU takes: one that it drained itself before another CPU's.
//!
//! Slots are freed mostly by who allocated them. A CPU that drains a cluster into which another one is just freeing meets it at every slot: the
//! cluster's lock, the word and the device's list lock come from the other CPU's cache each time. As long as free clusters are plentiful,
//! another CPU's NONFULL clusters are therefore left to it, as contended ones are. The bound keeps what series 1 is about, that
//! partly used clusters are filled before new ones are opened (docs/design.md, "Whose nonfull cluster").

use crate::device::Device;
use crate::entry::{DeviceId, LogicalCpu};
use crate::guard::Isolated;
use crate::lists::ListId;
use crate::policy::{NonfullChoice, Policy};
use crate::slots::Slots;
use crate::sync::Ordering;

/// How far a CPU looks into a list for a cluster of its own.
const LOOK_MAX: u32 = 8;

/// Free clusters are plentiful while there are this many for each NONFULL one of the order: at most one cluster in 17 is partly used without need.
const FREE_PER_NONFULL: u32 = 16;

/// Whose clusters may be taken off a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The CPU's own; others' only if free clusters are not plentiful.
    OwnWhilePlentiful,
    /// The first one of the list.
    Any,
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// As [`isolate`](Self::isolate), within `reach` of `cpu`, which drains the cluster from now on.
    pub(crate) fn isolate_for(
        &self,
        id: DeviceId,
        list: ListId,
        reach: Reach,
        cpu: LogicalCpu,
    ) -> Option<Isolated<'_, PAYLOAD, P>> {
        if P::NONFULL_CHOICE == NonfullChoice::ListOrder {
            return self.isolate(id, list);
        }
        let found = match reach {
            Reach::Any => self.isolate(id, list),
            Reach::OwnWhilePlentiful => self.isolate_own_while_plentiful(id, list, cpu),
        };
        found.inspect(|isolated| isolated.cluster.set_drained_by(cpu))
    }

    fn isolate_own_while_plentiful(
        &self,
        id: DeviceId,
        list: ListId,
        cpu: LogicalCpu,
    ) -> Option<Isolated<'_, PAYLOAD, P>> {
        let device = self.device(id);
        let _held = self.hold_lists(device);
        let mut candidate = device.lists.first(list);
        for _ in 0..LOOK_MAX {
            let Some(index) = candidate else { break };
            let cluster = self.cluster(device, index);
            if cluster.is_drained_by(cpu) {
                return self.isolate_from(id, device, list, candidate);
            }
            candidate = cluster.next.load(Ordering::Relaxed).checked_sub(1);
        }
        if free_is_plentiful(device, list) {
            return None;
        }
        self.isolate_from(id, device, list, device.lists.first(list))
    }
}

/// Context: list lock held.
fn free_is_plentiful(device: &Device, nonfull: ListId) -> bool {
    let whole = device.whole_clusters.load(Ordering::Relaxed);
    let never_used = whole.saturating_sub(device.high_water.load(Ordering::Relaxed));
    let free = device.lists.length(ListId::FREE) + never_used;
    free >= device.lists.length(nonfull).saturating_mul(FREE_PER_NONFULL)
}

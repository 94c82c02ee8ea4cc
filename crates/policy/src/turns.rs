//! The device that the next write goes to (spec §4): strictly by priority. Devices of equal
//! priority take turns, a cluster each; a full device is passed over until it has space again.
//!
//! The clusters of shared devices rotate where they are granted, at the supervisor, over the whole
//! group. The compressed store is each member's own and has no clusters: among its equals its turn
//! is as many pages as a cluster has slots.

use folioswap_group::devices::{DeviceDescription, DeviceKind};
use folioswap_slots::{DEVICES_MAX, DeviceId, DeviceMask};

/// Slots of a cluster: a turn of the compressed store is as many pages.
const CLUSTER_SLOTS: u64 = folioswap_slots::CLUSTER_SLOTS as u64;

/// The destination of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the compressed store.
    Store,
    /// To a slot on any of these shared devices, which are equals.
    Shared(DeviceMask),
}

/// The order in which one member uses its devices. Pure: the caller knows which devices are full.
#[derive(Clone, Debug)]
pub struct Turns {
    priorities: [Option<i32>; DEVICES_MAX],
    store: DeviceMask,
    /// The priority of the store, also of one that takes no new pages.
    store_priority: Option<i32>,
    /// The side whose turn it is, the store or its equals.
    turn: Whose,
    /// Pages left of this turn.
    left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Store,
    Shared,
}

impl Turns {
    /// Creates the order of these devices, by number; the store begins.
    pub fn new(devices: impl IntoIterator<Item = DeviceDescription>) -> Self {
        let mut turns = Turns {
            priorities: [None; DEVICES_MAX],
            store: DeviceMask::NONE,
            store_priority: None,
            turn: Whose::Shared,
            left: 0,
        };
        for (id, device) in DeviceMask::ALL.iter().zip(devices) {
            turns.priorities[id.index()] = Some(device.priority);
            if device.kind == DeviceKind::Zram {
                turns.store = turns.store.with(id);
                turns.store_priority = turns.store_priority.max(Some(device.priority));
            }
        }
        turns
    }

    /// Returns the same order for a member whose new pages may go to these devices alone. What a
    /// store has that is not among them goes on to the devices below it as before.
    pub fn among(mut self, permitted: DeviceMask) -> Self {
        for id in DeviceMask::ALL.minus(permitted).iter() {
            self.priorities[id.index()] = None;
        }
        self.store = self.store.intersection(permitted);
        self
    }

    /// Whether a compressed store is among the devices.
    pub fn has_store(&self) -> bool {
        !self.store.is_empty()
    }

    /// Returns the destination of the next write if only `available` devices have space, or `None`
    /// if no device has.
    pub fn next(&mut self, available: DeviceMask) -> Option<Choice> {
        let first = self.first(available);
        let shared = first.minus(self.store);
        if shared.is_empty() {
            return (!first.is_empty()).then_some(Choice::Store);
        }
        if shared == first {
            return Some(Choice::Shared(shared));
        }
        if self.left == 0 {
            (self.turn, self.left) = match self.turn {
                Whose::Store => (Whose::Shared, u64::from(shared.len()) * CLUSTER_SLOTS),
                Whose::Shared => (Whose::Store, CLUSTER_SLOTS),
            };
        }
        Some(match self.turn {
            Whose::Store => Choice::Store,
            Whose::Shared => Choice::Shared(shared),
        })
    }

    /// Whether the store alone comes first among `available`, without an equal.
    pub fn store_is_first(&self, available: DeviceMask) -> bool {
        let first = self.first(available);
        !first.is_empty() && first == self.store
    }

    /// Records that this many pages went where [`Turns::next`] said.
    pub fn used(&mut self, pages: u64) {
        self.left = self.left.saturating_sub(pages);
    }

    /// Returns the shared devices of `available` that come first. A page that the store does not
    /// want goes there.
    pub fn shared(&self, available: DeviceMask) -> DeviceMask {
        self.first(available.minus(self.store))
    }

    /// Returns the devices of `available` below the store. Pages that are cold in the store go
    /// there.
    pub fn below_store(&self, available: DeviceMask) -> DeviceMask {
        let store = self.store_priority;
        let is_below =
            |id: &DeviceId| self.priorities[id.index()].is_some_and(|priority| Some(priority) < store);
        available.iter().filter(is_below).fold(DeviceMask::NONE, DeviceMask::with)
    }

    /// Returns the devices of the highest priority.
    fn first(&self, available: DeviceMask) -> DeviceMask {
        let mut best: (Option<i32>, DeviceMask) = (None, DeviceMask::NONE);
        for id in available.iter() {
            let Some(priority) = self.priorities[id.index()] else { continue };
            if Some(priority) > best.0 {
                best = (Some(priority), DeviceMask::only(id));
            } else if Some(priority) == best.0 {
                best.1 = best.1.with(id);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests;

//! Locks of a simulation: their owners, queues and counts.

use folioswap_slots::LockName;
use std::collections::VecDeque;

pub(super) const NOBODY: u32 = u32::MAX;

/// A lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// One of the allocator's.
    Slots(LockName),
    /// The lock within the device of this number that its reads and writes take.
    Store(u32),
}

#[derive(Clone)]
pub(super) struct Lock {
    pub(super) owner: u32,
    /// The last CPU that held it: its cache has the line.
    pub(super) last: u32,
    pub(super) since: u64,
    pub(super) queue: VecDeque<u32>,
    pub(super) acquired: u64,
    pub(super) waited: u64,
    pub(super) refused: u64,
    pub(super) wait_ps: u64,
    pub(super) held_ps: u64,
    pub(super) queue_max: u32,
}

impl Default for Lock {
    fn default() -> Lock {
        Lock {
            owner: NOBODY,
            last: NOBODY,
            since: 0,
            queue: VecDeque::new(),
            acquired: 0,
            waited: 0,
            refused: 0,
            wait_ps: 0,
            held_ps: 0,
            queue_max: 0,
        }
    }
}

#[derive(Default)]
pub(super) struct Locks {
    pub(super) clusters: Vec<Vec<Lock>>,
    pub(super) lists: Vec<Lock>,
    pub(super) available: Lock,
    pub(super) stores: Vec<Lock>,
}

impl Locks {
    pub(super) fn get(&mut self, name: Named) -> &mut Lock {
        match name {
            Named::Slots(LockName::Cluster { device, index }) => {
                let clusters = at(&mut self.clusters, device);
                at(clusters, index)
            }
            Named::Slots(LockName::Lists { device }) => at(&mut self.lists, device),
            Named::Slots(LockName::Available) => &mut self.available,
            Named::Store(device) => at(&mut self.stores, device),
        }
    }
}

fn at<T: Default + Clone>(all: &mut Vec<T>, index: u32) -> &mut T {
    if all.len() <= index as usize {
        all.resize(index as usize + 1, T::default());
    }
    &mut all[index as usize]
}

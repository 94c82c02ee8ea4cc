//! The clusters that the owner of links may read and write.

use fixedbitset::FixedBitSet;
use folioswap_group::units::CLUSTER_PAGES;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the owner of links may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All pages: it is the only one, or serves all others itself.
    All,
    /// Pages of clusters that are granted to it: nothing at first.
    Granted,
}

/// What one owner of links may reach now.
pub(super) struct Rights {
    /// The clusters that are granted to it, by their numbers on the device. `None`: all.
    granted: Option<Mutex<FixedBitSet>>,
}

impl Rights {
    pub(super) fn new(access: Access) -> Self {
        let granted = match access {
            Access::All => None,
            Access::Granted => Some(Mutex::default()),
        };
        Rights { granted }
    }

    fn lock(&self) -> Option<MutexGuard<'_, FixedBitSet>> {
        Some(self.granted.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn grant(&self, clusters: impl Iterator<Item = u32>) {
        if let Some(mut granted) = self.lock() {
            clusters.for_each(|cluster| granted.grow_and_insert(cluster as usize));
        }
    }

    pub(super) fn withdraw(&self, clusters: impl Iterator<Item = u32>) {
        if let Some(mut granted) = self.lock() {
            // Numbers that were never granted are beyond the end of the set, or not in it.
            clusters.for_each(|cluster| {
                if granted.contains(cluster as usize) {
                    granted.remove(cluster as usize);
                }
            });
        }
    }

    /// Whether all of `count` pages from `first` on may be reached; of no pages, whether the first
    /// one may. A request is as long as a message at most, so `count` is small.
    pub(super) fn allow(&self, first: u64, count: u64) -> bool {
        let Some(granted) = self.lock() else { return true };
        let last = first.saturating_add(count.saturating_sub(1));
        let mut clusters = first / CLUSTER_PAGES..=last / CLUSTER_PAGES;
        clusters.all(|cluster| usize::try_from(cluster).is_ok_and(|cluster| granted.contains(cluster)))
    }
}

#[cfg(test)]
mod tests;

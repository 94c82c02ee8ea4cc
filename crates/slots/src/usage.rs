//! Slots in use on a device, and the counter that decides whether it is on the available list (spec
//! §0, Counting).
//!
//! The kernel has one atomic for both, `inuse_pages`, which every allocation and every free of all
//! CPUs writes. Here the slots in use are counted in shards, chosen by cluster, so that CPUs that
//! work in different clusters do not meet. The fact that must be exact in one place, whether any
//! slot is free, is a count of *open* clusters, those with a free slot. It changes only when a
//! cluster becomes full or gets its first free slot.
//!
//! Protocol: the thread that closes the last open cluster takes the device off the available list,
//! by a compare-exchange that sets the off-list bit (a racing free makes it fail). The thread that
//! opens a cluster and sees the bit puts the device back. Both do so under the available-list lock.

use crate::sync::{AtomicU64, Ordering};

/// Set while the device is not on the available list.
const OFF_LIST: u64 = 1 << 62;

/// Shards of the count of slots in use: 4 KiB per device. The number is a power of two.
const SHARDS: usize = 64;

/// One shard, on a cache line of its own.
#[repr(C, align(64))]
struct Shard(AtomicU64);

/// Slots in use, open clusters, and whether the device is off the available list. Zeroed memory has
/// nothing in use, nothing open, and is on the list.
#[repr(C)]
pub(crate) struct Usage {
    open: AtomicU64,
    shards: [Shard; SHARDS],
}

/// Whether a device is on the available list, by its off-list bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    OnList,
    OffList,
}

const fn listing(value: u64) -> Listing {
    if value & OFF_LIST != 0 { Listing::OffList } else { Listing::OnList }
}

impl Usage {
    #[cfg(test)]
    #[allow(dead_code, reason = "for the models, which compile this file into a test of their own")]
    pub(crate) fn new(open: u64) -> Self {
        let shards = core::array::from_fn(|_| Shard(AtomicU64::new(0)));
        Self { open: AtomicU64::new(open), shards }
    }

    #[inline]
    fn shard(&self, cluster: u32) -> &AtomicU64 {
        &self.shards[cluster as usize % SHARDS].0
    }

    /// Slots in use. Exact while no thread takes or frees any; 0 only after all cleaning, once no
    /// thread takes any more.
    #[inline]
    pub(crate) fn inuse(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.load(Ordering::Acquire)).sum()
    }

    /// Number of clusters with a free slot.
    #[inline]
    pub(crate) fn open_clusters(&self) -> u64 {
        self.open.load(Ordering::Relaxed) & !OFF_LIST
    }

    #[inline]
    pub(crate) fn listing(&self) -> Listing {
        listing(self.open.load(Ordering::Relaxed))
    }

    /// Counts slots of `cluster` as taken. Context: its lock held.
    #[inline]
    pub(crate) fn add(&self, cluster: u32, slots: u64) {
        self.shard(cluster).fetch_add(slots, Ordering::AcqRel);
    }

    /// Counts slots of `cluster` as free; their words are clean already. `Release`, so that swapoff
    /// sees 0 only after all cleaning. Context: its lock held.
    #[inline]
    pub(crate) fn sub(&self, cluster: u32, slots: u64) {
        let before = self.shard(cluster).fetch_sub(slots, Ordering::AcqRel);
        debug_assert!(before >= slots, "more slots freed than were in use");
    }

    /// Counts one cluster as closed: it has no free slot any more. Says whether it was the last
    /// open one of a device on the list; the caller must then try [`mark_full`](Self::mark_full).
    /// Context: its lock held.
    #[inline]
    pub(crate) fn close_cluster(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Counts `clusters` clusters as open: they got a free slot, or came into being. Context: the
    /// lock of the one cluster held.
    #[inline]
    pub(crate) fn open_more(&self, clusters: u64) -> Listing {
        listing(self.open.fetch_add(clusters, Ordering::AcqRel))
    }

    /// Sets the off-list bit unless a cluster is open again; says whether it did. Context:
    /// available-list lock held.
    #[inline]
    pub(crate) fn mark_full(&self) -> bool {
        self.open.compare_exchange(0, OFF_LIST, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Sets the off-list bit whatever the counter is: at swapoff, and before swapon. Context:
    /// available-list lock held.
    pub(crate) fn mark_off_list(&self) {
        self.open.fetch_or(OFF_LIST, Ordering::AcqRel);
    }

    /// Clears the off-list bit unless no cluster is open again; says whether the device belongs on
    /// the list now. Context: available-list lock held, and the bit is set.
    #[inline]
    pub(crate) fn mark_on_list(&self) -> bool {
        let before = self.open.fetch_and(!OFF_LIST, Ordering::AcqRel) & !OFF_LIST;
        !(before == 0 && self.mark_full())
    }

    /// Resets to nothing in use, off the list, `open` clusters open. Context: the device is not on.
    pub(crate) fn reset(&self, open: u64) {
        self.open.store(open | OFF_LIST, Ordering::Release);
        self.shards.iter().for_each(|shard| shard.0.store(0, Ordering::Release));
    }
}

//! The cluster lists of one device: free, full, discard, nonfull\[order\], frag\[order\] (spec §0).

use crate::cluster::Cluster;
use crate::lock::SpinLock;
use crate::order::{ORDERS, Order};
use crate::sync::{AtomicU32, Ordering};

const LISTS: usize = 3 + 2 * ORDERS;

/// Name of one list of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListId(u8);

impl ListId {
    pub(crate) const FREE: ListId = ListId(0);
    pub(crate) const FULL: ListId = ListId(1);
    pub(crate) const DISCARD: ListId = ListId(2);

    #[inline]
    pub(crate) const fn nonfull(order: Order) -> ListId {
        ListId(3 + order.index() as u8)
    }

    #[inline]
    pub(crate) const fn frag(order: Order) -> ListId {
        ListId((3 + ORDERS + order.index()) as u8)
    }

    pub(crate) fn all() -> impl Iterator<Item = ListId> {
        (0..LISTS as u8).map(ListId)
    }
}

/// Ends of a list as device-relative cluster index + 1; 0 = none. Zeroed memory is an empty list.
#[repr(C)]
struct Head {
    first: AtomicU32,
    last: AtomicU32,
    length: AtomicU32,
}

/// All lists of a device behind one lock. The links live in the cluster descriptors.
#[repr(C)]
pub(crate) struct Lists {
    pub(crate) lock: SpinLock,
    heads: [Head; LISTS],
}

impl Lists {
    #[inline]
    fn head(&self, list: ListId) -> &Head {
        &self.heads[list.0 as usize]
    }

    /// Number of clusters on the list; exact only under the list lock.
    #[inline]
    pub(crate) fn length(&self, list: ListId) -> u32 {
        self.head(list).length.load(Ordering::Relaxed)
    }

    /// The first cluster. Context: list lock held.
    #[inline]
    pub(crate) fn first(&self, list: ListId) -> Option<u32> {
        self.head(list).first.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The last cluster. Context: list lock held.
    pub(crate) fn last(&self, list: ListId) -> Option<u32> {
        self.head(list).last.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Puts cluster `index` at the tail. `cluster_at` maps an index of this device to its
    /// descriptor. Context: list lock held; the cluster is on no list.
    #[inline]
    pub(crate) fn push_tail<'a>(&self, list: ListId, index: u32, cluster_at: impl Fn(u32) -> &'a Cluster) {
        let head = self.head(list);
        let cluster = cluster_at(index);
        let last = head.last.load(Ordering::Relaxed);
        debug_assert_eq!(cluster.next.load(Ordering::Relaxed), 0);
        debug_assert_eq!(cluster.prev.load(Ordering::Relaxed), 0);
        cluster.prev.store(last, Ordering::Relaxed);
        match last.checked_sub(1) {
            Some(before) => cluster_at(before).next.store(index + 1, Ordering::Relaxed),
            None => head.first.store(index + 1, Ordering::Relaxed),
        }
        head.last.store(index + 1, Ordering::Relaxed);
        head.length.store(head.length.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Takes cluster `index` off the list. Context: list lock held; the cluster is on `list`.
    #[inline]
    pub(crate) fn unlink<'a>(&self, list: ListId, index: u32, cluster_at: impl Fn(u32) -> &'a Cluster) {
        let head = self.head(list);
        let cluster = cluster_at(index);
        let next = cluster.next.load(Ordering::Relaxed);
        let prev = cluster.prev.load(Ordering::Relaxed);
        match prev.checked_sub(1) {
            Some(before) => cluster_at(before).next.store(next, Ordering::Relaxed),
            None => {
                debug_assert_eq!(head.first.load(Ordering::Relaxed), index + 1);
                head.first.store(next, Ordering::Relaxed);
            }
        }
        match next.checked_sub(1) {
            Some(after) => cluster_at(after).prev.store(prev, Ordering::Relaxed),
            None => {
                debug_assert_eq!(head.last.load(Ordering::Relaxed), index + 1);
                head.last.store(prev, Ordering::Relaxed);
            }
        }
        cluster.next.store(0, Ordering::Relaxed);
        cluster.prev.store(0, Ordering::Relaxed);
        let length = head.length.load(Ordering::Relaxed);
        debug_assert!(length > 0);
        head.length.store(length.wrapping_sub(1), Ordering::Relaxed);
    }

    /// Empties every list. Context: swapoff's last step.
    pub(crate) fn reset(&self) {
        for head in &self.heads {
            head.first.store(0, Ordering::Relaxed);
            head.last.store(0, Ordering::Relaxed);
            head.length.store(0, Ordering::Relaxed);
        }
    }
}

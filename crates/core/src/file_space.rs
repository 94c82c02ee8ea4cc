//! Which slots of the shared file device this process uses: whole clusters granted by the supervisor, slots inside them
//! handed out here.
//!
//! After a fork parent and child own the same clusters; a cluster with several owners is *shared*: its used slots stay
//! readable for both, and none of its free slots is handed out by either, until one owner is left.

use crate::lock::SpinLock;
use core::ptr::NonNull;
use folioswap_devices::FileSlot;

/// Slots of a cluster.
pub const CLUSTER_SLOTS: u64 = 512;
/// Most clusters that one process can own: 64 GiB.
pub const CLUSTERS_MAX: usize = 32 << 10;

#[derive(Clone, Copy)]
#[repr(C)]
struct Cluster {
    used: [u64; 8],
    number: u32,
    used_slots: u16,
    shared: bool,
}

struct Clusters {
    place: *mut Cluster,
    count: usize,
    next: usize,
}

// SAFETY: the pointer refers to memory that lives for ever and is used under the lock.
unsafe impl Send for Clusters {}

/// The clusters of one process. Cost of an allocation: a few words of one cluster while it has room.
pub struct FileSpace(SpinLock<Clusters>);

impl FileSpace {
    /// Bytes of zeroed memory that it needs; only what is used is touched.
    pub const BYTES: usize = CLUSTERS_MAX * size_of::<Cluster>();

    /// An empty space.
    ///
    /// # Safety
    /// `memory` must be [`FileSpace::BYTES`] of zeroed, aligned memory for its use alone, for ever.
    pub const unsafe fn new(memory: NonNull<u8>) -> Self {
        FileSpace(SpinLock::new(Clusters { place: memory.as_ptr().cast(), count: 0, next: 0 }))
    }

    /// Adds a granted cluster. False when [`CLUSTERS_MAX`] is reached; the grant should then be given back.
    pub fn add(&self, number: u32) -> bool {
        let mut clusters = self.0.lock();
        if clusters.count == CLUSTERS_MAX {
            return false;
        }
        clusters.count += 1;
        let last = clusters.count - 1;
        clusters.all()[last] = Cluster { used: [0; 8], number, used_slots: 0, shared: false };
        clusters.next = last;
        true
    }

    /// `count` (1..=64) consecutive free slots of one cluster that is not shared. `None`: a cluster must be asked for.
    pub fn allocate(&self, count: u32) -> Option<FileSlot> {
        let mut clusters = self.0.lock();
        let (start, total) = (clusters.next, clusters.count);
        for step in 0..total {
            let index = (start + step) % total;
            let cluster = &mut clusters.all()[index];
            if let Some(slot) = cluster.take(count) {
                let number = cluster.number;
                clusters.next = index;
                return FileSlot::new(number as u64 * CLUSTER_SLOTS + slot as u64);
            }
        }
        None
    }

    /// Gives one slot back.
    pub fn free(&self, slot: FileSlot) {
        let (number, index) = ((slot.raw() / CLUSTER_SLOTS) as u32, (slot.raw() % CLUSTER_SLOTS) as usize);
        let mut clusters = self.0.lock();
        if let Some(cluster) = clusters.all().iter_mut().find(|cluster| cluster.number == number) {
            let bit = 1 << (index % 64);
            debug_assert!(cluster.used[index / 64] & bit != 0, "the slot is in use");
            if cluster.used[index / 64] & bit != 0 {
                cluster.used[index / 64] &= !bit;
                cluster.used_slots -= 1;
            }
        }
    }

    /// A fork happened: every cluster now has another owner too.
    pub fn share_all(&self) {
        self.0.lock().all().iter_mut().for_each(|cluster| cluster.shared = true);
    }

    /// Clusters that `sole` says have one owner left can be used again.
    pub fn unshare(&self, sole: impl Fn(u32) -> bool) {
        self.0.lock().all().iter_mut().for_each(|cluster| cluster.shared &= !sole(cluster.number));
    }

    /// Takes out up to `numbers.len()` clusters without a used slot, to be given back; returns how many.
    pub fn take_empty(&self, numbers: &mut [u32]) -> usize {
        let mut clusters = self.0.lock();
        let (mut found, mut index) = (0, 0);
        while found < numbers.len() && index < clusters.count {
            if clusters.all()[index].used_slots == 0 {
                numbers[found] = clusters.all()[index].number;
                found += 1;
                let last = clusters.count - 1;
                clusters.all().swap(index, last);
                clusters.count = last;
                clusters.next = 0;
            } else {
                index += 1;
            }
        }
        found
    }

    /// Slots in use.
    pub fn used_slots(&self) -> u64 {
        self.0.lock().all().iter().map(|cluster| cluster.used_slots as u64).sum()
    }
}

impl Clusters {
    fn all(&mut self) -> &mut [Cluster] {
        // SAFETY: `count` clusters have been written; zeroed memory lies behind `place`; exclusive under the lock.
        unsafe { core::slice::from_raw_parts_mut(self.place, self.count) }
    }
}

impl Cluster {
    fn take(&mut self, count: u32) -> Option<u32> {
        if self.shared || CLUSTER_SLOTS - (self.used_slots as u64) < count as u64 {
            return None;
        }
        let mask = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        for (index, word) in self.used.iter_mut().enumerate() {
            let mut shift = 0;
            while shift + count <= 64 {
                let taken = *word >> shift & mask;
                if taken == 0 {
                    *word |= mask << shift;
                    self.used_slots += count as u16;
                    return Some(index as u32 * 64 + shift);
                }
                shift += 64 - taken.leading_zeros();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::collections::HashSet;
    use std::vec::Vec;

    fn space() -> FileSpace {
        // SAFETY: zeroed, leaked, of the right size.
        unsafe {
            let layout = Layout::from_size_align(FileSpace::BYTES, 4096).unwrap();
            FileSpace::new(NonNull::new(alloc_zeroed(layout)).unwrap())
        }
    }

    #[test]
    fn runs_do_not_overlap_and_stay_inside_their_cluster() {
        let space = space();
        assert!(space.allocate(1).is_none());
        assert!(space.add(7));
        assert!(space.add(3));
        let mut seen = HashSet::new();
        let mut seed = 88172645463325252u64;
        let mut held: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let count = 1 + seed % 16;
            if seed >> 32 & 1 == 0 {
                if let Some(first) = space.allocate(count as u32) {
                    assert!(first.raw() / 512 == 7 || first.raw() / 512 == 3);
                    assert_eq!(first.raw() / 512, (first.raw() + count - 1) / 512);
                    for slot in first.raw()..first.raw() + count {
                        assert!(seen.insert(slot));
                    }
                    held.push((first.raw(), count));
                }
            } else if !held.is_empty() {
                let (first, count) = held.swap_remove(seed as usize % held.len());
                for slot in first..first + count {
                    space.free(FileSlot::new(slot).unwrap());
                    seen.remove(&slot);
                }
            }
            assert_eq!(space.used_slots(), seen.len() as u64);
        }
    }

    #[test]
    fn shared_clusters_keep_what_they_hold_and_take_nothing_new() {
        let space = space();
        space.add(5);
        let slot = space.allocate(4).unwrap();
        space.share_all();
        assert!(space.allocate(1).is_none());
        space.free(slot);
        assert_eq!(space.used_slots(), 3);
        space.unshare(|_| false);
        assert!(space.allocate(1).is_none());
        space.unshare(|number| number == 5);
        assert!(space.allocate(1).is_some());
    }

    #[test]
    fn empty_clusters_are_given_back() {
        let space = space();
        for number in [1, 2, 3] {
            space.add(number);
        }
        let slot = space.allocate(1).unwrap();
        let mut numbers = [0; 8];
        assert_eq!(space.take_empty(&mut numbers), 2);
        assert!(!numbers[..2].contains(&((slot.raw() / 512) as u32)));
        space.free(slot);
        assert_eq!(space.take_empty(&mut numbers), 1);
        assert!(space.allocate(1).is_none());
    }
}

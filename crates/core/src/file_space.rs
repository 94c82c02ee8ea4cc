//! Which slots of the shared devices (`file`, `ram`) this process uses: whole clusters granted by the supervisor, slots inside
//! them handed out here, cluster after cluster in the order in which they were granted. Since the supervisor grants the
//! clusters of equal devices in turn, they are also used in turn.
//!
//! After a fork parent and child own the same clusters; a cluster with several owners is *shared*: its used slots stay
//! readable for both, and none of its free slots is handed out by either, until one owner is left.

use crate::lock::SpinLock;
use core::ptr::NonNull;
use folioswap_devices::FileSlot;
use folioswap_slots::{DEVICES_MAX, DeviceId, DeviceMask};

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
    device: u8,
    shared: bool,
}

struct Clusters {
    place: *mut Cluster,
    count: usize,
    next: usize,
    /// Free slots on each device in clusters that are not shared.
    free: [u64; DEVICES_MAX],
    /// Slots that the device refused: marked used for ever, though nothing is there.
    bad: u64,
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
        FileSpace(SpinLock::new(Clusters {
            place: memory.as_ptr().cast(),
            count: 0,
            next: 0,
            free: [0; DEVICES_MAX],
            bad: 0,
        }))
    }

    /// Adds clusters that were granted together, with the device of each; the next allocations begin with the first of them.
    /// Returns how many fit ([`CLUSTERS_MAX`]); the others should be given back.
    pub fn add(&self, granted: impl Iterator<Item = (u32, DeviceId)>) -> usize {
        let mut clusters = self.0.lock();
        let first = clusters.count;
        for (number, device) in granted.take(CLUSTERS_MAX - first) {
            let index = clusters.count;
            clusters.count += 1;
            let device_index = device.index();
            clusters.all()[index] =
                Cluster { used: [0; 8], number, used_slots: 0, device: device_index as u8, shared: false };
            clusters.free[device_index] += CLUSTER_SLOTS;
        }
        if clusters.count > first {
            clusters.next = first;
        }
        clusters.count - first
    }

    /// `count` (1 to [`CLUSTER_SLOTS`]) consecutive free slots of one cluster that is not shared and lies on one of `devices`. `None`: a
    /// cluster must be asked for. More than 64 begin at a multiple of 64.
    pub fn allocate(&self, count: u32, devices: DeviceMask) -> Option<FileSlot> {
        let mut clusters = self.0.lock();
        let free: u64 = devices.iter().map(|device| clusters.free[device.index()]).sum();
        if free < u64::from(count) {
            return None;
        }
        let (start, total) = (clusters.next, clusters.count);
        for step in 0..total {
            let index = (start + step) % total;
            let cluster = &mut clusters.all()[index];
            if !cluster.is_on(devices) {
                continue;
            }
            if let Some(slot) = cluster.take(count) {
                let (number, device) = (cluster.number, cluster.device as usize);
                clusters.free[device] -= u64::from(count);
                clusters.next = index;
                return FileSlot::new(number as u64 * CLUSTER_SLOTS + slot as u64);
            }
        }
        None
    }

    /// The devices on which a slot is free here.
    pub fn with_free_slots(&self) -> DeviceMask {
        let clusters = self.0.lock();
        DeviceMask::ALL
            .iter()
            .filter(|device| clusters.free[device.index()] > 0)
            .fold(DeviceMask::NONE, DeviceMask::with)
    }

    /// Gives one slot back.
    pub fn free(&self, slot: FileSlot) {
        let (number, index) = ((slot.raw() / CLUSTER_SLOTS) as u32, (slot.raw() % CLUSTER_SLOTS) as usize);
        let mut clusters = self.0.lock();
        // Where all clusters from 0 on are ours, each stands where its number says.
        let likely = clusters.all().get(number as usize).is_some_and(|cluster| cluster.number == number);
        let first = if likely { number as usize } else { 0 };
        if let Some(cluster) = clusters.all()[first..].iter_mut().find(|cluster| cluster.number == number) {
            let bit = 1 << (index % 64);
            debug_assert!(cluster.used[index / 64] & bit != 0, "the slot is in use");
            if cluster.used[index / 64] & bit != 0 {
                cluster.used[index / 64] &= !bit;
                cluster.used_slots -= 1;
                let (device, usable) = (cluster.device as usize, !cluster.shared);
                clusters.free[device] += u64::from(usable);
            }
        }
    }

    /// The device refused this slot, which the caller has: it is never handed out again, and its cluster never given back. As in the
    /// kernel, a slot that is bad stays bad as long as the device is in use.
    pub fn mark_bad(&self, slot: FileSlot) {
        let mut clusters = self.0.lock();
        debug_assert!(clusters.is_used(slot), "whoever finds it bad has it");
        clusters.bad += u64::from(clusters.is_used(slot));
    }

    /// Slots that are bad.
    pub fn bad_slots(&self) -> u64 {
        self.0.lock().bad
    }

    /// A fork happened: every cluster now has another owner too.
    pub fn share_all(&self) {
        let mut clusters = self.0.lock();
        clusters.all().iter_mut().for_each(|cluster| cluster.shared = true);
        clusters.free = [0; DEVICES_MAX];
    }

    /// Clusters that `sole` says have one owner left can be used again.
    pub fn unshare(&self, sole: impl Fn(u32) -> bool) {
        let mut clusters = self.0.lock();
        let mut freed = [0; DEVICES_MAX];
        for cluster in clusters.all().iter_mut().filter(|cluster| cluster.shared) {
            if sole(cluster.number) {
                cluster.shared = false;
                freed[cluster.device as usize] += cluster.free_slots();
            }
        }
        clusters.free.iter_mut().zip(freed).for_each(|(free, freed)| *free += freed);
    }

    /// Takes out clusters of `devices` without a used slot, to be given back: up to `numbers.len()`, all but the first `kept` of them.
    /// Returns how many. The others keep their order. A shared one stays: a child of which its giver does not know yet may have a
    /// copy of it. Cost: a look at each cluster.
    pub fn take_empty(&self, devices: DeviceMask, kept: usize, numbers: &mut [u32]) -> usize {
        let mut clusters = self.0.lock();
        let (mut empty, mut found, mut left, mut next) = (0, 0, 0, clusters.next);
        for index in 0..clusters.count {
            let cluster = clusters.all()[index];
            let is_empty = cluster.used_slots == 0 && !cluster.shared && cluster.is_on(devices);
            empty += usize::from(is_empty);
            if is_empty && empty > kept && found < numbers.len() {
                numbers[found] = cluster.number;
                found += 1;
                clusters.free[cluster.device as usize] -= CLUSTER_SLOTS;
                next -= usize::from(index < clusters.next);
            } else {
                clusters.all()[left] = cluster;
                left += 1;
            }
        }
        clusters.count = left;
        clusters.next = if next < left { next } else { 0 };
        found
    }

    /// Clusters on these devices with a used slot.
    pub fn clusters_used(&self, devices: DeviceMask) -> usize {
        let in_use = |cluster: &&Cluster| cluster.used_slots > 0 && cluster.is_on(devices);
        self.0.lock().all().iter().filter(in_use).count()
    }

    /// Slots in use on these devices, bad ones included. Cost: a look at each cluster.
    pub fn used_on(&self, devices: DeviceMask) -> u64 {
        let mut clusters = self.0.lock();
        clusters
            .all()
            .iter()
            .filter(|cluster| cluster.is_on(devices))
            .map(|cluster| u64::from(cluster.used_slots))
            .sum()
    }

    /// Has a shared cluster no used slot? It could be given back if nobody else owns it any more.
    pub fn has_empty_shared(&self) -> bool {
        self.0.lock().all().iter().any(|cluster| cluster.shared && cluster.used_slots == 0)
    }

    /// Slots in use, without those that are bad.
    pub fn used_slots(&self) -> u64 {
        let mut clusters = self.0.lock();
        let used: u64 = clusters.all().iter().map(|cluster| cluster.used_slots as u64).sum();
        used - clusters.bad
    }
}

impl Clusters {
    fn all(&mut self) -> &mut [Cluster] {
        // SAFETY: `count` clusters have been written; zeroed memory lies behind `place`; exclusive under the lock.
        unsafe { core::slice::from_raw_parts_mut(self.place, self.count) }
    }
}

impl Clusters {
    fn is_used(&mut self, slot: FileSlot) -> bool {
        let (number, index) = ((slot.raw() / CLUSTER_SLOTS) as u32, (slot.raw() % CLUSTER_SLOTS) as usize);
        let cluster = self.all().iter().find(|cluster| cluster.number == number);
        cluster.is_some_and(|cluster| cluster.used[index / 64] >> (index % 64) & 1 == 1)
    }
}

impl Cluster {
    fn is_on(&self, devices: DeviceMask) -> bool {
        DeviceId::new(self.device.into()).is_some_and(|device| devices.contains(device))
    }

    fn free_slots(&self) -> u64 {
        CLUSTER_SLOTS - u64::from(self.used_slots)
    }

    fn take(&mut self, count: u32) -> Option<u32> {
        if self.shared || self.free_slots() < count as u64 {
            return None;
        }
        if count > 64 {
            return self.take_words(count);
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

impl Cluster {
    /// More than 64 slots: whole words of free ones, of the last of which the rest stays free.
    fn take_words(&mut self, count: u32) -> Option<u32> {
        let words = count.div_ceil(64) as usize;
        let first = self.used.windows(words).position(|words| words.iter().all(|word| *word == 0))?;
        let taken = &mut self.used[first..first + words];
        taken.fill(u64::MAX);
        taken[words - 1] >>= words as u32 * 64 - count;
        self.used_slots += count as u16;
        Some(first as u32 * 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{Layout, alloc_zeroed};
    use std::collections::HashSet;
    use std::vec;
    use std::vec::Vec;

    const ONE: DeviceId = DeviceId::new(1).unwrap();
    const TWO: DeviceId = DeviceId::new(2).unwrap();
    const ANY: DeviceMask = DeviceMask::ALL;

    fn add(space: &FileSpace, numbers: &[u32], device: DeviceId) -> bool {
        space.add(numbers.iter().map(|&number| (number, device))) == numbers.len()
    }

    fn cluster_of(slot: FileSlot) -> u64 {
        slot.raw() / CLUSTER_SLOTS
    }

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
        assert!(space.allocate(1, ANY).is_none());
        assert!(add(&space, &[7, 3], ONE));
        let mut seen = HashSet::new();
        let mut seed = 88172645463325252u64;
        let mut held: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let count = 1 + seed % 16;
            if seed >> 32 & 1 == 0 {
                if let Some(first) = space.allocate(count as u32, ANY) {
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
        add(&space, &[5], ONE);
        let slot = space.allocate(4, ANY).unwrap();
        space.share_all();
        assert!(space.allocate(1, ANY).is_none());
        space.free(slot);
        assert_eq!(space.used_slots(), 3);
        space.unshare(|_| false);
        assert!(space.allocate(1, ANY).is_none());
        space.unshare(|number| number == 5);
        assert!(space.allocate(1, ANY).is_some());
    }

    #[test]
    fn empty_clusters_are_given_back() {
        let space = space();
        add(&space, &[1, 2, 3], ONE);
        let slot = space.allocate(1, ANY).unwrap();
        let mut numbers = [0; 8];
        assert_eq!(space.take_empty(ANY, 2, &mut numbers), 0, "two are empty");
        assert_eq!(space.take_empty(DeviceMask::only(TWO), 0, &mut numbers), 0, "none is there");
        assert_eq!((space.take_empty(ANY, 1, &mut numbers), numbers[0]), (1, 3));
        assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 2));
        space.free(slot);
        space.share_all();
        assert_eq!(space.take_empty(ANY, 0, &mut numbers), 0, "it may be a child's");
        assert!(space.has_empty_shared());
        space.unshare(|_| true);
        assert!(!space.has_empty_shared());
        assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 1));
        assert!(space.allocate(1, ANY).is_none());
    }

    #[test]
    fn a_bad_slot_is_never_handed_out_again() {
        let space = space();
        add(&space, &[3, 4], ONE);
        let run = space.allocate(8, ANY).unwrap();
        let bad = FileSlot::new(run.raw() + 2).unwrap();
        space.mark_bad(bad);
        (0..8).filter(|&at| at != 2).for_each(|at| space.free(FileSlot::new(run.raw() + at).unwrap()));
        assert_eq!((space.used_slots(), space.bad_slots()), (0, 1));
        let mut numbers = [0; 4];
        assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 4), "its cluster stays");
        let all: Vec<FileSlot> = core::iter::from_fn(|| space.allocate(1, ANY)).collect();
        assert_eq!(all.len() as u64, CLUSTER_SLOTS - 1);
        assert!(!all.contains(&bad));
        assert_eq!(space.used_slots(), CLUSTER_SLOTS - 1);
    }

    #[test]
    fn what_is_not_given_back_keeps_its_order() {
        let space = space();
        add(&space, &[9, 5, 7, 1, 3], ONE);
        let full: Vec<FileSlot> = (0..16).map(|_| space.allocate(64, ANY).unwrap()).collect();
        let last = space.allocate(64, ANY).unwrap();
        assert_eq!(cluster_of(last), 7);
        (0..64).for_each(|index| space.free(FileSlot::new(full[0].raw() + index).unwrap()));
        (0..512).for_each(|index| space.free(FileSlot::new(full[8].raw() + index).unwrap()));
        let mut numbers = [0; 1];
        assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 5), "no more than asked for");
        assert_eq!(space.clusters_used(ANY), 2);
        let order: Vec<u64> = (0..24).map(|_| cluster_of(space.allocate(64, ANY).unwrap())).collect();
        let expected: Vec<u64> = [(7, 7), (1, 8), (3, 8), (9, 1)]
            .iter()
            .flat_map(|&(number, count)| vec![number; count])
            .collect();
        assert_eq!(order, expected, "it goes on where it was");
        assert!(space.allocate(64, ANY).is_none());
    }

    #[test]
    fn clusters_are_used_in_the_order_of_their_grant() {
        let space = space();
        add(&space, &[9], ONE);
        space.allocate(64, ANY);
        assert_eq!(space.add([(20, ONE), (40, TWO), (21, ONE), (41, TWO)].into_iter()), 4);
        let order: Vec<u64> = (0..32).map(|_| cluster_of(space.allocate(64, ANY).unwrap())).collect();
        let expected: Vec<u64> = [20, 40, 21, 41].into_iter().flat_map(|number| [number; 8]).collect();
        assert_eq!(order, expected);
        assert_eq!(cluster_of(space.allocate(64, ANY).unwrap()), 9, "then what the older ones have left");
    }

    #[test]
    fn long_runs_take_whole_words_and_leave_the_rest() {
        let space = space();
        add(&space, &[4], ONE);
        let single = space.allocate(1, ANY).unwrap();
        let within = |slot: FileSlot| slot.raw() % CLUSTER_SLOTS;
        let long = space.allocate(117, ANY).unwrap();
        assert_eq!((within(single), within(long)), (0, 64));
        assert_eq!(within(space.allocate(11, ANY).unwrap()), 1, "before it");
        assert_eq!(within(space.allocate(60, ANY).unwrap()), 192);
        assert!(space.allocate(257, ANY).is_none(), "only 256 are left in a row");
        assert_eq!(within(space.allocate(256, ANY).unwrap()), 256);
        assert_eq!(space.used_slots(), 1 + 117 + 11 + 60 + 256);
        let mut left: HashSet<u64> = (12..64).chain(64 + 117..192).chain(252..256).collect();
        while let Some(slot) = space.allocate(1, ANY) {
            assert!(left.remove(&within(slot)), "{}", within(slot));
        }
        assert!(left.is_empty());
        for slot in 0..CLUSTER_SLOTS {
            space.free(FileSlot::new(4 * CLUSTER_SLOTS + slot).unwrap());
        }
        assert_eq!(within(space.allocate(512, ANY).unwrap()), 0, "a whole cluster");
        assert_eq!(space.used_slots(), 512);
    }

    #[test]
    fn only_permitted_devices_give_slots() {
        let space = space();
        add(&space, &[1], ONE);
        add(&space, &[30], TWO);
        let one = DeviceMask::only(ONE);
        for _ in 0..CLUSTER_SLOTS / 64 {
            assert_eq!(cluster_of(space.allocate(64, one).unwrap()), 1);
        }
        assert!(space.allocate(1, one).is_none());
        assert_eq!(space.with_free_slots(), DeviceMask::only(TWO));
        space.free(FileSlot::new(CLUSTER_SLOTS + 17).unwrap());
        assert_eq!(space.with_free_slots(), one.with(TWO));
        assert_eq!(space.allocate(1, one).unwrap().raw(), CLUSTER_SLOTS + 17);
    }

    /// The counts by device, which spare a walk, against the clusters themselves, over everything that changes them.
    #[test]
    fn free_slots_are_counted_by_device() {
        let space = space();
        let check = |space: &FileSpace| {
            let mut clusters = space.0.lock();
            let mut counted = [0; DEVICES_MAX];
            for cluster in clusters.all().iter().filter(|cluster| !cluster.shared) {
                counted[cluster.device as usize] += cluster.free_slots();
            }
            assert_eq!(clusters.free, counted);
        };
        add(&space, &[1, 2], ONE);
        add(&space, &[30, 31], TWO);
        let mut held: Vec<FileSlot> = (0..20).map(|_| space.allocate(33, ANY).unwrap()).collect();
        check(&space);
        space.share_all();
        check(&space);
        assert_eq!(space.with_free_slots(), DeviceMask::NONE);
        space.free(held.pop().unwrap());
        check(&space);
        space.unshare(|number| number != 2);
        check(&space);
        held.into_iter().for_each(|slot| space.free(slot));
        check(&space);
        add(&space, &[3], ONE);
        let mut numbers = [0; 4];
        assert_eq!(space.take_empty(ANY, 0, &mut numbers), 1, "the other empty one is shared");
        check(&space);
    }
}

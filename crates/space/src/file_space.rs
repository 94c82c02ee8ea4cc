//! The slots of the shared devices (`file`, `ram`) that this process uses: the supervisor grants
//! whole clusters, and slots inside them are handed out here, cluster after cluster in the order in
//! which they were granted. Since the supervisor grants the clusters of equal devices in turn, they
//! are also used in turn.
//!
//! After a fork parent and child own the same clusters. A cluster with several owners is *shared*:
//! its used slots stay readable for both, and neither hands out one of its free slots until one
//! owner is left.

use core::ptr::NonNull;
use folioswap_devices::FileSlot;
use folioswap_policy::lock::SpinLock;
use folioswap_slots::{DEVICES_MAX, DeviceId, DeviceMask};

/// Slots of a cluster.
pub const CLUSTER_SLOTS: u64 = folioswap_slots::CLUSTER_SLOTS as u64;
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
    start: *mut Cluster,
    count: usize,
    next: usize,
    /// Free slots on each device in clusters that are not shared.
    free: [u64; DEVICES_MAX],
    /// Slots that each device refused: they count as used for ever, though nothing is there.
    bad: [u64; DEVICES_MAX],
}

// SAFETY: the pointer refers to memory that lives for ever and is used under the lock.
unsafe impl Send for Clusters {}

/// The clusters of one process. Cost of an allocation: a few words of one cluster while it has free
/// slots.
pub struct FileSpace(SpinLock<Clusters>);

impl FileSpace {
    /// Bytes of zeroed memory that it needs; only used memory is touched.
    pub const BYTES: usize = CLUSTERS_MAX * size_of::<Cluster>();

    /// Creates an empty space.
    ///
    /// # Safety
    /// `memory` must be [`FileSpace::BYTES`] of zeroed, aligned memory for its use alone, for ever.
    pub const unsafe fn new(memory: NonNull<u8>) -> Self {
        FileSpace(SpinLock::new(Clusters {
            start: memory.as_ptr().cast(),
            count: 0,
            next: 0,
            free: [0; DEVICES_MAX],
            bad: [0; DEVICES_MAX],
        }))
    }

    /// Adds clusters that were granted together, with the device of each; the next allocations
    /// begin with the first of them. Returns how many fit ([`CLUSTERS_MAX`]); the others should be
    /// given back.
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

    /// Allocates `count` (1 to [`CLUSTER_SLOTS`]) consecutive free slots of one cluster that is not
    /// shared and lies on one of `devices`. Returns `None` when a cluster must be asked for. Runs
    /// of more than 64 begin at a multiple of 64.
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

    /// Returns the devices on which a slot is free here.
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
        // Where all clusters from 0 on are ours, each stands at the index that is its number.
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

    /// Sets a slot bad that the device refused and that the caller has: it is never handed out
    /// again, and its cluster never given back. As in the kernel, a slot that is bad stays bad as
    /// long as the device is in use.
    pub fn set_bad(&self, slot: FileSlot) {
        let mut clusters = self.0.lock();
        debug_assert!(clusters.device_using(slot).is_some(), "the finder of a bad slot has it");
        if let Some(device) = clusters.device_using(slot) {
            clusters.bad[device] += 1;
        }
    }

    /// Returns the number of bad slots.
    pub fn bad_slots(&self) -> u64 {
        self.0.lock().bad.iter().sum()
    }

    /// Makes every cluster shared, after a fork: each now has another owner too.
    pub fn share_all(&self) {
        let mut clusters = self.0.lock();
        clusters.all().iter_mut().for_each(|cluster| cluster.shared = true);
        clusters.free = [0; DEVICES_MAX];
    }

    /// Makes clusters usable again that have one owner left according to `sole`.
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

    /// Takes out clusters of `devices` without a used slot, to be given back: up to
    /// `numbers.len()`, all but the first `kept` of them. Returns how many. The others keep their
    /// order.
    ///
    /// A shared cluster stays: a child that its giver does not know of yet may have a copy of it.
    /// Cost: a look at each cluster.
    pub fn take_empty(&self, devices: DeviceMask, kept: usize, numbers: &mut [u32]) -> usize {
        let mut clusters = self.0.lock();
        let mut empty = 0;
        clusters.take_out(numbers, |cluster| {
            let is_empty = cluster.used_slots == 0 && !cluster.shared && cluster.is_on(devices);
            empty += usize::from(is_empty);
            is_empty && empty > kept
        })
    }

    /// Takes out clusters of a device that is out of use, to be given back: up to `numbers.len()`,
    /// shared ones and those with bad slots as well. Returns how many; none while something is
    /// stored there.
    ///
    /// No thread may allocate on the device any more, and the caller that gives them back must know
    /// of every child that has a copy of one. Cost: a look at each cluster.
    pub fn take_all(&self, device: DeviceId, numbers: &mut [u32]) -> usize {
        let mut clusters = self.0.lock();
        let devices = DeviceMask::only(device);
        let on = clusters.all().iter().filter(|cluster| cluster.is_on(devices));
        let used: u64 = on.map(|cluster| u64::from(cluster.used_slots)).sum();
        if used > clusters.bad[device.index()] {
            return 0;
        }
        clusters.take_out(numbers, |cluster| cluster.is_on(devices))
    }

    /// Returns the number of clusters on these devices with a used slot.
    pub fn clusters_used(&self, devices: DeviceMask) -> usize {
        let in_use = |cluster: &&Cluster| cluster.used_slots > 0 && cluster.is_on(devices);
        self.0.lock().all().iter().filter(in_use).count()
    }

    /// Returns the number of slots in use on these devices, bad ones included. Cost: a look at each
    /// cluster.
    pub fn used_on(&self, devices: DeviceMask) -> u64 {
        let mut clusters = self.0.lock();
        clusters
            .all()
            .iter()
            .filter(|cluster| cluster.is_on(devices))
            .map(|cluster| u64::from(cluster.used_slots))
            .sum()
    }

    /// Whether a shared cluster has no used slot. It could be given back if it has no other owner
    /// any more.
    pub fn has_empty_shared(&self) -> bool {
        self.0.lock().all().iter().any(|cluster| cluster.shared && cluster.used_slots == 0)
    }

    /// Returns the number of slots in use, without the bad ones.
    pub fn used_slots(&self) -> u64 {
        let mut clusters = self.0.lock();
        let used: u64 = clusters.all().iter().map(|cluster| cluster.used_slots as u64).sum();
        used - clusters.bad.iter().sum::<u64>()
    }
}

impl Clusters {
    fn all(&mut self) -> &mut [Cluster] {
        // SAFETY: `count` clusters have been written; zeroed memory lies behind `start`; exclusive
        // under the lock.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.count) }
    }
}

impl Clusters {
    /// Takes out the clusters that `takes` selects, as many as fit into `numbers`; nothing may be
    /// stored there. The others keep their order, and allocation its position among them.
    fn take_out(&mut self, numbers: &mut [u32], mut takes: impl FnMut(&Cluster) -> bool) -> usize {
        let (mut found, mut left, mut next) = (0, 0, self.next);
        for index in 0..self.count {
            let cluster = self.all()[index];
            if takes(&cluster) && found < numbers.len() {
                numbers[found] = cluster.number;
                found += 1;
                let device = usize::from(cluster.device);
                self.bad[device] -= u64::from(cluster.used_slots);
                self.free[device] -= if cluster.shared { 0 } else { cluster.free_slots() };
                next -= usize::from(index < self.next);
            } else {
                self.all()[left] = cluster;
                left += 1;
            }
        }
        self.count = left;
        self.next = if next < left { next } else { 0 };
        found
    }

    /// Returns the device of a slot that is in use, by its index.
    fn device_using(&mut self, slot: FileSlot) -> Option<usize> {
        let (number, index) = ((slot.raw() / CLUSTER_SLOTS) as u32, (slot.raw() % CLUSTER_SLOTS) as usize);
        let cluster = self.all().iter().find(|cluster| cluster.number == number)?;
        (cluster.used[index / 64] >> (index % 64) & 1 == 1).then_some(cluster.device.into())
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
    /// Takes more than 64 slots: whole words of free ones; the rest of the last word stays free.
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
mod tests;

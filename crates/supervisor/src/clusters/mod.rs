//! Who owns which cluster of the shared devices.
//!
//! Owners are members and forked children that have not said hello; each holds a [`Bits`] of its clusters, by the group's
//! numbers. The counts are ours alone; the segment gets a copy, which a member's wild write may spoil without any consequence
//! here.

mod area;
pub mod bits;

use crate::devices::SharedDevice;
use area::Area;
use bits::Bits;
use folioswap_group::{
    devices::{DEVICES_MAX, DeviceDescription},
    segment::{CLUSTER_BYTES, Segment},
};
use rustix::{fd::OwnedFd, io::Errno};
use std::sync::atomic::Ordering::Relaxed;

const CLUSTER_SLOTS: u64 = CLUSTER_BYTES / 4096;

/// Does this error only say that there is no room?
pub fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
}

/// Its books do not agree with what its owners hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A cluster's count is not the number of those that own it, or its place among the used ones contradicts it.
    #[error("cluster {cluster} of the shared devices has {counted} owners, not {stated}")]
    Owners {
        /// Which.
        cluster: u32,
        /// What the books say.
        stated: u32,
        /// What the owners say.
        counted: u32,
    },
    /// The count of used clusters of a device is not the number of those that have an owner.
    #[error("{counted} clusters of device {device} are used, not {stated}")]
    Used {
        /// The device's number.
        device: usize,
        /// What the books say.
        stated: u32,
        /// What the owners say.
        counted: u32,
    },
}

/// The shared devices and the owners of their clusters.
pub struct Clusters {
    /// By device number; none where a device has no clusters.
    areas: Vec<Option<Area>>,
    /// Numbers of the devices in the order of their turns: who has granted a cluster goes to the end (spec §4, requeue before
    /// use). Only the order among equals matters.
    turns: Vec<usize>,
    /// Owners of each cluster, by the group's numbers; as long as the highest that was ever used.
    owners: Vec<u32>,
    /// Devices, by number, that could not reserve a cluster for another reason than that they are full.
    failures: Vec<(usize, Errno)>,
}

impl Clusters {
    /// All free.
    pub fn new(devices: Vec<(DeviceDescription, Option<SharedDevice>)>) -> Self {
        let area = |(description, device): (_, Option<_>)| Some(Area::new(device?, description));
        let areas: Vec<_> = devices.into_iter().map(area).collect();
        Clusters { turns: (0..areas.len()).collect(), areas, owners: Vec::new(), failures: Vec::new() }
    }

    /// The files, for members, by device number.
    pub fn files(&self) -> impl Iterator<Item = &OwnedFd> {
        self.areas.iter().flatten().map(Area::file)
    }

    /// The device numbers of [`Clusters::files`], in its order.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.areas.iter().enumerate().filter_map(|(number, area)| area.as_ref().map(|_| number))
    }

    /// Clusters of network devices that became free since it was last asked, by the devices' own numbers.
    pub fn take_freed(&mut self) -> Vec<(usize, Vec<u32>)> {
        let areas = self.areas.iter_mut().enumerate();
        let freed = areas.filter_map(|(number, area)| Some((number, area.as_mut()?.take_freed())));
        freed.filter(|(_, clusters)| !clusters.is_empty()).collect()
    }

    /// Clusters that have an owner, by device number.
    pub fn used(&self) -> [u32; DEVICES_MAX] {
        let mut used = [0; DEVICES_MAX];
        for (place, area) in used.iter_mut().zip(&self.areas) {
            *place = area.as_ref().map_or(0, Area::used);
        }
        used
    }

    /// One more device: the last, by number.
    pub fn add(&mut self, description: DeviceDescription, device: Option<SharedDevice>) {
        self.turns.push(self.areas.len());
        self.areas.push(device.map(|device| Area::new(device, description)));
    }

    /// The file of a device, for members.
    pub fn file(&self, device: usize) -> Option<&OwnedFd> {
        self.areas.get(device)?.as_ref().map(Area::file)
    }

    /// Clusters that the others than this device could give now.
    pub fn free_beside(&self, segment: &Segment, device: usize) -> u64 {
        let others = self.areas.iter().enumerate().filter(|(number, _)| *number != device);
        let taking = others.filter(|(number, _)| segment.devices[*number].takes_pages());
        taking.filter_map(|(_, area)| area.as_ref()).map(|area| u64::from(area.free())).sum()
    }

    /// The device, none of whose clusters has an owner, is off: its file is closed here.
    pub fn remove(&mut self, segment: &Segment, device: usize) {
        self.punch(segment);
        if let Some(area) = self.areas.get_mut(device) {
            debug_assert!(area.as_ref().is_none_or(|area| area.used() == 0));
            *area = None;
        }
        self.publish(segment);
    }

    /// Does this owner have a cluster of that device?
    pub fn has_some_of(&self, owner: &Bits, device: usize) -> bool {
        let area = self.areas.get(device).and_then(Option::as_ref);
        area.is_some_and(|area| owner.iter().any(|cluster| area.holds(cluster)))
    }

    /// Gives up to `count` clusters of the `wanted` devices (a bit each): by priority, equals in turn, of each the lowest first.
    /// Fewer, or none, when all of those are full or their disks are.
    pub fn grant(&mut self, segment: &Segment, owner: &mut Bits, wanted: u64, count: usize) -> Vec<u32> {
        let (mut granted, mut wanted) = (Vec::new(), wanted);
        while granted.len() < count {
            let Some(device) = self.requeue_next(wanted) else { break };
            if !segment.devices[device].takes_pages() {
                wanted &= !(1 << device);
                continue;
            }
            let Some(area) = &mut self.areas[device] else { break };
            let taken = area.take();
            let Ok(cluster) = taken else {
                self.failures
                    .extend(taken.err().filter(|errno| !is_full(*errno)).map(|errno| (device, errno)));
                wanted &= !(1 << device);
                segment.devices[device].full.store(1, Relaxed);
                continue;
            };
            segment.devices[device].full.store(u32::from(area.is_full()), Relaxed);
            let number = area.first + cluster;
            if self.owners.len() <= number as usize {
                self.owners.resize(number as usize + 1, 0);
            }
            self.set_owners(segment, number, 1);
            owner.insert(number);
            granted.push(number);
        }
        self.publish(segment);
        granted
    }

    /// Devices that failed when a cluster was asked for, and how, since the last call.
    pub fn take_failures(&mut self) -> Vec<(usize, Errno)> {
        std::mem::take(&mut self.failures)
    }

    /// The device whose turn it is, moved behind its equals.
    fn requeue_next(&mut self, wanted: u64) -> Option<usize> {
        let priority = |device: usize| self.areas[device].as_ref().map(|area| area.priority);
        let candidates = self.turns.iter().copied().filter(|device| wanted >> device & 1 == 1);
        let best = candidates.clone().filter_map(priority).max()?;
        let next = candidates.into_iter().find(|device| priority(*device) == Some(best))?;
        self.turns.retain(|device| *device != next);
        self.turns.push(next);
        Some(next)
    }

    /// Lets an owner go of some clusters; those that it does not own are passed over.
    pub fn drop_some(&mut self, segment: &Segment, owner: &mut Bits, clusters: &[u32]) {
        for &cluster in clusters {
            if owner.remove(cluster) {
                self.release(segment, cluster);
            }
        }
        self.publish(segment);
    }

    /// Lets an owner go of everything.
    pub fn drop_all(&mut self, segment: &Segment, owner: &Bits) {
        for cluster in owner.iter() {
            self.release(segment, cluster);
        }
        self.publish(segment);
    }

    /// Makes a second owner of everything that the first one owns.
    pub fn share(&mut self, segment: &Segment, owner: &Bits) -> Bits {
        for cluster in owner.iter() {
            let owners = self.owners[cluster as usize];
            self.set_owners(segment, cluster, owners + 1);
        }
        owner.clone()
    }

    /// The device that a slot of the group's numbers lies on, and its number there.
    pub fn locate(&self, slot: u64) -> Option<(usize, u64)> {
        let number = u32::try_from(slot / CLUSTER_SLOTS).ok()?;
        self.area_of(number).map(|(device, area)| (device, slot - u64::from(area.first) * CLUSTER_SLOTS))
    }

    /// A write failed in this slot: its cluster goes to nobody else.
    pub fn retire(&mut self, slot: u64) {
        let number = (slot / CLUSTER_SLOTS) as u32;
        if let Some(area) = self.areas.iter_mut().flatten().find(|area| area.holds(number)) {
            area.retire(number - area.first);
        }
    }

    /// Gives the blocks of free clusters back to the system.
    pub fn punch(&mut self, segment: &Segment) {
        self.areas.iter_mut().flatten().for_each(Area::punch);
        self.publish(segment);
    }

    /// True when [`Clusters::punch`] has something to do.
    pub fn wants_punch(&self) -> bool {
        self.areas.iter().flatten().any(Area::wants_punch)
    }

    /// Checks the books against all owners there are; cost: a look at each cluster of each.
    ///
    /// # Errors
    /// The first thing found.
    pub fn validate<'a>(&self, owners: impl Iterator<Item = &'a Bits>) -> Result<(), Invalid> {
        let mut counted = vec![0_u32; self.owners.len()];
        for cluster in owners.flat_map(Bits::iter) {
            match counted.get_mut(cluster as usize) {
                Some(count) => *count += 1,
                None => return Err(Invalid::Owners { cluster, stated: 0, counted: 1 }),
            }
        }
        let mut used = [0; DEVICES_MAX];
        for (cluster, (&stated, &counted)) in (0..).zip(self.owners.iter().zip(&counted)) {
            let area = self.area_of(cluster);
            let listed = area.is_some_and(|(_, area)| area.is_used(cluster - area.first)) == (stated > 0);
            let unpunched = area.is_some_and(|(_, area)| area.is_unpunched(cluster - area.first));
            if stated != counted || !listed || stated > 0 && unpunched {
                return Err(Invalid::Owners { cluster, stated, counted });
            }
            if let Some((device, _)) = area {
                used[device] += u32::from(counted > 0);
            }
        }
        for (device, (counted, stated)) in used.into_iter().zip(self.used()).enumerate() {
            if counted != stated {
                return Err(Invalid::Used { device, stated, counted });
            }
        }
        Ok(())
    }

    fn area_of(&self, number: u32) -> Option<(usize, &Area)> {
        let areas = self.areas.iter().enumerate();
        areas.filter_map(|(device, area)| Some((device, area.as_ref()?))).find(|(_, area)| area.holds(number))
    }

    fn release(&mut self, segment: &Segment, number: u32) {
        let owners = self.owners[number as usize];
        assert!(owners > 0, "a cluster that somebody owns is used");
        self.set_owners(segment, number, owners - 1);
        let area = self.areas.iter_mut().enumerate().find_map(|(device, area)| {
            area.as_mut().filter(|area| area.holds(number)).map(|area| (device, area))
        });
        if let (1, Some((device, area))) = (owners, area) {
            area.give_back(number - area.first);
            segment.devices[device].full.store(0, Relaxed);
        }
    }

    fn set_owners(&mut self, segment: &Segment, cluster: u32, owners: u32) {
        self.owners[cluster as usize] = owners;
        segment.cluster_owners[cluster as usize].store(owners, Relaxed);
    }

    /// Tells everybody how full the devices are.
    fn publish(&self, segment: &Segment) {
        for (entry, used) in segment.devices.iter().zip(self.used()) {
            entry.clusters_used.store(used, Relaxed);
        }
        let memory = self.areas.iter().flatten().map(Area::memory_bytes).sum();
        segment.header.device_bytes.store(memory, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{devices::Discard, ipc::mapped::SegmentFile};
    use folioswap_devices::create::create_swap_file;
    use folioswap_group::devices::{DeviceIo, DeviceKind};
    use rustix::fs::{MemfdFlags, fstat, memfd_create};
    use std::path::Path;

    /// The bit of device 0, and of device 1.
    const FIRST: u64 = 1;
    const SECOND: u64 = 2;

    fn description(kind: DeviceKind, first_cluster: u32, clusters: u32) -> DeviceDescription {
        DeviceDescription { kind, priority: 0, io: DeviceIo::Asynchronous, first_cluster, clusters }
    }

    fn file(discard: Discard) -> Option<SharedDevice> {
        Some(SharedDevice::new(create_swap_file(Path::new("/var/tmp")).expect("a disk"), discard))
    }

    fn device(maximum: u32) -> (SegmentFile, Clusters) {
        let devices = vec![(description(DeviceKind::File, 0, maximum), file(Discard::Freed))];
        (SegmentFile::create().expect("memfd"), Clusters::new(devices))
    }

    fn used(segment: &SegmentFile, device: usize) -> u32 {
        segment.mapped.devices[device].clusters_used.load(Relaxed)
    }

    fn blocks(clusters: &Clusters, index: usize) -> i64 {
        fstat(clusters.files().nth(index).expect("a file")).expect("open").st_blocks * 512
    }

    #[test]
    fn lowest_first_until_full_and_again_after_release() {
        let (segment, mut clusters) = device(4);
        let mut owner = Bits::default();
        let full = || segment.mapped.devices[0].is_full();
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, FIRST, 3), [0, 1, 2]);
        assert!(!full());
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, FIRST, 3), [3]);
        assert!(full(), "nobody has to ask to know");
        assert!(clusters.grant(&segment.mapped, &mut owner, FIRST, 1).is_empty());
        clusters.drop_some(&segment.mapped, &mut owner, &[1, 1, 77]);
        assert!(!full(), "back with the first that is free");
        assert_eq!(used(&segment, 0), 3);
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, FIRST, 2), [1]);
        assert!(clusters.grant(&segment.mapped, &mut owner, SECOND, 1).is_empty(), "no such device");
    }

    #[test]
    fn equals_take_turns_and_priorities_do_not() {
        let segment = SegmentFile::create().expect("memfd");
        let ram = || {
            let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
            Some(SharedDevice::new(file, Discard::Freed))
        };
        let at = |first, clusters, priority| {
            let described = description(DeviceKind::Ram, first, clusters);
            (DeviceDescription { priority, ..described }, ram())
        };
        let mut clusters = Clusters::new(vec![
            at(0, 3, 2),
            (description(DeviceKind::Zram, 0, 0), None),
            at(4, 9, 2),
            at(14, 9, 7),
        ]);
        let mut owner = Bits::default();
        let mut grant =
            |owner: &mut Bits, wanted, count| clusters.grant(&segment.mapped, owner, wanted, count);
        assert_eq!(grant(&mut owner, 0b101, 3), [0, 4, 1]);
        let mut other = Bits::default();
        assert_eq!(grant(&mut other, 0b101, 1), [5], "the turn is the group's");
        assert_eq!(grant(&mut owner, 0b1101, 2), [14, 15], "the highest first");
        assert_eq!(grant(&mut owner, 0b101, 4), [2, 6, 7, 8], "the full one leaves its turn to the other");
        let held = u64::from(3 + 5 + 2_u32) * CLUSTER_BYTES;
        assert_eq!(segment.mapped.header.device_bytes.load(Relaxed), held);
        assert_eq!(clusters.validate([&owner, &other].into_iter()), Ok(()));
    }

    #[test]
    fn memory_counts_until_it_is_given_back() {
        let segment = SegmentFile::create().expect("memfd");
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        let device = SharedDevice::new(file, Discard::Freed);
        let mut clusters = Clusters::new(vec![(description(DeviceKind::Ram, 0, 8), Some(device))]);
        let mut owner = Bits::default();
        clusters.grant(&segment.mapped, &mut owner, FIRST, 2);
        assert_eq!(blocks(&clusters, 0), 0, "memory is taken when it is written");
        rustix::io::pwrite(clusters.files().next().expect("it"), &[1; 4096], CLUSTER_BYTES).expect("written");
        assert_eq!(blocks(&clusters, 0), 4096);
        let counted = || segment.mapped.header.device_bytes.load(Relaxed);
        assert_eq!(counted(), 2 * CLUSTER_BYTES);
        clusters.drop_all(&segment.mapped, &owner);
        assert_eq!((used(&segment, 0), counted()), (0, 2 * CLUSTER_BYTES));
        clusters.punch(&segment.mapped);
        assert_eq!((blocks(&clusters, 0), counted()), (0, 0));
    }

    #[test]
    fn a_shared_cluster_is_free_when_its_last_owner_lets_go() {
        let (segment, mut clusters) = device(10);
        let mut parent = Bits::default();
        clusters.grant(&segment.mapped, &mut parent, FIRST, 2);
        let child = clusters.share(&segment.mapped, &parent);
        assert_eq!(segment.mapped.cluster_owners[1].load(Relaxed), 2);
        clusters.drop_all(&segment.mapped, &parent);
        assert_eq!((clusters.used()[0], clusters.wants_punch()), (2, false));
        clusters.drop_all(&segment.mapped, &child);
        assert_eq!((clusters.used()[0], clusters.wants_punch()), (0, true));
    }

    #[test]
    fn free_clusters_give_their_blocks_back() {
        let (segment, mut clusters) = device(8);
        let mut owner = Bits::default();
        clusters.grant(&segment.mapped, &mut owner, FIRST, 8);
        assert!(blocks(&clusters, 0) >= 16 << 20);
        clusters.drop_all(&segment.mapped, &owner);
        clusters.punch(&segment.mapped);
        assert!(!clusters.wants_punch());
        assert!(blocks(&clusters, 0) < 1 << 20);
    }

    #[test]
    fn without_discard_the_blocks_stay() {
        let segment = SegmentFile::create().expect("memfd");
        let mut clusters = Clusters::new(vec![(description(DeviceKind::File, 0, 8), file(Discard::Never))]);
        let mut owner = Bits::default();
        clusters.grant(&segment.mapped, &mut owner, FIRST, 8);
        clusters.drop_all(&segment.mapped, &owner);
        assert!(!clusters.wants_punch());
        clusters.punch(&segment.mapped);
        assert!(blocks(&clusters, 0) >= 16 << 20);
        let mut other = Bits::default();
        assert_eq!(clusters.grant(&segment.mapped, &mut other, FIRST, 1), [0]);
    }

    #[test]
    fn a_header_is_nobodys_and_what_failed_goes_to_nobody_else() {
        let segment = SegmentFile::create().expect("memfd");
        let device = file(Discard::Never).map(|device| SharedDevice { reserved: 1, ..device });
        let mut clusters = Clusters::new(vec![(description(DeviceKind::File, 8, 4), device)]);
        let mut owner = Bits::default();
        assert_eq!(clusters.grant(&segment.mapped, &mut owner, FIRST, 8), [9, 10, 11]);
        assert!(segment.mapped.devices[0].is_full());
        assert_eq!(clusters.locate(10 * CLUSTER_SLOTS + 3), Some((0, 2 * CLUSTER_SLOTS + 3)));
        assert_eq!(clusters.locate(12 * CLUSTER_SLOTS), None);
        clusters.retire(10 * CLUSTER_SLOTS + 3);
        assert_eq!(clusters.validate(std::iter::once(&owner)), Ok(()), "its owner has it still");
        clusters.drop_all(&segment.mapped, &owner);
        assert_eq!(clusters.validate(std::iter::empty()), Ok(()));
        let mut other = Bits::default();
        assert_eq!(clusters.grant(&segment.mapped, &mut other, FIRST, 8), [9, 11]);
        assert!(segment.mapped.devices[0].is_full(), "the bad one is no room");
        clusters.drop_some(&segment.mapped, &mut other, &[9]);
        segment.mapped.devices[0].failed.store(1, Relaxed);
        assert!(
            clusters.grant(&segment.mapped, &mut other, FIRST, 1).is_empty(),
            "it is out of the rotation"
        );
        assert_eq!(clusters.validate(std::iter::once(&other)), Ok(()));
    }

    /// Memory stands for a disk that cannot reserve blocks.
    #[test]
    fn a_prepared_file_keeps_its_length_where_blocks_cannot_be_reserved() {
        let segment = SegmentFile::create().expect("memfd");
        let file = rustix::fs::memfd_create("prepared", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        let bytes = 4 * CLUSTER_BYTES;
        rustix::fs::ftruncate(&file, bytes).expect("its length");
        let device = SharedDevice { reserved: 1, ..SharedDevice::new(file, Discard::Never) };
        let mut clusters = Clusters::new(vec![(description(DeviceKind::Ram, 0, 4), Some(device))]);
        assert_eq!(clusters.grant(&segment.mapped, &mut Bits::default(), FIRST, 1), [1]);
        let length = fstat(clusters.files().next().expect("a file")).expect("open").st_size;
        assert_eq!(length as u64, bytes);
    }

    #[test]
    fn books_that_do_not_agree_with_the_owners_are_found() {
        let (segment, mut clusters) = device(10);
        let mut owner = Bits::default();
        clusters.grant(&segment.mapped, &mut owner, FIRST, 3);
        let child = clusters.share(&segment.mapped, &owner);
        assert_eq!(clusters.validate([&owner, &child].into_iter()), Ok(()));
        let lost = Invalid::Owners { cluster: 0, stated: 2, counted: 1 };
        assert_eq!(clusters.validate([&owner].into_iter()), Err(lost));
        clusters.drop_all(&segment.mapped, &child);
        assert_eq!(clusters.validate([&owner].into_iter()), Ok(()));
        assert!(clusters.validate(std::iter::empty()).is_err());
        let mut stranger = Bits::default();
        stranger.insert(70);
        assert!(clusters.validate([&owner, &stranger].into_iter()).is_err());
        clusters.drop_all(&segment.mapped, &owner);
        assert_eq!(clusters.validate(std::iter::empty()), Ok(()));
        clusters.areas[0].as_mut().expect("a device").forge_used(1);
        let used = Invalid::Used { device: 0, stated: 1, counted: 0 };
        assert_eq!(clusters.validate(std::iter::empty()), Err(used));
    }
}

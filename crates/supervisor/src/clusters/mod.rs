//! The owners of each cluster of the shared devices.
//!
//! An owner is a member, or a forked child that has not said hello; it holds a [`Bits`] of its
//! clusters by the numbers of the group. The supervisor alone keeps the counts, and publishes a
//! copy in the decisions, where members read it.

mod area;
pub mod bits;

use crate::devices::{CLUSTER_SLOTS, SharedDevice};
use area::Area;
use bits::Bits;
use folioswap_group::{
    decisions::{Decisions, DecisionsWriter},
    devices::{DEVICES_MAX, DeviceDescription},
};
use rustix::{fd::OwnedFd, io::Errno};

/// Whether this error means that the device has no space, and nothing worse.
pub fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG)
}

/// A contradiction between the counts and the clusters that the owners hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The count of a cluster is not the number of its owners, or its state in its area contradicts
    /// the count.
    #[error("cluster {cluster} of the shared devices has {counted} owners, not {stated}")]
    Owners {
        /// The cluster, by its number in the group.
        cluster: u32,
        /// The count that is kept.
        stated: u32,
        /// The number of owners that hold the cluster.
        counted: u32,
    },
    /// The count of used clusters of a device is not the number of its clusters that have an owner.
    #[error("{counted} clusters of device {device} are used, not {stated}")]
    Used {
        /// The number of the device.
        device: usize,
        /// The count that is kept.
        stated: u32,
        /// The number of clusters with an owner.
        counted: u32,
    },
}

/// Whether an error of a slot is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotError {
    /// No error of this slot was known.
    New,
    /// An error of this slot was known already, so the device has not failed once more.
    Known,
}

/// The clusters that an owner may get.
#[derive(Clone, Copy)]
pub struct Allowance {
    /// The devices that the owner accepts, one bit each.
    pub devices: u64,
    /// The most clusters of each device, by device number.
    pub most: [u32; DEVICES_MAX],
}

/// The shared devices and the owners of their clusters.
pub struct Clusters {
    /// The clusters of each device, by device number; `None` for a device without clusters.
    areas: Vec<Option<Area>>,
    /// Device numbers in the order of use: a device that is asked for a cluster goes to the
    /// end first (spec §4, requeue before use). Only the order among devices of equal priority
    /// matters.
    rotation: Vec<usize>,
    /// The number of owners of each cluster, by its number in the group, up to the highest cluster
    /// ever used.
    owners: Vec<u32>,
    /// Devices, by number, that failed to reserve a cluster for another reason than being full.
    failures: Vec<(usize, Errno)>,
    /// Slots, by the numbers of the group, of which an error was reported.
    bad_slots: Bits,
}

impl Clusters {
    /// Devices all of whose clusters are free, by device number.
    pub fn new(devices: Vec<(DeviceDescription, Option<SharedDevice>)>) -> Self {
        let area = |(description, device): (_, Option<_>)| Some(Area::new(device?, description));
        let areas: Vec<_> = devices.into_iter().map(area).collect();
        Clusters {
            rotation: (0..areas.len()).collect(),
            areas,
            owners: Vec::new(),
            failures: Vec::new(),
            bad_slots: Bits::default(),
        }
    }

    /// The files that members get, in the order of the device numbers.
    pub fn files(&self) -> impl Iterator<Item = &OwnedFd> {
        self.areas.iter().flatten().map(Area::file)
    }

    /// The device numbers of [`Clusters::files`], in the same order.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.areas.iter().enumerate().filter_map(|(number, area)| area.as_ref().map(|_| number))
    }

    /// Clusters of network devices that became free since the last call: device number, and
    /// clusters by the numbers of the device.
    pub fn take_freed(&mut self) -> Vec<(usize, Vec<u32>)> {
        let areas = self.areas.iter_mut().enumerate();
        let freed = areas.filter_map(|(number, area)| Some((number, area.as_mut()?.take_freed())));
        freed.filter(|(_, clusters)| !clusters.is_empty()).collect()
    }

    /// The number of clusters that have an owner, by device number.
    pub fn used(&self) -> [u32; DEVICES_MAX] {
        let mut used = [0; DEVICES_MAX];
        for (count, area) in used.iter_mut().zip(&self.areas) {
            *count = area.as_ref().map_or(0, Area::used);
        }
        used
    }

    /// Adds a device, which gets the next device number.
    pub fn add(&mut self, description: DeviceDescription, device: Option<SharedDevice>) {
        self.rotation.push(self.areas.len());
        self.areas.push(device.map(|device| Area::new(device, description)));
    }

    /// The file of a device, if it has clusters.
    pub fn file(&self, device: usize) -> Option<&OwnedFd> {
        self.areas.get(device)?.as_ref().map(Area::file)
    }

    /// The number of free clusters on all other devices that take pages of the group now.
    pub fn free_beside(&self, decisions: &Decisions, device: usize) -> u64 {
        let others = self.areas.iter().enumerate().filter(|(number, _)| *number != device);
        let masked = decisions.masked_devices();
        let taking = others
            .filter(|(number, _)| decisions.devices[*number].takes_pages() && masked >> number & 1 == 0);
        taking.filter_map(|(_, area)| area.as_ref()).map(|area| u64::from(area.free())).sum()
    }

    /// Takes a device out and closes its file. None of its clusters may have an owner.
    pub fn remove(&mut self, writer: DecisionsWriter<'_>, device: usize) {
        self.punch(writer);
        if let Some(area) = self.areas.get_mut(device) {
            debug_assert!(area.as_ref().is_none_or(|area| area.used() == 0));
            *area = None;
        }
        self.publish(writer);
    }

    /// The number of clusters of each device that these owners hold and nobody else does. Cost: a
    /// look at each cluster of theirs, and a word for each cluster ever used.
    pub fn held_alone<'a>(&self, owners: impl Iterator<Item = &'a Bits>) -> [u32; DEVICES_MAX] {
        let mut held = [0; DEVICES_MAX];
        let mut counted = vec![0_u32; self.owners.len()];
        for cluster in owners.flat_map(Bits::iter) {
            let count = &mut counted[cluster as usize];
            *count += 1;
            // The last of the owners that are counted here is the last of all.
            if *count == self.owners[cluster as usize]
                && let Some((device, _)) = self.area_of(cluster)
            {
                held[device] += 1;
            }
        }
        held
    }

    /// The memory that the devices take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.areas.iter().flatten().map(Area::memory_bytes).sum()
    }

    /// Whether this owner holds a cluster of that device.
    pub fn has_some_of(&self, owner: &Bits, device: usize) -> bool {
        let area = self.areas.get(device).and_then(Option::as_ref);
        area.is_some_and(|area| owner.iter().any(|cluster| area.holds(cluster)))
    }

    /// Gives up to `count` clusters of the wanted devices: devices by priority, equals in turn, of
    /// each device the lowest free cluster first. Fewer than `count` mean that all wanted devices
    /// or their disks are full, or that the owner may get no more of them.
    pub fn grant(
        &mut self,
        writer: DecisionsWriter<'_>,
        owner: &mut Bits,
        wanted: Allowance,
        count: usize,
    ) -> Vec<u32> {
        let Allowance { devices: mut wanted, mut most } = wanted;
        let mut granted = Vec::new();
        while granted.len() < count {
            let Some(device) = self.requeue_next(wanted) else { break };
            let entry = writer.device(device);
            if most[device] == 0 || !entry.entry().takes_pages() {
                wanted &= !(1 << device);
                continue;
            }
            let Some(area) = &mut self.areas[device] else { break };
            let taken = area.take();
            let Ok(cluster) = taken else {
                self.failures
                    .extend(taken.err().filter(|errno| !is_full(*errno)).map(|errno| (device, errno)));
                wanted &= !(1 << device);
                entry.mark_full();
                continue;
            };
            if area.is_full() {
                entry.mark_full();
            } else {
                entry.mark_with_space();
            }
            let number = area.first + cluster;
            if self.owners.len() <= number as usize {
                self.owners.resize(number as usize + 1, 0);
            }
            self.set_owners(writer, number, 1);
            owner.insert(number);
            most[device] -= 1;
            granted.push(number);
        }
        self.publish(writer);
        granted
    }

    /// Devices that failed to reserve a cluster since the last call, with their errors; full
    /// devices are not among them.
    pub fn take_failures(&mut self) -> Vec<(usize, Errno)> {
        std::mem::take(&mut self.failures)
    }

    /// Picks the wanted device whose turn it is and moves it behind its equals; `None` when no
    /// device is wanted.
    fn requeue_next(&mut self, wanted: u64) -> Option<usize> {
        let priority = |device: usize| self.areas[device].as_ref().map(|area| area.priority);
        let candidates = self.rotation.iter().copied().filter(|device| wanted >> device & 1 == 1);
        let best = candidates.clone().filter_map(priority).max()?;
        let next = candidates.into_iter().find(|device| priority(*device) == Some(best))?;
        self.rotation.retain(|device| *device != next);
        self.rotation.push(next);
        Some(next)
    }

    /// Makes an owner let go of some clusters; clusters that it does not own are passed over.
    pub fn drop_some(&mut self, writer: DecisionsWriter<'_>, owner: &mut Bits, clusters: &[u32]) {
        for &cluster in clusters {
            if owner.remove(cluster) {
                self.release(writer, cluster);
            }
        }
        self.publish(writer);
    }

    /// Makes an owner let go of all its clusters.
    pub fn drop_all(&mut self, writer: DecisionsWriter<'_>, owner: &Bits) {
        for cluster in owner.iter() {
            self.release(writer, cluster);
        }
        self.publish(writer);
    }

    /// Makes a second owner of all clusters that `owner` holds, and returns its set.
    pub fn share(&mut self, writer: DecisionsWriter<'_>, owner: &Bits) -> Bits {
        for cluster in owner.iter() {
            let owners = self.owners[cluster as usize];
            self.set_owners(writer, cluster, owners + 1);
        }
        owner.clone()
    }

    /// The device on which a slot of the group lies, and the number of the slot on that device.
    pub fn locate(&self, slot: u64) -> Option<(usize, u64)> {
        let number = u32::try_from(slot / CLUSTER_SLOTS).ok()?;
        self.area_of(number).map(|(device, area)| (device, slot - u64::from(area.first) * CLUSTER_SLOTS))
    }

    /// The device of a cluster of the group, and the number of the cluster on that device.
    pub fn on_device(&self, cluster: u32) -> Option<(usize, u32)> {
        self.area_of(cluster).map(|(device, area)| (device, cluster - area.first))
    }

    /// Whether this owner holds the cluster of a slot.
    pub fn owns(owner: &Bits, slot: u64) -> bool {
        u32::try_from(slot / CLUSTER_SLOTS).is_ok_and(|number| owner.contains(number))
    }

    /// Notes an error of a slot that lies on a device. The cost is a bit for each slot up to the
    /// highest one with an error.
    pub fn note_error(&mut self, slot: u64) -> SlotError {
        match u32::try_from(slot) {
            Ok(slot) if !self.bad_slots.insert(slot) => SlotError::Known,
            // Slots beyond 16 TiB are counted each time.
            _ => SlotError::New,
        }
    }

    /// Withdraws the cluster of a slot in which a write failed: its owners keep it, and nobody else
    /// gets it. Notes the error of the slot.
    pub fn retire(&mut self, slot: u64) -> SlotError {
        let number = (slot / CLUSTER_SLOTS) as u32;
        if let Some(area) = self.areas.iter_mut().flatten().find(|area| area.holds(number)) {
            area.retire(number - area.first);
        }
        self.note_error(slot)
    }

    /// Gives the blocks of free clusters back to the file systems.
    pub fn punch(&mut self, writer: DecisionsWriter<'_>) {
        self.areas.iter_mut().flatten().for_each(Area::punch);
        self.publish(writer);
    }

    /// Whether [`Clusters::punch`] has something to do.
    pub fn wants_punch(&self) -> bool {
        self.areas.iter().flatten().any(Area::wants_punch)
    }

    /// Checks the counts against all owners there are. The cost is a look at each cluster of each
    /// owner.
    ///
    /// # Errors
    /// The first contradiction found.
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

    fn release(&mut self, writer: DecisionsWriter<'_>, number: u32) {
        let owners = self.owners[number as usize];
        assert!(owners > 0, "a cluster that somebody owns is used");
        self.set_owners(writer, number, owners - 1);
        let area = self.areas.iter_mut().enumerate().find_map(|(device, area)| {
            area.as_mut().filter(|area| area.holds(number)).map(|area| (device, area))
        });
        if let (1, Some((device, area))) = (owners, area) {
            area.give_back(number - area.first);
            writer.device(device).mark_with_space();
        }
    }

    fn set_owners(&mut self, writer: DecisionsWriter<'_>, cluster: u32, owners: u32) {
        self.owners[cluster as usize] = owners;
        writer.set_owners(cluster, owners);
    }

    /// Publishes how full the devices are.
    fn publish(&self, writer: DecisionsWriter<'_>) {
        for (device, used) in self.used().into_iter().enumerate() {
            writer.device(device).set_clusters_used(used);
        }
        writer.set_device_bytes(self.memory_bytes());
    }
}

#[cfg(test)]
mod tests;

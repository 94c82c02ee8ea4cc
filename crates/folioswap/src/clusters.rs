//! Which clusters (2 MiB each) of the file and plain RAM devices are in use. The engines of one
//! `Swap` and of the groups within it are the only owners, and each cluster has one owner. So there
//! is no reference count: a cluster is granted, and given back.

use crate::device::Prepared;
use folioswap_devices::create::{Reserve, reserve};
use folioswap_group::decisions::DecisionsWriter;
use folioswap_group::devices::{DeviceDescription, DeviceKind};
use folioswap_group::segment::CLUSTER_BYTES;
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// The clusters of one device.
struct DeviceClusters {
    number: usize,
    description: DeviceDescription,
    used: Vec<bool>,
    used_count: u32,
    /// A lower bound of the free clusters' numbers.
    lowest_free: usize,
    /// The length of the file, in clusters.
    length: usize,
    /// The number of the last grant from this device: of equals, the lowest is next.
    last_grant: u64,
}

/// The devices' files, in the descriptor table of the calling thread. Each granting thread has a
/// table of its own.
pub(crate) trait DeviceFiles {
    /// Returns the file of the device of this number, which has clusters.
    fn of(&self, number: usize) -> BorrowedFd<'_>;
}

/// The clusters of all devices.
pub(crate) struct Clusters {
    devices: Vec<DeviceClusters>,
    grants: u64,
}

impl Clusters {
    /// All clusters are free.
    pub(crate) fn new(devices: &[Prepared]) -> Self {
        let devices = devices.iter().enumerate();
        let device = |(number, device): (usize, &Prepared)| {
            device.file.as_ref()?;
            Some(DeviceClusters {
                number,
                description: device.description,
                used: vec![false; device.description.clusters as usize],
                used_count: 0,
                lowest_free: 0,
                length: 0,
                last_grant: 0,
            })
        };
        Clusters { devices: devices.filter_map(device).collect(), grants: 0 }
    }

    /// Grants up to `count` clusters of the `wanted` devices (one bit each): from the highest
    /// priority, equals in turn, and the lowest cluster of each. Marks devices that are full in the
    /// decisions. `files` must be those of the calling thread.
    pub(crate) fn grant(
        &mut self,
        writer: DecisionsWriter<'_>,
        files: &impl DeviceFiles,
        wanted: u64,
        count: usize,
    ) -> Vec<u32> {
        let (mut granted, mut wanted) = (Vec::new(), wanted);
        while granted.len() < count {
            let candidates = self.devices.iter_mut().filter(|device| wanted >> device.number & 1 != 0);
            let Some(device) = candidates
                .min_by_key(|device| (std::cmp::Reverse(device.description.priority), device.last_grant))
            else {
                break;
            };
            match device.take(files.of(device.number)) {
                Ok(cluster) => {
                    self.grants += 1;
                    device.last_grant = self.grants;
                    granted.push(cluster);
                }
                Err(_) => {
                    wanted &= !(1 << device.number);
                    writer.device(device.number).mark_full();
                }
            }
        }
        // All engines are one process, which is one owner.
        for &cluster in &granted {
            writer.set_owners(cluster, 1);
        }
        self.publish(writer);
        granted
    }

    /// Returns how many bytes of these clusters are memory.
    pub(crate) fn bytes_in_memory(&self, clusters: &[u32]) -> u64 {
        let devices = || self.devices.iter().filter(|device| device.description.kind == DeviceKind::Ram);
        let in_memory = clusters.iter().filter(|cluster| devices().any(|device| device.has(**cluster)));
        in_memory.count() as u64 * CLUSTER_BYTES
    }

    /// Takes clusters back, and returns their blocks to the file system. `files` as for
    /// [`Clusters::grant`].
    pub(crate) fn give_back(
        &mut self,
        writer: DecisionsWriter<'_>,
        files: &impl DeviceFiles,
        clusters: &[u32],
    ) {
        for &cluster in clusters {
            let Some(device) = self.devices.iter_mut().find(|device| device.has(cluster)) else { continue };
            device.give_back(files.of(device.number), (cluster - device.description.first_cluster) as usize);
            writer.device(device.number).mark_with_space();
            writer.set_owners(cluster, 0);
        }
        self.publish(writer);
    }

    fn publish(&self, writer: DecisionsWriter<'_>) {
        let mut in_memory = 0;
        for device in &self.devices {
            writer.device(device.number).set_clusters_used(device.used_count);
            if device.description.kind == DeviceKind::Ram {
                in_memory += u64::from(device.used_count) * CLUSTER_BYTES;
            }
        }
        writer.set_device_bytes(in_memory);
    }
}

impl DeviceClusters {
    fn has(&self, cluster: u32) -> bool {
        let device = self.description;
        (device.first_cluster..device.first_cluster + device.clusters).contains(&cluster)
    }

    /// Takes the lowest free cluster. Returns its number among those of all devices.
    fn take(&mut self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        let free = self.used[self.lowest_free..].iter().position(|used| !used);
        let cluster = self.lowest_free + free.ok_or(Errno::NOSPC)?;
        self.reserve(file, cluster)?;
        self.used[cluster] = true;
        self.used_count += 1;
        self.lowest_free = cluster + 1;
        Ok(self.description.first_cluster + cluster as u32)
    }

    /// Reserves the cluster's blocks, so that a full disk shows here and not during an eviction.
    fn reserve(&mut self, file: BorrowedFd<'_>, cluster: usize) -> Result<(), Errno> {
        let how = match self.description.kind {
            DeviceKind::Ram => Reserve::WhenWritten,
            _ => Reserve::Now,
        };
        let start = cluster as u64 * CLUSTER_BYTES;
        reserve(file, how, start..start + CLUSTER_BYTES, self.length as u64 * CLUSTER_BYTES)?;
        self.length = self.length.max(cluster + 1);
        Ok(())
    }

    fn give_back(&mut self, file: BorrowedFd<'_>, cluster: usize) {
        if std::mem::replace(&mut self.used[cluster], false) {
            self.used_count -= 1;
            self.lowest_free = self.lowest_free.min(cluster);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system that cannot punch holes keeps the blocks until the end. Only space is
            // lost.
            let _ = fallocate(file, flags, cluster as u64 * CLUSTER_BYTES, CLUSTER_BYTES);
        }
    }
}

#[cfg(test)]
mod tests;

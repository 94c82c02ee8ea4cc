//! The clusters of one shared device, numbered from 0: which are used, and which have blocks in the
//! file.

use super::bits::Bits;
use crate::devices::{Discard, SharedDevice};
use folioswap_devices::create::{Reserve, reserve};
use folioswap_group::{
    devices::{DeviceDescription, DeviceKind},
    segment::CLUSTER_BYTES,
};
use rustix::{fd::OwnedFd, io::Errno};

/// The clusters of one device.
pub struct Area {
    device: SharedDevice,
    kind: DeviceKind,
    /// The device with the highest priority is used first.
    pub priority: i32,
    /// The number of cluster 0 within the group.
    pub first: u32,
    /// The most clusters that the device may have.
    maximum: u32,
    used: Bits,
    used_count: u32,
    /// No cluster below this one is free.
    lowest_free: u32,
    /// Free clusters whose blocks have not been given back to the file system.
    unpunched: Bits,
    unpunched_count: u32,
    /// Clusters in which a write failed. They stay in `used` for good without counting in
    /// `used_count`.
    bad: Bits,
    bad_count: u32,
    /// Used clusters that become bad when their last owner lets go.
    retiring: Bits,
    /// The length of the file in clusters.
    length: u32,
}

impl Area {
    /// A device all of whose clusters are free.
    pub fn new(device: SharedDevice, description: DeviceDescription) -> Self {
        // mkswap has given a prepared file its length, which is at least that of the description.
        let length = if device.reserved > 0 { description.clusters } else { 0 };
        let area = Area {
            lowest_free: device.reserved,
            device,
            kind: description.kind,
            priority: description.priority,
            first: description.first_cluster,
            maximum: description.clusters,
            used: Bits::default(),
            used_count: 0,
            unpunched: Bits::default(),
            unpunched_count: 0,
            bad: Bits::default(),
            bad_count: 0,
            retiring: Bits::default(),
            length,
        };
        if area.device.discard_at_start {
            area.device.give_blocks_back(
                area.kind,
                area.device.reserved,
                area.maximum - area.device.reserved,
            );
        }
        area
    }

    /// The file that backs the device.
    pub fn file(&self) -> &OwnedFd {
        &self.device.file
    }

    /// The number of clusters that have an owner.
    pub fn used(&self) -> u32 {
        self.used_count
    }

    /// Whether every cluster has an owner.
    pub fn is_full(&self) -> bool {
        self.free() == 0
    }

    /// The number of clusters that [`Area::take`] could still give.
    pub fn free(&self) -> u32 {
        self.maximum.saturating_sub(self.used_count + self.bad_count + self.device.reserved)
    }

    /// Whether this cluster has an owner.
    pub fn is_used(&self, cluster: u32) -> bool {
        self.used.contains(cluster) && !self.bad.contains(cluster)
    }

    /// Withdraws a used cluster in which a write failed: it becomes bad when its last owner lets
    /// go.
    pub fn retire(&mut self, cluster: u32) {
        if self.is_used(cluster) {
            self.retiring.insert(cluster);
        }
    }

    /// Whether this cluster is free while the file still holds its blocks.
    pub fn is_unpunched(&self, cluster: u32) -> bool {
        self.unpunched.contains(cluster)
    }

    /// Whether this cluster number of the group lies on the device.
    pub fn holds(&self, number: u32) -> bool {
        number.checked_sub(self.first).is_some_and(|cluster| cluster < self.maximum)
    }

    /// Memory that the device takes, in bytes: none on a disk.
    pub fn memory_bytes(&self) -> u64 {
        match self.kind {
            DeviceKind::Ram => u64::from(self.used_count + self.unpunched_count) * CLUSTER_BYTES,
            DeviceKind::File | DeviceKind::Block | DeviceKind::Nbd | DeviceKind::Zram => 0,
        }
    }

    /// Makes the count of used clusters wrong.
    #[cfg(test)]
    pub fn forge_used(&mut self, count: u32) {
        self.used_count = count;
    }

    /// Takes the lowest free cluster and makes sure that the file has blocks for it.
    ///
    /// # Errors
    /// `NOSPC` when all clusters are used or the disk is full; other errors of fallocate(2).
    pub fn take(&mut self) -> Result<u32, Errno> {
        let cluster = self.used.first_absent(self.lowest_free);
        self.lowest_free = cluster;
        if cluster >= self.maximum {
            return Err(Errno::NOSPC);
        }
        self.reserve(cluster)?;
        self.used.insert(cluster);
        self.used_count += 1;
        self.lowest_free = cluster + 1;
        Ok(cluster)
    }

    /// Frees a used cluster whose last owner has let go; a retiring one becomes bad instead.
    ///
    /// # Panics
    /// When the cluster is not used.
    pub fn give_back(&mut self, cluster: u32) {
        assert!(self.is_used(cluster), "it was used");
        self.used_count -= 1;
        if self.retiring.remove(cluster) {
            self.bad_count += u32::from(self.bad.insert(cluster));
            return;
        }
        self.used.remove(cluster);
        self.lowest_free = self.lowest_free.min(cluster);
        self.unpunched_count += u32::from(self.unpunched.insert(cluster));
    }

    /// The clusters of a network device that became free since the last call and are still free;
    /// none of any other device.
    pub fn take_freed(&mut self) -> Vec<u32> {
        if self.kind != DeviceKind::Nbd {
            return Vec::new();
        }
        self.unpunched_count = 0;
        self.unpunched.take_runs().into_iter().flat_map(|(first, count)| first..first + count).collect()
    }

    /// Gives the blocks of free clusters back to the file system, one request for each run of
    /// clusters.
    pub fn punch(&mut self) {
        if !self.wants_punch() || self.kind == DeviceKind::Nbd {
            return;
        }
        self.unpunched_count = 0;
        for (first, count) in self.unpunched.take_runs() {
            self.device.give_blocks_back(self.kind, first, count);
        }
    }

    /// Whether [`Area::punch`] has something to do.
    pub fn wants_punch(&self) -> bool {
        self.device.discard == Discard::Freed && !self.unpunched.is_empty()
    }

    /// Makes sure that the disk has blocks for the cluster, so that a full disk shows here and not
    /// in the middle of an eviction. Memory is taken when it is written.
    fn reserve(&mut self, cluster: u32) -> Result<(), Errno> {
        if self.unpunched.remove(cluster) {
            self.unpunched_count -= 1;
            return Ok(());
        }
        let how = match self.kind {
            DeviceKind::File | DeviceKind::Zram => Reserve::Now,
            DeviceKind::Ram => Reserve::WhenWritten,
            // A block device has all its blocks; a server has the room that its export states.
            DeviceKind::Block | DeviceKind::Nbd => return Ok(()),
        };
        let start = u64::from(cluster) * CLUSTER_BYTES;
        let length = u64::from(self.length) * CLUSTER_BYTES;
        reserve(&self.device.file, how, start..start + CLUSTER_BYTES, length)?;
        self.length = self.length.max(cluster + 1);
        Ok(())
    }
}

//! The clusters of one shared device, numbered from 0: which are used, what of its file has blocks.

use super::bits::Bits;
use folioswap_group::{
    devices::{DeviceDescription, DeviceKind},
    segment::CLUSTER_BYTES,
};
use rustix::{
    fd::OwnedFd,
    fs::{FallocateFlags, fallocate, ftruncate},
    io::Errno,
};

/// When the blocks of free clusters go back to the system (`discard` of swapon(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Never: they wait for their next use, and go with the file.
    Never,
    /// In bulk, a moment after they became free.
    Freed,
}

/// A shared device as it was prepared.
pub struct SharedDevice {
    /// The file, on disk or in memory; all its members get this descriptor.
    pub file: OwnedFd,
    /// What becomes of free clusters.
    pub discard: Discard,
}

/// One device.
pub struct Area {
    device: SharedDevice,
    kind: DeviceKind,
    /// Higher is used first.
    pub priority: i32,
    /// The group's number of its cluster 0.
    pub first: u32,
    /// Clusters that it may have.
    maximum: u32,
    used: Bits,
    used_count: u32,
    /// No free cluster is below it.
    lowest_free: u32,
    /// Free clusters whose blocks the system still holds.
    unpunched: Bits,
    unpunched_count: u32,
    /// The file's length in clusters.
    length: u32,
}

impl Area {
    /// All free.
    pub fn new(device: SharedDevice, description: DeviceDescription) -> Self {
        Area {
            device,
            kind: description.kind,
            priority: description.priority,
            first: description.first_cluster,
            maximum: description.clusters,
            used: Bits::default(),
            used_count: 0,
            lowest_free: 0,
            unpunched: Bits::default(),
            unpunched_count: 0,
            length: 0,
        }
    }

    /// The file.
    pub fn file(&self) -> &OwnedFd {
        &self.device.file
    }

    /// Clusters that have an owner.
    pub fn used(&self) -> u32 {
        self.used_count
    }

    /// Are all used?
    pub fn is_full(&self) -> bool {
        self.used_count == self.maximum
    }

    /// Is a cluster used?
    pub fn is_used(&self, cluster: u32) -> bool {
        self.used.contains(cluster)
    }

    /// Is it free although its blocks are not yet given back?
    pub fn is_unpunched(&self, cluster: u32) -> bool {
        self.unpunched.contains(cluster)
    }

    /// Does the group's cluster number lie on it?
    pub fn holds(&self, number: u32) -> bool {
        number.checked_sub(self.first).is_some_and(|cluster| cluster < self.maximum)
    }

    /// Memory that it takes, in bytes: none on a disk.
    pub fn memory_bytes(&self) -> u64 {
        match self.kind {
            DeviceKind::Ram => u64::from(self.used_count + self.unpunched_count) * CLUSTER_BYTES,
            DeviceKind::File | DeviceKind::Nbd | DeviceKind::Zram => 0,
        }
    }

    /// Spoils the count of used clusters.
    #[cfg(test)]
    pub fn forge_used(&mut self, count: u32) {
        self.used_count = count;
    }

    /// Takes the lowest free cluster.
    ///
    /// # Errors
    /// `NOSPC`: all are used, or its disk is full; or what the system says.
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

    /// A used cluster has no owner any more.
    pub fn give_back(&mut self, cluster: u32) {
        assert!(self.used.remove(cluster), "it was used");
        self.used_count -= 1;
        self.lowest_free = self.lowest_free.min(cluster);
        self.unpunched_count += u32::from(self.unpunched.insert(cluster));
    }

    /// Of a network device: the clusters that became free since it was last asked and are free still.
    pub fn take_freed(&mut self) -> Vec<u32> {
        if self.kind != DeviceKind::Nbd {
            return Vec::new();
        }
        self.unpunched_count = 0;
        self.unpunched.take_runs().into_iter().flat_map(|(first, count)| first..first + count).collect()
    }

    /// Gives the blocks of free clusters back to the system, in runs.
    pub fn punch(&mut self) {
        if !self.wants_punch() || self.kind == DeviceKind::Nbd {
            return;
        }
        self.unpunched_count = 0;
        for (first, count) in self.unpunched.take_runs() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (start, bytes) = (u64::from(first) * CLUSTER_BYTES, u64::from(count) * CLUSTER_BYTES);
            // A file system that cannot punch keeps the blocks until the end: only space is lost.
            let _ = fallocate(&self.device.file, flags, start, bytes);
        }
    }

    /// True when [`Area::punch`] has something to do.
    pub fn wants_punch(&self) -> bool {
        self.device.discard == Discard::Freed && !self.unpunched.is_empty()
    }

    /// Makes sure that the disk has the blocks, so that a full disk shows here and not in the middle of an eviction. Memory is
    /// taken when it is written.
    fn reserve(&mut self, cluster: u32) -> Result<(), Errno> {
        if self.unpunched.remove(cluster) {
            self.unpunched_count -= 1;
            return Ok(());
        }
        let (file, start) = (&self.device.file, u64::from(cluster) * CLUSTER_BYTES);
        let allocated = match self.kind {
            DeviceKind::Ram => Err(Errno::OPNOTSUPP),
            // A server has the room that its export says.
            DeviceKind::Nbd => return Ok(()),
            DeviceKind::File | DeviceKind::Zram => {
                fallocate(file, FallocateFlags::empty(), start, CLUSTER_BYTES)
            }
        };
        match allocated {
            Err(Errno::OPNOTSUPP) if cluster >= self.length => ftruncate(file, start + CLUSTER_BYTES)?,
            Err(Errno::OPNOTSUPP) => {}
            other => other?,
        }
        self.length = self.length.max(cluster + 1);
        Ok(())
    }
}

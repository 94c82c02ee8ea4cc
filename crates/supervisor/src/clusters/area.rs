//! The clusters of one shared device, numbered from 0: which are used, what of its file has blocks.

use super::bits::Bits;
use crate::devices::{Discard, SharedDevice};
use folioswap_devices::create::{Reserve, reserve};
use folioswap_devices::{FileDevice, FileSlot, Medium, PAGE_SIZE};
use folioswap_group::{
    devices::{DeviceDescription, DeviceKind},
    segment::CLUSTER_BYTES,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};

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
    /// Clusters that a write failed in. They are `used` without being counted, and stay so.
    bad: Bits,
    bad_count: u32,
    /// Used ones that will be bad.
    retiring: Bits,
    /// The file's length in clusters.
    length: u32,
}

impl Area {
    /// All free.
    pub fn new(device: SharedDevice, description: DeviceDescription) -> Self {
        // A prepared file is as long as it was made, which is at least as long as this.
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
            area.give_blocks_back(area.device.reserved, area.maximum - area.device.reserved);
        }
        area
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
        self.free() == 0
    }

    /// Clusters that could be taken.
    pub fn free(&self) -> u32 {
        self.maximum.saturating_sub(self.used_count + self.bad_count + self.device.reserved)
    }

    /// Is a cluster used, by somebody?
    pub fn is_used(&self, cluster: u32) -> bool {
        self.used.contains(cluster) && !self.bad.contains(cluster)
    }

    /// A write failed in a used cluster: when its last owner has let it go, nobody gets it any more.
    pub fn retire(&mut self, cluster: u32) {
        if self.is_used(cluster) {
            self.retiring.insert(cluster);
        }
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
            DeviceKind::File | DeviceKind::Block | DeviceKind::Nbd | DeviceKind::Zram => 0,
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
            self.give_blocks_back(first, count);
        }
    }

    /// What cannot discard keeps the blocks until the end: only space is lost.
    fn give_blocks_back(&self, first: u32, count: u32) {
        let medium = match self.kind {
            DeviceKind::Block => Medium::Block,
            DeviceKind::File => Medium::File,
            DeviceKind::Ram | DeviceKind::Zram => Medium::Memory,
            // Its server is told by who asks for `take_freed`.
            DeviceKind::Nbd => return,
        };
        let slots = |clusters: u32| u64::from(clusters) * CLUSTER_BYTES / PAGE_SIZE as u64;
        if let Some(slot) = FileSlot::new(slots(first)) {
            let _ = FileDevice::new(self.device.file.as_fd()).on(medium).discard(slot, slots(count));
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
        let how = match self.kind {
            DeviceKind::File | DeviceKind::Zram => Reserve::Now,
            DeviceKind::Ram => Reserve::WhenWritten,
            // It has the blocks that it has; a server has the room that its export says.
            DeviceKind::Block | DeviceKind::Nbd => return Ok(()),
        };
        let start = u64::from(cluster) * CLUSTER_BYTES;
        let length = u64::from(self.length) * CLUSTER_BYTES;
        reserve(&self.device.file, how, start..start + CLUSTER_BYTES, length)?;
        self.length = self.length.max(cluster + 1);
        Ok(())
    }
}

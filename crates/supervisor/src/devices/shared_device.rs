//! A device whose clusters the members of a group share, as it was prepared.

use folioswap_devices::{FileDevice, FileSlot, Medium, PAGE_SIZE};
use folioswap_group::{devices::DeviceKind, segment::CLUSTER_BYTES};
use rustix::fd::{AsFd, OwnedFd};

/// The swap slots of a cluster.
pub const CLUSTER_SLOTS: u64 = CLUSTER_BYTES / PAGE_SIZE as u64;

/// When the blocks of free clusters go back to the file system (`discard` of swapon(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Never: the blocks wait for their next use, and go with the file.
    Never,
    /// In bulk, a moment after the clusters became free.
    Freed,
}

/// A shared device.
pub struct SharedDevice {
    /// The file, on disk or in memory; all members get this descriptor.
    pub file: OwnedFd,
    /// When the blocks of free clusters go back.
    pub discard: Discard,
    /// The number of clusters at the start that a header occupies.
    pub reserved: u32,
    /// Whether all blocks are given back before the first use (`discard=once`).
    pub discard_at_start: bool,
}

impl SharedDevice {
    /// A new file without a header, which has no blocks to give back at the start.
    pub fn new(file: OwnedFd, discard: Discard) -> Self {
        SharedDevice { file, discard, reserved: 0, discard_at_start: false }
    }

    /// Gives the blocks of `count` clusters from `first` on back to the system, where the device
    /// can discard; a device that cannot keeps them until its end, which costs only space. The
    /// blocks of a network device stay, since its server is told in another way.
    pub fn give_blocks_back(&self, kind: DeviceKind, first: u32, count: u32) {
        let medium = match kind {
            DeviceKind::Block => Medium::Block,
            DeviceKind::File => Medium::File,
            DeviceKind::Ram | DeviceKind::Zram => Medium::Memory,
            DeviceKind::Nbd => return,
        };
        if let Some(slot) = FileSlot::new(u64::from(first) * CLUSTER_SLOTS) {
            let device = FileDevice::new(self.file.as_fd()).on(medium);
            let _ = device.discard(slot, u64::from(count) * CLUSTER_SLOTS);
        }
    }
}

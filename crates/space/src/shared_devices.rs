//! The shared devices whose slots lie in clusters (`file`, `ram`, `nbd`), by cluster number: the
//! device of a slot, and its descriptor.

use crate::file_space::CLUSTER_SLOTS;
use crate::open_device::OpenDevice;
use core::sync::atomic::{
    AtomicI32, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use folioswap_devices::{FileDevice, FileSlot, Medium, Orders};
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_nbd::link::{LinkDevice, Links, Silence, silence_of};
use folioswap_slots::{DEVICES_MAX, DeviceId, DeviceMask};
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// One shared device; without clusters it is none.
struct SharedDevice {
    first_cluster: AtomicU32,
    clusters: AtomicU32,
    descriptor: AtomicI32,
    /// [`DeviceIo`].
    io: AtomicU32,
    kind: AtomicU32,
    orders: AtomicU32,
    /// [`DeviceContents`].
    contents: AtomicU32,
    links: Links,
}

impl SharedDevice {
    const fn none() -> Self {
        SharedDevice {
            first_cluster: AtomicU32::new(0),
            clusters: AtomicU32::new(0),
            descriptor: AtomicI32::new(-1),
            io: AtomicU32::new(DeviceIo::Asynchronous as u32),
            kind: AtomicU32::new(0),
            orders: AtomicU32::new(Orders::ALL.bits() as u32),
            contents: AtomicU32::new(DeviceContents::Plain as u32),
            links: Links::none(),
        }
    }
}

impl SharedDevice {
    /// The medium of the device. A server's export is a disk that is further away.
    fn medium(&self) -> Medium {
        match self.kind.load(Relaxed) {
            kind if kind == DeviceKind::File as u32 || kind == DeviceKind::Nbd as u32 => Medium::File,
            kind if kind == DeviceKind::Block as u32 => Medium::Block,
            _ => Medium::Memory,
        }
    }

    fn orders(&self) -> Orders {
        Orders::from_bits(self.orders.load(Relaxed) as u16)
    }

    fn is_link(&self) -> bool {
        self.io.load(Relaxed) == DeviceIo::Served as u32
    }
}

/// All shared devices. They are set when the process joins its group, and anew in a forked child,
/// whose descriptors are others.
pub struct SharedDevices {
    devices: [SharedDevice; DEVICES_MAX],
    /// One past the highest device that is set.
    count: AtomicU32,
}

impl SharedDevices {
    /// Creates the set without devices.
    pub const fn new() -> Self {
        SharedDevices { devices: [const { SharedDevice::none() }; DEVICES_MAX], count: AtomicU32::new(0) }
    }

    /// Sets a device and its descriptor in the calling thread's table.
    pub fn set(&self, id: DeviceId, description: DeviceDescription, descriptor: i32) {
        let device = &self.devices[id.index()];
        device.first_cluster.store(description.first_cluster, Relaxed);
        device.clusters.store(description.clusters, Relaxed);
        device.io.store(description.io as u32, Relaxed);
        device.kind.store(description.kind as u32, Relaxed);
        device.contents.store(description.contents as u32, Relaxed);
        device.links.set(if description.io == DeviceIo::Served { descriptor } else { -1 });
        device.descriptor.store(descriptor, Release);
        self.count.fetch_max(id.index() as u32 + 1, Release);
    }

    /// Removes a device. No entry's bytes may be on it, and no thread may read or write it. Its
    /// descriptor may be closed afterwards.
    pub fn clear(&self, id: DeviceId) {
        let device = &self.devices[id.index()];
        device.clusters.store(0, Relaxed);
        device.descriptor.store(-1, Release);
    }

    /// Removes all devices without closing anything: in a forked child, whose table of descriptors
    /// is another.
    pub fn forget_all(&self) {
        for device in &self.devices {
            device.clusters.store(0, Relaxed);
            device.descriptor.store(-1, Release);
            device.links.set(-1);
        }
    }

    /// As [`SharedDevices::clear`], and closes the device's descriptors in the calling thread's
    /// table. No thread may use the device or begin to.
    pub fn close(&self, id: DeviceId) {
        let device = &self.devices[id.index()];
        let is_link = device.is_link();
        device.clusters.store(0, Relaxed);
        let descriptor = device.descriptor.swap(-1, AcqRel);
        device.links.close();
        if descriptor >= 0 && !is_link {
            // SAFETY: it came to this table for this device alone, and no thread finds it there any
            // more.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }

    /// Sets the orders that a device takes; all, unless this was called. As [`SharedDevices::set`].
    pub fn set_orders(&self, id: DeviceId, orders: Orders) {
        self.devices[id.index()].orders.store(orders.bits().into(), Relaxed);
    }

    /// Returns those of `devices` that take a run of this many pages in one write.
    pub fn taking(&self, devices: DeviceMask, pages: usize) -> DeviceMask {
        let takes = |id: &DeviceId| self.devices[id.index()].orders().take_run(pages);
        devices.iter().filter(takes).fold(DeviceMask::NONE, DeviceMask::with)
    }

    /// Returns all devices that are set.
    pub fn mask(&self) -> DeviceMask {
        self.all().fold(DeviceMask::NONE, |mask, (id, _)| mask.with(id))
    }

    /// Returns the devices that this process writes to by itself, waiting for nothing but a disk.
    pub fn local(&self) -> DeviceMask {
        let local = self.all().filter(|(_, device)| !device.is_link());
        local.fold(DeviceMask::NONE, |mask, (id, _)| mask.with(id))
    }

    /// Returns the device that a cluster lies on.
    pub fn of_cluster(&self, cluster: u32) -> Option<DeviceId> {
        self.find(cluster.into()).map(|(id, _)| id)
    }

    /// Returns the device that a slot lies on.
    pub fn of_slot(&self, slot: FileSlot) -> Option<DeviceId> {
        self.find(cluster_of(slot)).map(|(id, _)| id)
    }

    /// Whether a slot is on a device from which reading costs as little as copying.
    pub fn is_synchronous(&self, slot: FileSlot) -> bool {
        self.find(cluster_of(slot))
            .is_some_and(|(_, device)| device.io.load(Relaxed) == DeviceIo::Synchronous as u32)
    }

    /// Whether a slot is on a file or block device, or on a server's disk.
    pub fn is_on_disk(&self, slot: FileSlot) -> bool {
        self.find(cluster_of(slot)).is_some_and(|(_, device)| device.medium() != Medium::Memory)
    }

    /// Whether a slot is on another machine, which may not answer for a while.
    pub fn is_remote(&self, slot: FileSlot) -> bool {
        self.find(cluster_of(slot)).is_some_and(|(_, device)| device.is_link())
    }

    /// Whether each process encrypts the pages of a slot's device.
    pub(crate) fn is_encrypted(&self, slot: FileSlot) -> bool {
        self.find(cluster_of(slot))
            .is_some_and(|(_, device)| device.contents.load(Relaxed) == DeviceContents::Encrypted as u32)
    }

    /// Returns the device that a slot lies on, open, and the slot's number within it. No run of
    /// slots is on two devices.
    pub(crate) fn open(&self, slot: FileSlot) -> Option<(OpenDevice<'_>, FileSlot)> {
        let (_, device) = self.find(cluster_of(slot))?;
        let descriptor = device.descriptor.load(Acquire);
        let within = slot.raw() - u64::from(device.first_cluster.load(Relaxed)) * CLUSTER_SLOTS;
        let within = FileSlot::new(within)?;
        if device.is_link() {
            return Some((OpenDevice::Link(LinkDevice(&device.links)), within));
        }
        // SAFETY: the descriptor is in the pager threads' table and is not closed while it stands
        // here.
        let descriptor = (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })?;
        let open = FileDevice::new(descriptor).on(device.medium()).taking(device.orders());
        Some((OpenDevice::File(open), within))
    }

    /// Returns the meaning of this error of a write if it says that the server of a network device
    /// is not there (and nothing of the slot).
    pub(crate) fn silence(&self, slot: FileSlot, errno: Errno) -> Option<Silence> {
        let (_, device) = self.find(cluster_of(slot))?;
        device.is_link().then(|| silence_of(errno)).flatten()
    }

    fn find(&self, cluster: u64) -> Option<(DeviceId, &SharedDevice)> {
        self.all().find(|(_, device)| {
            let first = u64::from(device.first_cluster.load(Relaxed));
            (first..first + u64::from(device.clusters.load(Relaxed))).contains(&cluster)
        })
    }

    fn all(&self) -> impl Iterator<Item = (DeviceId, &SharedDevice)> {
        let count = self.count.load(Acquire) as usize;
        let named = |(index, device)| Some((DeviceId::new(index as u32)?, device));
        let set = |(_, device): &(DeviceId, &SharedDevice)| device.clusters.load(Relaxed) > 0;
        self.devices[..count.min(DEVICES_MAX)].iter().enumerate().filter_map(named).filter(set)
    }
}

impl Default for SharedDevices {
    fn default() -> Self {
        Self::new()
    }
}

fn cluster_of(slot: FileSlot) -> u64 {
    slot.raw() / CLUSTER_SLOTS
}

#[cfg(test)]
mod tests;

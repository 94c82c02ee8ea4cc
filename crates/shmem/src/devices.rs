//! The swap devices of a space: their order and rotation, and the clusters of those that have
//! clusters.

use crate::error::CreateError;
use crate::sync::{AtomicU32, Mutex, RwLock, RwLockReadGuard, SeqCst, lock, read_lock, write_lock};
use folioswap_devices::create::{create_swap_file, default_swap_max};
use folioswap_devices::{FileDevice, FileSlot, Medium, Orders};
use folioswap_group::devices::{DEVICES_MAX, DeviceContents, DeviceDescription};
pub use folioswap_group::devices::{DeviceIo, DeviceKind};
pub use folioswap_group::segment::CLUSTER_BYTES;
use folioswap_policy::tiers::{self, TiersError};
use folioswap_policy::turns::{Choice, Turns};
use folioswap_slots::{CLUSTER_SLOTS, DeviceId, DeviceMask};
use folioswap_space::file_space::FileSpace;
use folioswap_space::shared_devices::SharedDevices;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Clusters of files that are taken at a time: 32 MiB.
const GRANT: usize = 16;
/// Clusters given back at a time.
const GIVEN_BACK: usize = 64;

/// When the blocks of free clusters go back to the system (`discard` of swapon(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// At the device's end: until then the clusters wait for their next use.
    Never,
    /// In bulk, a moment after they became free.
    Freed,
}

/// One swap device, opened. Higher priorities are used first, equal ones in rotation, a cluster of
/// 2 MiB each.
#[derive(Debug)]
pub struct SwapDevice {
    /// The name in tables and messages.
    pub name: PathBuf,
    /// The kind of device. At most one of a space is [`DeviceKind::Zram`].
    pub kind: DeviceKind,
    /// Higher priorities are used first; -1 by default.
    pub priority: i32,
    /// How a swap-in from it reads.
    pub io: DeviceIo,
    /// The folio orders that it accepts in one write.
    pub orders: Orders,
    /// The open file behind it: a file, a block device, memory, or the link to the server of a
    /// network device; `None` for the compressed store, which is in the space's own memory.
    pub file: Option<OwnedFd>,
    /// Number of clusters at its start that are not for data: a header's.
    pub reserved: u32,
    /// Its clusters in all, of 2 MiB; 0 for the compressed store.
    pub clusters: u32,
    /// Treatment of free clusters.
    pub discard: Discard,
    /// What stands on it: pages as they are, or encrypted under keys of this process.
    pub contents: DeviceContents,
}

impl SwapDevice {
    /// The compressed store, which grows and shrinks within the limit.
    pub fn store(priority: i32) -> SwapDevice {
        SwapDevice {
            name: "zram".into(),
            kind: DeviceKind::Zram,
            priority,
            io: DeviceIo::Synchronous,
            orders: Orders::ALL,
            file: None,
            reserved: 0,
            clusters: 0,
            discard: Discard::Never,
            contents: DeviceContents::Plain,
        }
    }

    /// A file without a name in `directory`, which must not be in memory. It grows to at most `max`
    /// bytes; `None`: to half of the file system's free space now.
    ///
    /// # Errors
    /// [`CreateError::SwapFile`], which names the remedy.
    pub fn temporary(directory: &Path, max: Option<u64>, priority: i32) -> Result<SwapDevice, CreateError> {
        let file = create_swap_file(directory)?;
        let bytes = max.map_or_else(|| default_swap_max(directory), Ok)?;
        Ok(SwapDevice {
            name: directory.to_owned(),
            kind: DeviceKind::File,
            io: DeviceIo::Asynchronous,
            file: Some(file),
            clusters: clusters_of(bytes),
            discard: Discard::Freed,
            ..SwapDevice::store(priority)
        })
    }

    /// Plain RAM, of `bytes` at most, beside the space's limit.
    ///
    /// # Errors
    /// [`CreateError::System`].
    pub fn ram(name: &Path, bytes: u64, priority: i32, io: DeviceIo) -> Result<SwapDevice, CreateError> {
        let failed =
            |errno: Errno| CreateError::System { doing: "making a device in RAM", error: errno.into() };
        let file = memfd_create("folioswap-ram", MemfdFlags::CLOEXEC).map_err(failed)?;
        Ok(SwapDevice {
            name: name.to_owned(),
            kind: DeviceKind::Ram,
            io,
            file: Some(file),
            clusters: clusters_of(bytes),
            discard: Discard::Freed,
            ..SwapDevice::store(priority)
        })
    }
}

fn clusters_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(CLUSTER_BYTES)).unwrap_or(u32::MAX)
}

/// Result of [`Devices::grow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// There are more clusters now.
    Added,
    /// The devices are as large as they may be.
    Exhausted,
}

/// State of a device, for tables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFigures {
    /// The name given.
    pub name: PathBuf,
    /// The kind of device.
    pub kind: DeviceKind,
    /// Higher priorities are used first.
    pub priority: i32,
    /// Bytes for pages; `None`: it grows as the limit lets it.
    pub size: Option<u64>,
    /// Bytes of pages on it (of the compressed store, uncompressed).
    pub used: u64,
    /// Its swapoff has begun, or is done.
    pub is_off: bool,
}

/// One device in use.
struct Device {
    name: PathBuf,
    description: DeviceDescription,
    discard: Discard,
    clusters: Mutex<Clusters>,
}

/// The free clusters of one device, and its file.
struct Clusters {
    /// `None`: the device has no file, or is gone.
    file: Option<File>,
    /// Clusters given back, to be used again first.
    free: Vec<u32>,
    /// Clusters from this one to the end were never used.
    next: u32,
}

/// All devices of a space, by number.
pub(crate) struct Devices {
    list: Vec<Device>,
    turns: Mutex<Turns>,
    /// The devices that are on, as bits.
    on: AtomicU32,
    /// The devices whose tiers take no new pages, as bits.
    masked: AtomicU32,
    /// Held for reading by a thread that writes to a device, from the choice of the device on until
    /// entries have their new places. Taking a device off takes it for writing once: every thread
    /// that may have chosen the device is then done.
    writers: RwLock<()>,
}

impl Devices {
    /// Opens the devices, and announces those with clusters to `shared`.
    pub(crate) fn new(devices: Vec<SwapDevice>, shared: &SharedDevices) -> Result<Devices, CreateError> {
        let stores = devices.iter().filter(|device| device.kind == DeviceKind::Zram).count();
        if devices.len() > DEVICES_MAX || stores > 1 {
            return Err(CreateError::Devices);
        }
        let mut list = Vec::new();
        let mut first_cluster = 0u32;
        for (id, device) in DeviceMask::ALL.iter().zip(devices) {
            // A number that belongs to no device lies between two, so that no run is on both.
            let most = u32::MAX / 2 - first_cluster;
            let clusters = device.clusters.min(most);
            let description = DeviceDescription {
                kind: device.kind,
                priority: device.priority,
                io: device.io,
                first_cluster,
                clusters,
                contents: device.contents,
            };
            if let Some(file) = &device.file {
                shared.set(id, description, file.as_raw_fd());
                shared.set_orders(id, device.orders);
                first_cluster += clusters + 1;
            } else if device.kind != DeviceKind::Zram {
                return Err(CreateError::Devices);
            }
            let own = Clusters {
                file: device.file.map(File::from),
                free: Vec::new(),
                next: description.first_cluster + device.reserved,
            };
            let clusters = Mutex::new(own);
            list.push(Device { name: device.name, description, discard: device.discard, clusters });
        }
        Ok(Devices::of(list))
    }

    /// No devices.
    pub(crate) fn none() -> Devices {
        Devices::of(Vec::new())
    }

    fn of(list: Vec<Device>) -> Devices {
        let turns = Turns::new(list.iter().map(|device| device.description));
        let all = (0..list.len()).fold(0, |bits, index| bits | 1 << index);
        let masked = AtomicU32::new(0);
        Devices { list, turns: Mutex::new(turns), on: AtomicU32::new(all), masked, writers: RwLock::new(()) }
    }

    fn numbered(&self) -> impl Iterator<Item = (DeviceId, &Device)> {
        DeviceMask::ALL.iter().zip(&self.list)
    }

    /// The devices that are in use.
    pub(crate) fn on(&self) -> DeviceMask {
        DeviceMask::from_bits(self.on.load(SeqCst))
    }

    /// The devices that may be written to: those in use, in the tiers that take pages.
    pub(crate) fn writable(&self) -> DeviceMask {
        self.on().minus(DeviceMask::from_bits(self.masked.load(SeqCst)))
    }

    /// Lets new pages go to these tiers alone. Pages that are elsewhere stay.
    ///
    /// # Errors
    /// [`TiersError`]; the tiers are as before.
    pub(crate) fn set_tiers(&self, list: &str) -> Result<(), TiersError> {
        let on = self.on();
        let priority =
            |(id, device): (DeviceId, &Device)| on.contains(id).then_some(device.description.priority);
        let devices = tiers::devices_in(list, self.numbered().map(priority).collect::<Vec<_>>().into_iter())?;
        self.masked.store(DeviceMask::ALL.minus(devices).bits(), SeqCst);
        Ok(())
    }

    /// The priorities of the tiers that take new pages, the highest first.
    pub(crate) fn tiers(&self) -> Vec<i32> {
        let writable = self.writable();
        let used = self.numbered().filter(|&(id, _)| writable.contains(id));
        let mut tiers: Vec<i32> = used.map(|(_, device)| device.description.priority).collect();
        tiers.sort_unstable_by(|a, b| b.cmp(a));
        tiers.dedup();
        tiers
    }

    /// To be held from the choice of a device until the written pages have their place.
    pub(crate) fn write(&self) -> RwLockReadGuard<'_, ()> {
        read_lock(&self.writers)
    }

    /// The destination of the next pages, if the `full` devices have no room. The caller holds
    /// [`Devices::write`].
    pub(crate) fn next(&self, full: DeviceMask) -> Option<Choice> {
        lock(&self.turns).next(self.writable().minus(full))
    }

    /// Accounts for `pages` written to the last choice.
    pub(crate) fn used(&self, pages: u64) {
        lock(&self.turns).used(pages);
    }

    /// The first devices with clusters, without the `full` ones: for pages that the compressed
    /// store refuses. Empty: none is left.
    pub(crate) fn beside_store(&self, full: DeviceMask) -> DeviceMask {
        lock(&self.turns).shared(self.writable().minus(full))
    }

    /// The devices for cold pages of the compressed store, without the `full` ones: those below it,
    /// or if none is below, any other. Empty: there is none.
    pub(crate) fn behind_store(&self, full: DeviceMask) -> DeviceMask {
        let turns = lock(&self.turns);
        let below = turns.below_store(self.writable());
        turns.shared(if below.is_empty() { self.writable() } else { below }.minus(full))
    }

    /// The compressed store, if it is one of the devices.
    pub(crate) fn store(&self) -> Option<DeviceId> {
        self.numbered().find(|(_, device)| device.description.kind == DeviceKind::Zram).map(|(id, _)| id)
    }

    /// The device of this name.
    pub(crate) fn named(&self, name: &Path) -> Option<DeviceId> {
        self.numbered().find(|(_, device)| device.name == name).map(|(id, _)| id)
    }

    /// The kind of a device.
    pub(crate) fn kind(&self, id: DeviceId) -> Option<DeviceKind> {
        self.list.get(id.index()).map(|device| device.description.kind)
    }

    /// Takes a device off: once this returns, no thread writes to it any more.
    pub(crate) fn take_off(&self, id: DeviceId) {
        self.on.fetch_and(!(1 << id.index()), SeqCst);
        drop(write_lock(&self.writers));
    }

    /// Puts a device on again.
    pub(crate) fn put_on(&self, id: DeviceId) {
        self.on.fetch_or(1 << id.index(), SeqCst);
    }

    /// Removes the clusters and the file of a device that is off and has nothing on it.
    pub(crate) fn remove(&self, id: DeviceId, files: &FileSpace, shared: &SharedDevices) {
        let mut numbers = [0; GIVEN_BACK];
        while files.take_empty(DeviceMask::only(id), 0, &mut numbers) > 0 {}
        let Some(device) = self.list.get(id.index()) else { return };
        shared.clear(id);
        let mut clusters = lock(&device.clusters);
        clusters.free = Vec::new();
        clusters.file = None;
    }

    /// Adds clusters of these devices, of each in turn. The caller holds [`Devices::write`].
    pub(crate) fn grow(&self, devices: DeviceMask, files: &FileSpace) -> Growth {
        let mut granted = Vec::new();
        let mut left: Vec<(DeviceId, &Device)> =
            self.numbered().filter(|&(id, _)| devices.contains(id)).collect();
        while granted.len() < GRANT && !left.is_empty() {
            left.retain(|&(id, device)| {
                let number = device.take_cluster();
                granted.extend(number.map(|number| (number, id)));
                number.is_some()
            });
        }
        let added = files.add(granted.iter().copied());
        for &(number, id) in &granted[added..] {
            lock(&self.list[id.index()].clusters).free.push(number);
        }
        if added > 0 { Growth::Added } else { Growth::Exhausted }
    }

    /// Gives empty clusters back, all but a quarter of the used ones and `kept`, and their blocks
    /// to the system where the device discards.
    pub(crate) fn give_back(&self, kept: usize, files: &FileSpace) {
        for (id, device) in self.numbered().filter(|(_, device)| device.discard == Discard::Freed) {
            let only = DeviceMask::only(id);
            let kept = (files.clusters_used(only) / 4).max(kept);
            let mut numbers = [0; GIVEN_BACK];
            let count = files.take_empty(only, kept, &mut numbers);
            let numbers = &mut numbers[..count];
            numbers.sort_unstable();
            for run in numbers.chunk_by(|one, next| one + 1 == *next) {
                device.give_blocks_back(run[0], run.len());
            }
            lock(&device.clusters).free.extend_from_slice(numbers);
        }
    }

    /// The state of each device. `stored` is the size of the pages in the compressed store.
    pub(crate) fn figures(&self, stored: u64, files: &FileSpace) -> Vec<DeviceFigures> {
        let on = self.on();
        let figures = |(id, device): (DeviceId, &Device)| DeviceFigures {
            name: device.name.clone(),
            kind: device.description.kind,
            priority: device.description.priority,
            size: device.has_clusters().then(|| u64::from(device.description.clusters) * CLUSTER_BYTES),
            used: match device.description.kind {
                DeviceKind::Zram => stored,
                _ => files.used_on(DeviceMask::only(id)) * (CLUSTER_BYTES / u64::from(CLUSTER_SLOTS)),
            },
            is_off: !on.contains(id),
        };
        self.numbered().map(figures).collect()
    }

    /// Slots of these devices beyond those in use; `None`: without limit.
    pub(crate) fn room(&self, devices: DeviceMask, files: &FileSpace) -> Option<u64> {
        self.numbered()
            .filter(|&(id, _)| devices.contains(id))
            .try_fold(0u64, |room, (_, device)| {
                let slots = u64::from(device.description.clusters) * u64::from(CLUSTER_SLOTS);
                device.has_clusters().then(|| room.saturating_add(slots))
            })
            .map(|slots| slots.saturating_sub(files.used_on(devices)))
    }

    /// The file of the first device that has one, for tests that damage it.
    #[cfg(test)]
    pub(crate) fn file(&self) -> Option<File> {
        self.list.iter().find_map(|device| lock(&device.clusters).file.as_ref()?.try_clone().ok())
    }
}

impl Device {
    fn has_clusters(&self) -> bool {
        self.description.kind != DeviceKind::Zram
    }

    /// Takes a free cluster, by its number in the space. On a file its blocks are allocated: a full
    /// disk shows here.
    fn take_cluster(&self) -> Option<u32> {
        let DeviceDescription { first_cluster, clusters, kind, .. } = self.description;
        let mut own = lock(&self.clusters);
        let file = own.file.as_ref()?;
        let number = match own.free.last() {
            Some(&number) => number,
            None if own.next < first_cluster + clusters => own.next,
            None => return None,
        };
        if kind == DeviceKind::File {
            let start = u64::from(number - first_cluster) * CLUSTER_BYTES;
            match fallocate(file, FallocateFlags::empty(), start, CLUSTER_BYTES) {
                // A file system that cannot promise blocks may still have them.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(_) => return None,
            }
        }
        if own.free.pop().is_none() {
            own.next += 1;
        }
        Some(number)
    }

    /// Discards clusters. A device that cannot discard keeps the blocks until its end: only space
    /// is lost.
    fn give_blocks_back(&self, first: u32, count: usize) {
        let medium = match self.description.kind {
            DeviceKind::Block => Medium::Block,
            DeviceKind::File => Medium::File,
            DeviceKind::Ram | DeviceKind::Zram => Medium::Memory,
            DeviceKind::Nbd => return,
        };
        let own = lock(&self.clusters);
        let slot =
            FileSlot::new(u64::from(first - self.description.first_cluster) * u64::from(CLUSTER_SLOTS));
        if let (Some(file), Some(slot)) = (&own.file, slot) {
            let _ = FileDevice::new(file.as_fd())
                .on(medium)
                .discard(slot, count as u64 * u64::from(CLUSTER_SLOTS));
        }
    }
}

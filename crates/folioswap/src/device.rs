//! The devices that memory is swapped out to.

use crate::{Error, IntoBytes};
use folioswap_devices::create::{create_swap_file, default_swap_max};
use folioswap_group::devices::{DEVICES_MAX, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_group::segment::{CLUSTER_BYTES, CLUSTERS_MAX};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use std::path::PathBuf;

/// Where the built-in file lies.
const BUILT_IN_DIRECTORY: &str = "/var/tmp";
/// Of a device without a priority, as in the kernel.
const PRIORITY_DEFAULT: i32 = -1;
const PRIORITY_MAX: i32 = i16::MAX as i32;

/// A swap device: compressed RAM, plain RAM, or a temporary file in a directory.
///
/// The device with the highest priority takes what is swapped out until it is full, then the next; equals take turns, 2 MiB each; without a
/// priority all have -1.
///
/// ```
/// use folioswap::{Device, Swap};
///
/// let swap = Swap::builder()
///     .limit("64M")
///     .device(Device::zram().priority(1))
///     .device(Device::file("/var/tmp").size("256M").priority(0))
///     .build()?;
/// # drop(swap);
/// # Ok::<(), folioswap::Error>(())
/// ```
#[derive(Debug)]
pub struct Device {
    kind: Kind,
    size: Option<Result<u64, Error>>,
    priority: Option<i32>,
}

#[derive(Debug)]
enum Kind {
    Zram,
    Ram(DeviceIo),
    File(PathBuf),
}

impl Device {
    /// Compressed RAM within the limit, which grows and shrinks as needed. There can be one.
    ///
    /// ```
    /// let device = folioswap::Device::zram().priority(1);
    /// # drop(device);
    /// ```
    pub fn zram() -> Self {
        Device { kind: Kind::Zram, size: None, priority: None }
    }

    /// Plain RAM of at most `size` bytes, which counts towards the limit: for comparisons.
    ///
    /// ```
    /// let device = folioswap::Device::ram("64M");
    /// # drop(device);
    /// ```
    pub fn ram(size: impl IntoBytes) -> Self {
        Device { kind: Kind::Ram(DeviceIo::Synchronous), size: Some(size.into_bytes()), priority: None }
    }

    /// A temporary file without a name in this directory, which must be on a disk. Without a size it grows to at most half of the disk's free
    /// space. What is free again is given back to the disk.
    ///
    /// ```
    /// let device = folioswap::Device::file("/var/tmp").size("1G").priority(0);
    /// # drop(device);
    /// ```
    pub fn file(directory: impl Into<PathBuf>) -> Self {
        Device { kind: Kind::File(directory.into()), size: None, priority: None }
    }

    /// Most bytes that it takes; of compressed RAM the limit itself is the bound, and nothing is changed.
    ///
    /// ```
    /// let device = folioswap::Device::file("/var/tmp").size(64 << 20);
    /// # drop(device);
    /// ```
    #[must_use]
    pub fn size(mut self, size: impl IntoBytes) -> Self {
        if !matches!(self.kind, Kind::Zram) {
            self.size = Some(size.into_bytes());
        }
        self
    }

    /// 0 to 32767; the highest is used first, as with swapon(8).
    ///
    /// ```
    /// let device = folioswap::Device::zram().priority(100);
    /// # drop(device);
    /// ```
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }
}

/// A device that is ready.
pub(crate) struct Prepared {
    pub(crate) description: DeviceDescription,
    pub(crate) file: Option<OwnedFd>,
}

/// Compressed RAM, and a file behind it.
pub(crate) fn built_in() -> Vec<Device> {
    vec![Device::zram().priority(1), Device::file(BUILT_IN_DIRECTORY).priority(0)]
}

/// Makes them ready, in the order given.
pub(crate) fn prepare(devices: Vec<Device>) -> Result<Vec<Prepared>, Error> {
    if devices.len() > DEVICES_MAX {
        return Err(Error::TooManyDevices(devices.len()));
    }
    if devices.iter().filter(|device| matches!(device.kind, Kind::Zram)).count() > 1 {
        return Err(Error::StoreTwice);
    }
    let (mut prepared, mut next) = (Vec::new(), 0u64);
    for device in devices {
        if let Some(priority) = device.priority
            && !(0..=PRIORITY_MAX).contains(&priority)
        {
            return Err(Error::Priority(priority));
        }
        let priority = device.priority.unwrap_or(PRIORITY_DEFAULT);
        let left = CLUSTERS_MAX as u64 - DEVICES_MAX as u64 - next;
        let (kind, io, file, bytes) = match device.kind {
            Kind::Zram => (DeviceKind::Zram, DeviceIo::Synchronous, None, 0),
            Kind::Ram(io) => {
                let file = memfd_create("folioswap-ram", MemfdFlags::CLOEXEC)
                    .map_err(Error::system("making a device of plain RAM"))?;
                (DeviceKind::Ram, io, Some(file), device.size.unwrap_or(Ok(0))?)
            }
            Kind::File(directory) => {
                if directory.exists() && !directory.is_dir() {
                    return Err(Error::NotADirectory(directory));
                }
                let file = create_swap_file(&directory).map_err(Error::File)?;
                let bytes = match device.size {
                    Some(size) => size?,
                    None => {
                        let half = default_swap_max(&directory).map_err(Error::File)?;
                        half.clamp(CLUSTER_BYTES, left.max(1) * CLUSTER_BYTES)
                    }
                };
                (DeviceKind::File, DeviceIo::Asynchronous, Some(file), bytes)
            }
        };
        let clusters = bytes / CLUSTER_BYTES;
        if file.is_some() && (clusters == 0 || clusters > left) {
            return Err(Error::DeviceSize(bytes));
        }
        // A number that is nobody's lies between two devices.
        let description =
            DeviceDescription { kind, priority, io, first_cluster: next as u32, clusters: clusters as u32 };
        next += if file.is_some() { clusters + 1 } else { 0 };
        prepared.push(Prepared { description, file });
    }
    Ok(prepared)
}

/// The file behind a shmem space's compressed store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwapFile {
    /// Where it is made.
    pub(crate) directory: PathBuf,
    /// The most bytes that it may have; `None`: half of what the file system has free.
    pub(crate) max: Option<u64>,
}

/// The file behind a space of objects, if there is to be one.
pub(crate) fn behind_shmem(devices: Vec<Device>) -> Result<Option<SwapFile>, Error> {
    let has_built_in = devices.is_empty();
    let (mut stores, mut file) = (0, None);
    for device in devices {
        if device.priority.is_some() {
            return Err(Error::ShmemDevice("a device with a priority"));
        }
        match device.kind {
            Kind::Zram if stores > 0 => return Err(Error::StoreTwice),
            Kind::Zram => stores += 1,
            Kind::Ram(_) => return Err(Error::ShmemDevice("a device of plain RAM")),
            Kind::File(_) if file.is_some() => return Err(Error::ShmemDevice("a second file")),
            Kind::File(directory) => {
                if directory.exists() && !directory.is_dir() {
                    return Err(Error::NotADirectory(directory));
                }
                let max = device.size.transpose()?;
                if let Some(bytes) = max.filter(|bytes| *bytes < CLUSTER_BYTES) {
                    return Err(Error::DeviceSize(bytes));
                }
                file = Some(SwapFile { directory, max });
            }
        }
    }
    let built_in = SwapFile { directory: BUILT_IN_DIRECTORY.into(), max: None };
    Ok(file.or(has_built_in.then_some(built_in)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_of_objects_has_one_file_at_most() {
        let behind = |devices| behind_shmem(devices).expect("devices");
        assert_eq!(behind(vec![Device::zram()]), None);
        let named = SwapFile { directory: "/var/tmp".into(), max: Some(4 << 20) };
        assert_eq!(behind(vec![Device::file("/var/tmp").size("4M"), Device::zram()]), Some(named));
        assert_eq!(behind(vec![]), Some(SwapFile { directory: "/var/tmp".into(), max: None }));
        let refused = |devices| behind_shmem(devices).expect_err("an error");
        assert!(matches!(refused(vec![Device::ram("8M")]), Error::ShmemDevice(_)));
        let file = || Device::file("/var/tmp");
        assert!(matches!(refused(vec![file(), file()]), Error::ShmemDevice(_)));
        assert!(matches!(refused(vec![file().priority(3)]), Error::ShmemDevice(_)));
        assert!(matches!(refused(vec![file().size(1)]), Error::DeviceSize(1)));
        assert!(matches!(refused(vec![Device::zram(), Device::zram()]), Error::StoreTwice));
        assert!(matches!(refused(vec![Device::file("/proc/self/exe")]), Error::NotADirectory(_)));
    }

    #[test]
    fn clusters_of_two_devices_do_not_touch() {
        let devices = vec![
            Device::ram("8M"),
            Device::zram(),
            Device::file("/var/tmp").size("7M"),
            Device::ram(2 << 20),
        ];
        let prepared = prepare(devices).expect("devices");
        let ranges = prepared.iter().map(|device| &device.description);
        let ranges: Vec<_> = ranges.map(|device| (device.first_cluster, device.clusters)).collect();
        assert_eq!(ranges, [(0, 4), (5, 0), (5, 3), (9, 1)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |devices| prepare(devices).err().expect("an error");
        assert!(matches!(refused(vec![Device::zram(), Device::zram()]), Error::StoreTwice));
        assert!(matches!(refused(vec![Device::ram(1)]), Error::DeviceSize(1)));
        assert!(matches!(refused(vec![Device::ram("8M").size("2T")]), Error::DeviceSize(_)));
        assert!(matches!(refused(vec![Device::ram("eight")]), Error::Size { .. }));
        assert!(matches!(refused(vec![Device::zram().priority(-5)]), Error::Priority(-5)));
        assert!(matches!(refused(vec![Device::file("/proc/self/exe")]), Error::NotADirectory(_)));
        assert!(matches!(refused(vec![Device::file("/nowhere/at/all")]), Error::File(_)));
        let many = (0..33).map(|_| Device::ram("2M")).collect();
        assert!(matches!(refused(many), Error::TooManyDevices(33)));
    }
}

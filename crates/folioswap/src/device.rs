//! The devices that memory is swapped out to.

use crate::{Error, IntoBytes};
use folioswap_devices::create::{create_swap_file, default_swap_max};
use folioswap_group::decisions::CLUSTERS_MAX;
use folioswap_group::devices::{DEVICES_MAX, DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_group::segment::CLUSTER_BYTES;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, memfd_create};
use std::path::PathBuf;

/// The directory of the built-in file.
const BUILT_IN_DIRECTORY: &str = "/var/tmp";
/// The priority of a device for which none is given, as in the kernel.
const PRIORITY_DEFAULT: i32 = -1;
const PRIORITY_MAX: i32 = i16::MAX as i32;

/// A swap device: compressed RAM, plain RAM, or a temporary file in a directory.
///
/// Pages go to the device with the highest priority until it is full, then to the next. Devices of
/// equal priority take turns, 2 MiB each. A device for which no priority is given has -1.
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
    backing: Backing,
    size: Option<Result<u64, Error>>,
    priority: Option<i32>,
}

#[derive(Debug)]
enum Backing {
    Zram,
    Ram(DeviceIo),
    File(PathBuf),
}

impl Device {
    /// Compressed RAM within the limit, which grows and shrinks as needed. A swap can have one.
    ///
    /// ```
    /// let device = folioswap::Device::zram().priority(1);
    /// # drop(device);
    /// ```
    pub fn zram() -> Self {
        Device { backing: Backing::Zram, size: None, priority: None }
    }

    /// Plain RAM of at most `size` bytes, which counts towards the limit. It is meant for
    /// comparisons.
    ///
    /// ```
    /// let device = folioswap::Device::ram("64M");
    /// # drop(device);
    /// ```
    pub fn ram(size: impl IntoBytes) -> Self {
        Device { backing: Backing::Ram(DeviceIo::Synchronous), size: Some(size.into_bytes()), priority: None }
    }

    /// A temporary file without a name in this directory, which must be on a disk. Without
    /// [`Device::size`] the file grows to at most half of the disk's free space. Freed clusters are
    /// given back to the disk.
    ///
    /// ```
    /// let device = folioswap::Device::file("/var/tmp").size("1G").priority(0);
    /// # drop(device);
    /// ```
    pub fn file(directory: impl Into<PathBuf>) -> Self {
        Device { backing: Backing::File(directory.into()), size: None, priority: None }
    }

    /// Sets the most bytes that the device takes. Compressed RAM is bounded by the limit itself,
    /// and this call does not change it.
    ///
    /// ```
    /// let device = folioswap::Device::file("/var/tmp").size(64 << 20);
    /// # drop(device);
    /// ```
    #[must_use]
    pub fn size(mut self, size: impl IntoBytes) -> Self {
        if !matches!(self.backing, Backing::Zram) {
            self.size = Some(size.into_bytes());
        }
        self
    }

    /// Sets the priority, 0 to 32767. The highest is used first, as with swapon(8).
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

/// A device that is ready for use.
pub(crate) struct Prepared {
    pub(crate) description: DeviceDescription,
    pub(crate) file: Option<OwnedFd>,
}

/// Returns the devices of a swap for which none are given.
pub(crate) fn built_in() -> Vec<Device> {
    vec![Device::zram().priority(1), Device::file(BUILT_IN_DIRECTORY).priority(0)]
}

/// Makes the devices ready, in the order given.
pub(crate) fn prepare(devices: Vec<Device>) -> Result<Vec<Prepared>, Error> {
    if devices.len() > DEVICES_MAX {
        return Err(Error::TooManyDevices(devices.len()));
    }
    if devices.iter().filter(|device| matches!(device.backing, Backing::Zram)).count() > 1 {
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
        let (kind, io, file, bytes) = match device.backing {
            Backing::Zram => (DeviceKind::Zram, DeviceIo::Synchronous, None, 0),
            Backing::Ram(io) => {
                let file = memfd_create("folioswap-ram", MemfdFlags::CLOEXEC)
                    .map_err(Error::system("making a device of plain RAM"))?;
                (DeviceKind::Ram, io, Some(file), device.size.unwrap_or(Ok(0))?)
            }
            Backing::File(directory) => {
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
        // An unused cluster number between two devices keeps a run of clusters from spanning both.
        let description = DeviceDescription {
            kind,
            priority,
            io,
            first_cluster: next as u32,
            clusters: clusters as u32,
            contents: DeviceContents::Plain,
        };
        next += if file.is_some() { clusters + 1 } else { 0 };
        prepared.push(Prepared { description, file });
    }
    Ok(prepared)
}

/// The file behind a shmem space's compressed store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwapFile {
    /// The directory in which the file is made.
    pub(crate) directory: PathBuf,
    /// The most bytes that the file takes; `None`: half of the file system's free space.
    pub(crate) max: Option<u64>,
}

/// Returns the file behind a shmem space, if it has one.
pub(crate) fn behind_shmem(devices: Vec<Device>) -> Result<Option<SwapFile>, Error> {
    let has_built_in = devices.is_empty();
    let (mut stores, mut file) = (0, None);
    for device in devices {
        if device.priority.is_some() {
            return Err(Error::ShmemDevice("a device with a priority"));
        }
        match device.backing {
            Backing::Zram if stores > 0 => return Err(Error::StoreTwice),
            Backing::Zram => stores += 1,
            Backing::Ram(_) => return Err(Error::ShmemDevice("a device of plain RAM")),
            Backing::File(_) if file.is_some() => return Err(Error::ShmemDevice("a second file")),
            Backing::File(directory) => {
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
mod tests;

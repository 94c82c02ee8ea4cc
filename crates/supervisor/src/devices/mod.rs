//! The swap devices of a run, prepared before anything is started: what `--swap` asks for, or the built-in ones.

mod error;
mod kinds;
pub mod networks;
mod numbering;
mod one_more;
mod shared_device;

pub use self::{
    error::DeviceError,
    one_more::{Existing, prepare_one_more},
    shared_device::{Discard, SharedDevice},
};

use self::{
    kinds::{file, nbd, prepared, ram_device, store, with_encryption},
    numbering::{number_clusters, share_disks},
};
use crate::{
    machine,
    processes::limits::Limits,
    size,
    swap_option::{DeviceOption, DiscardOption, SwapOption},
};
use folioswap_devices::Orders;
use folioswap_group::{
    devices::{DEVICES_MAX, DeviceDescription, DeviceKind},
    segment::CLUSTER_BYTES,
};
use folioswap_nbd::{service::Told, store::Prepared, uri::Uri};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::fstat,
};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Where the built-in file lies.
const BUILT_IN_DIRECTORY: &str = "/var/tmp";
/// Of a device without a priority.
const PRIORITY_DEFAULT: i32 = -1;
/// Descriptors that a member needs besides one for each device.
const MEMBER_FILES: u64 = 12;
/// And for each network device: its sockets, and those of the supervisor, which may open no fewer files.
const NETWORK_FILES: u64 = 48;

/// One device, ready for use.
pub struct PreparedDevice {
    /// What members and the supervisor know of it. Its cluster numbers are given by [`number_clusters`].
    pub description: DeviceDescription,
    /// As the table shows it.
    pub name: PathBuf,
    /// What backs it, if members share it.
    pub shared: Option<SharedDevice>,
    /// Its directory, or itself where it was prepared: the path, for those who ask.
    pub directory: Option<OwnedFd>,
    /// The folio orders that it takes in one write.
    pub orders: Orders,
    /// A temporary file, or one that was there before.
    origin: Origin,
    /// What stands behind the links by which members reach it, if they do.
    pub network: Option<PreparedNetwork>,
    /// Bytes that it may have at most; of a device without a size, what it may have of its disk.
    bytes: u64,
    sized: Sized,
}

/// What the supervisor serves to members, ready for use.
pub enum PreparedNetwork {
    /// An export.
    Export {
        /// Connected and marked.
        export: Box<Prepared>,
        /// Who hears of clusters that became free.
        told: Told,
    },
    /// A file whose pages are sealed.
    File {
        /// For messages.
        name: String,
        /// The same open file as the device's.
        file: OwnedFd,
    },
}

impl PreparedNetwork {
    /// Its descriptor, to be kept open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            PreparedNetwork::Export { export, .. } => export.descriptor(),
            PreparedNetwork::File { file, .. } => file.as_fd(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Temporary,
    Prepared,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sized {
    Given,
    ByItsDisk,
}

/// Which devices there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Compressed RAM, and a file behind it.
    BuiltIn,
    /// Those of `--swap`.
    ByOption,
}

/// All devices of a run.
pub struct PreparedDevices {
    /// By number.
    pub devices: Vec<PreparedDevice>,
    /// Who chose them.
    pub chosen: Chosen,
}

impl PreparedDevices {
    /// By number, as tables show them.
    pub fn names(&self) -> Vec<PathBuf> {
        self.devices.iter().map(|device| device.name.clone()).collect()
    }

    /// What everything holds that there is, after "needs more than".
    pub fn full(&self, limit: &str) -> String {
        let is_store = |device: &PreparedDevice| device.description.kind == DeviceKind::Zram;
        let compressed = if self.devices.iter().any(is_store) { " even compressed" } else { "" };
        let shared = self.devices.iter().filter(|device| device.shared_bytes() > 0);
        let full: Vec<String> = shared
            .map(|device| {
                let (name, size) = (device.name.display(), size::show(device.shared_bytes()));
                match device.description.kind {
                    DeviceKind::File if device.origin == Origin::Temporary => {
                        format!("the swap file in {name} (at most {size}) is full")
                    }
                    _ => format!("{name} (at most {size}) is full"),
                }
            })
            .collect();
        match (full.is_empty(), self.chosen) {
            (true, Chosen::BuiltIn) => {
                format!("the limit of {limit} holds{compressed}, and there is no swap file (--swap-max 0)")
            }
            (true, Chosen::ByOption) => {
                format!("the limit of {limit} holds{compressed}, and there is no other device")
            }
            (false, _) => format!("the limit of {limit} holds{compressed}, and {}", full.join(", and ")),
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self.chosen {
            Chosen::BuiltIn => "Give more --memory, or more --swap-max",
            Chosen::ByOption => "Give more --memory, or a --swap file with more room",
        }
    }
}

impl PreparedDevice {
    /// Most bytes that its clusters hold.
    fn shared_bytes(&self) -> u64 {
        u64::from(self.description.clusters) * CLUSTER_BYTES
    }
}

/// What a command line says of devices.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// `--swap`.
    pub swap: &'a [SwapOption],
    /// `--swap-dir`.
    pub swap_dir: Option<&'a Path>,
    /// `--swap-max`.
    pub swap_max: Option<u64>,
}

/// Prepares what the arguments ask for. Nothing is left behind when it fails.
///
/// # Errors
/// [`DeviceError`].
pub fn prepare(asked: Wanted<'_>, limits: &Limits) -> Result<PreparedDevices, DeviceError> {
    let (devices, chosen) = wanted(asked)?;
    // One descriptor each is what a member of the built-in devices always had.
    let shared = devices.iter().filter(|device| device.shared.is_some()).count() as u64;
    let networks = devices.iter().filter(|device| device.network.is_some()).count() as u64;
    let needed = MEMBER_FILES + shared + NETWORK_FILES * networks;
    if chosen == Chosen::ByOption && limits.files() < needed {
        return Err(DeviceError::FewFiles { found: limits.files(), needed });
    }
    numbered(devices, chosen, limits)
}

/// The same for one process that serves itself, and has a descriptor for each.
///
/// # Errors
/// [`DeviceError`].
pub fn prepare_for_one(asked: Wanted<'_>, limits: &Limits) -> Result<PreparedDevices, DeviceError> {
    let (devices, chosen) = wanted(asked)?;
    numbered(devices, chosen, limits)
}

fn wanted(asked: Wanted<'_>) -> Result<(Vec<PreparedDevice>, Chosen), DeviceError> {
    if asked.swap.is_empty() {
        Ok((built_in(asked)?, Chosen::BuiltIn))
    } else if asked.swap_dir.is_some() || asked.swap_max.is_some() {
        Err(DeviceError::Mixed)
    } else {
        Ok((from_options(asked.swap)?, Chosen::ByOption))
    }
}

/// With their sizes and cluster numbers.
fn numbered(
    mut devices: Vec<PreparedDevice>,
    chosen: Chosen,
    limits: &Limits,
) -> Result<PreparedDevices, DeviceError> {
    for device in &mut devices {
        if device.description.kind != DeviceKind::Nbd {
            device.bytes = device.bytes.min(limits.file_bytes());
        }
    }
    number_clusters(&mut devices)?;
    let is_empty = |device: &PreparedDevice| device.shared.is_some() && device.description.clusters == 0;
    match devices.iter().find(|device| is_empty(device)) {
        Some(device) if chosen == Chosen::ByOption => return Err(DeviceError::NoRoom(device.name.clone())),
        _ => devices.retain(|device| !is_empty(device)),
    }
    Ok(PreparedDevices { devices, chosen })
}

fn built_in(asked: Wanted<'_>) -> Result<Vec<PreparedDevice>, DeviceError> {
    let mut devices = vec![store(1)];
    if asked.swap_max.is_none_or(|most| most >= CLUSTER_BYTES) {
        let directory = asked.swap_dir.unwrap_or(Path::new(BUILT_IN_DIRECTORY));
        let device = file(directory, asked.swap_max, 0, Discard::Freed).map_err(DeviceError::BuiltIn)?;
        devices.push(device);
    }
    Ok(devices)
}

fn from_options(options: &[SwapOption]) -> Result<Vec<PreparedDevice>, DeviceError> {
    if options.len() > DEVICES_MAX {
        return Err(DeviceError::TooMany(options.len()));
    }
    if options.iter().filter(|option| option.device == DeviceOption::Zram).count() > 1 {
        return Err(DeviceError::StoreTwice);
    }
    let rams = options.iter().filter_map(|option| match option.device {
        DeviceOption::Ram { size, .. } => Some(size),
        _ => None,
    });
    let (asked, ram) = (rams.fold(0, u64::saturating_add), machine::memory_bytes());
    if asked > ram {
        return Err(DeviceError::MoreThanRam { asked: size::show(asked), ram: size::show(ram) });
    }
    // Before any is opened: it would be found in use, by ourselves.
    refuse_same_targets(options)?;
    let exports = options.iter().filter_map(|option| match &option.device {
        DeviceOption::Nbd(nbd) => Some(&nbd.uri),
        _ => None,
    });
    let mut seen: Vec<&Uri> = Vec::new();
    for uri in exports {
        if seen.iter().any(|other| other.address == uri.address && other.export == uri.export) {
            return Err(DeviceError::ExportTwice(uri.to_string()));
        }
        seen.push(uri);
    }
    let mut devices: Vec<PreparedDevice> = Vec::new();
    for option in options {
        let priority = option.priority.map_or(PRIORITY_DEFAULT, i32::from);
        devices.push(match &option.device {
            DeviceOption::Zram => store(priority),
            DeviceOption::Ram { size, io, orders } => {
                let before = devices.iter().filter(|device| device.description.kind == DeviceKind::Ram);
                let device = ram_device(before.count(), *size, priority, *io).map_err(DeviceError::Ram)?;
                PreparedDevice { orders: *orders, ..device }
            }
            DeviceOption::Nbd(option) => nbd(option, priority)?,
            DeviceOption::File { target, size, discard, uuid, encryption } => {
                if prepared_target(target).is_some() {
                    let device = prepared(target, *size, priority, (discard, *uuid))?;
                    devices.push(with_encryption(device, *encryption)?);
                    continue;
                }
                if uuid.is_some() && target.is_dir() {
                    return Err(DeviceError::UuidOfDirectory(target.clone()));
                }
                let discard = discard_freed(discard);
                let failed = |source| DeviceError::File { target: target.clone(), source };
                let device = file(target, *size, priority, discard).map_err(failed)?;
                let same =
                    |other: &&PreparedDevice| identity(other).is_some_and(|id| Some(id) == identity(&device));
                if let Some(other) = devices.iter().find(same) {
                    return Err(DeviceError::DirectoryTwice(other.name.clone(), target.clone()));
                }
                with_encryption(device, *encryption)?
            }
        });
    }
    share_disks(&mut devices);
    Ok(devices)
}

fn discard_freed(discard: &DiscardOption) -> Discard {
    match discard {
        DiscardOption::No | DiscardOption::Once => Discard::Never,
        DiscardOption::Pages | DiscardOption::Both => Discard::Freed,
    }
}

/// What the target is, if it is there and no directory: then it must have been prepared.
fn prepared_target(target: &Path) -> Option<fs::Metadata> {
    fs::metadata(target).ok().filter(|found| !found.is_dir())
}

fn refuse_same_targets(options: &[SwapOption]) -> Result<(), DeviceError> {
    let mut seen = Vec::new();
    for option in options {
        let DeviceOption::File { target, .. } = &option.device else { continue };
        let Some(found) = prepared_target(target) else { continue };
        // A block device is the same one under any name.
        let is_block = found.file_type().is_block_device();
        let id = if is_block { (0, found.rdev()) } else { (found.dev(), found.ino()) };
        if let Some((_, other)) = seen.iter().find(|(seen, _)| *seen == (is_block, id)) {
            return Err(DeviceError::FileTwice(PathBuf::clone(other), target.clone()));
        }
        seen.push(((is_block, id), target.clone()));
    }
    Ok(())
}

/// The name of the RAM device that was given after so many others.
pub fn ram_name(number: usize) -> PathBuf {
    format!("ram{number}").into()
}

/// The directory's file system and its number there.
fn identity(device: &PreparedDevice) -> Option<(u64, u64)> {
    let stat = fstat(device.directory.as_ref()?).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap_option;
    use folioswap_group::segment::CLUSTERS_MAX;
    use std::ffi::OsStr;

    fn options(values: &[&str]) -> Vec<SwapOption> {
        values.iter().map(|value| swap_option::parse(OsStr::new(value)).expect(value)).collect()
    }

    fn ranges(values: &[&str]) -> Result<Vec<(u32, u32)>, DeviceError> {
        let mut devices = from_options(&options(values))?;
        number_clusters(&mut devices)?;
        Ok(devices
            .iter()
            .map(|device| (device.description.first_cluster, device.description.clusters))
            .collect())
    }

    #[test]
    fn cluster_numbers_do_not_touch() {
        let found =
            ranges(&["ram,size=8M", "zram", "file:/var/tmp,size=7M", "ram,size=2M"]).expect("devices");
        assert_eq!(found, [(0, 4), (0, 0), (5, 3), (9, 1)]);
    }

    #[test]
    fn files_without_a_size_take_what_the_others_leave() {
        let found = ranges(&["file:/var/tmp,size=1023G", "file:/var"]).expect("devices");
        assert_eq!(found[0], (0, 1023 * 512));
        assert!(found[1].1 > 0 && found[1].0 + found[1].1 <= CLUSTERS_MAX as u32, "{found:?}");
        assert!(matches!(
            ranges(&["file:/var/tmp,size=1023G", "file:/var,size=2G"]),
            Err(DeviceError::TooLarge)
        ));
    }

    #[test]
    fn what_there_is_once_is_not_given_twice() {
        assert!(matches!(ranges(&["zram", "zram,prio=1"]), Err(DeviceError::StoreTwice)));
        let twice = ranges(&["file:/var/tmp", "file:/var/../var/tmp/,prio=3"]);
        assert!(matches!(twice, Err(DeviceError::DirectoryTwice(..))));
        assert!(matches!(ranges(&["file:/proc/self/exe"]), Err(DeviceError::Prepared { .. })));
        assert!(matches!(
            ranges(&["file:/proc/self/exe", "file:/proc/thread-self/exe"]),
            Err(DeviceError::FileTwice(..))
        ));
        let uuid = "file:/var/tmp,uuid=01234567-89ab-cdef-0123-456789abcdef";
        assert!(matches!(ranges(&[uuid]), Err(DeviceError::UuidOfDirectory(_))));
        assert!(matches!(ranges(&["file:/nowhere/at/all"]), Err(DeviceError::File { .. })));
        assert!(matches!(ranges(&["ram,size=1000T"]), Err(DeviceError::MoreThanRam { .. })));
        assert!(matches!(ranges(&["ram,size=2M"; 33]), Err(DeviceError::TooMany(33))));
    }
}

//! The swap devices of a run, prepared before anything is started: those of `--swap`, or the
//! built-in ones.

mod error;
mod kinds;
pub mod networks;
mod numbering;
mod one_more;
mod shared_device;

pub use self::{
    error::DeviceError,
    one_more::{Existing, prepare_one_more},
    shared_device::{CLUSTER_SLOTS, Discard, SharedDevice},
};

use self::{
    kinds::{file, nbd, prepared, ram_device, store},
    numbering::{number_clusters, share_disks},
};
use crate::{
    machine,
    processes::limits::Limits,
    size,
    swap_option::{CONTENTS_DEFAULT, DeviceOption, DiscardOption, SwapOption},
};
use folioswap_devices::{Orders, create::CreateError};
use folioswap_group::{
    decisions::Decisions,
    devices::{DEVICES_MAX, DeviceDescription, DeviceEntry, DeviceKind, DeviceUsage},
    segment::CLUSTER_BYTES,
};
use folioswap_nbd::{service::Told, store::Prepared, uri::Uri};
use folioswap_slots::DeviceMask;
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::fstat,
};
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The directory of the built-in file.
pub const BUILT_IN_DIRECTORY: &str = "/var/tmp";
/// The priority of a device without `prio=`.
const PRIORITY_DEFAULT: i32 = -1;
/// Descriptors that a member needs besides one for each device.
const MEMBER_FILES: u64 = 12;
/// Descriptors that a member needs for each network device besides: its sockets, and those of the
/// supervisor, which may open no fewer files.
const NETWORK_FILES: u64 = 48;

/// One device, ready for use.
pub struct PreparedDevice {
    /// The part that members and the supervisor know. `number_clusters` gives it its cluster
    /// numbers.
    pub description: DeviceDescription,
    /// The name that tables show.
    pub name: PathBuf,
    /// The file behind a device that members share.
    pub shared: Option<SharedDevice>,
    /// A descriptor that names the directory of a temporary file, or a prepared file itself, for
    /// `swapon --show`.
    pub directory: Option<OwnedFd>,
    /// The folio orders that the device takes in one write.
    pub orders: Orders,
    /// Was the file made for this run?
    origin: Origin,
    /// The service behind the links of members, for devices that members reach by links.
    pub network: Option<PreparedNetwork>,
    /// The most bytes that the device may have; for one without a size, its share of the disk.
    bytes: u64,
    sized: Sized,
}

/// An export of an NBD server, which the supervisor serves to members, ready for use.
pub struct PreparedNetwork {
    /// The export, connected and marked.
    pub export: Box<Prepared>,
    /// Whether the server hears of clusters that became free.
    pub told: Told,
}

impl PreparedNetwork {
    /// The descriptor that must stay open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.export.descriptor()
    }
}

/// The origin of the file behind a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Made for this run.
    Temporary,
    /// Prepared by `folioswap mkswap`.
    Prepared,
}

/// The origin of the size of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sized {
    /// An option states it.
    Given,
    /// It follows from the free space of the disk.
    ByItsDisk,
}

/// The choice that led to the devices of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The built-in devices: compressed RAM, and a file behind it.
    BuiltIn,
    /// The devices of `--swap`.
    ByOption,
}

/// All devices of a run.
pub struct PreparedDevices {
    /// The devices, by number.
    pub devices: Vec<PreparedDevice>,
    /// The choice that led to them.
    pub chosen: Chosen,
    /// Why the built-in file is not among them, where nobody has asked for it by an option.
    pub without_file: Option<CreateError>,
}

/// The priorities of all devices, by number; `None` for one that is out of use.
pub fn priorities(decisions: &Decisions) -> impl Iterator<Item = Option<i32>> + Clone + '_ {
    let of = |entry: &DeviceEntry, priority| (entry.usage() != DeviceUsage::Off).then_some(priority);
    decisions.devices.iter().map_while(move |entry| Some(of(entry, entry.description()?.priority)))
}

/// The devices that are in use, by whether their tiers are those of the group.
#[derive(Clone, Copy, Debug)]
pub struct Tiers {
    /// Those that may take pages.
    pub used: DeviceMask,
    /// Those that may not.
    pub masked: DeviceMask,
}

impl Tiers {
    /// Those of a group.
    pub fn of(decisions: &Decisions) -> Self {
        let masked = DeviceMask::from_bits(decisions.masked_devices());
        let known = DeviceMask::ALL.iter().zip(decisions.devices());
        let on = known.filter(|(_, (_, entry))| entry.usage() != DeviceUsage::Off);
        let on = on.fold(DeviceMask::NONE, |on, (id, _)| on.with(id));
        Tiers { used: on.minus(masked), masked: on.intersection(masked) }
    }
}

impl PreparedDevices {
    /// One line, with its end, that says so where the built-in file is not among the devices.
    pub fn note(&self) -> Option<String> {
        let reason = self.without_file.as_ref()?;
        Some(format!(
            "folioswap: there is no swap file, so cold memory is compressed in RAM and goes nowhere else: {reason} \
             (--swap-dir DIR); --swap-max 0 says that none is wanted\n"
        ))
    }

    /// The names of the devices that tables show, by number.
    pub fn names(&self) -> Vec<PathBuf> {
        self.devices.iter().map(|device| device.name.clone()).collect()
    }

    /// Those of these devices.
    fn among(&self, wanted: DeviceMask) -> impl Iterator<Item = &PreparedDevice> {
        let numbered = DeviceMask::ALL.iter().zip(&self.devices);
        numbered.filter(move |(id, _)| wanted.contains(*id)).map(|(_, device)| device)
    }

    /// A text that completes "needs more than": what the limit and the devices that may take pages
    /// together hold.
    pub fn full(&self, limit: &str, tiers: Tiers) -> String {
        let is_store = |device: &PreparedDevice| device.description.kind == DeviceKind::Zram;
        let compressed = if self.among(tiers.used).any(is_store) { " even compressed" } else { "" };
        let shared = self.among(tiers.used).filter(|device| device.shared_bytes() > 0);
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
        if full.is_empty() && !tiers.masked.is_empty() {
            return format!("the limit of {limit} holds{compressed}, and the other devices are masked");
        }
        match (full.is_empty(), self.chosen) {
            (true, Chosen::BuiltIn) => {
                let reason = match &self.without_file {
                    None => "--swap-max 0".to_owned(),
                    Some(reason) => reason.to_string(),
                };
                format!("the limit of {limit} holds{compressed}, and there is no swap file ({reason})")
            }
            (true, Chosen::ByOption) => {
                format!("the limit of {limit} holds{compressed}, and there is no other device")
            }
            (false, _) => format!("the limit of {limit} holds{compressed}, and {}", full.join(", and ")),
        }
    }

    /// The options to change when the devices that may take pages are full.
    pub fn advice(&self, tiers: Tiers) -> &'static str {
        if !tiers.masked.is_empty() {
            return "Give more --memory, or more --swap-tiers";
        }
        match self.chosen {
            Chosen::BuiltIn if self.without_file.is_some() => "Give more --memory, or a --swap-dir",
            Chosen::BuiltIn => "Give more --memory, or more --swap-max",
            Chosen::ByOption => "Give more --memory, or a --swap file with more room",
        }
    }
}

impl PreparedDevice {
    /// The most bytes that the clusters of the device hold.
    fn shared_bytes(&self) -> u64 {
        u64::from(self.description.clusters) * CLUSTER_BYTES
    }
}

/// The devices that a command line asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The values of `--swap`.
    pub swap: &'a [SwapOption],
    /// The value of `--swap-dir`.
    pub swap_dir: Option<&'a Path>,
    /// The value of `--swap-max`.
    pub swap_max: Option<u64>,
}

impl Wanted<'_> {
    fn chosen(&self) -> Chosen {
        if self.swap.is_empty() { Chosen::BuiltIn } else { Chosen::ByOption }
    }
}

/// Prepares the devices of a group. A failure leaves nothing behind.
///
/// # Errors
/// [`DeviceError`], also when CMD may not open enough files.
pub fn prepare(asked: Wanted<'_>, limits: &Limits) -> Result<PreparedDevices, DeviceError> {
    let (devices, without_file) = wanted(asked)?;
    let chosen = asked.chosen();
    // The built-in devices are not refused: they need no more files than members always needed.
    let shared = devices.iter().filter(|device| device.shared.is_some()).count() as u64;
    let networks = devices.iter().filter(|device| device.network.is_some()).count() as u64;
    let needed = MEMBER_FILES + shared + NETWORK_FILES * networks;
    if chosen == Chosen::ByOption && limits.files() < needed {
        return Err(DeviceError::FewFiles { found: limits.files(), needed });
    }
    Ok(PreparedDevices { without_file, ..numbered(devices, chosen, limits)? })
}

/// Prepares the devices of one process that serves itself: it has a descriptor for each, and needs
/// no others.
///
/// # Errors
/// [`DeviceError`].
pub fn prepare_for_one(asked: Wanted<'_>, limits: &Limits) -> Result<PreparedDevices, DeviceError> {
    let (devices, without_file) = wanted(asked)?;
    Ok(PreparedDevices { without_file, ..numbered(devices, asked.chosen(), limits)? })
}

/// The devices, and why the built-in file is not among them where it could not be made.
type WantedDevices = (Vec<PreparedDevice>, Option<CreateError>);

fn wanted(asked: Wanted<'_>) -> Result<WantedDevices, DeviceError> {
    match asked.chosen() {
        Chosen::BuiltIn => built_in(asked, Path::new(BUILT_IN_DIRECTORY)),
        Chosen::ByOption if asked.swap_dir.is_some() || asked.swap_max.is_some() => Err(DeviceError::Mixed),
        Chosen::ByOption => Ok((from_options(asked.swap)?, None)),
    }
}

/// Gives the devices their sizes and cluster numbers. A built-in device without room is left out.
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
    Ok(PreparedDevices { devices, chosen, without_file: None })
}

/// Compressed RAM, and a file in `--swap-dir` or this directory. A file that no option asks for is
/// left out where it cannot be made, as on a read-only root.
fn built_in(asked: Wanted<'_>, directory: &Path) -> Result<WantedDevices, DeviceError> {
    let mut devices = vec![store(1)];
    if asked.swap_max.is_some_and(|most| most < CLUSTER_BYTES) {
        return Ok((devices, None));
    }
    let is_asked_for = asked.swap_dir.is_some() || asked.swap_max.is_some();
    let directory = asked.swap_dir.unwrap_or(directory);
    match file(directory, asked.swap_max, 0, (Discard::Freed, CONTENTS_DEFAULT)) {
        Ok(device) => devices.push(device),
        Err(reason) if is_asked_for => return Err(DeviceError::BuiltIn(reason)),
        Err(reason) => return Ok((devices, Some(reason))),
    }
    Ok((devices, None))
}

/// The most bytes that the built-in file may take here, now. The file is made, and is gone again.
///
/// # Errors
/// [`CreateError`]: a run goes on without the file then.
pub fn built_in_file() -> Result<u64, CreateError> {
    file(Path::new(BUILT_IN_DIRECTORY), None, 0, (Discard::Freed, CONTENTS_DEFAULT))
        .map(|device| device.bytes)
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
    // Before any device is opened: the second name of an open one would be found in use, by
    // ourselves.
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
            DeviceOption::Ram { size, io, orders, contents } => {
                let before = devices.iter().filter(|device| device.description.kind == DeviceKind::Ram);
                let device = ram_device(before.count(), *size, priority, (*io, *contents))
                    .map_err(DeviceError::Ram)?;
                PreparedDevice { orders: *orders, ..device }
            }
            DeviceOption::Nbd(option) => nbd(option, priority)?,
            DeviceOption::File { target, size, discard, uuid, contents } => {
                if prepared_target(target).is_some() {
                    devices.push(prepared(target, *size, priority, (discard, *uuid), *contents)?);
                    continue;
                }
                if uuid.is_some() && target.is_dir() {
                    return Err(DeviceError::UuidOfDirectory(target.clone()));
                }
                let kept = (discard_freed(discard), *contents);
                let failed = |source| DeviceError::File { target: target.clone(), source };
                let device = file(target, *size, priority, kept).map_err(failed)?;
                let same =
                    |other: &&PreparedDevice| identity(other).is_some_and(|id| Some(id) == identity(&device));
                if let Some(other) = devices.iter().find(same) {
                    return Err(DeviceError::DirectoryTwice(other.name.clone(), target.clone()));
                }
                device
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

/// The metadata of a target that exists and is no directory: such a target must have been prepared.
fn prepared_target(target: &Path) -> Option<fs::Metadata> {
    fs::metadata(target).ok().filter(|found| !found.is_dir())
}

fn refuse_same_targets(options: &[SwapOption]) -> Result<(), DeviceError> {
    let mut seen = Vec::new();
    for option in options {
        let DeviceOption::File { target, .. } = &option.device else { continue };
        let Some(found) = prepared_target(target) else { continue };
        // Block devices are told apart by their numbers, since one device may have several nodes.
        let is_block = found.file_type().is_block_device();
        let id = if is_block { (0, found.rdev()) } else { (found.dev(), found.ino()) };
        if let Some((_, other)) = seen.iter().find(|(seen, _)| *seen == (is_block, id)) {
            return Err(DeviceError::FileTwice(PathBuf::clone(other), target.clone()));
        }
        seen.push(((is_block, id), target.clone()));
    }
    Ok(())
}

/// The name of a RAM device that is preceded by `number` others.
pub fn ram_name(number: usize) -> PathBuf {
    format!("ram{number}").into()
}

/// File system and inode number of the directory, or of the prepared file, of a device.
fn identity(device: &PreparedDevice) -> Option<(u64, u64)> {
    let stat = fstat(device.directory.as_ref()?).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests;

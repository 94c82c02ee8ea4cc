//! The swap devices of a run, prepared before anything is started: what `--swap` asks for, or the built-in ones.

use crate::{
    cli::RunArguments,
    host,
    limits::Limits,
    size,
    supervisor::area::{Discard, SharedDevice},
    swap_option::{DeviceOption, DiscardOption, NbdOption, SwapOption},
    swapon::ram_name,
};
use folioswap_devices::{
    Medium, Orders,
    create::{CreateError, create_swap_file, default_swap_max},
    header::DATA_START,
    prepared::{self, PreparedError, Uuid},
};
use folioswap_group::{
    devices::{DEVICES_MAX, DeviceDescription, DeviceIo, DeviceKind},
    segment::{CLUSTER_BYTES, CLUSTERS_MAX, Scope},
};
use folioswap_nbd::{
    client::Settings as NbdSettings,
    error::ConnectError,
    service::Told,
    store::{Prepared, Suitable},
    uri::{Address, Uri},
};
use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, Mode, OFlags, fstat, memfd_create, open},
    io::Errno,
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

/// Why the devices cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// `--swap` and the options of the built-in devices.
    #[error(
        "--swap replaces the built-in devices, to which --swap-dir and --swap-max belong: write --swap file:DIR,size=SIZE instead"
    )]
    Mixed,
    /// More than there can be.
    #[error("--swap is given {0} times; there can be at most {DEVICES_MAX} devices")]
    TooMany(usize),
    /// One store for each process is all that there is.
    #[error("--swap zram is given twice: there is one compressed store")]
    StoreTwice,
    /// Two files in one directory.
    #[error(
        "--swap file:{} and --swap file:{} are one directory: give it once, with the size of both", .0.display(), .1.display()
    )]
    DirectoryTwice(PathBuf, PathBuf),
    /// Two names of one file or block device.
    #[error("--swap file:{} and --swap file:{} are one file: give it once", .0.display(), .1.display())]
    FileTwice(PathBuf, PathBuf),
    /// A UUID for something that has no header.
    #[error(
        "--swap file:{}: a directory has no UUID: leave uuid= away, or name a file that `folioswap mkswap` has prepared", .0.display()
    )]
    UuidOfDirectory(PathBuf),
    /// A prepared file or block device.
    #[error("--swap file:{}: {source}", target.display())]
    Prepared {
        /// Which.
        target: PathBuf,
        /// Why not.
        source: PreparedError,
    },
    /// More RAM than there is.
    #[error("--swap ram: {asked} are more than this machine's RAM ({ram})")]
    MoreThanRam {
        /// All that was asked for, readable.
        asked: String,
        /// What there is, readable.
        ram: String,
    },
    /// Not a cluster fits.
    #[error(
        "--swap {}: not even 2 MiB may be written there: free some space, or raise the limit with `ulimit -f`", .0.display()
    )]
    NoRoom(PathBuf),
    /// Cluster numbers do not suffice.
    #[error("--swap: all devices together can have at most 1 TiB: give smaller sizes")]
    TooLarge,
    /// CMD may not open so many files.
    #[error(
        "at most {found} open files are allowed here, and with these devices each process needs {needed} of its own: raise the limit with `ulimit -n {needed}`"
    )]
    FewFiles {
        /// The soft limit.
        found: u64,
        /// What is needed.
        needed: u64,
    },
    /// The built-in file.
    #[error("--swap-dir: {0}; or say --swap-max 0 for compressed memory only")]
    BuiltIn(CreateError),
    /// A file of `--swap`.
    #[error("--swap file:{}: {source}", target.display())]
    File {
        /// Where.
        target: PathBuf,
        /// Why not.
        source: CreateError,
    },
    /// An export.
    #[error("--swap {name}: {source}")]
    Nbd {
        /// Where.
        name: String,
        /// Why not.
        source: ConnectError,
    },
    /// One export twice.
    #[error("--swap {0} is given twice: each device needs an export of its own")]
    ExportTwice(String),
    /// More than the export has.
    #[error(
        "--swap {name}: size={asked} is more than the {has} that the export has for pages: give less, or make the export larger"
    )]
    ExportSize {
        /// Where.
        name: String,
        /// What was asked for, readable.
        asked: String,
        /// What there is, readable.
        has: String,
    },
    /// Memory for a device.
    #[error("--swap ram: {0}")]
    Ram(Errno),
}

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
    /// The export behind it, if it is on the network.
    pub network: Option<PreparedNetwork>,
    /// Bytes that it may have at most; of a device without a size, what it may have of its disk.
    bytes: u64,
    sized: Sized,
}

/// An export, ready for use.
pub struct PreparedNetwork {
    /// Connected and marked.
    pub export: Prepared,
    /// Who hears of clusters that became free.
    pub told: Told,
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
pub fn prepare(arguments: &RunArguments, limits: &Limits) -> Result<PreparedDevices, DeviceError> {
    let (swap_dir, swap_max) = (arguments.swap_dir.as_deref(), arguments.swap_max);
    let (devices, chosen) = wanted(Wanted { swap: &arguments.swap, swap_dir, swap_max })?;
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
        if device.network.is_none() {
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
    let (asked, ram) = (rams.fold(0, u64::saturating_add), host::memory_bytes());
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
            DeviceOption::File { target, size, discard, uuid } => {
                if prepared_target(target).is_some() {
                    devices.push(prepared(target, *size, priority, (discard, *uuid))?);
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

fn prepared(
    target: &Path,
    size: Option<u64>,
    priority: i32,
    (discard, uuid): (&DiscardOption, Option<Uuid>),
) -> Result<PreparedDevice, DeviceError> {
    let failed = |source| DeviceError::Prepared { target: target.to_owned(), source };
    let opened = prepared::open(target, uuid).map_err(failed)?;
    // Of what was opened: the name may have come to mean something else.
    let kind = if opened.medium == Medium::Block { DeviceKind::Block } else { DeviceKind::File };
    let io = DeviceIo::Asynchronous;
    let discard_at_start = matches!(discard, DiscardOption::Once | DiscardOption::Both);
    let bytes = size.map_or(u64::MAX, |size| size.saturating_add(DATA_START)).min(opened.header.size);
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0 },
        name: target.to_owned(),
        shared: Some(SharedDevice {
            reserved: (DATA_START / CLUSTER_BYTES) as u32,
            discard_at_start: discard_at_start && opened.discard_bytes.is_some(),
            ..SharedDevice::new(opened.fd, discard_freed(discard))
        }),
        directory: open(target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok(),
        orders: Orders::ALL,
        origin: Origin::Prepared,
        network: None,
        bytes,
        sized: Sized::Given,
    })
}

fn store(priority: i32) -> PreparedDevice {
    let (kind, io) = (DeviceKind::Zram, DeviceIo::Synchronous);
    PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0 },
        name: "zram".into(),
        shared: None,
        directory: None,
        orders: Orders::ALL,
        origin: Origin::Temporary,
        network: None,
        bytes: 0,
        sized: Sized::Given,
    }
}

fn ram_device(number: usize, bytes: u64, priority: i32, io: DeviceIo) -> Result<PreparedDevice, Errno> {
    let kind = DeviceKind::Ram;
    let file = memfd_create("folioswap-ram", MemfdFlags::CLOEXEC)?;
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0 },
        name: ram_name(number),
        shared: Some(SharedDevice::new(file, Discard::Freed)),
        directory: None,
        orders: Orders::ALL,
        origin: Origin::Temporary,
        network: None,
        bytes,
        sized: Sized::Given,
    })
}

/// Connects to an export and marks it.
fn nbd(option: &NbdOption, priority: i32) -> Result<PreparedDevice, DeviceError> {
    let mut uri = option.uri.clone();
    let name = uri.to_string();
    if let Address::Unix(path) = &mut uri.address
        && let Ok(absolute) = std::path::absolute(&path)
    {
        // It will be connected to again from another directory.
        *path = absolute;
    }
    let settings =
        NbdSettings { timeout: option.timeout, connections: option.connections, ..NbdSettings::default() };
    let encryption = option.encryption;
    let failed = |source| DeviceError::Nbd { name: name.clone(), source };
    let export = Suitable::new(uri, encryption, settings).map_err(failed)?;
    if let Some(asked) = option.size.filter(|&asked| asked > export.bytes()) {
        let (asked, has) = (size::show(asked), size::show(export.bytes()));
        return Err(DeviceError::ExportSize { name, asked, has });
    }
    let export = export.mark().map_err(failed)?;
    let (kind, io) = (DeviceKind::Nbd, DeviceIo::Asynchronous);
    let bytes = option.size.unwrap_or_else(|| export.bytes());
    let told = match option.discard {
        DiscardOption::Pages | DiscardOption::Both => Told::Server,
        DiscardOption::No | DiscardOption::Once => Told::Nobody,
    };
    // Members get links; this stands for them where files are handed over.
    let file = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        DeviceError::Nbd { name: name.clone(), source: ConnectError::Broken(errno.into()) }
    })?;
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0 },
        name: name.into(),
        shared: Some(SharedDevice::new(file, Discard::Freed)),
        directory: None,
        orders: Orders::ALL,
        origin: Origin::Temporary,
        network: Some(PreparedNetwork { export, told }),
        bytes,
        sized: Sized::Given,
    })
}

fn file(
    directory: &Path,
    bytes: Option<u64>,
    priority: i32,
    discard: Discard,
) -> Result<PreparedDevice, CreateError> {
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let file = create_swap_file(directory)?;
    let sized = if bytes.is_some() { Sized::Given } else { Sized::ByItsDisk };
    let bytes = bytes.map_or_else(|| default_swap_max(directory), Ok)?;
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0 },
        name: directory.to_owned(),
        shared: Some(SharedDevice::new(file, discard)),
        directory: open_directory(directory).ok(),
        orders: Orders::ALL,
        origin: Origin::Temporary,
        network: None,
        bytes,
        sized,
    })
}

/// A descriptor that only holds the directory's path, for `swapon --show`.
fn open_directory(directory: &Path) -> Result<OwnedFd, Errno> {
    open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The directory's file system and its number there.
fn identity(device: &PreparedDevice) -> Option<(u64, u64)> {
    let stat = fstat(device.directory.as_ref()?).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Files without a size share what one of them would have had of their disk.
fn share_disks(devices: &mut [PreparedDevice]) {
    let disk = |device: &PreparedDevice| identity(device).map(|(disk, _)| disk);
    let unsized_on: Vec<_> =
        devices.iter().filter(|device| device.sized == Sized::ByItsDisk).filter_map(disk).collect();
    for device in devices.iter_mut().filter(|device| device.sized == Sized::ByItsDisk) {
        let on = disk(device);
        let sharers = unsized_on.iter().filter(|other| Some(**other) == on).count();
        device.bytes /= sharers.max(1) as u64;
    }
}

/// Gives each shared device its cluster numbers: one after the other, with a number that is nobody's between two. Those
/// without a size take no more than what the others leave.
fn number_clusters(devices: &mut [PreparedDevice]) -> Result<(), DeviceError> {
    let shared = |device: &&mut PreparedDevice| device.shared.is_some();
    let wanted = |device: &PreparedDevice| device.bytes / CLUSTER_BYTES;
    let all = CLUSTERS_MAX as u64 - DEVICES_MAX as u64;
    let given = devices.iter().filter(|device| device.shared.is_some() && device.sized == Sized::Given);
    let given: u64 = given.map(wanted).fold(0, u64::saturating_add);
    let alone = devices.iter().filter(|device| device.shared.is_some()).count() == 1;
    if given > all && !alone {
        return Err(DeviceError::TooLarge);
    }
    let unsized_count = devices.iter().filter(|device| device.sized == Sized::ByItsDisk).count() as u64;
    let left_for_each = (all - given.min(all)) / unsized_count.max(1);
    let mut next = 0;
    for device in devices.iter_mut().filter(shared) {
        let most = if device.sized == Sized::Given { all } else { left_for_each };
        let clusters = wanted(device).min(most) as u32;
        device.description.first_cluster = next;
        device.description.clusters = clusters;
        next += clusters + 1;
    }
    Ok(())
}

/// One line for who lets devices of different kinds take turns, which is seldom meant: how to tier them.
pub fn warning(options: &[SwapOption]) -> Option<String> {
    let without: Vec<&SwapOption> = options.iter().filter(|option| option.priority.is_none()).collect();
    let mut kinds: Vec<DeviceKind> = without.iter().map(|option| kind(option)).collect();
    let cost = |kind: &DeviceKind| match kind {
        DeviceKind::Ram => Medium::Memory.read_ns(),
        DeviceKind::Zram => folioswap_devices::zram::READ_NS,
        DeviceKind::File | DeviceKind::Block => Medium::File.read_ns(),
        // A server's disk, and the way there.
        DeviceKind::Nbd => 2 * Medium::File.read_ns(),
    };
    kinds.sort_unstable_by_key(cost);
    kinds.dedup();
    if kinds.len() < 2 {
        return None;
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let mut tiers = String::new();
    for (place, of_kind) in kinds.iter().enumerate() {
        for option in without.iter().filter(|option| kind(option) == *of_kind) {
            tiers.push_str(&format!(" --swap {},prio={}", option.text, kinds.len() - 1 - place));
        }
    }
    let names = names.join(" and ");
    Some(format!(
        "folioswap: {names} have no priority, so they take turns; to use the faster first, write{tiers}\n"
    ))
}

fn kind(option: &SwapOption) -> DeviceKind {
    match option.device {
        DeviceOption::Zram => DeviceKind::Zram,
        DeviceOption::Ram { .. } => DeviceKind::Ram,
        DeviceOption::File { .. } => DeviceKind::File,
        DeviceOption::Nbd(_) => DeviceKind::Nbd,
    }
}

/// What a `ram` device is good for depends on what the limit counts.
pub fn ram_warning(options: &[SwapOption], scope: Scope) -> Option<String> {
    let has_ram = options.iter().any(|option| matches!(option.device, DeviceOption::Ram { .. }));
    (has_ram && scope == Scope::Total).then(|| {
        "folioswap: what is swapped to ram counts to the limit, so nothing is gained by it; --memory-scope resident leaves it out\n"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swap_option;
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

    #[test]
    fn different_kinds_in_turn_are_warned_of() {
        assert_eq!(warning(&options(&["zram", "file:/var/tmp,prio=0"])), None);
        assert_eq!(warning(&options(&["file:/tmp", "file:/var/tmp"])), None);
        let said = warning(&options(&["file:/var/tmp", "zram"])).expect("a warning");
        assert!(said.contains("zram and file have no priority"), "{said}");
        assert!(said.contains("write --swap zram,prio=1 --swap file:/var/tmp,prio=0"), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
}

//! A constructor for each kind of device, which opens it as its option asks.

use super::{
    DeviceError, Discard, Origin, PreparedDevice, PreparedNetwork, SharedDevice, Sized, discard_freed,
    ram_name,
};
use crate::{
    size,
    swap_option::{DiscardOption, NbdOption},
};
use folioswap_devices::{
    Medium, Orders,
    create::{CreateError, create_swap_file, default_swap_max},
    header::DATA_START,
    prepared::{self, Uuid},
};
use folioswap_group::{
    devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind},
    segment::CLUSTER_BYTES,
};
use folioswap_nbd::{
    client::Settings as NbdSettings, error::ConnectError, service::Told, store::Suitable, uri::Address,
};
use rustix::{
    fd::OwnedFd,
    fs::{MemfdFlags, Mode, OFlags, memfd_create, open},
    io::Errno,
};
use std::path::Path;

/// A file or block device that `folioswap mkswap` has prepared.
pub(super) fn prepared(
    target: &Path,
    size: Option<u64>,
    priority: i32,
    (discard, uuid): (&DiscardOption, Option<Uuid>),
    contents: DeviceContents,
) -> Result<PreparedDevice, DeviceError> {
    let failed = |source| DeviceError::Prepared { target: target.to_owned(), source };
    let opened = prepared::open(target, uuid).map_err(failed)?;
    // The medium of the opened file counts: the name may have come to mean another one.
    let kind = if opened.medium == Medium::Block { DeviceKind::Block } else { DeviceKind::File };
    let io = DeviceIo::Asynchronous;
    let discard_at_start = matches!(discard, DiscardOption::Once | DiscardOption::Both);
    let bytes = size.map_or(u64::MAX, |size| size.saturating_add(DATA_START)).min(opened.header.size);
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0, contents },
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

/// The compressed store, of which each process has its own.
pub(super) fn store(priority: i32) -> PreparedDevice {
    let (kind, io, contents) = (DeviceKind::Zram, DeviceIo::Synchronous, DeviceContents::Plain);
    PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0, contents },
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

/// Plain RAM, the `number`th such device of the group, counted from 0.
pub(super) fn ram_device(
    number: usize,
    bytes: u64,
    priority: i32,
    (io, contents): (DeviceIo, DeviceContents),
) -> Result<PreparedDevice, Errno> {
    let kind = DeviceKind::Ram;
    let file = memfd_create("folioswap-ram", MemfdFlags::CLOEXEC)?;
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0, contents },
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

/// An export of an NBD server: connects to it and marks it.
pub(super) fn nbd(option: &NbdOption, priority: i32) -> Result<PreparedDevice, DeviceError> {
    let mut uri = option.uri.clone();
    let name = uri.to_string();
    if let Address::Unix(path) = &mut uri.address
        && let Ok(absolute) = std::path::absolute(&path)
    {
        // A later connection is made from another directory.
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
    // The supervisor encrypts for all members.
    let (kind, io, contents) = (DeviceKind::Nbd, DeviceIo::Served, DeviceContents::Plain);
    let bytes = option.size.unwrap_or_else(|| export.bytes());
    let told = match option.discard {
        DiscardOption::Pages | DiscardOption::Both => Told::Server,
        DiscardOption::No | DiscardOption::Once => Told::Nobody,
    };
    // Members get links of their own; this file stands for them where the files of all devices are
    // handed over.
    let file = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        DeviceError::Nbd { name: name.clone(), source: ConnectError::Broken(errno.into()) }
    })?;
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0, contents },
        name: name.into(),
        shared: Some(SharedDevice::new(file, Discard::Freed)),
        directory: None,
        orders: Orders::ALL,
        origin: Origin::Temporary,
        network: Some(PreparedNetwork { export: Box::new(export), told }),
        bytes,
        sized: Sized::Given,
    })
}

/// A temporary file without a name in this directory; without `bytes` it may take a part of its
/// disk.
pub(super) fn file(
    directory: &Path,
    bytes: Option<u64>,
    priority: i32,
    (discard, contents): (Discard, DeviceContents),
) -> Result<PreparedDevice, CreateError> {
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let file = create_swap_file(directory)?;
    let sized = if bytes.is_some() { Sized::Given } else { Sized::ByItsDisk };
    let bytes = bytes.map_or_else(|| default_swap_max(directory), Ok)?;
    Ok(PreparedDevice {
        description: DeviceDescription { kind, priority, io, first_cluster: 0, clusters: 0, contents },
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

/// A descriptor that only names the directory, for `swapon --show`.
fn open_directory(directory: &Path) -> Result<OwnedFd, Errno> {
    open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

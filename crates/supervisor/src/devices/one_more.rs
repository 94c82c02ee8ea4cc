//! One more device for a group that runs.

use super::{DeviceError, PreparedDevice, PreparedDevices, from_options, identity, ram_name};
use crate::swap_option::{DeviceOption, SwapOption};
use folioswap_group::{
    devices::{DeviceKind, DeviceUsage},
    segment::{CLUSTER_BYTES, CLUSTERS_MAX, Segment},
};
use std::path::PathBuf;

/// What a group has by then.
pub struct Existing {
    /// Its directories and prepared files, and their names.
    targets: Vec<((u64, u64), PathBuf)>,
    /// Its exports.
    exports: Vec<PathBuf>,
    /// RAM devices that it has had.
    rams: usize,
    /// The first cluster number that is behind all of its own.
    next_cluster: u32,
    /// The most bytes that its processes may write into a file.
    file_bytes: u64,
}

impl Existing {
    /// Looks at the devices of a group. One that is off may come again.
    pub fn of(devices: &PreparedDevices, segment: &Segment, file_bytes: u64) -> Self {
        let of_kind = |kind| devices.devices.iter().filter(move |device| device.description.kind == kind);
        let numbered = devices.devices.iter().zip(&segment.devices);
        let in_use: Vec<_> = numbered
            .filter(|(_, entry)| entry.usage() != DeviceUsage::Off)
            .map(|(device, _)| device)
            .collect();
        let target = |device: &&PreparedDevice| Some((identity(device)?, device.name.clone()));
        let end =
            |device: &PreparedDevice| device.description.first_cluster + device.description.clusters + 1;
        let shared = devices.devices.iter().filter(|device| device.description.clusters > 0);
        Existing {
            targets: in_use.iter().filter_map(target).collect(),
            exports: in_use
                .iter()
                .filter(|device| device.description.kind == DeviceKind::Nbd)
                .map(|device| device.name.clone())
                .collect(),
            rams: of_kind(DeviceKind::Ram).count(),
            next_cluster: shared.map(end).max().unwrap_or(0),
            file_bytes,
        }
    }
}

/// Prepares what the option asks for, beside what there is. Nothing is left behind when it fails.
///
/// # Errors
/// [`DeviceError`].
pub fn prepare_one_more(option: SwapOption, existing: &Existing) -> Result<PreparedDevice, DeviceError> {
    if option.device == DeviceOption::Zram {
        return Err(DeviceError::StoreAdded);
    }
    if let DeviceOption::Nbd(nbd) = &option.device {
        let name = nbd.uri.to_string();
        if existing.exports.iter().any(|other| other.as_os_str() == name.as_str()) {
            return Err(DeviceError::ExportTwice(name));
        }
    }
    let mut devices = from_options(&[option])?;
    let mut device = devices.remove(0);
    let own = identity(&device);
    if let Some((_, other)) = existing.targets.iter().find(|(target, _)| Some(*target) == own) {
        return Err(DeviceError::DirectoryTwice(other.clone(), device.name));
    }
    if device.description.kind == DeviceKind::Ram {
        device.name = ram_name(existing.rams);
    }
    if device.description.kind != DeviceKind::Nbd {
        device.bytes = device.bytes.min(existing.file_bytes);
    }
    let left = (CLUSTERS_MAX as u64).saturating_sub(u64::from(existing.next_cluster) + 1);
    let clusters = device.bytes / CLUSTER_BYTES;
    if left == 0 {
        return Err(DeviceError::TooLarge);
    }
    if clusters == 0 {
        return Err(DeviceError::NoRoom(device.name));
    }
    device.description.first_cluster = existing.next_cluster;
    device.description.clusters = clusters.min(left) as u32;
    Ok(device)
}

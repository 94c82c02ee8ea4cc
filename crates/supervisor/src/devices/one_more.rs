//! One more device for a group that runs.

use super::{DeviceError, PreparedDevice, PreparedDevices, from_options, identity, ram_name};
use crate::swap_option::{DeviceOption, SwapOption};
use folioswap_group::{
    decisions::{CLUSTERS_MAX, Decisions},
    devices::{DeviceKind, DeviceUsage},
    segment::CLUSTER_BYTES,
};
use std::path::PathBuf;

/// The devices of a group at the time when one is added.
pub struct Existing {
    /// Identities and names of the directories and prepared files in use.
    targets: Vec<((u64, u64), PathBuf)>,
    /// URIs of the exports in use.
    exports: Vec<PathBuf>,
    /// The number of RAM devices that the group has had.
    rams: usize,
    /// The first cluster number behind those of all devices.
    next_cluster: u32,
    /// The most bytes that processes of the group may write into a file.
    file_bytes: u64,
}

impl Existing {
    /// Collects the devices of a group. A device that is off may be added again.
    pub fn of(devices: &PreparedDevices, decisions: &Decisions, file_bytes: u64) -> Self {
        let of_kind = |kind| devices.devices.iter().filter(move |device| device.description.kind == kind);
        let numbered = devices.devices.iter().zip(&decisions.devices);
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

/// Prepares the device that the option asks for, beside the existing ones. A failure leaves nothing
/// behind.
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

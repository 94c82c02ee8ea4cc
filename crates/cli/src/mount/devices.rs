//! The swap devices of a mount: those of `run`, served by the daemon itself.

use super::{MountCommandError, arguments::MountArguments};
use crate::device_warnings;
use folioswap_devices::{FileDevice, FileSlot, Medium, PAGE_SIZE};
use folioswap_group::{devices::DeviceKind, segment::CLUSTER_BYTES};
use folioswap_nbd::store::Encryption;
use folioswap_supervisor::{
    devices::{
        self, Discard, PreparedDevice, SharedDevice, Wanted,
        networks::{NetworkError, Networks},
    },
    processes::limits::Limits,
    swap_option::{DeviceOption, DiscardOption},
};
use folioswap_tmpfs::SwapDevice;
use std::os::fd::AsFd;

/// Opened, and not yet in use.
pub struct MountDevices(Vec<PreparedDevice>);

impl MountDevices {
    /// What the arguments ask for. Nothing is left behind when it fails.
    ///
    /// # Errors
    /// Those of [`devices::prepare_for_one`].
    pub fn prepare(arguments: &MountArguments, limits: &Limits) -> Result<Self, MountCommandError> {
        for option in &arguments.swap {
            match &option.device {
                DeviceOption::Nbd(nbd) if nbd.discard != DiscardOption::No => {
                    return Err(MountCommandError::NetworkDiscard(option.text.clone()));
                }
                DeviceOption::File { encryption, .. } if *encryption != Encryption::None => {
                    return Err(MountCommandError::EncryptedFile(option.text.clone()));
                }
                _ => {}
            }
        }
        let asked = Wanted {
            swap: &arguments.swap,
            swap_dir: arguments.swap_dir.as_deref(),
            swap_max: arguments.swap_max,
        };
        Ok(MountDevices(devices::prepare_for_one(asked, limits)?.devices))
    }

    /// What the user may not have meant, a line each.
    pub fn warnings(&self, arguments: &MountArguments) -> Vec<String> {
        let has_ram = arguments.swap.iter().any(|option| matches!(option.device, DeviceOption::Ram { .. }));
        let ram = has_ram.then(|| "folioswap: what is swapped to ram is memory beside --memory\n".to_owned());
        device_warnings::turns(&arguments.swap).into_iter().chain(ram).collect()
    }

    /// Ready for use. In the process that serves the mount: network devices get threads here, which live as long as what is returned beside them.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn start(self) -> Result<(Vec<SwapDevice>, Networks), NetworkError> {
        let mut prepared = self.0;
        let exports = prepared.iter_mut().enumerate();
        let exports: Vec<_> =
            exports.filter_map(|(number, device)| Some((number, device.network.take()?))).collect();
        let networks = Networks::start(exports.into_iter())?;
        let device = |(number, device): (usize, PreparedDevice)| {
            let link = networks.new_link(number).map(|(socket, _)| socket);
            swap_device(device, link)
        };
        Ok((prepared.into_iter().enumerate().map(device).collect(), networks))
    }
}

fn swap_device(device: PreparedDevice, link: Option<std::os::fd::OwnedFd>) -> SwapDevice {
    let description = device.description;
    let name = match description.kind {
        // So that it means the same from everywhere.
        DeviceKind::File | DeviceKind::Block => std::path::absolute(&device.name).unwrap_or(device.name),
        DeviceKind::Zram | DeviceKind::Ram | DeviceKind::Nbd => device.name,
    };
    let whole = SwapDevice { name, orders: device.orders, ..SwapDevice::store(description.priority) };
    let Some(shared) = device.shared else { return whole };
    let clusters = description.clusters;
    if shared.discard_at_start {
        give_blocks_back(&shared, description.kind, clusters);
    }
    SwapDevice {
        kind: description.kind,
        io: description.io,
        reserved: shared.reserved,
        clusters,
        discard: match shared.discard {
            // Its server is not told.
            _ if description.kind == DeviceKind::Nbd => folioswap_tmpfs::Discard::Never,
            Discard::Never => folioswap_tmpfs::Discard::Never,
            Discard::Freed => folioswap_tmpfs::Discard::Freed,
        },
        file: Some(link.unwrap_or(shared.file)),
        ..whole
    }
}

/// All of a prepared device but its header (`discard=once`). What cannot discard keeps its blocks: only space is lost.
fn give_blocks_back(shared: &SharedDevice, kind: DeviceKind, clusters: u32) {
    let medium = if kind == DeviceKind::Block { Medium::Block } else { Medium::File };
    let slots = |clusters: u32| u64::from(clusters) * CLUSTER_BYTES / PAGE_SIZE as u64;
    if let Some(slot) = FileSlot::new(slots(shared.reserved)) {
        let device = FileDevice::new(shared.file.as_fd()).on(medium);
        let _ = device.discard(slot, slots(clusters.saturating_sub(shared.reserved)));
    }
}

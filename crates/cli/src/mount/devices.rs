//! The swap devices of a mount: the devices of `run`, served by the daemon itself.

use super::{MountCommandError, arguments::MountArguments};
use crate::{
    device_warnings,
    swap_tiers::{self, TiersRefusal},
};
use folioswap_group::devices::DeviceKind;
use folioswap_supervisor::{
    devices::{
        self, Discard, PreparedDevice, PreparedDevices, Wanted,
        networks::{Access, NetworkError, Networks},
    },
    processes::limits::Limits,
    swap_option::{DeviceOption, DiscardOption},
};
use folioswap_tmpfs::SwapDevice;

/// The devices of a mount, opened and not yet in use.
pub struct MountDevices(PreparedDevices);

impl MountDevices {
    /// Prepares the devices that the arguments ask for. A failure leaves nothing behind.
    ///
    /// # Errors
    /// Those of [`devices::prepare_for_one`], and devices that a mount does not have.
    pub fn prepare(arguments: &MountArguments, limits: &Limits) -> Result<Self, MountCommandError> {
        for option in &arguments.swap {
            match &option.device {
                DeviceOption::Nbd(nbd) if nbd.discard != DiscardOption::No => {
                    return Err(MountCommandError::NetworkDiscard(option.text.clone()));
                }
                _ => {}
            }
        }
        let asked = Wanted {
            swap: &arguments.swap,
            swap_dir: arguments.swap_dir.as_deref(),
            swap_max: arguments.swap_max,
        };
        Ok(MountDevices(devices::prepare_for_one(asked, limits)?))
    }

    /// Refuses tiers that no device is in.
    ///
    /// # Errors
    /// [`TiersRefusal`].
    pub fn check_tiers(&self, tiers: &str) -> Result<(), TiersRefusal> {
        let priorities: Vec<_> =
            self.0.devices.iter().map(|device| Some(device.description.priority)).collect();
        swap_tiers::devices_in(tiers, &priorities).map(drop)
    }

    /// Warnings on devices that the user may not have meant, one line each.
    pub fn warnings(&self, arguments: &MountArguments) -> Vec<String> {
        let has_ram = arguments.swap.iter().any(|option| matches!(option.device, DeviceOption::Ram { .. }));
        let ram = has_ram.then(|| "folioswap: what is swapped to ram is memory beside --memory\n".to_owned());
        device_warnings::turns(&arguments.swap).into_iter().chain(ram).chain(self.0.note()).collect()
    }

    /// Makes the devices ready for use. Must be called in the process that serves the mount,
    /// because network devices get threads here; the threads live as long as the returned
    /// [`Networks`].
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn start(self) -> Result<(Vec<SwapDevice>, Networks), NetworkError> {
        let mut prepared = self.0.devices;
        let exports = prepared.iter_mut().enumerate();
        let exports: Vec<_> =
            exports.filter_map(|(number, device)| Some((number, device.network.take()?))).collect();
        let networks = Networks::start(exports.into_iter())?;
        let device = |(number, device): (usize, PreparedDevice)| {
            let link = networks.new_link(number, Access::All).map(|(socket, _)| socket);
            swap_device(device, link)
        };
        Ok((prepared.into_iter().enumerate().map(device).collect(), networks))
    }
}

fn swap_device(device: PreparedDevice, link: Option<std::os::fd::OwnedFd>) -> SwapDevice {
    let description = device.description;
    let name = match description.kind {
        // An absolute path means the same from every directory.
        DeviceKind::File | DeviceKind::Block => std::path::absolute(&device.name).unwrap_or(device.name),
        DeviceKind::Zram | DeviceKind::Ram | DeviceKind::Nbd => device.name,
    };
    let store = SwapDevice { name, orders: device.orders, ..SwapDevice::store(description.priority) };
    let Some(shared) = device.shared else { return store };
    let clusters = description.clusters;
    if shared.discard_at_start {
        shared.give_blocks_back(description.kind, shared.reserved, clusters.saturating_sub(shared.reserved));
    }
    SwapDevice {
        kind: description.kind,
        io: description.io,
        contents: description.contents,
        reserved: shared.reserved,
        clusters,
        discard: match shared.discard {
            // The server is not told of free clusters.
            _ if description.kind == DeviceKind::Nbd => folioswap_tmpfs::Discard::Never,
            Discard::Never => folioswap_tmpfs::Discard::Never,
            Discard::Freed => folioswap_tmpfs::Discard::Freed,
        },
        file: Some(link.unwrap_or(shared.file)),
        ..store
    }
}

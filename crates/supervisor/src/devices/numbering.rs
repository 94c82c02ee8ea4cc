//! The cluster numbers of each device, and the shares of devices without a size in their disk.

use super::{DeviceError, PreparedDevice, Sized, identity};
use folioswap_group::{decisions::CLUSTERS_MAX, devices::DEVICES_MAX, segment::CLUSTER_BYTES};

/// Divides among the files without a size the part of their disk that one of them alone would have
/// had.
pub(super) fn share_disks(devices: &mut [PreparedDevice]) {
    let disk = |device: &PreparedDevice| identity(device).map(|(disk, _)| disk);
    let unsized_on: Vec<_> =
        devices.iter().filter(|device| device.sized == Sized::ByItsDisk).filter_map(disk).collect();
    for device in devices.iter_mut().filter(|device| device.sized == Sized::ByItsDisk) {
        let on = disk(device);
        let sharers = unsized_on.iter().filter(|other| Some(**other) == on).count();
        device.bytes /= sharers.max(1) as u64;
    }
}

/// Gives each shared device its cluster numbers: device after device, with one unused number
/// between two devices. Devices without a size take no more than the others leave.
pub(super) fn number_clusters(devices: &mut [PreparedDevice]) -> Result<(), DeviceError> {
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

//! The device table of swapon(8): NAME TYPE SIZE USED PRIO, and ERRORS where a device has failed or
//! takes no pages for another reason.

use super::totals::Levels;
use folioswap_group::{
    counters::Gauge,
    decisions::Decisions,
    devices::{DeviceDescription, DeviceEntry, DeviceKind, DeviceUsage},
    segment::CLUSTER_BYTES,
};
use std::path::{Path, PathBuf};

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The name, as one column.
    pub name: String,
    /// The type.
    pub kind: DeviceKind,
    /// The most bytes that the device takes; `None` for one that grows within the limit.
    pub size: Option<u64>,
    /// The bytes that it takes.
    pub used: u64,
    /// The priority; higher ones are used first.
    pub prio: i32,
    /// The number of reads and writes that failed for good.
    pub errors: u32,
    /// Whether pages are still written to it.
    pub health: Health,
}

/// Whether pages are still written to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The device takes pages.
    Good,
    /// The device failed too often and is out of the rotation.
    Failed,
    /// The device is in no tier of the group: its pages stay, new ones go elsewhere.
    Masked,
    /// The device is being taken out of use.
    Leaving,
    /// The device is out of use.
    Off,
}

/// How sizes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Rounded, with units.
    Readable,
    /// In bytes.
    Bytes,
}

/// The devices of a group with their numbers, in the order of use. `names` are the known names, by
/// number.
pub fn devices(decisions: &Decisions, levels: &Levels, names: &[PathBuf]) -> Vec<(usize, Device)> {
    let bytes = |clusters: u32| u64::from(clusters) * CLUSTER_BYTES;
    let masked = decisions.masked_devices();
    let row = |(number, (device, entry)): (usize, (DeviceDescription, &DeviceEntry))| {
        let name = names.get(number).filter(|name| !name.as_os_str().is_empty());
        let name = name.map_or_else(|| device.kind.name().to_owned(), |name| column(name));
        let (size, used) = match device.kind {
            DeviceKind::Zram => (None, levels.gauge(Gauge::MemUsedTotal)),
            DeviceKind::Ram | DeviceKind::File | DeviceKind::Block | DeviceKind::Nbd => {
                (Some(bytes(device.clusters)), bytes(entry.clusters_used()))
            }
        };
        let errors = entry.errors();
        let health = match entry.usage() {
            DeviceUsage::Off => Health::Off,
            DeviceUsage::Leaving => Health::Leaving,
            DeviceUsage::InUse if entry.is_failed() => Health::Failed,
            DeviceUsage::InUse if masked >> number & 1 != 0 => Health::Masked,
            DeviceUsage::InUse => Health::Good,
        };
        (number, Device { name, kind: device.kind, size, used, prio: device.priority, errors, health })
    };
    let mut devices: Vec<(usize, Device)> = decisions.devices().enumerate().map(row).collect();
    devices.sort_by_key(|(_, device)| std::cmp::Reverse(device.prio));
    devices
}

/// The name of a device as one column of a table: blanks and control characters are written as in
/// `/proc/swaps`, three octal digits after a backslash.
fn column(directory: &Path) -> String {
    let mut name = String::new();
    for character in directory.display().to_string().chars() {
        if character.is_whitespace() || character.is_control() || character == '\\' {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                name.push_str(&format!("\\{byte:03o}"));
            }
        } else {
            name.push(character);
        }
    }
    name
}

/// The table as text, with a heading.
pub fn render(devices: &[Device], sizes: Sizes) -> String {
    let show = |bytes: u64| match sizes {
        Sizes::Readable => crate::size::show(bytes),
        Sizes::Bytes => bytes.to_string(),
    };
    // Usually no device has failed, and the table is the familiar one of swapon(8).
    let with_errors = devices.iter().any(|device| device.errors > 0 || device.health != Health::Good);
    let mut rows = vec![["NAME", "TYPE", "SIZE", "USED", "PRIO", "ERRORS"].map(str::to_owned)];
    rows.extend(devices.iter().map(|device| {
        let size = device.size.map_or_else(|| "-".to_owned(), show);
        let errors = match device.health {
            Health::Good => device.errors.to_string(),
            Health::Failed => format!("{},failed", device.errors),
            Health::Masked => format!("{},masked", device.errors),
            Health::Leaving => format!("{},swapoff", device.errors),
            Health::Off => format!("{},off", device.errors),
        };
        let (name, kind) = (device.name.clone(), device.kind.name().to_owned());
        [name, kind, size, show(device.used), device.prio.to_string(), errors]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let columns = if with_errors { 6 } else { 5 };
    let line = |row: &[String; 6]| {
        let cell = |column: usize| match column {
            0 | 1 => format!("{:<width$}", row[column], width = widths[column]),
            _ => format!("{:>width$}", row[column], width = widths[column]),
        };
        (0..columns).map(cell).collect::<Vec<_>>().join(" ") + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;

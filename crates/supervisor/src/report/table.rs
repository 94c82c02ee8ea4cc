//! The device table of swapon(8): NAME TYPE SIZE USED PRIO, and ERRORS where a device has failed.

use super::totals::Levels;
use folioswap_group::{
    counters::Gauge,
    devices::{DeviceDescription, DeviceEntry, DeviceKind, DeviceUsage},
    segment::{CLUSTER_BYTES, Segment},
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
};

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it is.
    pub name: String,
    /// Its type.
    pub kind: DeviceKind,
    /// Most that it takes; `None` for one that grows within the limit.
    pub size: Option<u64>,
    /// What it takes.
    pub used: u64,
    /// Higher is used first.
    pub prio: i32,
    /// Reads and writes that failed for good.
    pub errors: u32,
    /// Is it still written to?
    pub health: Health,
}

/// Is a device still written to?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Yes.
    Good,
    /// No: it failed too often and is out of the rotation.
    Failed,
    /// No: it is being taken out of use.
    Leaving,
    /// It was taken out of use.
    Off,
}

/// How sizes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// With units.
    Readable,
    /// In bytes.
    Bytes,
}

/// The devices of a group with their numbers, in the order of use. `names` are those that are known, by number.
pub fn devices(segment: &Segment, levels: &Levels, names: &[PathBuf]) -> Vec<(usize, Device)> {
    let bytes = |clusters: u32| u64::from(clusters) * CLUSTER_BYTES;
    let row = |(number, (device, entry)): (usize, (DeviceDescription, &DeviceEntry))| {
        let name = names.get(number).filter(|name| !name.as_os_str().is_empty());
        let name = name.map_or_else(|| device.kind.name().to_owned(), |name| column(name));
        let (size, used) = match device.kind {
            DeviceKind::Zram => (None, levels.gauge(Gauge::MemUsedTotal)),
            DeviceKind::Ram | DeviceKind::File | DeviceKind::Block | DeviceKind::Nbd => {
                (Some(bytes(device.clusters)), bytes(entry.clusters_used.load(Relaxed)))
            }
        };
        let errors = entry.errors.load(Relaxed);
        let health = match entry.usage() {
            DeviceUsage::Off => Health::Off,
            DeviceUsage::Leaving => Health::Leaving,
            DeviceUsage::InUse if entry.is_failed() => Health::Failed,
            DeviceUsage::InUse => Health::Good,
        };
        (number, Device { name, kind: device.kind, size, used, prio: device.priority, errors, health })
    };
    let mut devices: Vec<(usize, Device)> = segment.devices().enumerate().map(row).collect();
    devices.sort_by_key(|(_, device)| std::cmp::Reverse(device.prio));
    devices
}

/// A device's name as one column of a table: blanks and what does not print are written as in `/proc/swaps`, three octal
/// digits after a backslash.
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
    // Usually there is none, and the table is the one that everybody knows.
    let with_errors = devices.iter().any(|device| device.errors > 0 || device.health != Health::Good);
    let mut rows = vec![["NAME", "TYPE", "SIZE", "USED", "PRIO", "ERRORS"].map(str::to_owned)];
    rows.extend(devices.iter().map(|device| {
        let size = device.size.map_or_else(|| "-".to_owned(), show);
        let errors = match device.health {
            Health::Good => device.errors.to_string(),
            Health::Failed => format!("{},failed", device.errors),
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
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut devices = [
            Device {
                name: "zram".into(),
                kind: DeviceKind::Zram,
                size: None,
                used: 12 << 20,
                prio: 1,
                errors: 0,
                health: Health::Good,
            },
            Device {
                name: "/var/tmp".into(),
                kind: DeviceKind::File,
                size: Some(40 << 30),
                used: 0,
                prio: 0,
                errors: 0,
                health: Health::Good,
            },
        ];
        assert_eq!(
            render(&devices, Sizes::Readable),
            "NAME     TYPE     SIZE     USED PRIO\n\
             zram     zram        - 12.0 MiB    1\n\
             /var/tmp file 40.0 GiB      0 B    0\n"
        );
        devices[1] = Device { errors: 16, health: Health::Failed, ..devices[1].clone() };
        assert_eq!(
            render(&devices, Sizes::Bytes),
            "NAME     TYPE        SIZE     USED PRIO    ERRORS\n\
             zram     zram           - 12582912    1         0\n\
             /var/tmp file 42949672960        0    0 16,failed\n"
        );
    }

    #[test]
    fn a_name_is_one_column() {
        assert_eq!(column(Path::new("/var/tmp")), "/var/tmp");
        assert_eq!(column(Path::new("/mnt/a b\\\n")), "/mnt/a\\040b\\134\\012");
    }
}

//! The device table of swapon(8): NAME TYPE SIZE USED PRIO, and ERRORS where a device has failed.

use folioswap_group::devices::DeviceKind;

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
}

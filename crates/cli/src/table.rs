//! The device table of swapon(8): NAME TYPE SIZE USED PRIO.

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
    let mut rows = vec![["NAME", "TYPE", "SIZE", "USED", "PRIO"].map(str::to_owned)];
    rows.extend(devices.iter().map(|device| {
        let size = device.size.map_or_else(|| "-".to_owned(), show);
        [device.name.clone(), device.kind.name().to_owned(), size, show(device.used), device.prio.to_string()]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        format!(
            "{:<w0$} {:<w1$} {:>w2$} {:>w3$} {:>w4$}\n",
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            w0 = widths[0],
            w1 = widths[1],
            w2 = widths[2],
            w3 = widths[3],
            w4 = widths[4],
        )
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let devices = [
            Device { name: "zram".into(), kind: DeviceKind::Zram, size: None, used: 12 << 20, prio: 1 },
            Device {
                name: "/var/tmp".into(),
                kind: DeviceKind::File,
                size: Some(40 << 30),
                used: 0,
                prio: 0,
            },
        ];
        assert_eq!(
            render(&devices, Sizes::Readable),
            "NAME     TYPE     SIZE     USED PRIO\n\
             zram     zram        - 12.0 MiB    1\n\
             /var/tmp file 40.0 GiB      0 B    0\n"
        );
    }
}

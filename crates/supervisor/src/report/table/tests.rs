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

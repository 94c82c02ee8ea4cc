use super::*;

#[test]
fn a_space_of_objects_has_one_file_at_most() {
    let behind = |devices| behind_shmem(devices).expect("devices");
    assert_eq!(behind(vec![Device::zram()]), None);
    let named = SwapFile { directory: "/var/tmp".into(), max: Some(4 << 20) };
    assert_eq!(behind(vec![Device::file("/var/tmp").size("4M"), Device::zram()]), Some(named));
    assert_eq!(behind(vec![]), Some(SwapFile { directory: "/var/tmp".into(), max: None }));
    let refused = |devices| behind_shmem(devices).expect_err("an error");
    assert!(matches!(refused(vec![Device::ram("8M")]), Error::ShmemDevice(_)));
    let file = || Device::file("/var/tmp");
    assert!(matches!(refused(vec![file(), file()]), Error::ShmemDevice(_)));
    assert!(matches!(refused(vec![file().priority(3)]), Error::ShmemDevice(_)));
    assert!(matches!(refused(vec![file().size(1)]), Error::DeviceSize(1)));
    assert!(matches!(refused(vec![Device::zram(), Device::zram()]), Error::StoreTwice));
    assert!(matches!(refused(vec![Device::file("/proc/self/exe")]), Error::NotADirectory(_)));
}

#[test]
fn clusters_of_two_devices_do_not_touch() {
    let devices =
        vec![Device::ram("8M"), Device::zram(), Device::file("/var/tmp").size("7M"), Device::ram(2 << 20)];
    let prepared = prepare(devices).expect("devices");
    let ranges = prepared.iter().map(|device| &device.description);
    let ranges: Vec<_> = ranges.map(|device| (device.first_cluster, device.clusters)).collect();
    assert_eq!(ranges, [(0, 4), (5, 0), (5, 3), (9, 1)]);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |devices| prepare(devices).err().expect("an error");
    assert!(matches!(refused(vec![Device::zram(), Device::zram()]), Error::StoreTwice));
    assert!(matches!(refused(vec![Device::ram(1)]), Error::DeviceSize(1)));
    assert!(matches!(refused(vec![Device::ram("8M").size("2T")]), Error::DeviceSize(_)));
    assert!(matches!(refused(vec![Device::ram("eight")]), Error::Size { .. }));
    assert!(matches!(refused(vec![Device::zram().priority(-5)]), Error::Priority(-5)));
    assert!(matches!(refused(vec![Device::file("/proc/self/exe")]), Error::NotADirectory(_)));
    assert!(matches!(refused(vec![Device::file("/nowhere/at/all")]), Error::File(_)));
    let many = (0..33).map(|_| Device::ram("2M")).collect();
    assert!(matches!(refused(many), Error::TooManyDevices(33)));
}

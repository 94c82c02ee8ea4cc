use super::*;

fn file(first_cluster: u32, clusters: u32) -> DeviceDescription {
    let io = DeviceIo::Asynchronous;
    DeviceDescription {
        kind: DeviceKind::File,
        priority: 0,
        io,
        first_cluster,
        clusters,
        contents: DeviceContents::Plain,
    }
}

#[test]
fn a_cluster_is_on_the_device_whose_range_holds_it() {
    let devices = SharedDevices::new();
    let (one, two) = (DeviceId::new(1).unwrap(), DeviceId::new(4).unwrap());
    devices.set(one, file(0, 10), 3);
    devices.set(two, DeviceDescription { io: DeviceIo::Synchronous, ..file(11, 5) }, 4);
    let on = |cluster| devices.of_cluster(cluster);
    assert_eq!([0, 9, 10, 11, 15, 16].map(on), [Some(one), Some(one), None, Some(two), Some(two), None]);
    assert_eq!(devices.mask(), DeviceMask::only(one).with(two));
    let slot = FileSlot::new(12 * CLUSTER_SLOTS + 7).unwrap();
    assert!(devices.is_synchronous(slot) && devices.is_on_disk(slot));
    assert_eq!(devices.open(slot).unwrap().1.raw(), CLUSTER_SLOTS + 7);
    assert!(devices.open(FileSlot::new(10 * CLUSTER_SLOTS).unwrap()).is_none());
    assert!(devices.of_slot(FileSlot::new((1 << FileSlot::BITS) - 1).unwrap()).is_none());
    let nbd = DeviceDescription { kind: DeviceKind::Nbd, io: DeviceIo::Served, ..file(17, 5) };
    devices.set(DeviceId::new(5).unwrap(), nbd, -1);
    let of_server = FileSlot::new(17 * CLUSTER_SLOTS).unwrap();
    assert_eq!((devices.mask().len(), devices.local()), (3, DeviceMask::only(one).with(two)));
    assert_eq!(devices.silence(of_server, Errno::HOSTDOWN), Some(Silence::NotAsked));
    assert_eq!(devices.silence(of_server, Errno::TIMEDOUT), Some(Silence::MayBeDone));
    assert_eq!(devices.silence(of_server, Errno::IO), None, "it has answered");
    assert_eq!(devices.silence(slot, Errno::TIMEDOUT), None, "a disk's time-out is an error of the disk");
    let both = DeviceMask::only(one).with(two);
    devices.set_orders(two, Orders::ONLY_ZERO);
    assert_eq!(devices.taking(both, 1), both);
    assert_eq!(devices.taking(both, 2), DeviceMask::only(one));
}

use super::*;
use crate::device::{Device, prepare};
use crate::mapping::GroupMapping;
use rustix::fd::AsFd;

struct Opened<'d>(&'d [Prepared]);

impl DeviceFiles for Opened<'_> {
    fn of(&self, number: usize) -> BorrowedFd<'_> {
        self.0[number].file.as_ref().expect("it has clusters").as_fd()
    }
}

#[test]
fn lowest_first_by_priority_until_full_and_again_after_it_came_back() {
    let mapping = GroupMapping::new().expect("memory");
    let (writer, decisions) = (mapping.writer(), mapping.group().decisions);
    let devices = vec![Device::ram("4M").priority(1), Device::ram("6M").priority(1), Device::ram("2M")];
    let devices = prepare(devices).expect("devices");
    let (mut clusters, files) = (Clusters::new(&devices), Opened(&devices));
    assert_eq!(clusters.grant(writer, &files, 0b111, 3), [0, 3, 1], "equals take turns");
    assert_eq!(decisions.device_bytes(), 6 << 20);
    assert_eq!(clusters.grant(writer, &files, 0b001, 1), [0_u32; 0]);
    assert!(decisions.devices[0].is_full() && !decisions.devices[1].is_full());
    assert_eq!(clusters.grant(writer, &files, 0b111, 9), [4, 5, 7], "the lower one when both are full");
    assert_eq!(clusters.bytes_in_memory(&[0, 3, 1000]), 4 << 20);
    clusters.give_back(writer, &files, &[1, 4, 4, 1000]);
    assert!(!decisions.devices[0].is_full());
    assert_eq!(decisions.devices[1].clusters_used(), 2);
    assert_eq!(clusters.grant(writer, &files, 0b111, 9), [1, 4]);
}

use super::*;
use crate::device::{Device, prepare};
use crate::mapping::SegmentMapping;
use rustix::fd::AsFd;

struct Opened<'d>(&'d [Prepared]);

impl DeviceFiles for Opened<'_> {
    fn of(&self, number: usize) -> BorrowedFd<'_> {
        self.0[number].file.as_ref().expect("it has clusters").as_fd()
    }
}

#[test]
fn lowest_first_by_priority_until_full_and_again_after_it_came_back() {
    let mapping = SegmentMapping::new().expect("memory");
    let segment = mapping.segment();
    let devices = vec![Device::ram("4M").priority(1), Device::ram("6M").priority(1), Device::ram("2M")];
    let devices = prepare(devices).expect("devices");
    let (mut clusters, files) = (Clusters::new(&devices), Opened(&devices));
    assert_eq!(clusters.grant(segment, &files, 0b111, 3), [0, 3, 1], "equals take turns");
    assert_eq!(segment.header.device_bytes.load(Relaxed), 6 << 20);
    assert_eq!(clusters.grant(segment, &files, 0b001, 1), [0_u32; 0]);
    assert!(segment.devices[0].is_full() && !segment.devices[1].is_full());
    assert_eq!(clusters.grant(segment, &files, 0b111, 9), [4, 5, 7], "the lower one when both are full");
    assert_eq!(clusters.bytes_in_memory(&[0, 3, 1000]), 4 << 20);
    clusters.give_back(segment, &files, &[1, 4, 4, 1000]);
    assert!(!segment.devices[0].is_full());
    assert_eq!(segment.devices[1].clusters_used.load(Relaxed), 2);
    assert_eq!(clusters.grant(segment, &files, 0b111, 9), [1, 4]);
}

use super::*;
use crate::{devices::Discard, ipc::group_memory::GroupMemory};
use folioswap_devices::create::create_swap_file;
use folioswap_group::{
    devices::{DeviceContents, DeviceIo, DeviceKind},
    segment::CLUSTER_BYTES,
};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use std::path::Path;

/// Any number of clusters of device 0, and of device 1.
const FIRST: Allowance = all_of(1);
const SECOND: Allowance = all_of(2);

const fn all_of(devices: u64) -> Allowance {
    Allowance { devices, most: [u32::MAX; DEVICES_MAX] }
}

fn description(kind: DeviceKind, first_cluster: u32, clusters: u32) -> DeviceDescription {
    DeviceDescription {
        kind,
        priority: 0,
        io: DeviceIo::Asynchronous,
        first_cluster,
        clusters,
        contents: DeviceContents::Plain,
    }
}

fn file(discard: Discard) -> Option<SharedDevice> {
    Some(SharedDevice::new(create_swap_file(Path::new("/var/tmp")).expect("a disk"), discard))
}

fn device(maximum: u32) -> (GroupMemory, Clusters) {
    let devices = vec![(description(DeviceKind::File, 0, maximum), file(Discard::Freed))];
    (GroupMemory::create().expect("memfd"), Clusters::new(devices))
}

fn used(memory: &GroupMemory, device: usize) -> u32 {
    memory.group().decisions.devices[device].clusters_used()
}

fn blocks(clusters: &Clusters, index: usize) -> i64 {
    fstat(clusters.files().nth(index).expect("a file")).expect("open").st_blocks * 512
}

#[test]
fn lowest_first_until_full_and_again_after_release() {
    let (memory, mut clusters) = device(4);
    let mut owner = Bits::default();
    let full = || memory.group().decisions.devices[0].is_full();
    assert_eq!(clusters.grant(memory.writer(), &mut owner, FIRST, 3), [0, 1, 2]);
    assert!(!full());
    assert_eq!(clusters.grant(memory.writer(), &mut owner, FIRST, 3), [3]);
    assert!(full(), "nobody has to ask to know");
    assert!(clusters.grant(memory.writer(), &mut owner, FIRST, 1).is_empty());
    clusters.drop_some(memory.writer(), &mut owner, &[1, 1, 77]);
    assert!(!full(), "back with the first that is free");
    assert_eq!(used(&memory, 0), 3);
    assert_eq!(clusters.grant(memory.writer(), &mut owner, FIRST, 2), [1]);
    assert!(clusters.grant(memory.writer(), &mut owner, SECOND, 1).is_empty(), "no such device");
}

#[test]
fn equals_take_turns_and_priorities_do_not() {
    let memory = GroupMemory::create().expect("memfd");
    let ram = || {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
        Some(SharedDevice::new(file, Discard::Freed))
    };
    let at = |first, clusters, priority| {
        let described = description(DeviceKind::Ram, first, clusters);
        (DeviceDescription { priority, ..described }, ram())
    };
    let mut clusters = Clusters::new(vec![
        at(0, 3, 2),
        (description(DeviceKind::Zram, 0, 0), None),
        at(4, 9, 2),
        at(14, 9, 7),
    ]);
    let mut owner = Bits::default();
    let mut grant =
        |owner: &mut Bits, wanted, count| clusters.grant(memory.writer(), owner, all_of(wanted), count);
    assert_eq!(grant(&mut owner, 0b101, 3), [0, 4, 1]);
    let mut other = Bits::default();
    assert_eq!(grant(&mut other, 0b101, 1), [5], "the turn is the group's");
    assert_eq!(grant(&mut owner, 0b1101, 2), [14, 15], "the highest first");
    assert_eq!(grant(&mut owner, 0b101, 4), [2, 6, 7, 8], "the full one leaves its turn to the other");
    let held = u64::from(3 + 5 + 2_u32) * CLUSTER_BYTES;
    assert_eq!(memory.group().decisions.device_bytes(), held);
    assert_eq!(clusters.validate([&owner, &other].into_iter()), Ok(()));
}

#[test]
fn an_owner_gets_no_more_of_a_device_than_it_may() {
    let (memory, mut clusters) = device(9);
    let mut owner = Bits::default();
    let most = |count| Allowance { most: [count; DEVICES_MAX], ..FIRST };
    assert_eq!(clusters.grant(memory.writer(), &mut owner, most(2), 5), [0, 1]);
    assert!(clusters.grant(memory.writer(), &mut owner, most(0), 5).is_empty());
    assert!(!memory.group().decisions.devices[0].is_full(), "others may have more");
    assert_eq!(clusters.grant(memory.writer(), &mut Bits::default(), most(1), 5), [2]);
}

#[test]
fn a_cluster_that_somebody_else_holds_is_not_held_alone() {
    let (memory, mut clusters) = device(9);
    let (mut parent, mut other) = (Bits::default(), Bits::default());
    clusters.grant(memory.writer(), &mut parent, FIRST, 3);
    clusters.grant(memory.writer(), &mut other, FIRST, 1);
    let held = |clusters: &Clusters, owners: &[&Bits]| clusters.held_alone(owners.iter().copied())[0];
    assert_eq!(held(&clusters, &[&parent]), 3);
    let child = clusters.share(memory.writer(), &parent);
    assert_eq!(held(&clusters, &[&parent]), 0);
    assert_eq!(held(&clusters, &[&parent, &child]), 3, "each is counted once");
    assert_eq!(held(&clusters, &[&parent, &child, &other]), 4);
    clusters.drop_some(memory.writer(), &mut parent, &[0]);
    assert_eq!((held(&clusters, &[&parent]), held(&clusters, &[&child])), (0, 1));
}

#[test]
fn memory_counts_until_it_is_given_back() {
    let memory = GroupMemory::create().expect("memfd");
    let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd");
    let device = SharedDevice::new(file, Discard::Freed);
    let mut clusters = Clusters::new(vec![(description(DeviceKind::Ram, 0, 8), Some(device))]);
    let mut owner = Bits::default();
    clusters.grant(memory.writer(), &mut owner, FIRST, 2);
    assert_eq!(blocks(&clusters, 0), 0, "memory is taken when it is written");
    rustix::io::pwrite(clusters.files().next().expect("it"), &[1; 4096], CLUSTER_BYTES).expect("written");
    assert_eq!(blocks(&clusters, 0), 4096);
    let counted = || memory.group().decisions.device_bytes();
    assert_eq!(counted(), 2 * CLUSTER_BYTES);
    clusters.drop_all(memory.writer(), &owner);
    assert_eq!((used(&memory, 0), counted()), (0, 2 * CLUSTER_BYTES));
    clusters.punch(memory.writer());
    assert_eq!((blocks(&clusters, 0), counted()), (0, 0));
}

#[test]
fn a_shared_cluster_is_free_when_its_last_owner_lets_go() {
    let (memory, mut clusters) = device(10);
    let mut parent = Bits::default();
    clusters.grant(memory.writer(), &mut parent, FIRST, 2);
    let child = clusters.share(memory.writer(), &parent);
    assert_eq!(memory.group().decisions.owners_of(1), 2);
    clusters.drop_all(memory.writer(), &parent);
    assert_eq!((clusters.used()[0], clusters.wants_punch()), (2, false));
    clusters.drop_all(memory.writer(), &child);
    assert_eq!((clusters.used()[0], clusters.wants_punch()), (0, true));
}

#[test]
fn free_clusters_give_their_blocks_back() {
    let (memory, mut clusters) = device(8);
    let mut owner = Bits::default();
    clusters.grant(memory.writer(), &mut owner, FIRST, 8);
    assert!(blocks(&clusters, 0) >= 16 << 20);
    clusters.drop_all(memory.writer(), &owner);
    clusters.punch(memory.writer());
    assert!(!clusters.wants_punch());
    assert!(blocks(&clusters, 0) < 1 << 20);
}

#[test]
fn without_discard_the_blocks_stay() {
    let memory = GroupMemory::create().expect("memfd");
    let mut clusters = Clusters::new(vec![(description(DeviceKind::File, 0, 8), file(Discard::Never))]);
    let mut owner = Bits::default();
    clusters.grant(memory.writer(), &mut owner, FIRST, 8);
    clusters.drop_all(memory.writer(), &owner);
    assert!(!clusters.wants_punch());
    clusters.punch(memory.writer());
    assert!(blocks(&clusters, 0) >= 16 << 20);
    let mut other = Bits::default();
    assert_eq!(clusters.grant(memory.writer(), &mut other, FIRST, 1), [0]);
}

#[test]
fn a_header_is_nobodys_and_what_failed_goes_to_nobody_else() {
    let memory = GroupMemory::create().expect("memfd");
    let device = file(Discard::Never).map(|device| SharedDevice { reserved: 1, ..device });
    let mut clusters = Clusters::new(vec![(description(DeviceKind::File, 8, 4), device)]);
    let mut owner = Bits::default();
    assert_eq!(clusters.grant(memory.writer(), &mut owner, FIRST, 8), [9, 10, 11]);
    assert!(memory.group().decisions.devices[0].is_full());
    assert_eq!(clusters.locate(10 * CLUSTER_SLOTS + 3), Some((0, 2 * CLUSTER_SLOTS + 3)));
    assert_eq!(clusters.locate(12 * CLUSTER_SLOTS), None);
    let slot = 10 * CLUSTER_SLOTS + 3;
    assert_eq!(clusters.retire(slot), SlotError::New);
    assert_eq!((clusters.retire(slot), clusters.note_error(slot)), (SlotError::Known, SlotError::Known));
    assert_eq!(clusters.note_error(slot + 1), SlotError::New);
    assert!(Clusters::owns(&owner, slot) && !Clusters::owns(&owner, 12 * CLUSTER_SLOTS));
    assert!(!Clusters::owns(&owner, u64::MAX));
    assert_eq!(clusters.validate(std::iter::once(&owner)), Ok(()), "its owner has it still");
    clusters.drop_all(memory.writer(), &owner);
    assert_eq!(clusters.validate(std::iter::empty()), Ok(()));
    let mut other = Bits::default();
    assert_eq!(clusters.grant(memory.writer(), &mut other, FIRST, 8), [9, 11]);
    assert!(memory.group().decisions.devices[0].is_full(), "the bad one is no room");
    clusters.drop_some(memory.writer(), &mut other, &[9]);
    memory.writer().device(0).fail();
    assert!(clusters.grant(memory.writer(), &mut other, FIRST, 1).is_empty(), "it is out of the rotation");
    assert_eq!(clusters.validate(std::iter::once(&other)), Ok(()));
}

/// Memory stands for a disk that cannot reserve blocks.
#[test]
fn a_prepared_file_keeps_its_length_where_blocks_cannot_be_reserved() {
    let memory = GroupMemory::create().expect("memfd");
    let file = rustix::fs::memfd_create("prepared", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    let bytes = 4 * CLUSTER_BYTES;
    rustix::fs::ftruncate(&file, bytes).expect("its length");
    let device = SharedDevice { reserved: 1, ..SharedDevice::new(file, Discard::Never) };
    let mut clusters = Clusters::new(vec![(description(DeviceKind::Ram, 0, 4), Some(device))]);
    assert_eq!(clusters.grant(memory.writer(), &mut Bits::default(), FIRST, 1), [1]);
    let length = fstat(clusters.files().next().expect("a file")).expect("open").st_size;
    assert_eq!(length as u64, bytes);
}

#[test]
fn books_that_do_not_agree_with_the_owners_are_found() {
    let (memory, mut clusters) = device(10);
    let mut owner = Bits::default();
    clusters.grant(memory.writer(), &mut owner, FIRST, 3);
    let child = clusters.share(memory.writer(), &owner);
    assert_eq!(clusters.validate([&owner, &child].into_iter()), Ok(()));
    let lost = Invalid::Owners { cluster: 0, stated: 2, counted: 1 };
    assert_eq!(clusters.validate([&owner].into_iter()), Err(lost));
    clusters.drop_all(memory.writer(), &child);
    assert_eq!(clusters.validate([&owner].into_iter()), Ok(()));
    assert!(clusters.validate(std::iter::empty()).is_err());
    let mut stranger = Bits::default();
    stranger.insert(70);
    assert!(clusters.validate([&owner, &stranger].into_iter()).is_err());
    clusters.drop_all(memory.writer(), &owner);
    assert_eq!(clusters.validate(std::iter::empty()), Ok(()));
    clusters.areas[0].as_mut().expect("a device").forge_used(1);
    let used = Invalid::Used { device: 0, stated: 1, counted: 0 };
    assert_eq!(clusters.validate(std::iter::empty()), Err(used));
}

use super::*;
use folioswap_group::devices::{DeviceContents, DeviceIo};
use std::vec::Vec;

fn device(kind: DeviceKind, priority: i32) -> DeviceDescription {
    DeviceDescription {
        kind,
        priority,
        io: DeviceIo::Asynchronous,
        first_cluster: 0,
        clusters: 1,
        contents: DeviceContents::Plain,
    }
}

fn mask(numbers: &[u32]) -> DeviceMask {
    numbers.iter().filter_map(|&number| DeviceId::new(number)).fold(DeviceMask::NONE, DeviceMask::with)
}

#[test]
fn what_is_not_permitted_is_as_if_it_were_not_there() {
    let kinds = [(DeviceKind::File, 0), (DeviceKind::Zram, 1), (DeviceKind::File, 5)];
    let devices = || Turns::new(kinds.map(|(kind, priority)| device(kind, priority)));
    let mut turns = devices().among(mask(&[0, 1]));
    assert!(turns.has_store());
    assert_eq!(turns.next(mask(&[0, 1, 2])), Some(Choice::Store));
    assert_eq!(turns.below_store(DeviceMask::ALL), mask(&[0]));
    let mut turns = devices().among(mask(&[0]));
    assert!(!turns.has_store());
    assert_eq!(turns.next(DeviceMask::ALL), Some(Choice::Shared(mask(&[0]))));
    assert_eq!(turns.next(mask(&[1, 2])), None);
    assert_eq!(turns.below_store(DeviceMask::ALL), mask(&[0]), "what is in the store goes down as before");
}

#[test]
fn the_highest_priority_that_has_room_comes_first() {
    use DeviceKind::{File, Zram};
    let mut turns = Turns::new([device(File, 0), device(Zram, 1), device(File, 5)]);
    assert_eq!(turns.next(mask(&[0, 1, 2])), Some(Choice::Shared(mask(&[2]))));
    assert_eq!(turns.next(mask(&[0, 1])), Some(Choice::Store));
    assert_eq!(turns.next(mask(&[0])), Some(Choice::Shared(mask(&[0]))));
    assert_eq!(turns.next(mask(&[2])), Some(Choice::Shared(mask(&[2]))), "it is back at once");
    assert_eq!(turns.next(DeviceMask::NONE), None);
    assert_eq!(turns.next(mask(&[7])), None, "no such device");
    assert_eq!(turns.shared(mask(&[0, 1, 2])), mask(&[2]));
    assert_eq!(turns.below_store(mask(&[0, 1, 2])), mask(&[0]));
}

#[test]
fn the_store_and_its_equals_take_turns_cluster_by_cluster() {
    use DeviceKind::{File, Ram, Zram};
    let devices = [device(Zram, -1), device(Ram, -1), device(File, -1), device(File, -2)];
    let (mut turns, all, equals) = (Turns::new(devices), mask(&[0, 1, 2, 3]), mask(&[1, 2]));
    let mut pages = Vec::new();
    for _ in 0..4 * 3 * CLUSTER_SLOTS / 16 {
        let choice = turns.next(all).unwrap();
        turns.used(16);
        match pages.last_mut() {
            Some((last, count)) if *last == choice => *count += 16,
            _ => pages.push((choice, 16)),
        }
    }
    let turn = [(Choice::Store, CLUSTER_SLOTS), (Choice::Shared(equals), 2 * CLUSTER_SLOTS)];
    assert_eq!(pages, turn.repeat(4));
    // A full device leaves the turns to the others.
    for _ in 0..1000 {
        assert_eq!(turns.next(mask(&[0, 3])), Some(Choice::Store));
        turns.used(16);
    }
}

#[test]
fn without_a_store_nothing_is_below_it() {
    let turns = Turns::new([device(DeviceKind::File, -1), device(DeviceKind::File, 3)]);
    assert!(!turns.has_store());
    assert_eq!(turns.below_store(mask(&[0, 1])), DeviceMask::NONE);
}

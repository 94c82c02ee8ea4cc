use super::*;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

const ONE: DeviceId = DeviceId::new(1).unwrap();
const TWO: DeviceId = DeviceId::new(2).unwrap();
const ANY: DeviceMask = DeviceMask::ALL;

fn add(space: &FileSpace, numbers: &[u32], device: DeviceId) -> bool {
    space.add(numbers.iter().map(|&number| (number, device))) == numbers.len()
}

fn cluster_of(slot: FileSlot) -> u64 {
    slot.raw() / CLUSTER_SLOTS
}

fn space() -> FileSpace {
    // SAFETY: zeroed, leaked, of the right size.
    unsafe {
        let layout = Layout::from_size_align(FileSpace::BYTES, 4096).unwrap();
        FileSpace::new(NonNull::new(alloc_zeroed(layout)).unwrap())
    }
}

#[test]
fn runs_do_not_overlap_and_stay_inside_their_cluster() {
    let space = space();
    assert!(space.allocate(1, ANY).is_none());
    assert!(add(&space, &[7, 3], ONE));
    let mut seen = HashSet::new();
    let mut seed = 88172645463325252u64;
    let mut held: Vec<(u64, u64)> = Vec::new();
    for _ in 0..20_000 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let count = 1 + seed % 16;
        if seed >> 32 & 1 == 0 {
            if let Some(first) = space.allocate(count as u32, ANY) {
                assert!(first.raw() / 512 == 7 || first.raw() / 512 == 3);
                assert_eq!(first.raw() / 512, (first.raw() + count - 1) / 512);
                for slot in first.raw()..first.raw() + count {
                    assert!(seen.insert(slot));
                }
                held.push((first.raw(), count));
            }
        } else if !held.is_empty() {
            let (first, count) = held.swap_remove(seed as usize % held.len());
            for slot in first..first + count {
                space.free(FileSlot::new(slot).unwrap());
                seen.remove(&slot);
            }
        }
        assert_eq!(space.used_slots(), seen.len() as u64);
    }
}

#[test]
fn shared_clusters_keep_what_they_hold_and_take_nothing_new() {
    let space = space();
    add(&space, &[5], ONE);
    let slot = space.allocate(4, ANY).unwrap();
    space.share_all();
    assert!(space.allocate(1, ANY).is_none());
    space.free(slot);
    assert_eq!(space.used_slots(), 3);
    space.unshare(|_| false);
    assert!(space.allocate(1, ANY).is_none());
    space.unshare(|number| number == 5);
    assert!(space.allocate(1, ANY).is_some());
}

#[test]
fn empty_clusters_are_given_back() {
    let space = space();
    add(&space, &[1, 2, 3], ONE);
    let slot = space.allocate(1, ANY).unwrap();
    let mut numbers = [0; 8];
    assert_eq!(space.take_empty(ANY, 2, &mut numbers), 0, "two are empty");
    assert_eq!(space.take_empty(DeviceMask::only(TWO), 0, &mut numbers), 0, "none is there");
    assert_eq!((space.take_empty(ANY, 1, &mut numbers), numbers[0]), (1, 3));
    assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 2));
    space.free(slot);
    space.share_all();
    assert_eq!(space.take_empty(ANY, 0, &mut numbers), 0, "it may be a child's");
    assert!(space.has_empty_shared());
    space.unshare(|_| true);
    assert!(!space.has_empty_shared());
    assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 1));
    assert!(space.allocate(1, ANY).is_none());
}

#[test]
fn a_bad_slot_is_never_handed_out_again() {
    let space = space();
    add(&space, &[3, 4], ONE);
    let run = space.allocate(8, ANY).unwrap();
    let bad = FileSlot::new(run.raw() + 2).unwrap();
    space.set_bad(bad);
    (0..8).filter(|&at| at != 2).for_each(|at| space.free(FileSlot::new(run.raw() + at).unwrap()));
    assert_eq!((space.used_slots(), space.bad_slots()), (0, 1));
    let mut numbers = [0; 4];
    assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 4), "its cluster stays");
    let all: Vec<FileSlot> = core::iter::from_fn(|| space.allocate(1, ANY)).collect();
    assert_eq!(all.len() as u64, CLUSTER_SLOTS - 1);
    assert!(!all.contains(&bad));
    assert_eq!(space.used_slots(), CLUSTER_SLOTS - 1);
}

#[test]
fn what_is_not_given_back_keeps_its_order() {
    let space = space();
    add(&space, &[9, 5, 7, 1, 3], ONE);
    let full: Vec<FileSlot> = (0..16).map(|_| space.allocate(64, ANY).unwrap()).collect();
    let last = space.allocate(64, ANY).unwrap();
    assert_eq!(cluster_of(last), 7);
    (0..64).for_each(|index| space.free(FileSlot::new(full[0].raw() + index).unwrap()));
    (0..512).for_each(|index| space.free(FileSlot::new(full[8].raw() + index).unwrap()));
    let mut numbers = [0; 1];
    assert_eq!((space.take_empty(ANY, 0, &mut numbers), numbers[0]), (1, 5), "no more than asked for");
    assert_eq!(space.clusters_used(ANY), 2);
    let order: Vec<u64> = (0..24).map(|_| cluster_of(space.allocate(64, ANY).unwrap())).collect();
    let expected: Vec<u64> =
        [(7, 7), (1, 8), (3, 8), (9, 1)].iter().flat_map(|&(number, count)| vec![number; count]).collect();
    assert_eq!(order, expected, "it goes on where it was");
    assert!(space.allocate(64, ANY).is_none());
}

#[test]
fn clusters_are_used_in_the_order_of_their_grant() {
    let space = space();
    add(&space, &[9], ONE);
    space.allocate(64, ANY);
    assert_eq!(space.add([(20, ONE), (40, TWO), (21, ONE), (41, TWO)].into_iter()), 4);
    let order: Vec<u64> = (0..32).map(|_| cluster_of(space.allocate(64, ANY).unwrap())).collect();
    let expected: Vec<u64> = [20, 40, 21, 41].into_iter().flat_map(|number| [number; 8]).collect();
    assert_eq!(order, expected);
    assert_eq!(cluster_of(space.allocate(64, ANY).unwrap()), 9, "then what the older ones have left");
}

#[test]
fn long_runs_take_whole_words_and_leave_the_rest() {
    let space = space();
    add(&space, &[4], ONE);
    let single = space.allocate(1, ANY).unwrap();
    let within = |slot: FileSlot| slot.raw() % CLUSTER_SLOTS;
    let long = space.allocate(117, ANY).unwrap();
    assert_eq!((within(single), within(long)), (0, 64));
    assert_eq!(within(space.allocate(11, ANY).unwrap()), 1, "before it");
    assert_eq!(within(space.allocate(60, ANY).unwrap()), 192);
    assert!(space.allocate(257, ANY).is_none(), "only 256 are left in a row");
    assert_eq!(within(space.allocate(256, ANY).unwrap()), 256);
    assert_eq!(space.used_slots(), 1 + 117 + 11 + 60 + 256);
    let mut left: HashSet<u64> = (12..64).chain(64 + 117..192).chain(252..256).collect();
    while let Some(slot) = space.allocate(1, ANY) {
        assert!(left.remove(&within(slot)), "{}", within(slot));
    }
    assert!(left.is_empty());
    for slot in 0..CLUSTER_SLOTS {
        space.free(FileSlot::new(4 * CLUSTER_SLOTS + slot).unwrap());
    }
    assert_eq!(within(space.allocate(512, ANY).unwrap()), 0, "a whole cluster");
    assert_eq!(space.used_slots(), 512);
}

#[test]
fn only_permitted_devices_give_slots() {
    let space = space();
    add(&space, &[1], ONE);
    add(&space, &[30], TWO);
    let one = DeviceMask::only(ONE);
    for _ in 0..CLUSTER_SLOTS / 64 {
        assert_eq!(cluster_of(space.allocate(64, one).unwrap()), 1);
    }
    assert!(space.allocate(1, one).is_none());
    assert_eq!(space.with_free_slots(), DeviceMask::only(TWO));
    space.free(FileSlot::new(CLUSTER_SLOTS + 17).unwrap());
    assert_eq!(space.with_free_slots(), one.with(TWO));
    assert_eq!(space.allocate(1, one).unwrap().raw(), CLUSTER_SLOTS + 17);
}

/// Compares the counts by device, which spare a walk, with the clusters themselves, over every
/// operation that changes them.
#[test]
fn free_slots_are_counted_by_device() {
    let space = space();
    let check = |space: &FileSpace| {
        let mut clusters = space.0.lock();
        let mut counted = [0; DEVICES_MAX];
        for cluster in clusters.all().iter().filter(|cluster| !cluster.shared) {
            counted[cluster.device as usize] += cluster.free_slots();
        }
        assert_eq!(clusters.free, counted);
    };
    add(&space, &[1, 2], ONE);
    add(&space, &[30, 31], TWO);
    let mut held: Vec<FileSlot> = (0..20).map(|_| space.allocate(33, ANY).unwrap()).collect();
    check(&space);
    space.share_all();
    check(&space);
    assert_eq!(space.with_free_slots(), DeviceMask::NONE);
    space.free(held.pop().unwrap());
    check(&space);
    space.unshare(|number| number != 2);
    check(&space);
    held.into_iter().for_each(|slot| space.free(slot));
    check(&space);
    add(&space, &[3], ONE);
    let mut numbers = [0; 4];
    assert_eq!(space.take_empty(ANY, 0, &mut numbers), 1, "the other empty one is shared");
    check(&space);
}

/// A device is taken out of use: all its clusters go, but not before the last page has left.
#[test]
fn all_clusters_of_a_device_go_when_nothing_is_stored_there() {
    let space = space();
    add(&space, &[1, 2], ONE);
    add(&space, &[30], TWO);
    let (slot, bad) = (
        space.allocate(1, DeviceMask::only(ONE)).unwrap(),
        space.allocate(1, DeviceMask::only(ONE)).unwrap(),
    );
    let other = space.allocate(3, DeviceMask::only(TWO)).unwrap();
    space.set_bad(bad);
    space.share_all();
    add(&space, &[3], ONE);
    let mut numbers = [0; 2];
    assert_eq!(space.take_all(ONE, &mut numbers), 0, "a page is there");
    space.free(slot);
    assert_eq!((space.take_all(ONE, &mut numbers), numbers), (2, [1, 2]), "shared, and with a bad slot");
    assert_eq!((space.take_all(ONE, &mut numbers), numbers[0]), (1, 3));
    assert_eq!((space.take_all(ONE, &mut numbers), space.bad_slots()), (0, 0));
    assert_eq!((space.used_slots(), space.with_free_slots()), (3, DeviceMask::NONE));
    space.unshare(|_| true);
    assert_eq!(space.with_free_slots(), DeviceMask::only(TWO));
    assert_eq!(cluster_of(other), 30);
}

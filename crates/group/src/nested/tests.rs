extern crate std;
use super::*;
use std::boxed::Box;
use std::vec::Vec;

fn segment() -> Box<Segment> {
    // SAFETY: all-zero is a valid segment.
    let segment = unsafe { Box::<Segment>::new_zeroed().assume_init() };
    segment.header.limit_bytes.store(100, Relaxed);
    segment
}

fn member(segment: &Segment, group: u32, charge: u64) -> u32 {
    let id = segment.assign(1).unwrap();
    segment.members[id as usize].group.store(group, Relaxed);
    segment.members[id as usize].charge_bytes.store(charge, Relaxed);
    id
}

#[test]
fn what_a_member_takes_counts_in_all_groups_around_it() {
    let segment = segment();
    let outer = segment.begin_group(WHOLE, 60).unwrap();
    let inner = segment.begin_group(outer, 20).unwrap();
    let beside = segment.begin_group(WHOLE, 30).unwrap();
    let ids = [(WHOLE, 1), (outer, 10), (inner, 15), (beside, 5)];
    let ids = ids.map(|(group, charge)| member(&segment, group, charge));
    let charges = [WHOLE, outer, inner, beside].map(|group| segment.charge_within(group));
    assert_eq!(charges, [31, 25, 15, 5]);
    segment.charge_outside(inner, 4);
    segment.header.unmanaged_bytes.store(4, Relaxed);
    let charges = [WHOLE, outer, inner, beside].map(|group| segment.charge_within(group));
    assert_eq!(charges, [35, 29, 19, 5]);
    segment.uncharge_outside(inner, 4);
    assert_eq!(segment.charge_within(outer), 25);
    assert!(segment.is_within(inner, outer) && segment.is_within(inner, WHOLE));
    assert!(!segment.is_within(outer, inner) && !segment.is_within(beside, outer));
    assert_eq!(segment.members_within(outer).count(), 2);
    assert_eq!(segment.members[ids[0] as usize].group.load(Relaxed), WHOLE);
}

#[test]
fn the_limit_that_leaves_the_least_room_holds() {
    let segment = segment();
    let outer = segment.begin_group(WHOLE, 60).unwrap();
    let inner = segment.begin_group(outer, 20).unwrap();
    let [whole, in_outer, in_inner] = [(WHOLE, 0), (outer, 0), (inner, 15)]
        .map(|(group, charge)| &segment.members[member(&segment, group, charge) as usize]);
    assert_eq!(segment.tightest(in_inner), Bound { group: inner, limit: 20, charge: 15 });
    in_outer.charge_bytes.store(42, Relaxed);
    assert_eq!(segment.tightest(in_inner), Bound { group: outer, limit: 60, charge: 57 });
    assert_eq!(segment.tightest(in_outer).group, outer);
    whole.charge_bytes.store(50, Relaxed);
    assert_eq!(segment.tightest(in_inner), Bound { group: WHOLE, limit: 100, charge: 107 });
    assert!(segment.tightest(whole).is_reached());
    assert_eq!([whole, in_outer, in_inner].map(|member| segment.least_limit(member)), [100, 60, 20]);
}

#[test]
fn places_are_used_again_and_have_an_end() {
    let segment = segment();
    let all: Vec<_> = (1..GROUPS_MAX).map(|_| segment.begin_group(WHOLE, 1).unwrap()).collect();
    assert_eq!(segment.begin_group(WHOLE, 1), None);
    segment.end_group(all[7]);
    assert_eq!(segment.begin_group(WHOLE, 1), Some(all[7]));
    let segment = self::segment();
    let mut deepest = WHOLE;
    for _ in 1..DEPTH_MAX {
        deepest = segment.begin_group(deepest, 1).unwrap();
    }
    assert_eq!(segment.begin_group(deepest, 1), None, "too deep");
    assert_eq!(segment.around(deepest).count(), DEPTH_MAX);
    assert_eq!(segment.around(deepest).last(), Some(WHOLE));
}

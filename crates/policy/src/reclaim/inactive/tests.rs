use super::*;

const BOUNDS: Bounds = Bounds { least: 128, most: 192 };

/// One turn of the list: of the 16 pages in each berth, `per_mille` in a thousand come back at
/// once.
fn turn(list: &mut InactiveList, bounds: Bounds, per_mille: u64) -> u64 {
    let berths = list.length(bounds);
    list.note(bounds, berths, berths * 16, berths * 16 * per_mille / 1000);
    list.length(bounds)
}

#[test]
fn it_begins_as_short_as_it_may_be_and_stays_so_as_long_as_nothing_is_known() {
    let mut list = InactiveList::default();
    assert_eq!((list.length(BOUNDS), list.room(BOUNDS)), (128, 0));
    list.note(BOUNDS, 127, 127 * 16, 127 * 16);
    assert_eq!(list.length(BOUNDS), 128, "it has not turned over yet");
    list.note(BOUNDS, 1, 16, 0);
    assert_eq!(list.length(BOUNDS), 140);
}

#[test]
fn refaults_that_it_could_have_spared_make_it_longer_up_to_its_bound() {
    let mut list = InactiveList::default();
    let lengths: Vec<u64> = (0..7).map(|_| turn(&mut list, BOUNDS, 200)).collect();
    assert_eq!(lengths, [140, 152, 164, 176, 188, 192, 192]);
    assert_eq!(list.room(BOUNDS), 0);
}

#[test]
fn few_of_them_leave_it_as_it_is_and_none_make_it_shorter_after_a_while() {
    let mut list = InactiveList::default();
    (0..3).for_each(|_| _ = turn(&mut list, BOUNDS, 500));
    assert!((0..20).all(|_| turn(&mut list, BOUNDS, 50) == 164));
    let lengths: Vec<u64> = (0..9).map(|_| turn(&mut list, BOUNDS, 0)).collect();
    assert_eq!(lengths, [164, 164, 164, 152, 152, 152, 152, 140, 140]);
    (0..100).for_each(|_| _ = turn(&mut list, BOUNDS, 0));
    assert_eq!((list.length(BOUNDS), list.room(BOUNDS)), (128, 64 * 16));
}

#[test]
fn room_counts_pages_as_folios_have_them() {
    let mut list = InactiveList::default();
    list.note(BOUNDS, 128, 128 * 3, 0);
    assert_eq!(list.room(BOUNDS), 64 * 3);
}

#[test]
fn whatever_happens_it_keeps_its_bounds() {
    let mut list = InactiveList::default();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..100_000 {
        // Members come and go, so their shares change at any moment.
        let live = 1 + next(40);
        let bounds = Bounds { least: 128 / live, most: 192 / live };
        let before = list.length(bounds);
        let (berths, pages, spared) = (next(60), next(900), next(900));
        list.note(bounds, berths, pages, spared);
        let after = list.length(bounds);
        assert!((bounds.least..=bounds.most).contains(&after));
        assert!(after.abs_diff(before) <= (bounds.most / STEP_PART).max(1));
        assert!(list.room(bounds) <= (bounds.most - after) * 900);
    }
}

use super::*;

/// Passes hot pages; returns how many of them are cooled.
fn cooled_of(aging: &mut Aging, hot: u32) -> u32 {
    (0..hot).filter(|_| aging.cools()).count() as u32
}

/// Passes pieces of 16 present pages; `taken` of each piece are taken.
fn pass(aging: &mut Aging, pieces: u32, taken: u64) {
    (0..pieces).for_each(|_| aging.note(16, taken));
}

#[test]
fn before_anything_is_known_all_are_cooled() {
    assert_eq!(cooled_of(&mut Aging::default(), 1000), 1000);
}

#[test]
fn where_cold_pages_are_found_hot_ones_are_cooled_at_their_pace() {
    let mut aging = Aging::default();
    pass(&mut aging, 100, 8);
    aging.begin_round();
    assert_eq!(cooled_of(&mut aging, 1000), 800 / TAKEN_FOR_ONE);
    assert_eq!(cooled_of(&mut aging, 1000), 0, "each is paid for once");
    pass(&mut aging, 100, 1);
    assert_eq!(cooled_of(&mut aging, 1000), 100 / TAKEN_FOR_ONE);
}

#[test]
fn after_a_round_that_finds_next_to_nothing_all_are_cooled_once() {
    let mut aging = Aging::default();
    for taken in [0, 1] {
        pass(&mut aging, 100, 8);
        aging.begin_round();
        cooled_of(&mut aging, 1000);
        // 1600 pages are passed; a 32nd of them is 50.
        pass(&mut aging, 51, 0);
        pass(&mut aging, 49, taken);
        aging.begin_round();
        assert_eq!(cooled_of(&mut aging, 1000), 1000, "{taken}");
    }
    pass(&mut aging, 100, 1);
    aging.begin_round();
    assert!(cooled_of(&mut aging, 1000) < 1000);
}

#[test]
fn what_is_saved_up_is_bounded() {
    let mut aging = Aging::default();
    (0..10).for_each(|_| pass(&mut aging, 4096, 16));
    aging.begin_round();
    assert_eq!(cooled_of(&mut aging, 100_000), CREDIT_MAX / TAKEN_FOR_ONE);
}

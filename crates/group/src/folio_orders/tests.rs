use super::*;

const SOME: FolioOrders = FolioOrders { always: 1 << 4 | 1 << 1, madvise: 1 << 9 | 1 << 6 };

#[test]
fn an_order_is_allowed_by_its_own_word_and_what_the_program_said() {
    for order in 0..=9 {
        let always = matches!(order, 0 | 1 | 4);
        assert_eq!(SOME.allows(order, Advised::Nothing), always, "{order}");
        let advised = always || matches!(order, 6 | 9);
        assert_eq!(SOME.allows(order, Advised::HugePages), advised, "{order}");
        assert_eq!(SOME.allows(order, Advised::NoHugePages), order == 0, "{order}");
        assert!(FolioOrders::ALL.allows(order, Advised::Nothing), "{order}");
        assert_eq!(FolioOrders::NONE.allows(order, Advised::HugePages), order == 0, "{order}");
    }
    assert!(!FolioOrders::ALL.allows(10, Advised::HugePages) && !SOME.allows(40, Advised::HugePages));
}

#[test]
fn the_nearest_is_the_largest_below_or_the_next_above() {
    let only = |order: u32| FolioOrders { always: 1 << order, madvise: 0 };
    for (orders, order, at_most, expected) in [
        (FolioOrders::ALL, 2, 9, 2),
        (FolioOrders::NONE, 4, 9, 0),
        (only(4), 0, 9, 0),
        (only(4), 2, 9, 4),
        (only(4), 9, 9, 4),
        (only(9), 1, 9, 9),
        (FolioOrders { always: 1, madvise: 0 }, 3, 9, 0),
        (FolioOrders::ALL, 8, 4, 4),
        (only(4), 2, 4, 4),
        (only(6), 2, 4, 0),
        (only(6), 8, 4, 0),
        (FolioOrders { always: 1 << 3 | 1 << 9, madvise: 0 }, 1, 4, 3),
    ] {
        let nearest = orders.nearest_allowed(order, at_most, Advised::Nothing);
        assert_eq!(nearest, expected, "{orders:?} {order} up to {at_most}");
    }
}

#[test]
fn the_largest_is_the_highest_that_is_allowed() {
    for advised in [Advised::Nothing, Advised::HugePages, Advised::NoHugePages] {
        for orders in [SOME, FolioOrders::ALL, FolioOrders::NONE, FolioOrders { always: 1, madvise: 2 }] {
            for at_most in 0..=40 {
                let expected = (0..=at_most).rev().find(|&order| orders.allows(order, advised));
                let found = orders.largest_allowed(at_most, advised);
                assert_eq!(Some(found), expected, "{orders:?} up to {at_most}, {advised:?}");
            }
        }
    }
}

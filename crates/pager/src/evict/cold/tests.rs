use super::*;

#[test]
fn neighbours_become_one_and_the_first_of_too_many_is_forgotten() {
    let mut cold = ColdRanges::NONE;
    cold.end_first();
    cold.go_on_from(5);
    assert_eq!(cold.first(), None);
    cold.add(Range { start: 10, end: 20 });
    cold.add(Range { start: 20, end: 30 });
    cold.add(Range { start: 15, end: 25 });
    assert_eq!(cold.first(), Some(Range { start: 10, end: 30 }));
    cold.go_on_from(12);
    for start in 1..RANGES {
        cold.add(Range { start: start * 100, end: start * 100 + 1 });
    }
    assert_eq!(cold.first(), Some(Range { start: 12, end: 30 }));
    cold.add(Range { start: 1, end: 2 });
    assert_eq!(cold.first(), Some(Range { start: 100, end: 101 }));
    for _ in 2..RANGES {
        cold.end_first();
    }
    cold.end_first();
    assert_eq!(cold.first(), Some(Range { start: 1, end: 2 }));
    cold.end_first();
    assert_eq!(cold.first(), None);
}

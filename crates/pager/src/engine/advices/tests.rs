use super::*;
use crate::engine::advices::{Advices, Advised, PLACES, Visit};
use std::boxed::Box;

fn advices() -> Box<Advices> {
    // SAFETY: all-zero is a valid value.
    unsafe { Box::new_zeroed().assume_init() }
}

#[test]
fn an_advice_is_followed_once_and_its_place_is_free_again() {
    let advices = advices();
    assert_eq!(advices.next(PLACES - 1), None);
    let place = advices.leave(PAGE_OUT_NEW, 0x1000, 0x9000).unwrap();
    let advised = advices.next(PLACES - 1).unwrap();
    let first = Advised { place, advice: Advice::PageOut, visit: Visit::First, start: 0x1000, end: 0x9000 };
    assert_eq!(advised, first);
    advices.go_on_from(advised, 0x5000);
    assert_eq!(advices.next(PLACES - 1), Some(Advised { visit: Visit::Later, start: 0x5000, ..first }));
    advices.done(advised);
    assert_eq!(advices.next(PLACES - 1), None);
    // The thread of the cell has not looked: other cells are used first, then this one all the
    // same.
    for _ in 1..PLACES {
        assert_ne!(advices.leave(COLD, 0, 0x1000), Some(place));
    }
    assert_eq!(advices.leave(COLD, 0, 0x1000), Some(place));
    assert_eq!(advices.leave(COLD, 0, 0x1000), None, "all are taken");
    advices.forget();
    assert_eq!(advices.next(PLACES - 1), None);
    assert_eq!(advices.leave(COLD, 0, 0x1000), Some(0));
}

#[test]
fn advices_take_turns() {
    let advices = advices();
    let places = [0, 1, 2].map(|start| advices.leave(COLD, start, start + 1).unwrap());
    let (mut last, mut followed) = (0, std::vec::Vec::new());
    for _ in 0..6 {
        last = advices.next(last).unwrap().place;
        followed.push(last);
    }
    assert_eq!(followed, [1, 2, 0, 1, 2, 0].map(|number| places[number]));
}

#[test]
fn nobody_waits_for_an_engine_that_does_not_run() {
    let engine = crate::test_memory::engine();
    for advice in [Advice::PageOut, Advice::Cold, Advice::WillNeed] {
        engine.advise(advice, 0x1000, 1 << 40);
    }
    assert_eq!(engine.advices.next(PLACES - 1), None);
}

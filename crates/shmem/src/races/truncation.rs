//! Truncation and holes against swap-in.

use super::*;

/// Race 3, truncation against swap-in: pages that are cut off while their folio is read must not
/// come back.
#[test]
fn truncated_pages_do_not_come_back() {
    fn truncated_at<V: Variant>(step: Step, size: u64) {
        let object = object::<V>();
        out(&object, 0, Afterwards::Freed);
        let other = object.clone();
        interrupt(step, move || other.set_size(size).unwrap());
        let outcome = attempt(&object, 2);
        nothing_is_left_to_happen();
        assert!(outcome.is_err() || step == Step::Begun || size > 0, "{step:?} {size}: {outcome:?}");
        object.set_size(PAGES * PAGE as u64).unwrap();
        let mut bytes = vec![1; PAGE * PAGES as usize];
        object.read(0, &mut bytes).unwrap();
        let kept = size as usize;
        let expected: Vec<u8> = (0..PAGES).flat_map(page_of).take(kept).collect();
        assert!(bytes[..kept] == expected, "{step:?} {size}");
        assert!(bytes[kept..].iter().all(|&byte| byte == 0), "{step:?} {size}: no page comes back");
        let space = object.space.clone();
        drop(object);
        nothing_is_left(&space);
    }
    for step in [Step::Begun, Step::Missed, Step::Arrived, Step::BeforeInsertion] {
        for size in [0, 3 * PAGE as u64, 7 * PAGE as u64] {
            truncated_at::<Current>(step, size);
            truncated_at::<Series>(step, size);
        }
    }
}

/// The loss if the insertion did not check the whole range: with only the first entry checked, and
/// not its order, the end of the folio comes back.
#[test]
fn without_the_range_check_truncated_pages_would_come_back() {
    let object = object::<Current>();
    out(&object, 0, Afterwards::Freed);
    let (entry, order) = entry_at(&object, 0);
    object.set_size(7 * PAGE as u64).unwrap();
    let mut map = object.inner.map.lock();
    assert!(
        map.get(0).is_some_and(|found| found.item == Item::Swap(entry)),
        "the first entry alone is right"
    );
    assert!(map.expect_swapped(0, order, entry).is_err(), "the range is not");
    map.store(0, order, None);
}

/// Race 3 without room to bring the page back: pages that were cut off need none, so there is no
/// error.
#[test]
fn no_room_for_a_page_that_is_gone_is_no_error() {
    let object = object::<Current>();
    let space = &object.space;
    object.set_size(PAGE as u64).unwrap();
    out(&object, 0, Afterwards::Freed);
    let mut taken = Vec::new();
    while space.used() <= 2 * space.limit() {
        taken.push(space.frames.take(&space.folios, Order::MAX).unwrap());
    }
    assert_eq!(attempt(&object, 0), Err(Some(ShmemError::NoSpace)), "as long as it is there");
    let other = object.clone();
    interrupt(Step::Missed, move || other.set_size(0).unwrap());
    assert_eq!(attempt(&object, 0), Err(None), "begin again");
    nothing_is_left_to_happen();
    taken.into_iter().for_each(|frame| space.frames.free(&space.folios, frame, Order::MAX));
}

/// A range that a write has already passed may be gone (another writer removed a lost page) when
/// the write makes a folio that reaches back to it.
#[test]
fn a_new_folio_that_reaches_back_behind_the_write_is_zeroed_there() {
    let object = object::<Current>();
    object.set_size(0).unwrap();
    for index in [0, 1] {
        object.write(index * PAGE as u64, &page_of(index)).unwrap();
    }
    out(&object, 1, Afterwards::Freed);
    let other = object.clone();
    interrupt(Step::Begun, move || other.remove_pages(0, 2));
    let bytes = [page_of(2), page_of(3)].concat();
    assert_eq!(object.write(0, &bytes), Ok(2 * PAGE));
    nothing_is_left_to_happen();
    assert_eq!(object.inner.map.get(0).unwrap().order.slots(), 2, "one folio for both");
    let mut found = vec![1; 2 * PAGE];
    object.read(0, &mut found).unwrap();
    assert!(found[..PAGE].iter().all(|&byte| byte == 0), "nothing of what was in its memory before");
    assert!(found[PAGE..] == page_of(3));
}

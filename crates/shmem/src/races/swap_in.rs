//! Swap-in against swap-in, readahead, and a device that is gone.

use super::*;

/// Race 1, A and B of patch 1. A finds no cached folio and cannot get a large one. B swaps the
/// entry in and out again, and the large folio stays cached. A splits the entry, and finds a folio
/// larger than it.
fn large_folio_cached_again<V: Variant>() -> Object<V> {
    let object = object::<V>();
    out(&object, 0, Afterwards::Freed);
    let (entry, order) = entry_at(&object, 0);
    assert_eq!(order.slots() as u64, PAGES);
    LARGE.set(false);
    let other = object.clone();
    interrupt(Step::NoLargeFolio, move || {
        LARGE.set(true);
        out_and_in_and_out(&other, entry, Afterwards::Cached);
    });
    let _ = attempt(&object, 5);
    nothing_is_left_to_happen();
    object
}

#[test]
fn hang_of_patch_1_before_every_later_swap_in_fails() {
    let object = large_folio_cached_again::<Before>();
    assert_eq!(entry_at(&object, 5).1, Order::ZERO, "A split the entry");
    assert!(matches!(
        object.space.swap.space().slots().word(entry_at(&object, 5).0),
        SlotWord::Cached { .. }
    ));
    assert_eq!(attempts(&object, 5), None, "it hangs");
    assert_eq!(attempts(&object, 15), None, "for every page of the folio");
}

#[test]
fn hang_of_patch_1_is_gone_with_it() {
    fn is_gone<V: Variant>() {
        let object = large_folio_cached_again::<V>();
        all_pages_are_right(&object);
    }
    is_gone::<After1>();
    is_gone::<After2>();
    is_gone::<After5>();
    is_gone::<Series>();
    is_gone::<Current>();
}

/// Race 2, split against insertion: a large folio was read for a large entry, and another thread
/// splits the entry before the insertion.
fn entry_split_before_insertion<V: Variant>() -> Object<V> {
    let object = object::<V>();
    out(&object, 0, Afterwards::Freed);
    let other = object.clone();
    interrupt(Step::BeforeInsertion, move || {
        assert!(other.inner.map.lock().split(3, Order::ZERO));
    });
    object
}

#[test]
fn split_against_insertion_the_pieces_are_what_was_expected() {
    let object = entry_split_before_insertion::<Current>();
    assert_eq!(attempt(&object, 3), Ok(()), "whatever their orders, the range holds the entries");
    nothing_is_left_to_happen();
    assert_eq!(object.inner.map.get(9).unwrap().order.slots() as u64, PAGES);
    all_pages_are_right(&object);
}

#[test]
fn split_against_insertion_before_the_large_folio_was_thrown_away() {
    let object = entry_split_before_insertion::<Before>();
    assert_eq!(attempt(&object, 3), Err(None));
    nothing_is_left_to_happen();
    all_pages_are_right(&object);
    assert_eq!(object.space.counters.now().swpin[4], 0, "it came back page by page");
}

/// Race 4, single pages of a large entry in the swap cache, as readahead leaves them.
fn readahead_left<V: Variant>(pages: &[u64]) -> Object<V> {
    let object = object::<V>();
    out(&object, 0, Afterwards::Freed);
    let (entry, _) = entry_at(&object, 0);
    for &page in pages {
        let target = entry.checked_add(page).unwrap();
        let arrived = object.space.read_directly(target, Order::ZERO, crate::space::Urgency::Spare);
        let Ok(crate::swapin::Arrived::New(frame)) = arrived else { panic!("it was not cached") };
        object.space.folios.of(frame).set(flag::READAHEAD);
        object.space.lru.add(&object.space.folios, frame);
        object.space.folios.unlock(frame);
    }
    object
}

#[test]
fn single_pages_in_a_large_entry_do_not_become_each_other() {
    fn right<V: Variant>(left: &[u64], asked: u64) {
        let object = readahead_left::<V>(left);
        assert!(attempts(&object, asked).is_some());
        all_pages_are_right(&object);
    }
    for left in [&[0][..], &[3], &[0, 1, 2], &[15], &[4, 9]] {
        for asked in [0, 3, 5, 15] {
            right::<Before>(left, asked);
            right::<After1>(left, asked);
            right::<After5>(left, asked);
            right::<Series>(left, asked);
            right::<Current>(left, asked);
        }
    }
}

#[test]
fn a_false_hit_on_the_first_page_is_gone_with_patch_7() {
    let (before, now) = (readahead_left::<After5>(&[0]), readahead_left::<Current>(&[0]));
    assert_eq!(attempt(&before, 5), Err(None), "the first page's folio was found, which is not the one");
    assert_eq!(attempt(&now, 5), Ok(()));
    assert_eq!(entry_at(&now, 8).1.index(), 2, "split, because a smaller folio arrived, of pages 4 to 7");
    let series = readahead_left::<Series>(&[0]);
    assert_eq!(attempt(&series, 5), Ok(()));
    assert_eq!(entry_at(&series, 6).1, Order::ZERO, "a single page in the series");
}

#[test]
fn an_entry_is_split_only_where_a_smaller_folio_arrived() {
    fn splits<V: Variant>() -> u64 {
        let object = object::<V>();
        out(&object, 0, Afterwards::Freed);
        LARGE.set(false);
        let other = object.clone();
        // Another thread gets a large folio after all.
        interrupt(Step::NoLargeFolio, move || {
            LARGE.set(true);
            assert_eq!(attempt(&other, 1), Ok(()));
        });
        let _ = attempt(&object, 5);
        nothing_is_left_to_happen();
        all_pages_are_right(&object);
        object.space.counters.now().entry_splits
    }
    assert_eq!((splits::<After5>(), splits::<Current>()), (0, 0));
}

/// The entry of a page on a file stays whole where another's large folio is in the swap cache by
/// the time that the page is read: nothing smaller has arrived.
#[test]
fn a_miss_alone_splits_no_entry() {
    fn missed<V: Variant>() -> Object<V> {
        let object = object_on_file::<V>();
        let (entry, order) = entry_at(&object, 0);
        assert_eq!(u64::from(order.slots()), PAGES);
        let other = object.clone();
        interrupt(Step::Missed, move || {
            let arrived = other.space.read_directly(entry, order, crate::space::Urgency::Large);
            let Ok(crate::swapin::Arrived::New(frame)) = arrived else { panic!("it was not cached") };
            other.space.lru.add(&other.space.folios, frame);
            other.space.folios.unlock(frame);
        });
        let _ = attempt(&object, 5);
        nothing_is_left_to_happen();
        object
    }
    fn splits_none<V: Variant>() {
        let object = missed::<V>();
        assert_eq!(object.space.counters.now().entry_splits, 0);
        all_pages_are_right(&object);
    }
    splits_none::<Series>();
    splits_none::<Current>();
    let before = missed::<Before>();
    assert_eq!(before.space.counters.now().entry_splits, 1, "before patch 1 the miss was enough");
}

/// Race 5, the device is gone. With the entry still there that is an error; with the entry gone
/// too, the swap-in begins again.
#[test]
fn device_gone_with_the_entry_still_there() {
    fn gone<V: Variant>() {
        let object = object::<V>();
        let stale = SwapEntry::new(folioswap_slots::DeviceId::new(9).unwrap(), 16).unwrap();
        let order = Order::new(4).unwrap();
        let frame = object.inner.map.get(0).unwrap().item;
        object.inner.map.lock().store(0, order, Some(Item::Swap(stale)));
        let entry = stale.checked_add(4).unwrap();
        assert_eq!(attempt(&object, 4), Err(Some(ShmemError::DeviceGone { entry })));
        let found = object.inner.map.get(4).unwrap();
        object.inner.map.lock().store(0, order, Some(frame));
        assert!(matches!(object.swap_in(4, found, 1), Err(Failed::Again)));
        all_pages_are_right(&object);
    }
    gone::<Before>();
    gone::<Current>();
}

/// Two threads at two pages of one large entry: the second finds the folio of the first, cached or
/// in the map.
#[test]
fn two_swap_ins_of_one_large_entry() {
    fn two<V: Variant>(step: Step) {
        let object = object::<V>();
        out(&object, 0, Afterwards::Freed);
        let other = object.clone();
        interrupt(step, move || assert_eq!(attempt(&other, 9), Ok(())));
        let _ = attempt(&object, 2);
        nothing_is_left_to_happen();
        all_pages_are_right(&object);
        assert_eq!(object.space.counters.now().pswpin, PAGES, "it was read once");
    }
    for step in [Step::Begun, Step::Missed] {
        two::<Series>(step);
        two::<Current>(step);
    }
}

/// Patch 8: of two readers of one page, the one that starts reading has the major fault. The other
/// one finds the folio in the swap cache, at its lookup or when it is about to read. Returns the
/// major faults of both.
fn major_faults_of_two<V: Variant>(step: Step, page_of_b: u64) -> u64 {
    let object = object::<V>();
    out(&object, 0, Afterwards::Freed);
    let before = object.space.counters.now().pgmajfault;
    let b = object.clone();
    interrupt(step, move || assert_eq!(attempt(&b, page_of_b), Ok(())));
    let _ = attempt(&object, 2);
    nothing_is_left_to_happen();
    let faults = object.space.counters.now().pgmajfault - before;
    all_pages_are_right(&object);
    assert_eq!(object.space.counters.now().pswpin, PAGES, "it was read once");
    faults
}

#[test]
fn a_swap_cache_hit_is_no_major_fault() {
    assert_eq!(major_faults_of_two::<Current>(Step::Begun, 9), 1);
}

#[test]
fn a_miss_that_finds_the_folio_in_the_cache_after_all_is_no_major_fault() {
    assert_eq!(major_faults_of_two::<Current>(Step::Missed, 9), 1);
    assert_eq!(major_faults_of_two::<Before>(Step::Missed, 9), 2, "before the patch each miss counted");
}

/// Some pages of a large entry are on the file, the others in the store. One read cannot have them
/// all, so the large swap-in is refused before it begins; `swpin` then counts what came back. Each
/// case has the pages on the file, the page asked for, and the order of the largest range around it
/// with one place.
fn mixed_places<V: Variant>(expected: impl Fn(u32) -> u32) {
    for (on_file, asked, uniform) in
        [(0..8, 12, 3), (8..16, 3, 3), (15..16, 0, 3), (0..1, 15, 3), (4..5, 6, 1)]
    {
        let object = object_with::<V>(with_file());
        out(&object, 0, Afterwards::Freed);
        let (first, order) = entry_at(&object, 0);
        assert_eq!(u64::from(order.slots()), PAGES);
        demote(&object, on_file.clone());
        let swap = object.space.swap.space();
        let places = (0..PAGES).map(|page| swap.file_slot(first.checked_add(page).unwrap()).is_some());
        assert!(places.enumerate().all(|(page, is_on_file)| is_on_file == on_file.contains(&(page as u64))));
        assert_eq!(attempt(&object, asked), Ok(()));
        let counts = object.space.counters.now();
        let came = expected(uniform);
        assert_eq!((counts.pswpin, counts.swpin[4]), (1 << came, 0), "{on_file:?}, {asked}: not the folio");
        assert_eq!((counts.swpin[came as usize], counts.swpin_fallback[4]), (1, 1), "{on_file:?}, {asked}");
        all_pages_are_right(&object);
    }
}

#[test]
fn a_range_with_mixed_places_comes_back_page_by_page_in_the_series() {
    mixed_places::<Series>(|_| 0);
}

#[test]
fn of_a_range_with_mixed_places_the_largest_part_with_one_place_comes_back_today() {
    mixed_places::<Current>(|uniform| uniform);
}

#[test]
fn where_a_folio_cannot_be_had_each_smaller_order_is_tried() {
    for largest in 0..4 {
        let object = object::<Current>();
        out(&object, 0, Afterwards::Freed);
        LARGEST.set(largest);
        assert_eq!(attempt(&object, 6), Ok(()));
        let counts = object.space.counters.now();
        assert_eq!((counts.swpin[largest], counts.pswpin), (1, 1 << largest), "{counts:?}");
        let fallbacks: Vec<_> = counts.swpin_fallback[..5].to_vec();
        let expected: Vec<_> = (0..5).map(|order| u64::from(order > largest)).collect();
        assert_eq!(fallbacks, expected, "every order above it was tried once");
        // What is left of the large entry comes back in folios of the same size.
        assert_eq!(entry_at(&object, 8).1.index(), largest);
        all_pages_are_right(&object);
        assert_eq!(object.space.counters.now().swpin[largest], PAGES >> largest);
    }
}

//! The swap cache and swap counts: race codes (spec §6, phase IV), overflow, batches (spec §0,
//! §3.2).

mod common;
use common::*;
use folioswap_slots::*;
use std::cell::RefCell;

#[test]
fn cache_insert_codes() {
    let swap = engine(8);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 3, 1);
    let at = |step| entry.checked_add(step).unwrap();
    swap.set_zero_mark(at(6), 1, FolioId(1), ZeroMark::AllZero).unwrap();
    let shadow = Shadow::new(0x1234).unwrap();
    swap.cache_remove(entry, 8, FolioId(1), shadow, |_, _| {}).unwrap();
    assert_eq!(swap.word(at(6)), SlotWord::Shadow { shadow, count: 1, zero: true });
    assert_eq!(swap.cache_insert(entry, order(3), FolioId(2)), Err(InsertError::Busy), "unequal zero state");
    let inserted = swap.cache_insert(at(2), order(2), FolioId(2)).unwrap();
    assert_eq!(inserted, Inserted { first: entry, shadow, zero: ZeroMark::Stored });
    swap.put(at(7), 1, |_, _| {}).unwrap();
    assert_eq!(swap.cache_insert(at(7), Order::ZERO, FolioId(3)), Err(InsertError::NoEntry));
    assert_eq!(
        swap.cache_insert(at(6), order(1), FolioId(3)),
        Err(InsertError::Busy),
        "a slot of the range is free"
    );
    assert_eq!(swap.cache_remove(entry, 8, FolioId(2), shadow, |_, _| {}), Err(CacheError::NotCached(at(4))));
    swap.cache_replace(at(2), 2, FolioId(2), FolioId(20)).unwrap();
    assert_eq!(swap.word(at(3)), SlotWord::Cached { folio: FolioId(20), count: 1, zero: false });
    let header = SwapEntry::new(entry.device(), 1).unwrap();
    assert_eq!(
        swap.cache_insert(header, order(1), FolioId(3)),
        Err(InsertError::Entry(EntryError::OutOfRange))
    );
    swap.validate().unwrap();
}

#[test]
fn count_overflow_and_back() {
    let swap = engine(3);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 2, 1);
    assert_eq!(swap.frames_free(), 1);
    for count in 2..=1000 {
        swap.dup(entry, 3).unwrap();
        assert_eq!(swap.swap_count(entry), Some(count));
    }
    assert_eq!(swap.frames_free(), 0, "the overflow array");
    uncache(&swap, entry, 2, 1);
    swap.validate().unwrap();
    for count in (1..1000).rev() {
        swap.put(entry, 3, |_, _| panic!("not the last count")).unwrap();
        assert_eq!(swap.swap_count(entry), Some(count));
        if count == 14 {
            assert_eq!(swap.frames_free(), 1, "no slot above 14: the array is given back");
        }
    }
    swap.validate().unwrap();
    assert_eq!(swap.put(entry, 4, |_, _| {}).unwrap().freed, 4);
    swap.validate().unwrap();
}

#[test]
fn duplicate_is_all_or_nothing() {
    let swap = engine(2);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 2, 1);
    let at = |step| entry.checked_add(step).unwrap();
    uncache(&swap, entry, 2, 1);
    let counts = || (0..4).map(|step| swap.swap_count(at(step))).collect::<Vec<_>>();
    // The overflow array gets no frame: slot 2 is at 14.
    for _ in 0..13 {
        swap.dup(at(2), 1).unwrap();
    }
    let before = counts();
    assert_eq!(swap.dup(entry, 4), Err(DupError::NoFrame));
    assert_eq!(counts(), before);
    // The range has a free slot.
    swap.put(at(3), 1, |_, _| {}).unwrap();
    let before = counts();
    assert_eq!(swap.dup(at(0), 2), Ok(()));
    assert_eq!(swap.put(at(0), 2, |_, _| {}).unwrap(), Put::default());
    assert_eq!(swap.dup(at(3), 1), Err(DupError::NoEntry(at(3))));
    assert_eq!(counts(), before);
    // The range has a bad slot.
    let id = plain(&engine(4), 1024);
    assert_eq!(id, entry.device());
    let second = swap.swapon(DeviceSpec { bad: &[2], ..DeviceSpec::new(512) });
    assert_eq!(second, Err(SwaponError::NoFrame));
    swap.validate().unwrap();
}

#[test]
fn duplicate_across_a_cluster_border_rolls_back() {
    let swap = engine(8);
    plain(&swap, 4096);
    let first = take(&swap, CPU0, 9, 1);
    let second = take(&swap, CPU0, 9, 2);
    assert_eq!(second.offset(), first.offset() + 512);
    uncache(&swap, second, 9, 2);
    let tail = first.checked_add(510).unwrap();
    swap.dup(tail, 4).unwrap();
    let gap = second.checked_add(2).unwrap();
    swap.put(gap, 1, |_, _| {}).unwrap();
    assert_eq!(swap.dup(tail, 5), Err(DupError::NoEntry(gap)));
    assert_eq!(swap.swap_count(tail), Some(2));
    assert_eq!(swap.swap_count(second), Some(2));
    swap.validate().unwrap();
}

#[test]
fn batch_free_cuts_at_cluster_borders_and_calls_once_per_slot() {
    let swap = engine(8);
    let id = plain(&swap, 4096);
    let first = take(&swap, CPU0, 9, 1);
    take(&swap, CPU0, 9, 2);
    uncache(&swap, first, 9, 1);
    uncache(&swap, first.checked_add(512).unwrap(), 9, 2);
    let mut seen = Vec::new();
    let put = swap.put(first, 1024, |entry, _| seen.push(entry.offset())).unwrap();
    assert_eq!(put.freed, 1024);
    assert_eq!(seen, (first.offset()..first.offset() + 1024).collect::<Vec<_>>());
    assert_eq!(lists(&swap, id).free, 2);
    swap.validate().unwrap();
}

#[test]
fn free_swap_and_cache_jumps_to_the_next_folio_border() {
    struct Folios<'a>(&'a Slots<PAYLOAD>, RefCell<Vec<u64>>);
    impl Hooks for Folios<'_> {
        fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
            self.1.borrow_mut().push(entry.offset());
            if folio == FolioId(2) {
                return Reclaimed::Kept(8);
            }
            self.0.cache_remove(entry, 8, folio, Shadow::EMPTY, |_, _| {}).unwrap();
            Reclaimed::Freed(8)
        }
    }
    let swap = engine(8);
    plain(&swap, 4096);
    let first = take(&swap, CPU0, 3, 1);
    take(&swap, CPU0, 3, 2);
    take(&swap, CPU0, 3, 3);
    let hooks = Folios(&swap, RefCell::default());
    let put = swap.free_swap_and_cache(first, 24, &hooks, |_, _| {}).unwrap();
    assert_eq!(put.only_cached, 24);
    assert_eq!(*hooks.1.borrow(), [first.offset(), first.offset() + 8, first.offset() + 16]);
    assert_eq!(swap.is_swapped(first.checked_add(8).unwrap(), 8), Ok(false));
    assert_eq!(swap.validate().unwrap().only_cached, 8);
}

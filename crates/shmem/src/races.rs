//! The race catalogue (docs/design.md, section 8), one by one: a swap-in is stopped at a step ([`Step`]), somebody else does something just
//! there, and it goes on. Each is shown with the variant from before, which fails in the way that is told, and with what is there today.
//!
//! No scheduler is needed: at each step the swap-in holds no lock that the other one wants.

use crate::before::{After1, After2, After5, Before, Series};
use crate::error::ShmemError;
use crate::folio::flag;
use crate::frames::PAGE;
use crate::object::{Hold, ObjectOf};
use crate::options::{HugePolicy, Options};
use crate::space::{Background, ShmemSpace};
use crate::swapin::Failed;
use crate::swapout::Afterwards;
use crate::variant::{
    Current, EntrySplit, Fallback, Insertion, LargerCached, Lookup, MajorFault, OrderWalk, Step, StoredCopy,
    UnderLock, Variant,
};
use crate::word::Item;
use folioswap_slots::{Order, SlotWord, SwapEntry};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

/// A variant that can be interrupted, and denied large folios.
struct Interrupted<V>(PhantomData<V>);

type Other = Box<dyn FnOnce()>;

thread_local! {
    static AT: RefCell<Option<(Step, Other)>> = const { RefCell::new(None) };
    static LARGE: Cell<bool> = const { Cell::new(true) };
}

impl<V: Variant> Variant for Interrupted<V> {
    const LARGER_CACHED: LargerCached = V::LARGER_CACHED;
    const INSERTION: Insertion = V::INSERTION;
    const ENTRY_SPLIT: EntrySplit = V::ENTRY_SPLIT;
    const ORDER_WALK: OrderWalk = V::ORDER_WALK;
    const FALLBACK: Fallback = V::FALLBACK;
    const LOOKUP: Lookup = V::LOOKUP;
    const MAJOR_FAULT: MajorFault = V::MAJOR_FAULT;
    const UNDER_LOCK: UnderLock = V::UNDER_LOCK;
    const STORED_COPY: StoredCopy = V::STORED_COPY;

    fn at(step: Step) {
        let due = AT.with_borrow_mut(|at| at.take_if(|(when, _)| *when == step));
        if let Some((_, other)) = due {
            other();
        }
    }

    fn may_allocate_large() -> bool {
        LARGE.get()
    }
}

/// At `step` of the next swap-in, `other` happens.
fn interrupt(step: Step, other: impl FnOnce() + 'static) {
    AT.set(Some((step, Box::new(other))));
}

fn nothing_is_left_to_happen() {
    assert!(AT.with_borrow(|at| at.is_none()), "the swap-in never came to the step");
}

type Object<V> = Arc<ObjectOf<Interrupted<V>>>;

const PAGES: u64 = 16;

/// An object whose first 16 pages were one folio; page i is filled with i + 1.
fn object<V: Variant>() -> Object<V> {
    let space = ShmemSpace::with(Options::within(32 << 20), Background::Nobody).unwrap();
    let object = ObjectOf::new(&space, HugePolicy::Always);
    let bytes: Vec<u8> = (0..PAGES).flat_map(page_of).collect();
    object.write(0, &bytes).unwrap();
    LARGE.set(true);
    Arc::new(object)
}

/// What compresses, but is not one word repeated.
fn page_of(page: u64) -> Vec<u8> {
    (0..PAGE).map(|at| if at % 64 == 0 { (at / 64) as u8 } else { page as u8 + 1 }).collect()
}

/// Swaps the folio of a page out, whatever its order.
fn out<V: Variant>(object: &Object<V>, index: u64, afterwards: Afterwards) {
    let space = &object.space;
    let held = object.existing(index, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap();
    space.give_copy_up(held.frame);
    let (first, order) = (held.index, held.order);
    let frame = held.into_frame();
    space.lru.remove(&space.folios, frame);
    assert!(space.swap_out_whole(&object.inner, frame, first, order, afterwards).is_ok());
}

fn entry_at<V: Variant>(object: &Object<V>, index: u64) -> (SwapEntry, Order) {
    match object.inner.map.get(index).unwrap() {
        crate::word::Found { item: Item::Swap(entry), order } => (entry, order),
        found => panic!("{found:?}"),
    }
}

/// Swaps the folio out again until it has the same entry as before (the slots of an empty cluster are handed out from its start).
fn out_and_in_and_out<V: Variant>(object: &Object<V>, entry: SwapEntry, afterwards: Afterwards) {
    for _ in 0..200 {
        drop(object.existing(0, Hold::Shared, 1).unwrap());
        out(object, 0, Afterwards::Freed);
        if entry_at(object, 0).0 == entry {
            drop(object.existing(0, Hold::Shared, 1).unwrap());
            for _ in 0..200 {
                out(object, 0, afterwards);
                if entry_at(object, 0).0 == entry {
                    return;
                }
                drop(object.existing(0, Hold::Shared, 1).unwrap());
            }
        }
    }
    panic!("the entry was not handed out again");
}

/// One attempt at a page.
fn attempt<V: Variant>(object: &Object<V>, index: u64) -> Result<(), Option<ShmemError>> {
    let found = object.inner.map.get(index).unwrap();
    match object.swap_in(index, found, 1) {
        Ok(held) => {
            let (from, to) = (index * PAGE as u64, (index + 1) * PAGE as u64);
            assert!(held.bytes(from, to) == page_of(index));
            Ok(())
        }
        Err(Failed::Again) => Err(None),
        Err(Failed::Error(error)) => Err(Some(error)),
    }
}

/// Attempts until it works; `None` after so many that it is a hang.
fn attempts<V: Variant>(object: &Object<V>, index: u64) -> Option<u32> {
    (1..1000).find(|_| attempt(object, index).is_ok())
}

fn all_pages_are_right<V: Variant>(object: &Object<V>) {
    let mut bytes = vec![0; (PAGES * PAGE as u64) as usize];
    assert_eq!(object.read(0, &mut bytes), Ok(bytes.len()));
    for (page, found) in bytes.chunks(PAGE).enumerate() {
        assert!(found == page_of(page as u64), "page {page}");
    }
    object.space.validate().unwrap();
}

/// Race 1, A and B of patch 1. A finds no cached folio and cannot get a large one; B swaps the entry in and out again, and the large folio
/// stays cached; A splits the entry, and finds a folio larger than it.
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

/// Race 2, split against insertion: a large folio was read for a large entry; before it is inserted somebody splits the entry.
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

/// Race 3, truncation against swap-in: what is cut off while its folio is read must not come back.
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
        while let crate::lru::Coldest::Folio(frame) = space.lru.coldest(&space.folios, 64) {
            space.swap_out(frame);
        }
        assert_eq!(space.swap.space().slots().device_info(space.swap.space().device()).unwrap().inuse, 0);
        space.validate().unwrap();
    }
    for step in [Step::Begun, Step::Missed, Step::Arrived, Step::BeforeInsertion] {
        for size in [0, 3 * PAGE as u64, 7 * PAGE as u64] {
            truncated_at::<Current>(step, size);
            truncated_at::<Series>(step, size);
        }
    }
}

/// What truncation would lose if the insertion did not look at the whole range: with the first entry alone looked at, and not its order,
/// the end of the folio comes back.
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
    assert_eq!(entry_at(&now, 6).1, Order::ZERO, "split, because a smaller folio arrived");
}

#[test]
fn an_entry_is_split_only_where_a_smaller_folio_arrived() {
    fn splits<V: Variant>() -> u64 {
        let object = object::<V>();
        out(&object, 0, Afterwards::Freed);
        LARGE.set(false);
        let other = object.clone();
        // Somebody else gets a large folio after all.
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

/// Race 5, the device is gone with the entry still there: that is an error. Gone, and so is the entry: begin again.
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

#[test]
fn the_object_is_on_the_swap_list_before_slots_are_taken_and_off_it_on_failure() {
    let space = ShmemSpace::with(Options::within(32 << 20), Background::Nobody).unwrap();
    let object = Arc::new(ObjectOf::<Interrupted<Current>>::new(&space, HugePolicy::Always));
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..PAGES as usize * PAGE).map(|_| random()).collect();
    object.write(0, &noise).unwrap();
    let folio = object.existing(0, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap().into_frame();
    space.lru.remove(&space.folios, folio);
    // Nothing takes what does not compress: the folio is tried whole, then page by page, and stays.
    assert_eq!(space.swap_out(folio), 0);
    assert!(!space.swap_list.has(&object.inner));
    let counts = space.counters.now();
    assert_eq!((counts.swpout_fallback[4], counts.swpout, counts.pswpout), (1, [0; 10], 0));
    let mut found = vec![0; noise.len()];
    object.read(0, &mut found).unwrap();
    assert!(found == noise);
    object.write(0, &page_of(0)).unwrap();
    out(&object, 0, Afterwards::Freed);
    assert!(space.swap_list.has(&object.inner));
    drop(object.existing(0, Hold::Shared, 1).unwrap());
    let inner = object.inner.clone();
    drop(object);
    assert!(!space.swap_list.has(&inner));
    space.validate().unwrap();
}

#[test]
fn what_is_damaged_on_the_file_is_named_and_nothing_else_is_lost() {
    use std::os::unix::fs::FileExt;
    let file = crate::options::SwapFile { directory: "/var/tmp".into(), max: Some(64 << 20) };
    let options = Options { swap_file: Some(file), ..Options::within(32 << 20) };
    let space = ShmemSpace::with(options, Background::Nobody).unwrap();
    let object = Arc::new(ObjectOf::<Interrupted<Current>>::new(&space, HugePolicy::Always));
    let bytes: Vec<u8> = (0..PAGES).flat_map(page_of).collect();
    object.write(0, &bytes).unwrap();
    out(&object, 0, Afterwards::Freed);
    assert_eq!(space.demote(), PAGES);
    let (first, _) = entry_at(&object, 0);
    let bad = space.swap.space().file_slot(first.checked_add(6).unwrap()).unwrap();
    space.swap.file().unwrap().write_all_at(&[0; PAGE], bad.offset_bytes()).unwrap_or_else(|_| {
        // Direct I/O wants an aligned buffer.
        let page = crate::mapping::Mapping::new(PAGE, PAGE).unwrap();
        // SAFETY: a zeroed page of our own.
        let zeroes = unsafe { std::slice::from_raw_parts(page.start().as_ptr(), PAGE) };
        space.swap.file().unwrap().write_all_at(zeroes, bad.offset_bytes()).unwrap();
    });
    let mut page = vec![0; PAGE];
    for index in 0..PAGES {
        let outcome = object.read(index * PAGE as u64, &mut page);
        if index == 6 {
            assert_eq!(outcome, Err(ShmemError::Io { index: 6 }));
        } else {
            assert_eq!(outcome, Ok(PAGE));
            assert!(page == page_of(index), "page {index}");
        }
    }
    assert_eq!(object.read(6 * PAGE as u64, &mut page), Err(ShmemError::Io { index: 6 }), "it stays so");
    assert_eq!(object.write(6 * PAGE as u64 + 1, &[1]), Err(ShmemError::Io { index: 6 }));
    assert_eq!(object.write(6 * PAGE as u64, &page_of(6)), Ok(PAGE), "until it is overwritten as a whole");
    all_pages_are_right(&object);
    let counts = space.counters.now();
    assert_eq!(counts.poisoned, 1);
    assert!(counts.swap_ra > 0 && counts.swap_ra_hit > 0, "{counts:?}");
}

/// Without memory for a run of pages, each page is read alone: nothing is lost for that.
#[test]
fn without_memory_to_read_a_run_the_pages_come_back_one_by_one() {
    let file = crate::options::SwapFile { directory: "/var/tmp".into(), max: Some(64 << 20) };
    let options = Options { swap_file: Some(file), ..Options::within(32 << 20) };
    let space = ShmemSpace::with(options, Background::Nobody).unwrap();
    let object = Arc::new(ObjectOf::<Interrupted<Current>>::new(&space, HugePolicy::Always));
    let bytes: Vec<u8> = (0..PAGES).flat_map(page_of).collect();
    object.write(0, &bytes).unwrap();
    out(&object, 0, Afterwards::Freed);
    assert_eq!(space.demote(), PAGES);
    crate::swap::NO_MEMORY_FOR_RUNS.set(true);
    all_pages_are_right(&object);
    crate::swap::NO_MEMORY_FOR_RUNS.set(false);
    let counts = space.counters.now();
    assert!(counts.poisoned == 0 && counts.swap_ra > 0, "{counts:?}");
}

/// Race 3 where there is no room to bring the page back: what was cut off needs none, so that is no error.
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

/// Race 8, write-back fails, and meanwhile a part of the range was cut off: what is left takes its place again, page by page.
#[test]
fn write_back_fails_while_a_part_is_truncated() {
    for kept in [0, 1, 5, 15, 16] {
        let object = object::<Current>();
        let space = &object.space;
        let held = object.existing(0, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap();
        let order = held.order;
        let frame = held.into_frame();
        space.lru.remove(&space.folios, frame);
        // As swap-out begins.
        space.swap_list.add(&object.inner, PAGES);
        let entry = space.take_slots(order, frame).unwrap();
        space.folios.of(frame).set_entry(Some(entry));
        object.inner.map.lock().store(0, order, Some(Item::Swap(entry)));
        if kept < PAGES {
            object.set_size(kept * PAGE as u64).unwrap();
        }
        match space.put_back(&object.inner, frame, 0, order, entry) {
            Ok(()) => assert!(kept < PAGES),
            Err(_) => {
                assert_eq!(kept, PAGES, "the folio is whole, and still held");
                space.lru.add(&space.folios, frame);
                space.folios.unlock(frame);
            }
        }
        let mut bytes = vec![0; (kept * PAGE as u64) as usize];
        assert_eq!(object.read(0, &mut bytes), Ok(bytes.len()));
        assert!(bytes == (0..kept).flat_map(page_of).collect::<Vec<_>>());
        assert_eq!((object.pages(), space.frames.used_pages()), (kept, kept));
        // Truncation leaves it there until somebody looks, as in the kernel.
        assert!(kept == 0 || !space.swap_list.has(&object.inner), "nothing of it is in swap space");
        let swap = space.swap.space();
        assert_eq!(swap.slots().device_info(swap.device()).unwrap().inuse, 0);
        space.validate().unwrap();
    }
}

/// Race 8 with the object dropped: nothing but the swap-out keeps its map until write-back has failed.
#[test]
fn write_back_fails_while_the_object_is_dropped() {
    let object = object::<Current>();
    let space = object.space.clone();
    let held = object.existing(0, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap();
    let order = held.order;
    let frame = held.into_frame();
    space.lru.remove(&space.folios, frame);
    // As swap-out begins.
    let owner = space.owner(frame).unwrap();
    let weak = Arc::downgrade(&owner);
    space.swap_list.add(&owner, PAGES);
    let entry = space.take_slots(order, frame).unwrap();
    space.folios.of(frame).set_entry(Some(entry));
    owner.map.lock().store(0, order, Some(Item::Swap(entry)));
    drop(object);
    assert_eq!(weak.strong_count(), 1, "the swap-out alone has it");
    assert!(space.put_back(&owner, frame, 0, order, entry).is_ok(), "no page is wanted any more");
    assert!(!space.swap_list.has(&owner));
    drop(owner);
    assert!(weak.upgrade().is_none());
    assert_eq!((space.frames.used_pages(), space.lru.folios()), (0, 0));
    let swap = space.swap.space();
    assert_eq!(swap.slots().device_info(swap.device()).unwrap().inuse, 0);
    space.validate().unwrap();
}

/// What a write has already passed may be gone (a lost page was removed by another writer) when it makes a folio that reaches back to it.
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

/// Race 13, a clean copy must go before the folio changes, and stays as long as it does not.
#[test]
fn what_is_clean_leaves_without_being_written_and_what_was_written_to_does_not() {
    let object = object::<Current>();
    out(&object, 0, Afterwards::Freed);
    let written = || object.space.counters.now().pswpout;
    let leave = || {
        let crate::lru::Coldest::Folio(frame) = object.space.lru.coldest(&object.space.folios, 64) else {
            panic!("no folio can leave");
        };
        object.space.swap_out(frame);
    };
    let (entry, _) = entry_at(&object, 0);
    assert_eq!(written(), PAGES);
    for _ in 0..3 {
        assert_eq!(attempt(&object, 7), Ok(()));
        leave();
        assert_eq!((written(), entry_at(&object, 0).0), (PAGES, entry), "the same entry, not written again");
    }
    all_pages_are_right(&object);
    object.write(3 * PAGE as u64 + 9, b"new").unwrap();
    leave();
    assert_eq!(written(), 2 * PAGES);
    let mut bytes = [0; 3];
    object.read(3 * PAGE as u64 + 9, &mut bytes).unwrap();
    assert_eq!(&bytes, b"new");
    // Clean again, then cut: the copy goes with what is cut off.
    object.set_size(5 * PAGE as u64).unwrap();
    object.set_size(0).unwrap();
    let space = object.space.swap.space();
    assert_eq!(space.slots().device_info(space.device()).unwrap().inuse, 0);
    object.space.validate().unwrap();
}

/// Two threads at two pages of one large entry: the second finds the folio of the first, cached or in the map.
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

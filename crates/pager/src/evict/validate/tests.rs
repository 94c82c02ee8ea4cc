use super::*;
use crate::test_memory::store_page;
use crate::units::{BlockAddr, PAGE};
use folioswap_policy::page::{Heat, PageWord};
use folioswap_policy::reclaim::workingset::shadow_of;
use folioswap_slots::{DeviceId, DeviceMask, FolioId, Order};
use std::boxed::Box;

const PAGE_ADDRESS: usize = 0x7000_0020_3000;

/// An engine with one stored page, as the evictor and the write-back leave it.
fn with_one_page_out() -> (&'static Engine, SwapEntry) {
    let engine = Engine::create(b"test", b"").expect("an engine");
    let mut page = Box::new([0u8; PAGE]);
    page.iter_mut().enumerate().for_each(|(index, byte)| *byte = ((index * index) >> 4) as u8);
    let entry = store_page(engine, PAGE_ADDRESS, &page);
    engine.note_gone(1);
    (engine, entry)
}

fn set(engine: &Engine, word: PageWord) {
    let block = engine.table.block(BlockAddr::containing(PAGE_ADDRESS)).expect("the page's block");
    block.set(PageAddr::containing(PAGE_ADDRESS).index(), word);
}

#[test]
fn a_page_that_is_out_is_found_whole() {
    let engine = Engine::create(b"test", b"").expect("an engine");
    assert_eq!(engine.validate(), Ok(0));
    assert_eq!(with_one_page_out().0.validate(), Ok(1));
}

#[test]
fn a_slot_that_no_word_names_is_found() {
    let (engine, _) = with_one_page_out();
    set(engine, PageWord::PRESENT);
    engine.note_returned(1);
    assert_eq!(engine.validate(), Err((Invariant::Unreachable, 1)));
}

#[test]
fn a_generation_that_counts_too_much_is_found() {
    let (engine, _) = with_one_page_out();
    engine.space.ages().stored();
    assert_eq!(engine.validate(), Err((Invariant::Ages, 2)));
}

#[test]
fn a_word_that_names_a_free_slot_is_found() {
    let (engine, entry) = with_one_page_out();
    engine.space.put(entry, 1);
    assert_eq!(engine.validate(), Err((Invariant::WordWithoutSlot, PAGE_ADDRESS as u64)));
}

#[test]
fn a_slot_that_is_held_twice_is_found() {
    let (engine, entry) = with_one_page_out();
    engine.space.duplicate(entry, 1).expect("a count");
    assert_eq!(engine.validate(), Err((Invariant::WordWithoutSlot, PAGE_ADDRESS as u64)));
}

#[test]
fn a_shadow_from_the_future_is_found() {
    let (engine, entry) = with_one_page_out();
    assert!(engine.space.enter_cache(entry, FolioId(0)));
    engine.workingset.evicted(4);
    engine.space.leave_cache(entry, 1, shadow_of(5));
    assert_eq!(engine.validate(), Err((Invariant::Shadow, PAGE_ADDRESS as u64)));
    engine.workingset.evicted(1);
    assert_eq!(engine.validate(), Ok(1));
}

#[test]
fn a_page_half_way_or_in_staging_without_a_place_is_found() {
    let (engine, entry) = with_one_page_out();
    let isolated = PageWord::PRESENT.isolate(entry).expect("a transition");
    set(engine, isolated);
    assert_eq!(engine.validate(), Err((Invariant::HalfWay, PAGE_ADDRESS as u64)));
    set(engine, isolated.moved().expect("a transition"));
    assert_eq!(engine.validate(), Err((Invariant::WordWithoutSlot, PAGE_ADDRESS as u64)));
}

#[test]
fn a_page_that_is_stored_nowhere_is_found() {
    let (engine, _) = with_one_page_out();
    let entry = engine.space.allocate(Order::ZERO, FolioId(0)).expect("a slot");
    engine.space.leave_cache(entry, 1, engine.workingset.shadow());
    let leaving = PageWord::PRESENT.isolate(entry).and_then(PageWord::moved).expect("a transition");
    set(engine, leaving.written().expect("a transition"));
    assert_eq!(engine.validate(), Err((Invariant::Nowhere, PAGE_ADDRESS as u64)));
}

#[test]
fn a_wrong_count_of_pages_out_is_found() {
    let (engine, _) = with_one_page_out();
    engine.note_gone(1);
    assert_eq!(engine.validate(), Err((Invariant::PagesOut, 2)));
}

#[test]
fn a_clean_copy_is_counted_apart() {
    let (engine, entry) = with_one_page_out();
    let block = engine.table.block(BlockAddr::containing(PAGE_ADDRESS)).expect("the page's block");
    let stored = block.word(PageAddr::containing(PAGE_ADDRESS).index());
    let clean = stored.claim().and_then(|word| word.returned_clean(Heat::Cold)).expect("a transition");
    set(engine, clean);
    engine.note_returned(1);
    assert_eq!(engine.validate(), Err((Invariant::CleanPages, 0)));
    engine.counts.clean_pages.fetch_add(1, Relaxed);
    assert_eq!(engine.validate(), Ok(1));
    engine.space.put(entry, 1);
    assert_eq!(engine.validate(), Err((Invariant::WordWithoutSlot, PAGE_ADDRESS as u64)));
}

#[test]
fn what_the_file_holds_for_nobody_is_found() {
    let (engine, _) = with_one_page_out();
    let device = DeviceId::new(1).expect("a number");
    assert_eq!(engine.space.file_space().add([(3, device)].into_iter()), 1);
    let slot = engine.space.file_space().allocate(1, DeviceMask::only(device));
    assert!(slot.is_some());
    assert_eq!(engine.validate(), Err((Invariant::FileContents, 1)));
}

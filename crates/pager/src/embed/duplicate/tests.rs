use super::*;
use crate::test_memory::{clean_piece, map, store_page, watching_engine, word_at};
use crate::units::{BlockAddr, PIECE};
use folioswap_devices::zstd::Decoder;
use folioswap_policy::page::Heat;
use folioswap_slots::SlotWord;
use folioswap_space::space::Movers;
use std::vec::Vec;

/// Maps and registers an aligned piece (64 KiB) of the program.
fn piece(engine: &Engine) -> usize {
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    engine.register_pieces(start, start + PIECE);
    start
}

fn word(engine: &Engine, address: usize) -> PageWord {
    engine
        .table
        .block(BlockAddr::containing(address))
        .map_or(PageWord::PRESENT, |block| block.word(PageAddr::containing(address).index()))
}

fn set(engine: &Engine, address: usize, word: PageWord) {
    engine
        .table
        .block_or_insert(BlockAddr::containing(address), engine.arena)
        .unwrap()
        .set(PageAddr::containing(address).index(), word);
}

fn holders(engine: &Engine, entry: SwapEntry) -> u64 {
    match engine.space.slots().word(entry) {
        SlotWord::Shadow { count, .. } | SlotWord::Cached { count, .. } => count,
        _ => 0,
    }
}

#[test]
fn what_is_stored_is_held_once_more_and_what_is_in_memory_is_copied() {
    let Some(engine) = watching_engine() else { return };
    let (source, target) = (piece(engine), piece(engine));
    // Page 0 is stored, 1 in memory, 2 was never touched, 3 was given up, 4 is stored and present
    // all the same: the present page counts.
    let stored: Vec<_> =
        [0, 4, 5, 6].map(|page| store_page(engine, source + page * PAGE, &[page as u8 + 1; PAGE])).into();
    for page in [1, 4] {
        let bytes = [0x50 + page as u8; PAGE];
        // SAFETY: the page is missing.
        unsafe { engine.userfault().copy(source + page * PAGE, bytes.as_ptr(), PAGE) }.unwrap();
    }
    set(engine, source + 3 * PAGE, PageWord::PRESENT.remove(7).unwrap());
    // Another page was at the target before.
    set(engine, target + 5 * PAGE, PageWord::PRESENT.remove(9).unwrap());
    engine.note_gone(4);
    assert_eq!(engine.duplicate_step(source, target, PIECE), (PIECE, Ok(())));
    for (page, &entry) in [0, 5, 6].iter().zip([&stored[0], &stored[2], &stored[3]]) {
        assert_eq!(word(engine, target + page * PAGE).state(), PageState::Stored(entry), "{page}");
        assert_eq!(word(engine, source + page * PAGE).state(), PageState::Stored(entry), "{page}");
        assert_eq!(holders(engine, entry), 2, "{page}");
    }
    assert_eq!(holders(engine, stored[1]), 1);
    assert_eq!((word_at(target + PAGE) as u8, word_at(target + 4 * PAGE) as u8), (0x51, 0x54));
    assert_eq!(
        engine.pages_now(PageAddr::containing(target), PIECE_PAGES).present,
        0b1_0010,
        "nothing else came"
    );
    // The duplicate is unmapped, then its source.
    engine.unmap_pages(target, target + PIECE);
    assert_eq!(holders(engine, stored[0]), 1);
    let mut found = [0; PAGE];
    engine.space.read(stored[2], &mut Decoder::new(), &mut found, Movers::Running).unwrap();
    assert_eq!(found, [6; PAGE]);
    engine.unmap_pages(source, source + PIECE);
    assert_eq!(engine.space.slots().stats().inuse, 0);
    assert_eq!(engine.space.mm_stat().same_pages, 0);
}

/// Each holder of an entry counts its part of it.
#[test]
fn invariants_hold_with_many_holders_and_a_count_too_many_is_found() {
    let Some(engine) = watching_engine() else { return };
    let source = piece(engine);
    for page in 0..PIECE_PAGES {
        store_page(engine, source + page * PAGE, &[page as u8 + 1; PAGE]);
    }
    engine.note_gone(PIECE_PAGES as u64);
    let targets: Vec<_> = (0..15).map(|_| piece(engine)).collect();
    for (before, &target) in targets.iter().enumerate() {
        assert_eq!(engine.duplicate_step(source, target, PIECE), (PIECE, Ok(())));
        assert_eq!(engine.validate(), Ok(PIECE_PAGES as u64), "{} holders", before + 2);
    }
    for &target in &targets[5..] {
        engine.unmap_pages(target, target + PIECE);
        assert_eq!(engine.validate(), Ok(PIECE_PAGES as u64));
    }
    let PageState::Stored(entry) = word(engine, source).state() else { panic!("it is stored") };
    engine.space.duplicate(entry, 1).unwrap();
    assert!(engine.validate().is_err(), "nobody else holds it");
    engine.space.put(entry, 1);
    engine.space.put(entry, 1);
    assert!(engine.validate().is_err(), "one holder has none");
}

#[test]
fn clean_pages_are_shared_unless_they_were_written() {
    let Some(engine) = watching_engine() else { return };
    let (source, entries) = clean_piece(engine);
    let target = piece(engine);
    // The page is written although its word does not know it.
    engine.userfault().unprotect(source + 2 * PAGE, PAGE).unwrap();
    // SAFETY: mapped by the test.
    unsafe { ((source + 2 * PAGE) as *mut u64).write_volatile(99) };
    assert_eq!(engine.duplicate_step(source, target, PIECE), (PIECE, Ok(())));
    for (page, &entry) in entries.iter().enumerate() {
        let is_clean = word(engine, source + page * PAGE).state() == PageState::Clean(entry, Heat::Cold);
        assert!(is_clean, "nothing changes here");
        let duplicate = word(engine, target + page * PAGE).state();
        if page == 2 {
            assert!(matches!(duplicate, PageState::Present(_)));
            assert_eq!((word_at(target + page * PAGE), holders(engine, entry)), (99, 1));
        } else {
            assert_eq!((duplicate, holders(engine, entry)), (PageState::Stored(entry), 2), "{page}");
        }
    }
}

#[test]
fn a_page_half_way_ends_the_step_and_what_is_before_it_is_done() {
    let Some(engine) = watching_engine() else { return };
    let (source, target) = (piece(engine), piece(engine));
    let entries: Vec<_> = (0..PIECE_PAGES)
        .map(|page| store_page(engine, source + page * PAGE, &[page as u8 + 1; PAGE]))
        .collect();
    engine.note_gone(PIECE_PAGES as u64);
    let claimed = word(engine, source + 7 * PAGE).claim().unwrap();
    set(engine, source + 7 * PAGE, claimed);
    assert_eq!(engine.duplicate_step(source, target, PIECE), (7 * PAGE, Ok(())));
    assert_eq!((holders(engine, entries[6]), holders(engine, entries[7])), (2, 1));
    assert_eq!(engine.duplicate_step(source + 7 * PAGE, target + 7 * PAGE, 9 * PAGE), (0, Ok(())));
    set(engine, source + 7 * PAGE, claimed.unclaim().unwrap());
    let rest = engine.duplicate_step(source + 7 * PAGE, target + 7 * PAGE, 9 * PAGE);
    assert_eq!(rest, (9 * PAGE, Ok(())));
    assert!(entries.iter().all(|&entry| holders(engine, entry) == 2));
    assert_eq!(engine.validate(), Ok(PIECE_PAGES as u64));
}

#[test]
fn a_step_copies_a_bounded_number_of_pages() {
    let Some(engine) = watching_engine() else { return };
    let bytes = 2 * STEP_COPIES * PAGE;
    let [source, target] = [(); 2].map(|()| {
        let start = map(bytes + PIECE).next_multiple_of(PIECE);
        engine.register_pieces(start, start + bytes);
        start
    });
    for page in 0..bytes / PAGE {
        let contents = [page as u8; PAGE];
        // SAFETY: the page is missing.
        unsafe { engine.userfault().copy(source + page * PAGE, contents.as_ptr(), PAGE) }.unwrap();
        set(engine, source + page * PAGE, PageWord::PRESENT_HOT);
    }
    assert_eq!(engine.duplicate_step(source, target, bytes), (bytes / 2, Ok(())));
    assert_eq!(engine.duplicate_step(source + bytes / 2, target + bytes / 2, bytes / 2), (bytes / 2, Ok(())));
    assert!((0..bytes / PAGE).all(|page| word_at(target + page * PAGE) as u8 == page as u8));
    assert_eq!(engine.embedded.managed_pages(), bytes as i64 / PAGE as i64, "what came is counted");
}

#[test]
fn what_is_lost_is_lost_in_the_duplicate_too() {
    let Some(engine) = watching_engine() else { return };
    let (source, target) = (piece(engine), piece(engine));
    set(engine, source, PageWord::PRESENT);
    engine.userfault().poison(source + PAGE).unwrap();
    assert_eq!(engine.duplicate_step(source, target, PIECE), (PIECE, Ok(())));
    assert_eq!(engine.figures().counter(Counter::Poisoned), 1);
    let found = engine.pages_now(PageAddr::containing(target), PIECE_PAGES);
    assert_eq!((found.present, found.swapped), (0b10, 0b10), "a marker, and nothing else");
}

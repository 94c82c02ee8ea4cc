use super::*;
use crate::engine::Engine;
use crate::fault::buffers::Buffers;
use crate::kernel::uffd::Access;
use crate::staging::candidates::Candidates;
use crate::store::demote::DemotionUnits;
use crate::store::write_back::Tier;
use crate::test_memory::ring_turn;
use crate::test_memory::{clean_piece, fault, fill, map, moving_engine, word_at};
use crate::units::{BlockAddr, PAGE, PIECE, PageAddr, PieceAddr};
use folioswap_devices::Scratch;
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageWord;
use folioswap_policy::reclaim::workingset::age_of;
use folioswap_slots::DeviceMask;

const PAGES: u64 = 16;

/// An engine, its handler, and a piece of the program that waits in staging.
fn staged() -> Option<(&'static Engine, Handler, usize)> {
    let engine = moving_engine()?;
    let handler = Handler::new(engine, Buffers::of(engine)?);
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    // Nobody serves a first touch here.
    fill(start);
    engine.register_pieces(start, start + PIECE);
    engine.table.block_or_insert(BlockAddr::containing(start), engine.arena)?;
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_DIRTY).moved.count_ones()
            as u64,
        PAGES
    );
    Some((engine, handler, start))
}

fn write_back(engine: &Engine) {
    engine
        .write_back_oldest(&mut Scratch::new(), Tier::Store(DeviceMask::NONE), DemotionUnits::Any, 1)
        .unwrap();
}

fn word(engine: &Engine, address: usize) -> PageWord {
    engine.table.block(BlockAddr::containing(address)).unwrap().word(PageAddr::containing(address).index())
}

fn age(engine: &Engine) -> u64 {
    age_of(engine.workingset.shadow()).unwrap()
}

fn counted(engine: &Engine) -> [u64; 3] {
    [Counter::WorkingsetRefault, Counter::WorkingsetActivate, Counter::Activated]
        .map(|counter| engine.figures().counter(counter))
}

fn touch(handler: &mut Handler, address: usize) {
    handler.serve(fault(address, Access::Write, 0));
}

#[test]
fn what_is_written_back_keeps_its_age_and_is_asked_for_it_when_it_comes_back() {
    for (active, activated) in [(PAGES, 1), (PAGES - 1, 0)] {
        let Some((engine, mut handler, start)) = staged() else { return };
        engine.workingset.evicted(100);
        write_back(engine);
        let address = start + 3 * PAGE;
        let shadow = engine.space.shadow(word(engine, address).entry().unwrap());
        assert_eq!((age_of(shadow), age(engine)), (Some(100), 100 + PAGES));
        assert!(engine.validate().is_ok());
        engine.workingset.set_active(active);
        touch(&mut handler, address);
        assert_eq!(word_at(address), 10);
        assert_eq!(counted(engine), [1, activated, 0]);
        assert_eq!(age(engine), 100 + PAGES + activated);
    }
}

#[test]
fn what_is_touched_in_staging_is_no_refault_and_ages_what_is_away() {
    let Some((engine, mut handler, start)) = staged() else { return };
    engine.workingset.set_active(1000);
    touch(&mut handler, start);
    assert_eq!(word(engine, start), PageWord::PRESENT_HOT);
    // All of the page's folio goes back with it.
    assert_eq!((counted(engine), age(engine)), ([0, 0, PAGES], PAGES));
    write_back(engine);
    assert_eq!(age(engine), PAGES, "nothing of it has left");
}

#[test]
fn a_copy_that_was_kept_gets_a_new_age_when_its_page_leaves_again() {
    let Some(engine) = moving_engine() else { return };
    let (start, entries) = clean_piece(engine);
    engine.workingset.evicted(77);
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_CLEAN).moved,
        u16::MAX
    );
    write_back(engine);
    assert!(entries.iter().all(|&entry| age_of(engine.space.shadow(entry)) == Some(77)));
    assert_eq!(engine.validate(), Ok(PAGES));
}

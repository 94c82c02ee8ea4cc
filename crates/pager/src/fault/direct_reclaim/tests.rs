use super::*;
use crate::engine::Engine;
use crate::fault::buffers::Buffers;
use crate::staging::candidates::Candidates;
use crate::staging::ring::BerthIndex;
use crate::staging::row::Row;
use crate::store::demote::DemotionUnits;
use crate::store::write_back::Tier;
use crate::test_memory::ring_turn;
use crate::test_memory::{map, moving_engine};
use crate::units::{BlockAddr, PIECE, PageAddr, Pages, PieceAddr};
use folioswap_devices::Scratch;
use folioswap_devices::zstd::Decoder;
use folioswap_group::counters::Counter;
use folioswap_policy::page::{PageState, PageWord};
use folioswap_slots::DeviceMask;
use folioswap_space::space::Movers;
use std::sync::atomic::AtomicBool;

const FOLIOS: usize = 8;

fn handler(engine: &'static Engine) -> Handler {
    Handler::new(engine, Buffers::of(engine).expect("memory"))
}

/// The content of page `page` of the test's memory in a round: half of it does not compress.
fn contents(round: usize, page: usize) -> Page {
    let mut bytes = [0; PAGE];
    let mut word = (round as u64) << 32 | page as u64 | 1 << 63;
    for chunk in bytes.chunks_exact_mut(16) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        chunk[..8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Memory of the program.
fn memory(engine: &Engine) -> usize {
    let start = map((FOLIOS + 1) * PIECE).next_multiple_of(PIECE);
    engine.register_pieces(start, start + FOLIOS * PIECE);
    start
}

/// Fills all of the memory and moves it to staging.
fn take_out(engine: &Engine, start: usize, round: usize) {
    for page in 0..FOLIOS * PIECE_PAGES {
        let (to, bytes) = (start + page * PAGE, contents(round, page));
        // SAFETY: the source is ours, and only missing pages of the target are filled.
        unsafe { engine.userfault().copy(to, bytes.as_ptr(), PAGE) }.unwrap();
    }
    for piece in (start..start + FOLIOS * PIECE).step_by(PIECE) {
        engine.table.block_or_insert(BlockAddr::containing(piece), engine.arena).unwrap();
        let done =
            ring_turn(engine).isolate_row(&Row::of(PieceAddr::containing(piece), Candidates::ALL_DIRTY));
        assert_eq!(done[0].moved, Pages::MAX, "{done:?}");
    }
}

fn write_back(engine: &Engine) {
    for _ in 0..FOLIOS {
        engine
            .write_back_oldest(&mut Scratch::new(), Tier::Store(DeviceMask::NONE), DemotionUnits::Any, 1)
            .unwrap();
    }
    engine.shares.withdraw();
    // SAFETY: nobody helps any more.
    unsafe { &mut *engine.staging.get() }.recycle(engine.userfault(), 1, |_| false);
}

/// Checks that each page is stored as it was, and frees it; afterwards none is stored.
fn check_and_free(engine: &Engine, start: usize, round: usize, expected: usize) {
    assert_eq!(engine.space.mm_stat().objects, expected as u64, "no copy too many");
    for page in 0..FOLIOS * PIECE_PAGES {
        let block = engine.table.block(BlockAddr::containing(start + page * PAGE)).unwrap();
        let index = PageAddr::containing(start + page * PAGE).index();
        if let PageState::Stored(entry) = block.word(index).state() {
            let mut found = [0; PAGE];
            engine.space.read(entry, &mut Decoder::new(), &mut found, Movers::Running).unwrap();
            assert!(found == contents(round, page), "round {round}, page {page}");
            engine.space.put(entry, 1);
            block.set(index, PageWord::PRESENT);
        }
    }
    assert_eq!(engine.space.mm_stat().objects, 0);
    assert_eq!(engine.space.slots().stats().inuse, 0);
}

#[test]
fn what_the_handler_has_stored_is_not_written_again() {
    let Some(engine) = moving_engine() else { return };
    let (start, mut handler) = (memory(engine), handler(engine));
    take_out(engine, start, 0);
    assert!(!handler.reclaim_directly(), "nothing is offered");
    engine.shares.offer(0, FOLIOS as u64);
    assert!(handler.reclaim_directly() && handler.reclaim_directly());
    assert_eq!(engine.space.mm_stat().objects, 32);
    assert_eq!(engine.shares.stored(BerthIndex::new(FOLIOS as u32 - 1)), Pages::MAX, "the youngest first");
    write_back(engine);
    assert_eq!(engine.figures().counter(Counter::StolenDirect), 32);
    assert_eq!(engine.figures().counter(Counter::StolenBackground), 96);
    assert!((0..FOLIOS as u32).all(|berth| engine.shares.stored(BerthIndex::new(berth)) == 0));
    assert!(!handler.reclaim_directly(), "the offer is withdrawn");
    check_and_free(engine, start, 0, 128);
}

#[test]
fn what_is_due_beyond_the_first_offer_is_offered_when_that_is_done() {
    let Some(engine) = moving_engine() else { return };
    let (start, mut handler) = (memory(engine), handler(engine));
    take_out(engine, start, 0);
    engine.shares.offer(0, 2);
    let before = engine.shares.load();
    engine.shares.offer_up_to(0, FOLIOS as u64);
    assert_eq!(engine.shares.load(), before, "that goes first");
    assert!(handler.reclaim_directly() && handler.reclaim_directly() && !handler.reclaim_directly());
    engine.shares.offer_up_to(0, 2);
    assert!(!handler.reclaim_directly(), "no more is due");
    engine.shares.offer_up_to(0, 5);
    assert!(handler.reclaim_directly());
    assert_eq!(engine.shares.stored(BerthIndex::new(4)), Pages::MAX, "the youngest first");
    let at_one = engine.shares.help().expect("two are left");
    engine.shares.take(2);
    engine.shares.offer_up_to(2, FOLIOS as u64);
    assert!(!engine.shares.is_offered(), "not while somebody is at one: {at_one}");
    engine.shares.helped_out();
    write_back(engine);
    check_and_free(engine, start, 0, 128);
}

#[test]
fn what_is_touched_after_it_was_stored_goes_back_and_its_copy_is_freed() {
    let Some(engine) = moving_engine() else { return };
    let (start, mut handler) = (memory(engine), handler(engine));
    take_out(engine, start, 0);
    engine.shares.offer(0, FOLIOS as u64);
    assert!(handler.reclaim_directly());
    let touched = start + (FOLIOS - 1) * PIECE + 3 * PAGE;
    let (block, index) =
        (engine.table.block(BlockAddr::containing(touched)).unwrap(), PageAddr::containing(touched).index());
    let back = block.word(index).claim().and_then(|word| word.returned()).expect("it waits");
    block.set(index, back);
    write_back(engine);
    assert_eq!(block.word(index), back);
    assert_eq!(engine.figures().counter(Counter::StolenDirect), 15);
    check_and_free(engine, start, 0, 127);
}

#[test]
fn the_reader_of_events_does_not_write_again_what_is_stored() {
    let Some(engine) = moving_engine() else { return };
    let (start, mut handler) = (memory(engine), handler(engine));
    take_out(engine, start, 0);
    engine.shares.offer(0, FOLIOS as u64);
    assert!(handler.reclaim_directly());
    // The same happens before a mapping moves.
    handler.write_back_range(start, start + FOLIOS * PIECE);
    write_back(engine);
    check_and_free(engine, start, 0, 128);
}

/// Ends the other thread also where a check fails.
struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn both_write_at_once_and_nothing_is_lost() {
    let Some(engine) = moving_engine() else { return };
    let start = memory(engine);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handler = handler(engine);
            while !ended.load(Relaxed) {
                if !handler.reclaim_directly() {
                    std::thread::yield_now();
                }
            }
        });
        let _ends = Ends(&ended);
        for round in 0..300 {
            take_out(engine, start, round);
            // SAFETY: the ring's numbers are ours to read.
            let oldest = unsafe { &*engine.staging.get() }.written();
            engine.shares.offer(oldest, FOLIOS as u64);
            write_back(engine);
            check_and_free(engine, start, round, 128);
        }
    });
    let helped = engine.figures().counter(Counter::StolenDirect);
    assert!(helped > 0, "the handler took no part");
}

use super::*;
use crate::test_memory;
use crate::units::{BLOCK, PAGE};
use folioswap_devices::Page;
use folioswap_devices::zstd::Decoder;
use folioswap_slots::SwapEntry;
use folioswap_space::space::Movers;
use std::boxed::Box;
use std::vec::Vec;

const PROGRAM: usize = 0x7000_0000_0000;

/// A page of digits, different for every number: zstd takes much less for it than LZ4.
fn digits(number: usize) -> Page {
    let mut state = number as u64 + 1;
    core::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b'0' + (state >> 40) as u8 % 10
    })
}

fn store(engine: &Engine, places: impl IntoIterator<Item = usize>) -> Vec<SwapEntry> {
    let stored = |place| test_memory::store_page(engine, PROGRAM + place * PAGE, &digits(place));
    places.into_iter().map(stored).collect()
}

fn everything(engine: &Engine) -> Generation {
    engine.space.ages().young().next()
}

fn verify(engine: &Engine, entries: &[SwapEntry]) {
    let (mut decoder, mut page) = (Box::new(Decoder::new()), [0; PAGE]);
    for (number, &entry) in entries.iter().enumerate() {
        engine.space.read(entry, &mut decoder, &mut page, Movers::Running).expect("it is stored");
        assert!(page == digits(number), "page {number}");
    }
    engine.space.validate().expect("invariants");
}

#[test]
fn what_is_idle_is_known_by_generations_and_by_quiet() {
    let young = Generation::from_raw;
    let mut idle = Idle::since(0, 100, young(5));
    // Before the first look no page is idle that is younger than the youngest generation was then.
    assert_eq!(idle.look(1, 100, young(5)), young(5));
    // Two seconds later, with pages written meanwhile: pages are idle that are older than the
    // generation that was young at the look before.
    assert_eq!(idle.look(IDLE_NS, 300, young(7)), young(5));
    assert_eq!(idle.look(IDLE_NS + 1, 300, young(7)), young(5));
    assert_eq!(idle.look(2 * IDLE_NS, 400, young(8)), young(7));
    // No page was written: every page is idle.
    assert_eq!(idle.look(3 * IDLE_NS, 400, young(8)), young(9));
    assert_eq!(idle.look(3 * IDLE_NS + 1, 400, young(8)), young(9));
    // A page comes: it is of the youngest generation, which is idle no longer.
    assert_eq!(idle.look(3 * IDLE_NS + 2, 401, young(8)), young(8));
    assert_eq!(idle.look(4 * IDLE_NS, 401, young(8)), young(8));
    assert_eq!(idle.look(5 * IDLE_NS, 401, young(8)), young(9));
}

#[test]
fn idle_pages_become_smaller_and_each_is_tried_once() {
    let engine = test_memory::engine();
    let entries = store(engine, 0..700);
    let before = engine.space.mm_stat();
    let (mut rounds, mut steps, mut done) = (Rounds::new(), 0, 0);
    loop {
        let step = engine.recompress(&mut rounds, everything(engine));
        assert!(step.done + step.settled <= PAGES_AT_ONCE, "{step:?}");
        (steps, done) = (steps + 1, done + step.done);
        if step.is_round {
            break;
        }
    }
    assert_eq!((done, steps), (700, 700_u64.div_ceil(PAGES_AT_ONCE)));
    let after = engine.space.mm_stat();
    assert!(after.compr_data_size * 4 < before.compr_data_size * 3, "{before:?} {after:?}");
    let figure = |counter| engine.figures().counter(counter);
    assert_eq!(figure(Counter::PagesRecompressed), 700);
    let saved = before.compr_data_size - after.compr_data_size;
    assert_eq!(figure(Counter::RecompressSavedBytes), saved);
    let again = engine.recompress(&mut rounds, everything(engine));
    assert_eq!(again, Step { is_round: true, ..Step::default() });
    verify(engine, &entries);
}

#[test]
fn what_zstd_does_not_shrink_is_settled() {
    let engine = test_memory::engine();
    let mut state = 1_u64;
    let page: Page = core::array::from_fn(|at| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if at < PAGE / 2 { (state >> 40) as u8 } else { 0 }
    });
    for place in 0..40 {
        test_memory::store_page(engine, PROGRAM + place * PAGE, &page);
    }
    let mut rounds = Rounds::new();
    let steps = [0; 3].map(|_| engine.recompress(&mut rounds, everything(engine)));
    assert_eq!(steps.map(|step| (step.done, step.settled)), [(0, 32), (0, 8), (0, 0)]);
    assert_eq!(engine.figures().counter(Counter::RecompressIncompressible), 40);
}

#[test]
fn what_is_young_waits() {
    let engine = test_memory::engine();
    let old = store(engine, 0..256);
    // The generation is full; from the next page on another one is young.
    let young = engine.space.ages().young();
    store(engine, 256..300);
    let mut rounds = Rounds::new();
    let mut done = 0;
    for _ in 0..20 {
        done += engine.recompress(&mut rounds, young).done;
    }
    assert_eq!(done, 256);
    verify(engine, &old);
}

#[test]
fn it_makes_way_for_who_waits() {
    let engine = test_memory::engine();
    store(engine, 0..64);
    let mut rounds = Rounds::new();
    engine.mappings.scan_wanted.store(1, Relaxed);
    assert_eq!(engine.recompress(&mut rounds, everything(engine)), Step::default());
    engine.mappings.scan_wanted.store(0, Relaxed);
    engine.member().reclaim_request_bytes.store(1, Relaxed);
    assert_eq!(engine.recompress(&mut rounds, everything(engine)), Step::default());
    engine.member().reclaim_request_bytes.store(0, Relaxed);
    assert_eq!(engine.recompress(&mut rounds, everything(engine)).done, PAGES_AT_ONCE);
}

#[test]
fn a_step_passes_a_bounded_part_of_the_program() {
    let engine = test_memory::engine();
    store(engine, (0..BLOCKS_AT_ONCE + 1).map(|block| block * (BLOCK / PAGE)));
    let mut rounds = Rounds::new();
    let first = engine.recompress(&mut rounds, everything(engine));
    assert_eq!((first.done, first.is_round), (BLOCKS_AT_ONCE as u64, false));
    let second = engine.recompress(&mut rounds, everything(engine));
    assert_eq!((second.done, second.is_round), (1, true));
}

#[test]
fn it_is_compacted_like_anything_else() {
    let engine = test_memory::engine();
    let entries = store(engine, 0..2000);
    let mut rounds = Rounds::new();
    while !engine.recompress(&mut rounds, everything(engine)).is_round {}
    // Every object of zstd's classes moves, and its location keeps the codec.
    for (number, &entry) in entries.iter().enumerate() {
        if number % 4 != 0 {
            engine.space.put(entry, 1);
        }
    }
    let moved = engine.space.compact(1 << 30).objects_moved;
    assert!(moved > 0);
    let (mut decoder, mut page) = (Box::new(Decoder::new()), [0; PAGE]);
    for (number, &entry) in entries.iter().enumerate().step_by(4) {
        engine.space.read(entry, &mut decoder, &mut page, Movers::Running).expect("it is stored");
        assert!(page == digits(number), "page {number}");
        assert!(!engine.space.may_recompress(entry));
    }
    engine.space.validate().expect("invariants");
}

use super::*;
use crate::staging::candidates::Candidates;
use crate::staging::ring::BerthIndex;
use crate::test_memory::{self, decide};
use crate::units::{BLOCK, BlockAddr, PIECE, PieceAddr};
use std::vec::Vec;

/// A row of pieces from number `first` of a block on.
fn parts(first: usize, wanted: &[u16]) -> Vec<Part> {
    let part = |(number, &written): (usize, &u16)| Part {
        piece: PieceAddr::containing(0x7000_0000_0000 / BLOCK * BLOCK + (first + number) * PIECE),
        berth: BerthIndex::new((first + number) as u32),
        wanted: Candidates { written, clean: 0 },
        ..Part::default()
    };
    wanted.iter().enumerate().map(part).collect()
}

/// Orders of the folios of a row.
fn orders(parts: &[Part]) -> Vec<u8> {
    let (mut orders, mut page) = (Vec::new(), 0);
    while page < parts.len() * PIECE_PAGES {
        match folio_at(parts, page, 9) {
            Some(order) => {
                orders.push(order.index() as u8);
                page += order.slots() as usize;
            }
            None => page += 1,
        }
    }
    orders
}

#[test]
fn a_folio_is_aligned_to_its_length_and_whole() {
    let all = u16::MAX;
    for (first, wanted, expected) in [
        (0, &[all; 32][..], &[9][..]),
        (0, &[all; 31], &[8, 7, 6, 5, 4]),
        (1, &[all; 4], &[4, 5, 4]),
        (16, &[all; 16], &[8]),
        (0, &[0x8000, all, 1], &[0, 4, 0]),
        (0, &[0b0111_1110], &[0, 1, 1, 0]),
        (0, &[0xff00], &[3]),
        (0, &[0], &[]),
    ] {
        assert_eq!(orders(&parts(first, wanted)), expected, "{first} {wanted:?}");
    }
}

#[test]
fn each_page_gets_the_slot_at_its_place_in_the_folio_and_what_stays_gives_it_back() {
    let engine = test_memory::engine();
    let mut parts = parts(0, &[u16::MAX; 32]);
    let mut done = [Isolation::default(); ROW_PIECES];
    engine.allocate_entries(&mut parts, &mut done);
    assert!(done.iter().all(|isolation| isolation.refused.is_none()));
    let first = parts[0].entries[0].unwrap();
    assert_eq!(first.offset() % 512, 0);
    for (number, part) in parts.iter().enumerate() {
        for (page, entry) in part.entries.iter().enumerate() {
            let entry = entry.expect("a slot");
            assert_eq!(Some(entry), first.checked_add((number * PIECE_PAGES + page) as u64));
            assert_eq!(engine.staging_berth(entry), Some(BerthIndex::new(number as u32)));
        }
    }
    done.iter_mut().for_each(|isolation| isolation.moved = u16::MAX);
    done[31].moved = 0x7fff;
    engine.account_for(&mut parts, &done);
    assert_eq!(engine.figures().size(SizeCounter::SwapOut, 9), 0);
    assert_eq!(engine.figures().size(SizeCounter::SwapOut, 0), 511, "it was split");
    assert_eq!(parts[31].entries[15], None);
    assert_eq!(engine.space.slots().stats().inuse, 511);
}

/// Takes every slot in folios of this order, and gives up every other folio, so that only folios of
/// this order and of smaller ones find slots.
fn fragment(engine: &Engine, order: u32) {
    let order = Order::new(order).unwrap();
    let mut taken = Vec::new();
    loop {
        engine.space.reserve_frames().unwrap();
        match engine.space.allocate(order, StagedFolio { first: BerthIndex::new(0), order }.id()) {
            Ok(entry) => taken.push(entry),
            Err(_) => break,
        }
    }
    for first in taken.into_iter().step_by(2) {
        (0..order.slots().into()).for_each(|slot| engine.space.abandon(first.checked_add(slot).unwrap()));
    }
}

fn fallbacks(engine: &Engine) -> [u64; 10] {
    core::array::from_fn(|order| engine.figures().size(SizeCounter::SwapOutFallback, order))
}

#[test]
fn where_there_is_no_run_a_folio_is_split_step_by_step_and_each_size_counts() {
    for largest in [0, 2, 5, 8] {
        let engine = test_memory::engine_with_slots(6 * 512);
        fragment(engine, largest);
        let mut parts = parts(0, &[u16::MAX; 32]);
        let mut done = [Isolation::default(); ROW_PIECES];
        engine.allocate_entries(&mut parts, &mut done);
        assert!(done.iter().all(|isolation| isolation.refused.is_none()), "{largest}");
        assert!(parts.iter().all(|part| part.orders == [largest as u8; PIECE_PAGES]), "{largest}");
        assert!(parts.iter().all(|part| part.entries.iter().all(Option::is_some)), "{largest}");
        let expected = core::array::from_fn(|order| u64::from(order > largest as usize));
        assert_eq!(fallbacks(engine), expected, "{largest}: once for each size");
        done.iter_mut().for_each(|isolation| isolation.moved = u16::MAX);
        engine.account_for(&mut parts, &done);
        assert_eq!(engine.figures().size(SizeCounter::SwapOut, largest as usize), 512 >> largest);
    }
}

#[test]
fn a_size_that_is_not_allowed_is_not_asked_for() {
    let engine = test_memory::engine_with_slots(6 * 512);
    let allowed = folioswap_group::folio_orders::FolioOrders { always: 1 << 8 | 1 << 6 | 1 << 2, madvise: 0 };
    decide(engine).set_folio_orders(allowed);
    fragment(engine, 2);
    let mut parts = parts(0, &[u16::MAX; 16]);
    let mut done = [Isolation::default(); ROW_PIECES];
    engine.allocate_entries(&mut parts, &mut done);
    assert_eq!(fallbacks(engine), [0, 0, 0, 0, 0, 0, 1, 0, 1, 0]);
    assert!(parts.iter().all(|part| part.orders == [2; PIECE_PAGES]));
}

#[test]
fn what_was_touched_at_random_leaves_in_single_pages_and_what_was_walked_through_in_large_folios() {
    let engine = test_memory::engine();
    let out = |wanted: &[u16]| {
        let mut parts = parts(0, wanted);
        let mut done = [Isolation::default(); ROW_PIECES];
        engine.allocate_entries(&mut parts, &mut done);
        parts.iter().flat_map(|part| part.entries).flatten().for_each(|entry| engine.space.abandon(entry));
        let mut orders: Vec<_> = parts.iter().flat_map(|part| part.orders).collect();
        orders.dedup();
        orders
    };
    let block = engine
        .table
        .block_or_insert(BlockAddr::containing(parts(0, &[1])[0].piece.raw()), engine.arena)
        .unwrap();
    assert_eq!(out(&[u16::MAX; 16]), [8], "nothing is known of it");
    for page in (0..10).map(|number| number * number * 5 % 511) {
        block.history.remember(page, page + 1, 0);
    }
    assert_eq!(out(&[u16::MAX; 16]), [0]);
    assert_eq!(out(&[u16::MAX; 32]), [9], "a huge page");
    // A walk passes over the block.
    for (first, order) in [(64, 2), (68, 4), (80, 6)] {
        block.history.remember(first, first + (1 << order), order);
    }
    assert_eq!(out(&[u16::MAX; 16]), [8]);
}

#[test]
fn whole_folios_count_by_their_size() {
    let engine = test_memory::engine();
    let mut parts = parts(1, &[u16::MAX, u16::MAX, u16::MAX, 0x00f0]);
    let mut done = [Isolation::default(); ROW_PIECES];
    engine.allocate_entries(&mut parts, &mut done);
    for (isolation, moved) in done.iter_mut().zip([u16::MAX, u16::MAX, u16::MAX, 0x00f0]) {
        isolation.moved = moved;
    }
    engine.account_for(&mut parts, &done);
    let counted = [0, 1, 2, 3, 4, 5].map(|order| engine.figures().size(SizeCounter::SwapOut, order));
    assert_eq!(counted, [0, 0, 1, 0, 1, 1]);
}

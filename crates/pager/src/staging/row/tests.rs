use super::*;
use crate::engine::Engine;
use crate::kernel::uffd::{Message, Watch};
use crate::staging::isolation::{Isolation, Refused};
use crate::staging::ring::BerthIndex;
use crate::test_memory::ring_turn;
use crate::test_memory::{fill, map, moving_engine, word_at};
use crate::units::{PAGE, PageAddr};
use folioswap_policy::page::PageState;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::vec::Vec;

fn wanted(written: Pages, clean: Pages) -> Candidates {
    Candidates { written, clean }
}

#[test]
fn a_row_goes_on_with_the_next_piece_and_a_long_one_where_a_move_does() {
    let first = PieceAddr::containing(0x7000_0000);
    let row = || Row::of(first, wanted(0xff00, 0));
    for (piece, next, joined, long) in [
        (first.plus(1), wanted(1, 0), true, true),
        (first.plus(1), wanted(0, 1), true, true),
        (first.plus(1), wanted(2, 0), true, false),
        (first.plus(2), wanted(1, 0), false, false),
        (first, wanted(1, 0), false, false),
    ] {
        assert_eq!(row().append(piece, next, Rows::Joined), joined, "{piece:x} {next:?}");
        assert_eq!(row().append(piece, next, Rows::Long), long, "{piece:x} {next:?}");
    }
    let sparse = || Row::of(first, wanted(0x7fff, 0));
    assert!(sparse().append(first.plus(1), wanted(1, 0), Rows::Joined));
    assert!(!sparse().append(first.plus(1), wanted(1, 0), Rows::Long));
    // The most moves that a row may take, and one more.
    let every_other = || Row::of(first, wanted(0x2aaa, 0));
    assert_eq!(every_other().moves(), 7);
    assert!(every_other().append(first.plus(1), wanted(0xaaaa, 2), Rows::Joined));
    let mut nearly_full = every_other();
    assert!(nearly_full.append(first.plus(1), wanted(0xaaaa, 0), Rows::Joined));
    assert!(nearly_full.append(first.plus(2), wanted(0x00f0, 0), Rows::Joined));
    assert!(!nearly_full.append(first.plus(3), wanted(0x00f0, 0), Rows::Joined));
    assert!(
        !Row::default().append(PieceAddr::containing(0), wanted(1, 0), Rows::Joined),
        "an empty one has no end"
    );
    assert!(
        !Row::default().append(PieceAddr::containing(0), wanted(1, 0), Rows::Long),
        "an empty one has no end"
    );
}

#[test]
fn a_row_has_an_end_and_is_taken_from_the_front() {
    let mut row = Row::of(PieceAddr::containing(PIECE), wanted(Pages::MAX, 0));
    for piece in 2..JOINED_PIECES {
        assert!(row.append(PieceAddr::containing(piece * PIECE), wanted(Pages::MAX, 0), Rows::Joined));
    }
    assert!(!row.append(PieceAddr::containing(JOINED_PIECES * PIECE), wanted(Pages::MAX, 0), Rows::Joined));
    assert_eq!(row.pages(), ((JOINED_PIECES - 1) * PIECE_PAGES) as u64);
    let addresses = |row: Row| row.pieces().map(|(piece, _)| piece.number()).collect::<Vec<_>>();
    assert_eq!(row.take(3).map(addresses), Some(std::vec![1, 2, 3]));
    assert_eq!(row.take(0).map(addresses), Some(std::vec![4]));
    assert_eq!(row.take(JOINED_PIECES).map(addresses), Some((5..JOINED_PIECES).collect()));
    assert!(row.take(4).is_none());
}

#[test]
fn a_row_ends_where_its_folio_would() {
    for (first, joined, long) in [(0, 8, 16), (1, 7, 15), (15, 1, 1), (16, 8, 16), (40, 8, 8)] {
        for (rows, pieces) in [(Rows::Joined, joined), (Rows::Long, long)] {
            let mut row = Row::of(PieceAddr::containing(first * PIECE), wanted(Pages::MAX, 0));
            let further = (first + 1..).take_while(|piece| {
                row.append(PieceAddr::containing(piece * PIECE), wanted(Pages::MAX, 0), rows)
            });
            assert_eq!(1 + further.count(), pieces, "{first} {rows:?}");
        }
    }
}

/// Two full rows of memory, registered, each page with contents of its own.
fn pieces(engine: &Engine) -> usize {
    let start = map(3 * JOINED_PIECES * PIECE).next_multiple_of(JOINED_PIECES * PIECE);
    for number in 0..2 * JOINED_PIECES {
        let piece = start + number * PIECE;
        fill(piece);
        for page in 0..PIECE_PAGES {
            // SAFETY: just mapped.
            unsafe { *((piece + page * PAGE + 8) as *mut usize) = number };
        }
        engine.table.block_or_insert(BlockAddr::containing(piece), engine.arena).unwrap();
    }
    engine.register_pieces(start, start + 2 * JOINED_PIECES * PIECE);
    start
}

/// A row of these pieces from `start` on.
fn row(start: usize, all: &[Pages]) -> Row {
    let mut row = Row::of(PieceAddr::containing(start), wanted(all[0], 0));
    for (number, &pages) in all.iter().enumerate().skip(1) {
        // It does not matter here whether one move reaches over the border.
        row.wanted[number] = wanted(pages, 0);
        row.pieces = number + 1;
    }
    row
}

/// Checks that each page is where its word says, with its contents; returns the pages that have
/// moved.
fn check(engine: &Engine, row: &Row, done: &[Isolation; ROW_PIECES]) -> Vec<Pages> {
    // SAFETY: no other thread uses the ring.
    let staging = unsafe { &*engine.staging.get() };
    let folios: Vec<_> = staging.waiting_berths().collect();
    for ((piece, _), isolation) in row.pieces().zip(done) {
        let block = engine.table.block(piece).unwrap();
        for page in 0..PIECE_PAGES {
            let state = block.word(piece.index().plus(page)).state();
            if isolation.moved >> page & 1 == 0 {
                assert!(matches!(state, PageState::Present(_)), "{piece:x} {page}: {state:?}");
                continue;
            }
            let PageState::Leaving(entry) = state else { panic!("{piece:x} {page}: {state:?}") };
            let berth = folios.iter().copied().find(|&berth| staging.berth(berth).piece == piece).unwrap();
            assert_eq!(engine.staging_berth(entry), Some(berth));
            assert_eq!(staging.berth(berth).entries[page], Some(entry));
            let staged = staging.address(berth) + page * PAGE;
            let number = piece.number() - row.start.number();
            assert_eq!((word_at(staged), word_at(staged + 8)), (7 + page as u64, number as u64));
            assert_eq!(engine.pages_now(piece.page(0), PIECE_PAGES).present >> page & 1, 0);
        }
    }
    done.iter().take(row.pieces().count()).map(|isolation| isolation.moved).collect()
}

#[test]
fn a_whole_row_leaves_by_one_move() {
    let Some(engine) = moving_engine() else { return };
    let row = row(pieces(engine), &[0xfff0, Pages::MAX, Pages::MAX, 0x00ff]);
    let done = ring_turn(engine).isolate_row(&row);
    assert_eq!(check(engine, &row, &done), [0xfff0, Pages::MAX, Pages::MAX, 0x00ff]);
    assert_eq!(done.iter().map(|isolation| isolation.moves).sum::<u64>(), 1);
}

#[test]
fn what_cannot_leave_in_the_middle_of_a_row_keeps_nothing_else() {
    let Some(engine) = moving_engine() else { return };
    let start = pieces(engine);
    let third = row(start + 2 * PIECE, &[Pages::MAX]);
    // The second piece has become another mapping.
    // SAFETY: nothing of it is moved or protected.
    unsafe { engine.userfault().unregister(start + PIECE, PIECE) }.unwrap();
    let row = row(start, &[0x0f0f, Pages::MAX, 0x8001, 0]);
    let done = ring_turn(engine).isolate_row(&row);
    assert_eq!(done[1].refused, Some(Refused::Gone));
    // Pieces after a refusal are looked at again another time.
    assert_eq!(check(engine, &row, &done), [0x0f0f, 0, 0, 0]);
    let after = ring_turn(engine).isolate_row(&third);
    assert_eq!((after[0].moved, after[0].refused), (Pages::MAX, None));
}

#[test]
fn a_piece_of_which_nothing_leaves_is_a_folio_without_pages() {
    let Some(engine) = moving_engine() else { return };
    let start = pieces(engine);
    // The second piece holds no memory any more (an event, which no thread reads here, would stand
    // in the way of every move), and the fourth is another mapping.
    // SAFETY: no other thread uses them.
    unsafe {
        engine.userfault().unregister(start + PIECE, PIECE).unwrap();
        madvise((start + PIECE) as *mut _, PIECE, Advice::LinuxDontNeed).unwrap();
        engine.userfault().unregister(start + 3 * PIECE, PIECE).unwrap();
    }
    engine.userfault().register(start + PIECE, PIECE, Watch::Program).unwrap();
    let row = row(start, &[1, 1, 1, 1 << 15]);
    let done = ring_turn(engine).isolate_row(&row);
    assert_eq!(check(engine, &row, &done), [1, 0, 1, 0]);
    // SAFETY: no other thread uses the ring.
    let staging = unsafe { &*engine.staging.get() };
    let folios: Vec<_> = staging.waiting_berths().map(|berth| staging.berth(berth)).collect();
    assert_eq!(folios.len(), 3, "those behind the last page stay free");
    assert!(folios[1].entries.iter().all(Option::is_none));
}

#[test]
fn what_stood_in_the_way_behind_a_row_waits_for_its_turn() {
    for first in [0, 1] {
        let Some(engine) = moving_engine() else { return };
        let start = pieces(engine);
        // SAFETY: no other thread uses the ring.
        let staging = unsafe { &mut *engine.staging.get() };
        let second = staging.address(staging.next_berth().unwrap().plus(1));
        fill(second);
        let row = row(start, &[first, Pages::MAX]);
        let done = ring_turn(engine).isolate_row(&row);
        assert_eq!(check(engine, &row, &done)[..2], [first, 0]);
        assert_eq!(done[1].residue, Pages::MAX);
        assert_eq!(staging.waiting(), 2, "no other folio gets this place");
        (0..2).for_each(|_| staging.pop());
        staging.recycle(engine.userfault(), 1, |_| false);
        assert_eq!(engine.pages_now(PageAddr::containing(second), PIECE_PAGES).present, 0, "{first}");
    }
}

#[test]
fn an_event_that_waits_ends_a_row_and_nothing_is_lost() {
    let Some(engine) = moving_engine() else { return };
    let start = pieces(engine);
    let row = row(start, &[Pages::MAX; JOINED_PIECES]);
    let given_up = start + (2 * JOINED_PIECES - 1) * PIECE;
    std::thread::scope(|scope| {
        // The thread waits until its event is read.
        // SAFETY: no other thread uses the page.
        scope.spawn(move || unsafe { madvise(given_up as *mut _, PAGE, Advice::LinuxDontNeed) });
        while engine.userfault().check_registered(start) != Err(Errno::AGAIN) {}
        let done = ring_turn(engine).isolate_row(&row);
        assert_eq!(done[0].refused, Some(Refused::EventPending));
        assert_eq!(check(engine, &row, &done), [0; JOINED_PIECES]);
        while engine.userfault().read(&mut [Message::EMPTY; 1]) == Ok(0) {}
    });
    let done = ring_turn(engine).isolate_row(&row);
    assert_eq!(check(engine, &row, &done), [Pages::MAX; JOINED_PIECES]);
}

#[test]
fn a_row_ends_where_the_ring_does() {
    let Some(engine) = moving_engine() else { return };
    let start = pieces(engine);
    // SAFETY: no other thread uses the ring.
    let staging = unsafe { &mut *engine.staging.get() };
    assert_eq!(staging.berths_in_a_row(), staging.berth_count() as usize - 1);
    while staging.next_berth() != Some(BerthIndex::new(staging.berth_count() as u32 - 2)) {
        staging.push();
        staging.pop();
        staging.recycle(engine.userfault(), 1, |_| false);
    }
    assert_eq!(staging.berths_in_a_row(), 2);
    let mut rest = row(start, &[Pages::MAX; JOINED_PIECES]);
    let front = rest.take(staging.berths_in_a_row()).unwrap();
    assert_eq!(check(engine, &front, &ring_turn(engine).isolate_row(&front))[..2], [Pages::MAX; 2]);
    assert_eq!(staging.next_berth(), Some(BerthIndex::new(0)));
    assert!(staging.berths_in_a_row() >= 2);
    let done = ring_turn(engine).isolate_row(&rest);
    assert_eq!([done[0].moved, done[1].moved], [Pages::MAX; 2]);
}

use super::*;
use crate::staging::candidates::Candidates;
use crate::staging::row::{JOINED_PIECES, Row, Rows};
use crate::test_memory::ring_turn;
use crate::test_memory::{fill, map, moving_engine, word_at};
use crate::units::{BlockAddr, PIECE, PageAddr, PieceAddr};
use core::sync::atomic::AtomicBool;
use folioswap_devices::Page;
use folioswap_policy::page::PageWord;

/// The pages of the piece at `start` that are present.
fn present(engine: &Engine, start: usize) -> Pages {
    engine.pages_now(PageAddr::containing(start), PIECE_PAGES).present
}

/// Raises a flag when it is dropped, also by a panic, after which the scope would wait for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Linux 6.18 loses pages here without [`Engine::moved_after_all`]: one row in thirty, while a
/// protection changes all the time.
#[test]
fn what_the_kernel_moves_in_spite_of_its_answer_is_not_lost() {
    let Some(engine) = moving_engine() else { return };
    let start = map(2 * JOINED_PIECES * PIECE).next_multiple_of(JOINED_PIECES * PIECE);
    engine.register_pieces(start, start + JOINED_PIECES * PIECE);
    let mut row = Row::of(PieceAddr::containing(start), Candidates::ALL_DIRTY);
    for piece in (start..).step_by(PIECE).take(JOINED_PIECES).skip(1) {
        assert!(row.append(PieceAddr::containing(piece), Candidates::ALL_DIRTY, Rows::Joined));
    }
    for (piece, _) in row.pieces() {
        engine.table.block_or_insert(piece, engine.arena).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // The protection of the first page changes: the entry that a move looks at first
                // has changed then when it looks again.
                let _ = engine.userfault().protect(start, PAGE);
                let _ = engine.userfault().unprotect(start, PAGE);
            }
        });
        let _end = Ends(&stop);
        for round in 0..5_000 {
            for (piece, _) in row.pieces() {
                let there = present(engine, piece.raw());
                for page in (0..PIECE_PAGES).filter(|page| there >> page & 1 == 0) {
                    let contents: Page = [round as u8; PAGE];
                    // SAFETY: mapped by the test; the page is missing.
                    let filled =
                        unsafe { engine.userfault().copy(piece.page(page).raw(), contents.as_ptr(), PAGE) };
                    filled.expect("a missing page");
                }
            }
            let done = ring_turn(engine).isolate_row(&row);
            for ((piece, _), isolation) in row.pieces().zip(done) {
                assert_eq!(isolation.moved, !present(engine, piece.raw()), "round {round}: {isolation:?}");
                assert_eq!((isolation.busy, isolation.unmovable, isolation.residue), (0, 0, 0));
                assert!(isolation.refused.is_none());
                let block = engine.table.block(piece).expect("inserted");
                (0..PIECE_PAGES).for_each(|page| block.set(piece.index().plus(page), PageWord::PRESENT));
            }
            // SAFETY: nobody else uses the ring.
            let staging = unsafe { &mut *engine.staging.get() };
            while let Some(berth) = staging.oldest() {
                for page in 0..PIECE_PAGES {
                    if let Some(entry) = staging.berth_mut(berth).entries[page].take() {
                        assert_eq!(
                            word_at(staging.address(berth) + page * PAGE) as u8,
                            round as u8,
                            "page {page} of round {round}"
                        );
                        engine.space.abandon(entry);
                    }
                }
                staging.pop();
            }
            staging.recycle(engine.userfault(), 1, |_| false);
        }
    });
    std::eprintln!("misreported: {} pages", engine.figures().counter(Counter::MovesMisreported));
}

/// A page that stands in the way of a move and was not moved by it is thrown away in its turn.
#[test]
fn a_place_that_is_not_empty_is_passed_over_and_emptied() {
    let Some(engine) = moving_engine() else { return };
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    fill(start);
    engine.register_pieces(start, start + PIECE);
    engine.table.block_or_insert(BlockAddr::containing(start), engine.arena).unwrap();
    // SAFETY: nobody else uses the ring.
    let staging = unsafe { &*engine.staging.get() };
    let berth = staging.next_berth().unwrap();
    fill(staging.address(berth));
    let isolation = ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_DIRTY);
    assert_eq!((isolation.moved, isolation.residue), (0, Pages::MAX));
    assert!((0..PIECE_PAGES).all(|page| word_at(start + page * PAGE) == 7 + page as u64));
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_DIRTY).moved,
        Pages::MAX
    );
    // SAFETY: nobody else uses the ring.
    let staging = unsafe { &mut *engine.staging.get() };
    assert_eq!((staging.waiting(), staging.held_bytes()), (2, 2 * PIECE as u64));
    assert!(staging.berth(berth).entries.iter().all(Option::is_none));
    staging.pop();
    staging.recycle(engine.userfault(), 1, |_| false);
    assert_eq!((present(engine, staging.address(berth)), staging.held_bytes()), (0, PIECE as u64));
}

use super::*;
use crate::kernel::uffd::AFTER_A_PART;
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
    rows_leave_while_a_protection_changes(None);
}

/// The same where the attempt that follows is refused before it could find those pages in its way.
#[test]
fn it_is_not_lost_either_where_the_next_answer_says_nothing_of_it() {
    rows_leave_while_a_protection_changes(Some(Errno::NOMEM));
}

/// `answer`: that of each move that follows one that has done a part.
fn rows_leave_while_a_protection_changes(answer: Option<Errno>) {
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
    // A zero page moves by itself: the move that forgets what it did has done a part before.
    let (zeroes, changing) = match answer {
        None => (0, start),
        Some(_) => (1, start + PAGE),
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // The protection of a page changes: the entry that a move looks at first has
                // changed then when it looks again.
                let _ = engine.userfault().protect(changing, PAGE);
                let _ = engine.userfault().unprotect(changing, PAGE);
            }
        });
        AFTER_A_PART.set(answer);
        let _end = Ends(&stop);
        // The round in which each page was filled: what does not leave in one round may do so in a
        // later one.
        let mut filled_in = [[0; PIECE_PAGES]; JOINED_PIECES];
        for round in 0..5_000 {
            for ((piece, _), filled_in) in row.pieces().zip(&mut filled_in) {
                let there = present(engine, piece.raw());
                for page in (0..PIECE_PAGES).filter(|page| there >> page & 1 == 0) {
                    if piece.page(page).raw() < start + zeroes * PAGE {
                        engine.userfault().zero(start, PAGE).expect("a missing page");
                        continue;
                    }
                    let contents: Page = [round as u8; PAGE];
                    // SAFETY: mapped by the test; the page is missing.
                    let filled =
                        unsafe { engine.userfault().copy(piece.page(page).raw(), contents.as_ptr(), PAGE) };
                    filled.expect("a missing page");
                    filled_in[page] = round;
                }
            }
            // SAFETY: nobody else uses the ring.
            let staging = unsafe { &mut *engine.staging.get() };
            while staging.berths_in_a_row() < JOINED_PIECES {
                staging.push();
                staging.pop();
                staging.recycle(engine.userfault(), 1, |_| false);
            }
            let done = ring_turn(engine).isolate_row(&row);
            for ((piece, _), isolation) in row.pieces().zip(done) {
                assert_eq!(isolation.moved, !present(engine, piece.raw()), "round {round}: {isolation:?}");
                assert_eq!((isolation.busy, isolation.residue), (0, 0));
                assert!(answer.is_some() || isolation.unmovable == 0);
                assert!(isolation.refused.is_none(), "{isolation:?}");
                let block = engine.table.block(piece).expect("inserted");
                (0..PIECE_PAGES).for_each(|page| block.set(piece.index().plus(page), PageWord::PRESENT));
            }
            while let Some(berth) = staging.oldest() {
                let number = staging.berth(berth).piece.number() - row.start().number();
                for page in 0..PIECE_PAGES {
                    if let Some(entry) = staging.berth_mut(berth).entries[page].take() {
                        let found = word_at(staging.address(berth) + page * PAGE) as u8;
                        let filled_in = filled_in[number][page];
                        assert_eq!(found, filled_in as u8, "page {page} of round {round}");
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

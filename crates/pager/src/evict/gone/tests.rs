//! What is given up while it waits in staging is freed, and what waits there stays.

use super::*;
use crate::staging::candidates::Candidates;
use crate::test_memory::{clean_piece, fill, map, moving_engine, ring_turn};
use crate::units::{PIECE, PIECE_PAGES, Pages, PieceAddr};
use folioswap_policy::page::PageState;

/// A piece of the program's that was written to, in staging.
fn written_piece_in_staging(engine: &Engine) -> PieceAddr {
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    fill(start);
    engine.register_pieces(start, start + PIECE);
    let piece = PieceAddr::containing(start);
    engine.table.block_or_insert(piece, engine.arena).unwrap();
    let done = ring_turn(engine).isolate(piece, Candidates { written: Pages::MAX, clean: 0 });
    assert_eq!(done.moved, Pages::MAX, "{done:?}");
    piece
}

/// A piece whose stored copies still stand for it, in staging.
fn clean_piece_in_staging(engine: &Engine) -> PieceAddr {
    let piece = PieceAddr::containing(clean_piece(engine).0);
    let done = ring_turn(engine).isolate(piece, Candidates { written: 0, clean: Pages::MAX });
    assert_eq!(done.moved, Pages::MAX, "{done:?}");
    piece
}

fn give_up(engine: &Engine, piece: PieceAddr) {
    engine.remove_pages(piece.raw(), piece.end());
}

#[test]
fn what_was_given_up_in_staging_is_freed_up_to_the_first_page_that_waits() {
    let Some(engine) = moving_engine() else { return };
    let mut evictor = Evictor::new(engine);
    let [clean, written] = [clean_piece_in_staging(engine), written_piece_in_staging(engine)];
    let [waits, behind] = [written_piece_in_staging(engine), written_piece_in_staging(engine)];
    evictor.let_gone_go(Memory::Ample);
    assert_eq!(evictor.staging().waiting(), 4, "all of them wait");
    for piece in [clean, written, behind] {
        give_up(engine, piece);
    }
    assert_eq!(engine.space.mm_stat().same_pages, PIECE_PAGES as u64, "the copies of the clean piece");
    evictor.let_gone_go(Memory::Ample);
    assert_eq!((evictor.staging().waiting(), evictor.staging().occupied()), (2, 2));
    assert_eq!(engine.space.mm_stat().same_pages, 0);
    assert_eq!(engine.validate(), Ok(2 * PIECE_PAGES as u64));
    let state = |page| engine.table.block(waits).unwrap().word(waits.index().plus(page)).state();
    assert!((0..PIECE_PAGES).all(|page| matches!(state(page), PageState::Leaving(_))));
    give_up(engine, waits);
    evictor.let_gone_go(Memory::Ample);
    assert_eq!((evictor.staging().waiting(), evictor.staging().occupied()), (0, 0));
    assert_eq!(evictor.staging().held_bytes(), 0);
    assert_eq!(engine.validate(), Ok(0));
}

use super::*;
use crate::kernel::uffd::Watch;
use crate::staging::ring::BerthIndex;
use crate::test_memory::ring_turn;
use crate::test_memory::{clean_piece, fill, map, map_at, moving_engine, word_at};
use crate::units::{BlockAddr, PAGE, PIECE, PageAddr};
use rustix::io::Errno;
use rustix::mm::munmap;

/// The list of mappings is old when they are registered: memory that is mapped in a hole afterwards
/// is not registered, though it lies within the registered range.
#[test]
fn what_was_a_hole_when_its_surroundings_were_registered_stays() {
    let Some(engine) = moving_engine() else { return };
    let start = map(4 * PIECE).next_multiple_of(PIECE);
    let hole = start + PIECE;
    // SAFETY: nobody uses it.
    unsafe { munmap(hole as *mut _, PIECE) }.unwrap();
    engine.register_pieces(start, start + 3 * PIECE);
    assert_eq!(map_at(hole, PIECE), hole);
    for piece in [start, hole] {
        engine.table.block_or_insert(BlockAddr::containing(piece), engine.arena).unwrap();
    }
    let covered = || covers(&engine.mappings.registered, PieceAddr::containing(hole), Pages::MAX);
    assert!(covered());
    fill(hole);
    let isolation = ring_turn(engine).isolate(PieceAddr::containing(hole), Candidates::ALL_DIRTY);
    assert_eq!((isolation.moved, isolation.refused), (0, Some(Refused::Gone)));
    assert!((0..PIECE_PAGES).all(|page| word_at(hole + page * PAGE) == 7 + page as u64), "a page was lost");
    assert!(!covered(), "it is looked at again");
    engine.register_pieces(start, start + 3 * PIECE);
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(hole), Candidates::ALL_DIRTY).moved,
        Pages::MAX
    );
}

#[test]
fn the_kernel_tells_what_is_registered() {
    let Some(engine) = moving_engine() else { return };
    let (userfault, start) = (engine.userfault(), map(4 * PAGE));
    assert_eq!(userfault.check_registered(start), Err(Errno::NOENT));
    userfault.register(start, 2 * PAGE, Watch::Program).unwrap();
    assert_eq!([0, 1].map(|page| userfault.check_registered(start + page * PAGE)), [Ok(()); 2]);
    assert_eq!(userfault.check_registered(start + 2 * PAGE), Err(Errno::NOENT));
    // SAFETY: nobody uses it.
    unsafe { munmap((start + 3 * PAGE) as *mut _, PAGE) }.unwrap();
    assert_eq!(userfault.check_registered(start + 3 * PAGE), Err(Errno::NOENT));
}

/// Where write-back is stuck nothing leaves staging: clean pages go past the berths that wait
/// there.
#[test]
fn what_is_clean_needs_no_turn_in_staging() {
    let Some(engine) = moving_engine() else { return };
    let (piece, entries) = clean_piece(engine);
    let start = map(66 * PIECE).next_multiple_of(PIECE);
    (0..65).for_each(|place| fill(start + place * PIECE));
    engine.register_pieces(start, start + 65 * PIECE);
    let waiting = (0..65).take_while(|place| {
        let dirty = start + place * PIECE;
        engine.table.block_or_insert(BlockAddr::containing(dirty), engine.arena).unwrap();
        ring_turn(engine).isolate(PieceAddr::containing(dirty), Candidates::ALL_DIRTY).refused
            != Some(Refused::StagingFull)
    });
    assert_eq!(waiting.count(), 63);
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(piece), Candidates::ALL_CLEAN).refused,
        Some(Refused::StagingFull)
    );
    let (isolation, left) = ring_turn(engine).drop_clean(PieceAddr::containing(piece), Pages::MAX);
    assert_eq!((isolation.moved, left), (Pages::MAX, PIECE_PAGES as u64));
    let block = engine.table.block(BlockAddr::containing(piece)).unwrap();
    for (page, entry) in entries.into_iter().enumerate() {
        assert_eq!(
            block.word(PageAddr::containing(piece).index().plus(page)).state(),
            PageState::Stored(entry)
        );
    }
    // SAFETY: nobody else uses the ring.
    let staging = unsafe { &*engine.staging.get() };
    assert_eq!((staging.waiting(), staging.next_berth()), (63, Some(BerthIndex::new(63))));
    assert_eq!(engine.validate(), Ok(64 * PIECE_PAGES as u64));
}

/// A clean page does not wait either: residue in its way leaves the berth free and empty.
#[test]
fn what_stands_in_the_way_of_clean_pages_goes_at_once() {
    let Some(engine) = moving_engine() else { return };
    let (piece, _) = clean_piece(engine);
    // SAFETY: nobody else uses the ring.
    let staging = || unsafe { &*engine.staging.get() };
    let berth = staging().next_berth().unwrap();
    fill(staging().address(berth));
    let (isolation, left) = ring_turn(engine).drop_clean(PieceAddr::containing(piece), Pages::MAX);
    assert_eq!((isolation.moved, isolation.residue, left), (0, Pages::MAX, 0));
    assert_eq!((staging().waiting(), staging().next_berth(), staging().held_bytes()), (0, Some(berth), 0));
    assert_eq!(engine.pages_now(PageAddr::containing(staging().address(berth)), PIECE_PAGES).present, 0);
    assert_eq!(ring_turn(engine).drop_clean(PieceAddr::containing(piece), Pages::MAX).1, PIECE_PAGES as u64);
}

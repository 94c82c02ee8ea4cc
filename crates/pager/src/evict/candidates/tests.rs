use super::*;
use crate::test_memory::{fill, map, watching_engine};

/// A page that the kernel is about to zap is present for a while under its `Removed`.
#[test]
fn what_was_given_up_while_the_evictor_stood_still_is_no_candidate_when_it_goes_on() {
    let Some(engine) = watching_engine() else { return };
    let piece = map(2 * PIECE).next_multiple_of(PIECE);
    fill(piece);
    let taken = || {
        let block = engine.table.block(BlockAddr::containing(piece)).expect("made by the removal");
        engine.candidates(block, PieceAddr::containing(piece), Pages::MAX, Asks::Program).written
    };
    let (mut due, began) = (Due::at_once(), 7 << 40);
    engine.pass_epoch(&mut due, began);
    engine.remove_pages(piece, piece + PIECE);
    let resumed = began + 40 * EPOCH_NS;
    for now in [resumed, resumed + 1, resumed + EPOCH_NS, resumed + 2 * EPOCH_NS - 1] {
        engine.pass_epoch(&mut due, now);
        assert_eq!(taken(), 0, "{} ms later", (now - resumed) / 1_000_000);
    }
    engine.pass_epoch(&mut due, resumed + 2 * EPOCH_NS);
    assert_eq!(taken(), Pages::MAX);
}

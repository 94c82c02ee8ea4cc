//! Zeroes come to the mapping that was touched, and to no other.

use super::*;
use crate::fault::buffers::Buffers;
use crate::kernel::pagemap;
use crate::kernel::uffd::{Access, Watch};
use crate::test_memory::{fault, map, userfault, watching_engine};
use crate::units::PIECE;
use core::sync::atomic::Ordering::Relaxed;

/// A mapping of another userfaultfd ends where the engine's begins, in the middle of a piece. A
/// walk downwards that comes to the border must not fill what lies below it.
#[test]
fn a_walk_downwards_fills_no_memory_of_another_userfaultfd() {
    let Some(engine) = watching_engine() else { return };
    let Some(other) = userfault() else { return };
    let (start, border) = (map(2 * PIECE).next_multiple_of(PIECE), 8);
    let at = |page: usize| start + page * PAGE;
    other.register(start, border * PAGE, Watch::Program).unwrap();
    engine.register_pieces(at(border), at(16));
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    for page in (border..=border + 2).rev() {
        handler.serve(fault(at(page), Access::Write, 1));
    }
    let pagemap = engine.descriptors.pagemap.load(Relaxed);
    let present = pagemap::now(pagemap, start, 16).unwrap().present;
    assert_eq!(present, 0b111 << border, "{present:#b}");
    // The same walk fills what lies below where that is the engine's own.
    engine.userfault().register(at(16), 8 * PAGE, Watch::Program).unwrap();
    engine.register_pieces(at(16), at(24));
    for page in [22, 21] {
        handler.serve(fault(at(page), Access::Write, 1));
    }
    let present = pagemap::now(pagemap, at(16), 8).unwrap().present;
    assert_eq!(present, 0b0111_1100, "a window of four pages ends with the touched one: {present:#b}");
}

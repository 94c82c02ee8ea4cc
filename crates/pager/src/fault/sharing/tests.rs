//! A write lifts the protection of its own mapping, and of no other.

use crate::fault::buffers::Buffers;
use crate::fault::handler::Handler;
use crate::kernel::pagemap;
use crate::kernel::uffd::{Access, Watch};
use crate::test_memory::{fault, fill, map, userfault, watching_engine};
use crate::units::{PAGE, PIECE};
use core::sync::atomic::Ordering::Relaxed;

/// Memory that is protected by another userfaultfd ends where the engine's begins, in the middle of
/// a piece.
#[test]
fn a_write_lifts_no_protection_of_another_userfaultfd() {
    let Some(engine) = watching_engine() else { return };
    let Some(other) = userfault() else { return };
    let (start, border) = (map(2 * PIECE).next_multiple_of(PIECE), 8);
    let at = |page: usize| start + page * PAGE;
    fill(start);
    other.register(start, border * PAGE, Watch::Program).unwrap();
    engine.register_pieces(at(border), at(16));
    other.protect(start, border * PAGE).unwrap();
    engine.userfault().protect(at(border), border * PAGE).unwrap();
    let protected = || pagemap::now(engine.descriptors.pagemap.load(Relaxed), start, 16).unwrap().protected;
    assert_eq!(protected(), u16::MAX);
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    handler.serve(fault(at(border), Access::WriteProtected, 1));
    assert_eq!(protected(), 0x00ff, "its own pages may be written, the others' not: {:#x}", protected());
}

use super::*;
use crate::fault::buffers::Buffers;
use crate::fault::frozen::Whose;
use crate::fault::queue::Fault;
use crate::fault::unmapped::Since;
use crate::kernel::ranges::RANGES_MAX;
use crate::kernel::uffd::Access;
use crate::kernel::{pagemap, uffd};
use crate::test_memory::engine;
use crate::test_memory::{fault, map, map_at, moving_engine, userfault};
use crate::units::{BLOCK, PageAddr};
use rustix::mm::munmap;

const PROGRAM: usize = 0x7000_0000_0000;

/// Without a table nothing would keep the evictor from pages that the kernel is about to zap.
#[test]
fn what_is_given_up_is_marked_although_the_kernel_does_not_say_what_is_there() {
    // This engine has no pagemap to ask.
    let engine = engine();
    let (start, end) = (PROGRAM + 3 * PAGE, PROGRAM + 2 * BLOCK + 5 * PAGE);
    engine.remove_pages(start, end);
    for address in (PROGRAM..PROGRAM + 3 * BLOCK).step_by(PAGE) {
        let word = engine
            .table
            .block(BlockAddr::containing(address))
            .map(|block| block.word(PageAddr::containing(address).index()));
        let is_removed = word.is_some_and(|word| matches!(word.state(), PageState::Removed { .. }));
        assert_eq!(is_removed, (start..end).contains(&address), "{address:#x}");
    }
}

#[test]
fn an_unmapping_that_finds_no_room_in_the_set_unprotects_nobodys_stack() {
    let engine = engine();
    let (kept, registered) = (&engine.said.kept, &engine.mappings.registered);
    for number in 0..RANGES_MAX {
        let start = PROGRAM + number * 4 * PAGE;
        kept.insert(start, start + 3 * PAGE).unwrap();
        registered.insert(start, start + 3 * PAGE).unwrap();
    }
    engine.unmap_pages(PROGRAM + PAGE, PROGRAM + 2 * PAGE);
    assert!(kept.covers(PROGRAM, PROGRAM + PAGE) && kept.covers(PROGRAM + 2 * PAGE, PROGRAM + 3 * PAGE));
    assert!(!registered.covers(PROGRAM + PAGE, PROGRAM + 2 * PAGE), "it would never be registered again");
}

/// The kernel lets one userfaultfd fill memory that is registered with another. A fault that was
/// read before its page was unmapped must not bring zeroes to the mapping that came after it.
#[test]
fn a_fault_on_a_mapping_that_is_gone_fills_nothing_in_the_next_one() {
    let Some(engine) = moving_engine() else { return };
    let Some(other) = userfault() else { return };
    let (start, bytes) = (map(4 * PAGE), 4 * PAGE);
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    let stale = fault(start + PAGE, Access::Write, 1);
    // SAFETY: nobody uses it.
    unsafe { munmap(start as *mut _, bytes) }.unwrap();
    assert_eq!(map_at(start, bytes), start);
    other.register(start, bytes, uffd::Watch::Program).unwrap();
    let present = |page| {
        let descriptor = engine.descriptors.pagemap.load(Relaxed);
        !pagemap::is_empty(descriptor, start + page * PAGE, start + (page + 1) * PAGE)
    };
    handler.process(Event::Unmap { start, end: start + bytes });
    handler.serve(stale);
    handler.serve_frozen(engine.userfault(), stale, Whose::Parent);
    assert!((0..4).all(|page| !present(page)));
    // One that is read afterwards is served, and so it would come to the other's memory.
    handler.serve(Fault { read_at: handler.unmapped.now(), ..stale });
    assert!(present(1), "the kernel asks for the right userfaultfd: then this test shows nothing");
}

/// While a fork freezes the words an unmapping waits to be applied, and is true all the same.
#[test]
fn an_unmapping_that_is_postponed_is_known_at_once() {
    let engine = engine();
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    let before = handler.unmapped.now();
    handler.postpone(Event::Unmap { start: PROGRAM, end: PROGRAM + PAGE });
    assert_eq!(handler.unmapped.since(PageAddr::containing(PROGRAM), before), Since::Gone);
}

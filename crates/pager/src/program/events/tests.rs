use super::*;
use crate::fault::buffers::Buffers;
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
    // SAFETY: no other thread uses them.
    let (kept, registered) =
        unsafe { (&mut *engine.said.kept.get(), &mut *engine.mappings.registered.get()) };
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
    for page in 0..5 {
        handler.queue_fault(fault(start + page * PAGE, Access::Write, page as u32));
    }
    // SAFETY: nobody uses it.
    unsafe { munmap(start as *mut _, bytes) }.unwrap();
    assert_eq!(map_at(start, bytes), start);
    other.register(start, bytes, uffd::Watch::Program).unwrap();
    handler.process(Event::Unmap { start, end: start + bytes });
    assert_eq!(handler.queue.len(), 1, "the fault behind the mapping waits");
    assert!(handler.queue.all(|fault| fault.page.raw() == start + bytes));
    let descriptor = engine.descriptors.pagemap.load(Relaxed);
    assert!(pagemap::is_empty(descriptor, start, start + bytes));
}

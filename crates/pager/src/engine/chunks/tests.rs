use super::*;
use crate::engine::Engine;
use crate::engine::arena::StorePages;
use crate::test_memory::{huge_page, moving_engine};
use crate::units::PAGE;
use folioswap_devices::{PageMemory, Prefault};

fn pagemap(engine: &Engine) -> i32 {
    engine.descriptors.pagemap.load(Relaxed)
}

/// An engine whose store grows by huge pages, and two of these in use. `None` where that is not
/// possible.
fn scene() -> Option<(&'static Engine, usize, usize)> {
    let engine = moving_engine()?;
    engine.arena.let_store_come(StorePages::Together);
    Some((engine, huge_page(engine)?, huge_page(engine)?))
}

fn keep(engine: &Engine, address: usize) -> bool {
    engine.arena.keep_as_chunk(engine.userfault(), pagemap(engine), address)
}

#[test]
fn the_store_grows_into_what_has_left_once_it_has_asked() {
    let Some((engine, first, second)) = scene() else { return };
    let arena = engine.arena;
    assert!(!keep(engine, first), "nobody has asked");
    let (small, resident) = arena.map_to_write(BLOCK).expect("memory");
    let small = small.as_ptr() as usize;
    assert_eq!(resident, Prefault::Not);
    assert!(pagemap::is_empty(pagemap(engine), small, small + BLOCK), "none was there");
    assert!(keep(engine, first));
    assert!(!keep(engine, second), "one at a time");
    assert!(pagemap::is_empty(pagemap(engine), first, first + BLOCK));
    assert_eq!(arena.chunks().waiting_bytes(), BLOCK as u64);
    let (chunk, resident) = arena.map_to_write(BLOCK).expect("memory");
    let start = chunk.as_ptr() as usize;
    assert_eq!((resident, arena.chunks().waiting_bytes()), (Prefault::Done, 0));
    assert!(start.is_multiple_of(BLOCK) && pagemap::is_huge(pagemap(engine), start));
    assert_eq!(arena.will_write(chunk, 32 * PAGE), Prefault::Done);
    // Giving memory back costs no event, for which this thread would wait for ever.
    // SAFETY: nothing in it is needed.
    unsafe { arena.give_back(chunk, 32 * PAGE) };
    assert!(pagemap::is_empty(pagemap(engine), start, start + 32 * PAGE));
    assert!(keep(engine, second), "who has taken one wants another");
    let next = arena.map_to_write(BLOCK).expect("memory").0.as_ptr() as usize;
    assert_eq!(next, start + BLOCK);
    // Memory that has to be zero never comes from a chunk.
    let zeroes = arena.map(BLOCK).expect("memory").as_ptr() as usize;
    assert!(zeroes < start || zeroes >= start + REGION_BYTES);
}

/// Whether the page at `address` is a part of a huge page, mapped as one or not. The kernel tells
/// only root.
fn is_part_of_huge(engine: &Engine, address: usize) -> Option<bool> {
    use std::os::unix::fs::FileExt;
    const THP: u64 = 1 << 22;
    let read = |file: &std::fs::File, at: usize| {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at as u64 * 8).map(|()| u64::from_ne_bytes(word))
    };
    // SAFETY: the descriptor is the engine's, and is not closed here.
    let own = std::mem::ManuallyDrop::new(unsafe {
        <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(pagemap(engine))
    });
    let frame = read(&own, address / PAGE).ok()? & ((1 << 55) - 1);
    let flags = std::fs::File::open("/proc/kpageflags").ok().filter(|_| frame != 0)?;
    read(&flags, frame as usize).ok().map(|flags| flags & THP != 0)
}

/// A part of a huge page that is only unmapped would stay in use.
#[test]
fn a_part_that_the_store_gives_back_is_free() {
    let Some((engine, address, _)) = scene() else { return };
    let arena = engine.arena;
    arena.map_to_write(BLOCK).expect("memory");
    assert!(keep(engine, address));
    let (chunk, _) = arena.map_to_write(BLOCK).expect("memory");
    let last = chunk.as_ptr() as usize + BLOCK - PAGE;
    let Some(before) = is_part_of_huge(engine, last) else {
        crate::test_memory::skip("the flags of frames are for root");
        return;
    };
    assert!(before);
    // SAFETY: nothing in it is needed.
    unsafe { arena.give_back(chunk, 32 * PAGE) };
    assert_eq!(is_part_of_huge(engine, last), Some(false));
}

#[test]
fn what_waits_in_vain_is_given_to_the_system() {
    let Some((engine, first, second)) = scene() else { return };
    let arena = engine.arena;
    arena.map_to_write(BLOCK).expect("memory");
    assert!(keep(engine, first));
    let chunk = arena.next_chunk(engine.userfault()).expect("its place");
    arena.chunks().give_up_waiting();
    assert!(pagemap::is_empty(pagemap(engine), chunk, chunk + BLOCK));
    assert!(!keep(engine, second), "nobody has asked since");
    assert_eq!(arena.map_to_write(BLOCK).expect("memory").1, Prefault::Not);
    assert!(keep(engine, second));
}

#[test]
fn a_child_takes_what_waits_and_has_a_region_of_its_own() {
    let Some((engine, first, second)) = scene() else { return };
    let arena = engine.arena;
    arena.map_to_write(BLOCK).expect("memory");
    assert!(keep(engine, first));
    arena.chunks().forget_range();
    let chunk = arena.map_to_write(BLOCK).expect("memory").0.as_ptr() as usize;
    assert!(pagemap::is_huge(pagemap(engine), chunk));
    assert!(keep(engine, second));
    let next = arena.map_to_write(BLOCK).expect("memory").0.as_ptr() as usize;
    assert!(next < chunk || next >= chunk + REGION_BYTES, "{next:#x} is in the region of {chunk:#x}");
    // With no chunk there, the store asks anew.
    arena.chunks().forget_range();
    let Some(third) = huge_page(engine) else { return };
    assert!(!keep(engine, third));
}

#[test]
fn what_is_no_huge_page_there_is_given_up() {
    let Some((engine, address, another)) = scene() else { return };
    let arena = engine.arena;
    arena.map_to_write(BLOCK).expect("memory");
    // A page stands in the way: part of the huge page goes elsewhere, or none of it.
    let chunk = arena.next_chunk(engine.userfault()).expect("memory");
    // SAFETY: no other thread uses it.
    unsafe { ((chunk + BLOCK / 2) as *mut u8).write_volatile(1) };
    assert!(!keep(engine, address));
    // SAFETY: nothing in it is needed.
    unsafe { empty_target(engine.userfault(), chunk, BLOCK) };
    assert!(keep(engine, another), "the next place is as good");
}

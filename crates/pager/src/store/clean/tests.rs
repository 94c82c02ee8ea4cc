use super::*;
use crate::kernel::pagemap;
use crate::kernel::uffd::Access;
use crate::kernel::uffd::{Event, Message, Userfault, Watch};
use crate::staging::candidates::Candidates;
use crate::staging::ring::BerthIndex;
use crate::store::demote::DemotionUnits;
use crate::store::write_back::Tier;
use crate::test_memory::ring_turn;
use crate::test_memory::{clean_piece, map, moving_engine, userfault, word_at};
use crate::units::{BlockAddr, PAGE, PIECE, PageAddr, PieceAddr};
use folioswap_devices::Scratch;
use folioswap_group::counters::Counter;
use folioswap_policy::page::{Heat, PageState};
use rustix::fs::{Mode, OFlags};
use rustix::mm::MremapFlags;
use std::os::fd::IntoRawFd;

struct Memory {
    userfault: Userfault,
    pagemap: i32,
    program: usize,
    target: usize,
}

/// `None` where userfaultfd is not allowed.
fn memory() -> Option<Memory> {
    let userfault = userfault()?;
    let pagemap =
        rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY, Mode::empty()).unwrap().into_raw_fd();
    let (program, target) = (map(PIECE), map(PIECE));
    userfault.register(program, PIECE, Watch::Program).unwrap();
    userfault.register(target, PIECE, Watch::MoveTarget).unwrap();
    let contents = [[7u8; PAGE]; PIECE_PAGES];
    // SAFETY: the source is on our stack.
    unsafe {
        userfault.copy_protected(program, contents.as_ptr().cast(), 8 * PAGE).unwrap();
        userfault.copy(program + 8 * PAGE, contents.as_ptr().cast(), 4 * PAGE).unwrap();
    }
    Some(Memory { userfault, pagemap, program, target })
}

impl Memory {
    fn now(&self) -> pagemap::Now {
        pagemap::now(self.pagemap, self.program, PIECE_PAGES).unwrap()
    }
}

#[test]
fn the_kernel_tells_what_is_protected() {
    let Some(memory) = memory() else { return };
    assert_eq!(
        memory.now(),
        pagemap::Now { present: 0xfff, protected: 0xff, exclusive: 0xfff, ..pagemap::Now::default() }
    );
    memory.userfault.unprotect(memory.program + 2 * PAGE, PAGE).unwrap();
    // Unprotecting a range without pages does nothing.
    memory.userfault.unprotect(memory.program + 14 * PAGE, PAGE).unwrap();
    assert_eq!(
        memory.now(),
        pagemap::Now { present: 0xfff, protected: 0xfb, exclusive: 0xfff, ..pagemap::Now::default() }
    );
}

#[test]
fn a_write_to_a_protected_page_waits_and_says_so() {
    let Some(memory) = memory() else { return };
    let place = memory.program + 3 * PAGE;
    let writer = std::thread::spawn(move || {
        // SAFETY: mapped above.
        unsafe { (place as *mut u8).write_volatile(9) }
    });
    let mut messages = [Message::EMPTY];
    while memory.userfault.read(&mut messages) == Ok(0) {
        std::thread::yield_now();
    }
    let Event::Fault { address, access, .. } = messages[0].event() else { panic!("not a fault") };
    assert_eq!((address & !(PAGE - 1), access), (place, Access::WriteProtected));
    assert_eq!(memory.now().protected, 0xff);
    // SAFETY: as above.
    assert_eq!(unsafe { (place as *const u8).read_volatile() }, 7);
    memory.userfault.unprotect(place, PAGE).unwrap();
    writer.join().unwrap();
    assert_eq!(memory.now().protected, 0xf7);
    // SAFETY: as above.
    assert_eq!(unsafe { (place as *const u8).read_volatile() }, 9);
}

#[test]
fn protected_pages_can_be_moved_and_come_back_unprotected_or_not_as_asked() {
    let Some(memory) = memory() else { return };
    // SAFETY: both ranges are ours.
    unsafe { memory.userfault.move_pages(memory.target, memory.program, 8 * PAGE).unwrap() };
    assert_eq!(
        memory.now(),
        pagemap::Now { present: 0xf00, protected: 0, exclusive: 0xf00, ..pagemap::Now::default() }
    );
    let zeroes = [0u8; PAGE];
    // SAFETY: the source is on our stack; the target is mapped.
    unsafe {
        memory.userfault.copy(memory.program, zeroes.as_ptr(), PAGE).unwrap();
        assert_eq!((memory.target as *const u8).read_volatile(), 7);
    }
    assert_eq!(memory.now().protected, 0);
}

#[test]
fn a_mapping_that_moves_keeps_its_protection() {
    let Some(mut memory) = memory() else { return };
    let (userfault, from, to) = (memory.userfault, memory.program, map(PIECE));
    let mover = std::thread::spawn(move || {
        // SAFETY: both ranges are ours.
        let moved = unsafe {
            let flags = MremapFlags::MAYMOVE;
            rustix::mm::mremap_fixed(from as *mut _, PIECE, PIECE, flags, to as *mut _)
        };
        moved.unwrap() as usize
    });
    let mut messages = [Message::EMPTY; 4];
    while !mover.is_finished() {
        let _ = userfault.read(&mut messages);
        std::thread::yield_now();
    }
    memory.program = mover.join().unwrap();
    assert_eq!((memory.program, memory.now().protected), (to, 0xff));
}

fn states(engine: &Engine, start: usize) -> [PageState; PIECE_PAGES] {
    let block = engine.table.block(BlockAddr::containing(start)).unwrap();
    core::array::from_fn(|page| block.word(PageAddr::containing(start).index().plus(page)).state())
}

#[test]
fn what_is_clean_waits_in_the_swap_cache_and_is_not_written() {
    let Some(engine) = moving_engine() else { return };
    let (start, entries) = clean_piece(engine);
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_CLEAN).moved,
        Pages::MAX
    );
    assert_eq!(states(engine, start), entries.map(PageState::Leaving));
    assert!(entries.iter().all(|&entry| engine.staging_berth(entry) == Some(BerthIndex::new(0))));
    // One page is touched meanwhile: its word belongs to the handler, its entry to the evictor.
    let block = engine.table.block(BlockAddr::containing(start)).unwrap();
    block.set(PageAddr::containing(start).index().plus(3), PageWord::PRESENT_HOT);
    engine.note_returned(1);
    let tier = Tier::Store(DeviceMask::NONE);
    let left = engine.write_back_oldest(&mut Scratch::new(), tier, DemotionUnits::Any, 1);
    assert_eq!(left.unwrap().pages, PIECE_PAGES as u64 - 1);
    let now = states(engine, start);
    for (page, entry) in entries.into_iter().enumerate().filter(|&(page, _)| page != 3) {
        assert_eq!(now[page], PageState::Stored(entry));
    }
    let counter = |counter| engine.figures().counter(counter);
    assert_eq!((counter(Counter::PagesOut), counter(Counter::StolenClean)), (0, 15));
    assert_eq!(engine.validate(), Ok(15), "the entry of what was touched is free");
}

#[test]
fn what_was_written_behind_its_word_stays_and_loses_its_copy() {
    let Some(engine) = moving_engine() else { return };
    let (start, entries) = clean_piece(engine);
    engine.userfault().unprotect(start + 2 * PAGE, 3 * PAGE).unwrap();
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_CLEAN).moved,
        !0b1_1100
    );
    let now = states(engine, start);
    assert!(now[2..5].iter().all(|&state| state == PageState::Present(Heat::Hot)));
    assert_eq!((now[1], now[5]), (PageState::Leaving(entries[1]), PageState::Leaving(entries[5])));
    assert_eq!((word_at(start + 2 * PAGE) as u8, engine.counts.clean_pages.load(Relaxed)), (3, 0));
    assert_eq!(engine.validate(), Ok(13));
}

#[test]
fn where_all_is_rewritten_the_pages_around_lose_their_copies_too() {
    let Some(engine) = moving_engine() else { return };
    let (start, entries) = clean_piece(engine);
    let (block, base) =
        (engine.table.block(BlockAddr::containing(start)).unwrap(), PageAddr::containing(start).index());
    // The page that is written, and one on either side at which the run ends.
    for page in [2, 6, 9] {
        block.set(base.plus(page), PageWord::PRESENT_HOT);
        engine.put_copy(entries[page]);
    }
    assert_eq!(engine.give_up_around(block, base.plus(6)), base.get() + 3..base.get() + 9);
    let is_clean = |state: &PageState| matches!(state, PageState::Clean(..));
    assert_eq!(states(engine, start).iter().filter(|state| is_clean(state)).count(), 8);
    assert_eq!(engine.give_up_around(block, base.plus(2)), base.get()..base.get() + 3);
    assert_eq!(engine.give_up_around(block, base.plus(9)), base.get() + 9..base.get() + 16);
    assert_eq!(engine.validate(), Ok(0));
}

//! Huge pages that come and go, one step at a time, and one race.

use super::*;
use crate::fault::buffers::Buffers;
use crate::kernel::uffd::Access;
use crate::staging::candidates::Candidates;
use crate::staging::ring::HUGE_PAGE_BERTHS;
use crate::staging::row::Row;
use crate::store::demote::DemotionUnits;
use crate::store::freeing::FREED;
use crate::store::write_back::Tier;
use crate::test_memory::{decide, ring_turn};
use crate::test_memory::{engine_with_pool, fault, map, skip_without_huge_page, word_at};
use crate::units::{PIECE, PIECE_PAGES, PieceAddr};
use folioswap_devices::Scratch;
use folioswap_devices::zstd::Decoder;
use folioswap_group::folio_orders::Advised;
use folioswap_slots::DeviceMask;
use rustix::mm::{Advice, madvise};

const LIMIT: u64 = 1 << 30;

/// An engine with a pool, its handler, and 2 MiB of the program, which wants them huge, between two
/// other blocks. `None` where that is not possible.
fn scene() -> Option<(&'static Engine, Handler, usize)> {
    let (engine, handler, start) = unadvised()?;
    engine.advise_huge_pages(start, BLOCK, Advised::HugePages);
    engine.apply_requests();
    Some((engine, handler, start))
}

/// The same where the program has not asked for huge pages (the kernel uses them all the same).
fn unadvised() -> Option<(&'static Engine, Handler, usize)> {
    let engine = engine_with_pool(LIMIT)?;
    let handler = Handler::new(engine, Buffers::of(engine)?);
    let start = map(4 * BLOCK).next_multiple_of(BLOCK) + BLOCK;
    // SAFETY: the memory was mapped just now.
    unsafe { madvise((start - BLOCK) as *mut _, 3 * BLOCK, Advice::LinuxHugepage) }.unwrap();
    engine.table.block_or_insert(BlockAddr::containing(start), engine.arena).unwrap();
    Some((engine, handler, start))
}

fn block(engine: &Engine, start: usize) -> &Block {
    engine.table.block(BlockAddr::containing(start)).unwrap()
}

fn write_words(start: usize) {
    for page in 0..BLOCK_PAGES {
        // SAFETY: the memory is mapped by the test.
        unsafe { ((start + page * PAGE) as *mut u64).write_volatile(9 + page as u64) };
    }
}

fn has_its_words(start: usize) -> bool {
    (0..BLOCK_PAGES).all(|page| word_at(start + page * PAGE) == 9 + page as u64)
}

fn is_huge(engine: &Engine, start: usize) -> bool {
    pagemap::is_huge(engine.descriptors.pagemap.load(Relaxed), start)
}

/// Moves all of the block to staging, as the evictor does. Returns false if this system has no huge
/// pages.
fn take_out(engine: &Engine, start: usize) -> bool {
    write_words(start);
    if !is_huge(engine, start) {
        skip_without_huge_page();
        return false;
    }
    engine.register_pieces(start - BLOCK, start + 2 * BLOCK);
    // SAFETY: nobody else uses the ring.
    assert!(unsafe { &mut *engine.staging.get() }.align_for_huge_page(engine.userfault()));
    let done = ring_turn(engine).isolate_row(&Row::huge_page(BlockAddr::containing(start)));
    assert!(done.iter().all(|isolation| isolation.moved == u16::MAX), "{done:?}");
    assert_eq!(done.iter().map(|isolation| isolation.moves).sum::<u64>(), 1);
    assert_eq!(engine.figures().size(SizeCounter::SwapOut, BLOCK_ORDER as usize), 1);
    true
}

fn write_back(engine: &Engine, folios: u64) {
    for _ in 0..folios {
        engine
            .write_back_oldest(&mut Scratch::new(), Tier::Store(DeviceMask::NONE), DemotionUnits::Any, 1)
            .unwrap();
    }
}

fn entry(engine: &Engine, start: usize) -> SwapEntry {
    block(engine, start).word(PageInBlock::FIRST).entry().expect("it is away")
}

/// The same with a huge page of the program in staging.
fn staged() -> Option<(&'static Engine, Handler, usize)> {
    scene().filter(|&(engine, _, start)| take_out(engine, start))
}

/// The same with all of the block written back, where the program has not asked for huge pages.
fn unadvised_stored() -> Option<(&'static Engine, Handler, usize)> {
    let there = unadvised().filter(|&(engine, _, start)| take_out(engine, start));
    there.inspect(|&(engine, ..)| write_back(engine, HUGE_PAGE_BERTHS))
}

/// The same with all of the block written back, where the program has asked for huge pages.
fn stored() -> Option<(&'static Engine, Handler, usize)> {
    staged().inspect(|&(engine, ..)| write_back(engine, HUGE_PAGE_BERTHS))
}

#[test]
fn a_first_touch_gets_a_huge_page_of_zeroes() {
    let Some((engine, mut handler, start)) = scene() else { return };
    engine.register_pieces(start - BLOCK, start + 2 * BLOCK);
    let came =
        handler.first_touch_huge_page(block(engine, start), BlockAddr::containing(start), Purpose::Fault);
    if came == HugeSwapIn::Refused && engine.take_huge_page(For::FirstTouch).is_err() {
        skip_without_huge_page();
        return;
    }
    assert_eq!(came, HugeSwapIn::Done);
    assert!(is_huge(engine, start));
    assert!((0..BLOCK_PAGES).all(|page| word_at(start + page * PAGE) == 0));
    assert!(PageInBlock::all().all(|page| block(engine, start).word(page) == PageWord::PRESENT));
    // The huge page is present now, and is left as it is.
    write_words(start);
    assert_eq!(
        handler.first_touch_huge_page(block(engine, start), BlockAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert!(has_its_words(start));
}

#[test]
fn a_first_touch_is_no_whole_one_where_a_page_is_away() {
    let Some((engine, mut handler, start)) = scene() else { return };
    engine.register_pieces(start - BLOCK, start + 2 * BLOCK);
    let stored = crate::test_memory::store_page(engine, start + 300 * PAGE, &[7; PAGE]);
    assert_eq!(
        handler.first_touch_huge_page(block(engine, start), BlockAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert_eq!(block(engine, start).word(PageInBlock::new(300)).state(), PageState::Stored(stored));
    assert_eq!(
        block(engine, start).word(PageInBlock::new(299)),
        PageWord::PRESENT,
        "what was claimed is given back"
    );
    assert!(pagemap::is_empty(engine.descriptors.pagemap.load(Relaxed), start, start + BLOCK));
}

#[test]
fn what_is_touched_in_staging_comes_back_as_it_went() {
    let Some((engine, mut handler, start)) = staged() else { return };
    let here = block(engine, start);
    assert_eq!(
        handler.return_huge_page(here, PageAddr::containing(start + 5 * PAGE), entry(engine, start)),
        HugeSwapIn::Done
    );
    assert!(is_huge(engine, start) && has_its_words(start));
    assert!(PageInBlock::all().all(|page| here.word(page) == PageWord::PRESENT_HOT));
    assert_eq!(engine.counts.swapped_pages.load(Relaxed), 0);
    // The evictor finds nothing to write, and frees all slots.
    write_back(engine, HUGE_PAGE_BERTHS);
    assert_eq!(engine.validate(), Ok(0));
    assert!(has_its_words(start));
}

#[test]
fn what_is_written_back_in_part_does_not_come_back_as_a_whole() {
    let Some((engine, mut handler, start)) = staged() else { return };
    write_back(engine, 3);
    let (here, last) = (block(engine, start), start + (BLOCK_PAGES - 1) * PAGE);
    let entry = here.word(PageInBlock::LAST).entry().unwrap();
    assert_eq!(handler.return_huge_page(here, PageAddr::containing(last), entry), HugeSwapIn::Refused);
    assert!(matches!(here.word(PageInBlock::LAST).state(), PageState::Leaving(_)));
    assert!(matches!(here.word(PageInBlock::FIRST).state(), PageState::Stored(_)));
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert_eq!(engine.validate(), Ok(BLOCK_PAGES as u64));
}

/// A part was written back, touched and written to, and waits elsewhere in staging: the old berth
/// holds its content from before.
#[test]
fn what_waits_in_two_places_does_not_come_back_from_the_older() {
    let Some((engine, mut handler, start)) = staged() else { return };
    write_back(engine, 2);
    for page in 0..2 * PIECE_PAGES {
        let address = start + page * PAGE;
        handler.serve(fault(address, Access::Write, 0));
        assert_eq!(word_at(address), 9 + page as u64);
        // SAFETY: the memory is mapped by the test, and present now.
        unsafe { (address as *mut u64).write_volatile(5000 + page as u64) };
    }
    for piece in [start, start + PIECE] {
        assert_eq!(
            ring_turn(engine).isolate(PieceAddr::containing(piece), Candidates::ALL_DIRTY).moved,
            u16::MAX
        );
    }
    let here = block(engine, start);
    assert!(PageInBlock::all().all(|page| matches!(here.word(page).state(), PageState::Leaving(_))));
    let touched = here.word(PageInBlock::LAST).entry().unwrap();
    assert_eq!(
        handler.return_huge_page(here, PageAddr::containing(start + BLOCK - PAGE), touched),
        HugeSwapIn::Refused
    );
    for page in 0..BLOCK_PAGES {
        let address = start + page * PAGE;
        if matches!(here.word(PageInBlock::new(page)).state(), PageState::Leaving(_)) {
            handler.serve(fault(address, Access::Read, 0));
        }
        let wanted = if page < 2 * PIECE_PAGES { 5000 } else { 9 } + page as u64;
        assert_eq!(word_at(address), wanted, "page {page}");
    }
}

#[test]
fn what_is_stored_comes_back_as_a_huge_page_and_frees_its_slots() {
    let Some((engine, mut handler, start)) = stored() else { return };
    assert_eq!(engine.validate(), Ok(BLOCK_PAGES as u64));
    let (here, freed) = (block(engine, start), FREED.get());
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Done
    );
    let freed = (FREED.get().0 - freed.0, FREED.get().1 - freed.1);
    assert_eq!(freed, (BLOCK_PAGES as u32 / 64, BLOCK_PAGES as u32), "64 with each lock, not one");
    assert!(is_huge(engine, start) && has_its_words(start));
    assert!(PageInBlock::all().all(|page| here.word(page) == PageWord::PRESENT));
    assert_eq!(engine.figures().size(SizeCounter::SwapIn, BLOCK_ORDER as usize), 1);
    assert_eq!(engine.validate(), Ok(0));
    // Its berths in staging are kept for the next one.
    // SAFETY: nobody else uses the ring.
    let staging = unsafe { &mut *engine.staging.get() };
    let mut kept = 0;
    staging.recycle(engine.userfault(), 1, |address| {
        kept += 1;
        engine.keep_huge_page(address)
    });
    assert_eq!((kept, staging.occupied()), (1, 0));
}

/// The stored copies are given up, whether the walk reads or writes.
#[test]
fn ahead_of_a_walk_it_comes_where_it_left_as_a_huge_page() {
    let Some((engine, mut handler, start)) = unadvised_stored() else { return };
    let here = block(engine, start);
    assert!(here.left_huge.load(Relaxed));
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Ahead),
        HugeSwapIn::Done
    );
    assert!(is_huge(engine, start) && has_its_words(start));
    assert!(PageInBlock::all().all(|page| here.word(page) == PageWord::PRESENT));
    assert_eq!(engine.validate(), Ok(0));
}

/// The huge page would be split, page by page.
#[test]
fn ahead_of_a_walk_it_does_not_come_where_a_page_table_stands() {
    let Some((engine, mut handler, start)) = unadvised_stored() else { return };
    let here = block(engine, start);
    handler.serve(fault(start, Access::Read, 0));
    assert!(!here.left_huge.load(Relaxed), "by the fault");
    // The pages that have come, one or more, leave again.
    here.left_huge.store(true, Relaxed);
    let there = |page: &usize| matches!(here.word(PageInBlock::new(*page)).state(), PageState::Clean(..));
    let clean = (0..PIECE_PAGES).filter(there).fold(0, |pages, page| pages | 1 << page);
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates { written: 0, clean }).moved,
        clean
    );
    write_back(engine, 1);
    assert!(PageInBlock::all().all(|page| matches!(here.word(page).state(), PageState::Stored(_))));
    assert!(!here.left_huge.load(Relaxed), "by leaving in pieces");
    let came = |purpose, handler: &mut Handler| {
        handler.swap_in_huge_page(here, PageAddr::containing(start), purpose)
    };
    assert_eq!(came(Purpose::Ahead, &mut handler), HugeSwapIn::Refused);
    assert_eq!(
        engine.figures().size(SizeCounter::SwapInFallback, BLOCK_ORDER as usize),
        0,
        "it is not asked for"
    );
    // A program that wants huge pages gets the huge page all the same.
    engine.advise_huge_pages(start, BLOCK, Advised::HugePages);
    engine.apply_requests();
    assert_eq!(came(Purpose::Ahead, &mut handler), HugeSwapIn::Done);
    assert!(has_its_words(start));
}

/// As in the kernel, a huge page that the group may not be charged for falls back, and is counted
/// as that besides.
#[test]
fn what_cannot_be_charged_falls_back_and_is_counted_as_that() {
    let Some((engine, mut handler, start)) = stored() else { return };
    let here = block(engine, start);
    let fallbacks = || {
        [SizeCounter::SwapInFallback, SizeCounter::SwapInFallbackCharge]
            .map(|counter| engine.figures().size(counter, BLOCK_ORDER as usize))
    };
    decide(engine).set_device_bytes(LIMIT + 1);
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert_eq!(fallbacks(), [1, 1]);
    assert!(PageInBlock::all().all(|page| matches!(here.word(page).state(), PageState::Stored(_))));
    // There would be headroom, but the system has just had no huge page: that is no failed charge.
    decide(engine).set_device_bytes(0);
    engine.pool.pretend_barren();
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert_eq!(fallbacks(), [2, 1]);
    assert_eq!(engine.figures().size(SizeCounter::SwapIn, BLOCK_ORDER as usize), 0);
}

/// Ahead of a walk nobody waits for the huge page, and the walk asks again and again: the huge page
/// is asked for each time, and counts once.
#[test]
fn what_falls_back_ahead_of_a_walk_counts_once() {
    let Some((engine, mut handler, start)) = stored() else { return };
    let here = block(engine, start);
    let fallbacks = || engine.figures().size(SizeCounter::SwapInFallback, BLOCK_ORDER as usize);
    engine.pool.pretend_barren();
    for _ in 0..3 {
        assert_eq!(
            handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Ahead),
            HugeSwapIn::Refused
        );
    }
    assert_eq!(fallbacks(), 1);
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert_eq!(fallbacks(), 2, "by a fault each time");
    // A block that is not all away is not asked for.
    let single = start + 7 * PAGE;
    decide(engine).set_folio_orders(folioswap_group::folio_orders::FolioOrders::NONE);
    handler.serve(fault(single, Access::Write, 0));
    assert_eq!(
        handler.swap_in_huge_page(here, PageAddr::containing(start), Purpose::Fault),
        HugeSwapIn::Refused
    );
    assert_eq!(fallbacks(), 2);
}

/// The race: a block goes back while the evictor writes it back, and the evictor's look at a page
/// may find that it has just gone.
#[test]
fn what_goes_back_while_it_is_written_back_is_where_its_words_say() {
    let Some((engine, mut handler, _)) = scene() else { return };
    let mut went_back = 0;
    for round in 0..60 {
        let start = map(4 * BLOCK).next_multiple_of(BLOCK) + BLOCK;
        // SAFETY: the memory was mapped just now.
        unsafe { madvise((start - BLOCK) as *mut _, 3 * BLOCK, Advice::LinuxHugepage) }.unwrap();
        engine.advise_huge_pages(start, BLOCK, Advised::HugePages);
        engine.apply_requests();
        engine.table.block_or_insert(BlockAddr::containing(start), engine.arena).unwrap();
        write_words(start);
        if !is_huge(engine, start) {
            skip_without_huge_page();
            return;
        }
        engine.register_pieces(start - BLOCK, start + 2 * BLOCK);
        // SAFETY: the evictor of this test is not at work now.
        assert!(unsafe { &mut *engine.staging.get() }.align_for_huge_page(engine.userfault()));
        ring_turn(engine).isolate_row(&Row::huge_page(BlockAddr::containing(start)));
        let (here, first) = (block(engine, start), entry(engine, start));
        std::thread::scope(|scope| {
            scope.spawn(|| write_back(engine, HUGE_PAGE_BERTHS));
            for _ in 0..round * 40 {
                core::hint::spin_loop();
            }
            went_back += u32::from(
                handler.return_huge_page(here, PageAddr::containing(start), first) == HugeSwapIn::Done,
            );
        });
        for page in 0..BLOCK_PAGES {
            let found = match here.word(PageInBlock::new(page)).state() {
                PageState::Present(_) => word_at(start + page * PAGE),
                PageState::Stored(entry) => {
                    let mut bytes: Page = [0; PAGE];
                    engine.space.read(entry, &mut Decoder::new(), &mut bytes, Movers::Running).unwrap();
                    u64::from_ne_bytes(bytes[..8].try_into().unwrap())
                }
                other => panic!("page {page} is {other:?}"),
            };
            assert_eq!(found, 9 + page as u64, "page {page} of round {round}");
        }
        engine.validate().unwrap();
        // SAFETY: the evictor of this test has ended.
        unsafe { &mut *engine.staging.get() }.recycle(engine.userfault(), 1, |_| false);
    }
    std::eprintln!("{went_back} of 60 went back");
    assert!(went_back > 0);
}

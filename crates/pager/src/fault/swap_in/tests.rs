//! Folios of every order that come back, or do not.

use super::*;
use crate::fault::buffers::Buffers;
use crate::fault::handler::INTERRUPTIONS_MAX;
use crate::kernel::uffd::COPIED_AT_ONCE;
use crate::store::freeing::FREED;
use crate::test_memory::{decide, fault, map, store_page, watching_engine, word_at};
use crate::units::BLOCK_PAGES;
use folioswap_group::folio_orders::FolioOrders;
use std::vec::Vec;

const LIMIT: u64 = 1 << 30;

/// An engine, its handler, and 2 MiB of the program, all of them in the store; a walk went through
/// the 2 MiB before.
fn scene(orders: FolioOrders) -> Option<(&'static Engine, Handler, usize)> {
    let engine = watching_engine()?;
    decide(engine).set_limit_bytes(LIMIT);
    decide(engine).set_folio_orders(orders);
    let handler = Handler::new(engine, Buffers::of(engine)?);
    Some((engine, handler, walked_to(engine)?))
}

/// 2 MiB of the program, all of them in the store; a walk went through the 2 MiB before.
fn walked_to(engine: &Engine) -> Option<usize> {
    let start = map(4 * BLOCK).next_multiple_of(BLOCK) + BLOCK;
    engine.register_pieces(start - BLOCK, start + BLOCK);
    for page in 0..BLOCK_PAGES {
        let mut bytes = [0; PAGE];
        bytes[..8].copy_from_slice(&(9 + page as u64).to_le_bytes());
        store_page(engine, start + page * PAGE, &bytes);
    }
    let before = engine.table.block_or_insert(BlockAddr::containing(start - BLOCK), engine.arena)?;
    before.history.remember(0, BLOCK_PAGES, BLOCK_ORDER);
    Some(start)
}

fn touch(handler: &mut Handler, address: usize, access: Access) {
    handler.serve(fault(address, access, 1));
}

/// The pages that are in memory; checks that each of them is as it was.
fn present(engine: &Engine, start: usize) -> Vec<usize> {
    let block = engine.table.block(BlockAddr::containing(start)).unwrap();
    let is_there = |page: &usize| {
        let is_there = matches!(
            block.word(PageInBlock::new(*page)).state(),
            PageState::Present(_) | PageState::Clean(..)
        );
        assert!(
            is_there || matches!(block.word(PageInBlock::new(*page)).state(), PageState::Stored(_)),
            "{page}"
        );
        assert!(!is_there || word_at(start + page * PAGE) == 9 + *page as u64, "{page}");
        is_there
    };
    (0..BLOCK_PAGES).filter(is_there).collect()
}

fn figures(engine: &Engine, counter: SizeCounter) -> [u64; 10] {
    core::array::from_fn(|order| engine.figures().size(counter, order))
}

/// One for the figure of each of these orders, none for all others.
fn once(orders: &[usize]) -> [u64; 10] {
    core::array::from_fn(|order| u64::from(orders.contains(&order)))
}

fn pages(range: Range<usize>) -> Vec<usize> {
    range.collect()
}

#[test]
fn what_may_come_in_one_size_alone_comes_in_that() {
    for order in 1..=9 {
        for access in [Access::Read, Access::Write] {
            let Some((engine, mut handler, start)) = scene(FolioOrders { always: 1 << order, madvise: 0 })
            else {
                return;
            };
            let freed = FREED.get();
            touch(&mut handler, start, access);
            let freed = (FREED.get().0 - freed.0, FREED.get().1 - freed.1);
            // The handler takes one lock for each copy, not one for each page.
            let (locks, slots) =
                if access == Access::Read { (0, 0) } else { (1 << (order.max(4) - 4), 1 << order) };
            assert_eq!(freed, (locks, slots), "{order}");
            assert_eq!(present(engine, start), pages(0..1 << order), "{order}");
            assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[order]), "{order}");
            assert_eq!(figures(engine, SizeCounter::SwapInFallback), [0; 10], "{order}");
            // Pages that are only read keep their copies, in whatever size they come.
            let block = engine.table.block(BlockAddr::containing(start)).unwrap();
            let clean = (0..1 << order)
                .filter(|&page| matches!(block.word(PageInBlock::new(page)).state(), PageState::Clean(..)));
            assert_eq!(clean.count(), if access == Access::Read { 1 << order } else { 0 }, "{order}");
        }
    }
}

#[test]
fn a_walk_goes_on_in_the_size_that_is_allowed() {
    for order in 1..=8 {
        let Some((engine, mut handler, start)) = scene(FolioOrders { always: 1 << order, madvise: 0 }) else {
            return;
        };
        // The walk begins in the middle of a folio.
        let first = 3;
        for page in first..BLOCK_PAGES {
            if !present(engine, start).contains(&page) {
                touch(&mut handler, start + page * PAGE, Access::Read);
            }
        }
        // Within 64 KiB, pages that the window reaches come along though others there are present.
        let before_it = (first..BLOCK_PAGES).take_while(|page| page % (1 << order) != 0).count();
        let single = if matches!(order, 3 | 4) { 1 << order } else { before_it };
        let mut expected = [0; 10];
        expected[order] = ((BLOCK_PAGES - first - before_it) >> order) as u64;
        expected[0] = single as u64;
        assert_eq!(figures(engine, SizeCounter::SwapIn), expected, "{order}");
    }
}

#[test]
fn backwards_it_is_the_folio_below() {
    let Some((engine, mut handler, start)) = scene(FolioOrders { always: 1 << 7, madvise: 0 }) else {
        return;
    };
    let block = engine.table.block(BlockAddr::containing(start)).unwrap();
    block.history.remember(384, BLOCK_PAGES, 7);
    touch(&mut handler, start + 383 * PAGE, Access::Read);
    assert_eq!(present(engine, start), pages(256..384));
    assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[7]));
}

#[test]
fn a_window_is_no_larger_than_the_room_below_the_limit() {
    for (pages_left, order) in [(600, 9), (300, 8), (100, 6), (0, 4)] {
        let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
        let charged = LIMIT - pages_left * PAGE as u64 - engine.group().charge_bytes();
        decide(engine).set_device_bytes(charged);
        touch(&mut handler, start, Access::Write);
        assert_eq!(present(engine, start), pages(0..1 << order));
        assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[order]));
        assert_eq!(figures(engine, SizeCounter::SwapInFallback), [0; 10]);
    }
}

#[test]
fn what_comes_in_large_sizes_alone_may_exceed_the_limit_by_a_huge_page_and_else_falls_back() {
    // Each case: pages beyond the limit, the order that comes, and the order that falls back.
    let cases: [(u64, usize, &[usize]); 3] = [(0, 9, &[]), (300, 0, &[9]), (512, 0, &[9])];
    for (beyond, came, fell_back) in cases {
        let Some((engine, mut handler, start)) = scene(FolioOrders { always: 1 << 9, madvise: 0 }) else {
            return;
        };
        let charged = LIMIT + beyond * PAGE as u64 - engine.group().charge_bytes();
        decide(engine).set_device_bytes(charged);
        touch(&mut handler, start, Access::Write);
        assert_eq!(present(engine, start), pages(0..1 << came), "{beyond}");
        assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[came]), "{beyond}");
        assert_eq!(figures(engine, SizeCounter::SwapInFallback), once(fell_back), "{beyond}");
        assert_eq!(figures(engine, SizeCounter::SwapInFallbackCharge), once(fell_back), "{beyond}");
    }
}

#[test]
fn where_the_kernel_has_no_memory_the_next_smaller_size_is_asked_for_down_to_a_page() {
    for (at_once, came, fell_back) in [(4, 2, &[3, 4, 9][..]), (1, 0, &[1, 2, 3, 4, 9])] {
        let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
        COPIED_AT_ONCE.set(at_once * PAGE);
        touch(&mut handler, start, Access::Write);
        COPIED_AT_ONCE.set(usize::MAX);
        assert_eq!(present(engine, start), pages(0..at_once));
        assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[came]));
        assert_eq!(figures(engine, SizeCounter::SwapInFallback), once(fell_back));
        assert_eq!(figures(engine, SizeCounter::SwapInFallbackCharge), [0; 10]);
        // The window has shrunk with the folio.
        let block = engine.table.block(BlockAddr::containing(start)).unwrap();
        assert!(engine.window(block, PageAddr::containing(start + at_once * PAGE)).order <= came as u8 + 2);
    }
}

#[test]
fn only_what_is_all_away_is_asked_for() {
    let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
    touch(&mut handler, start + 300 * PAGE, Access::Write);
    assert_eq!(present(engine, start), [300]);
    touch(&mut handler, start, Access::Write);
    assert_eq!(present(engine, start), [pages(0..256), std::vec![300]].concat());
    assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[0, 8]));
    assert_eq!(figures(engine, SizeCounter::SwapInFallback), [0; 10], "2 MiB were not asked for");
}

/// Queues a fault of another thread on the page at `address`, which the handler has read.
fn queue(handler: &mut Handler, address: usize) {
    let access = Access::Read;
    handler.queue_fault(fault(address, access, 2));
}

/// Whether this page is in memory, as it was.
fn is_there(engine: &Engine, address: usize) -> bool {
    engine.pages_now(PageAddr::containing(address), 1).present == 1
}

#[test]
fn who_waits_elsewhere_is_served_in_between_and_who_waits_for_a_part_of_it_gets_it() {
    for other in [400, -300] {
        let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
        queue(&mut handler, start.wrapping_add_signed(other * PAGE as isize));
        touch(&mut handler, start, Access::Write);
        assert_eq!(present(engine, start), pages(0..512));
        let came = |page: &usize| is_there(engine, start - BLOCK + page * PAGE);
        let there: Vec<usize> = (0..BLOCK_PAGES).filter(came).collect();
        assert_eq!(there, if other < 0 { pages(212..213) } else { pages(0..0) });
        assert_eq!(handler.has_more_to_do(), other > 0, "the other finds its page there");
        assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[9]));
        assert_eq!(figures(engine, SizeCounter::SwapInFallback), [0; 10]);
    }
}

/// A thread that waits elsewhere would have to wait at the limit in any case.
#[test]
fn what_may_exceed_the_limit_is_not_given_up_for_who_waits_there() {
    let Some((engine, mut handler, start)) = scene(FolioOrders { always: 1 << 9, madvise: 0 }) else {
        return;
    };
    let charged = LIMIT - engine.group().charge_bytes();
    decide(engine).set_device_bytes(charged);
    assert!(engine.is_at_limit());
    queue(&mut handler, start - 300 * PAGE);
    touch(&mut handler, start, Access::Write);
    assert_eq!(present(engine, start), pages(0..512));
    assert!(handler.has_more_to_do(), "it waits still");
    assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[9]));
    assert_eq!(figures(engine, SizeCounter::SwapInFallback), [0; 10]);
}

#[test]
fn a_write_that_needs_no_memory_does_not_wait_at_the_limit() {
    let Some((engine, mut handler, start)) = scene(FolioOrders { always: 1 << 9, madvise: 0 }) else {
        return;
    };
    let written = walked_to(engine).unwrap();
    touch(&mut handler, written, Access::Read);
    let is_clean = || {
        let block = engine.table.block(BlockAddr::containing(written)).unwrap();
        matches!(block.word(PageInBlock::FIRST).state(), PageState::Clean(..))
    };
    assert!(is_clean());
    let charged = LIMIT - engine.group().charge_bytes();
    decide(engine).set_device_bytes(charged);
    handler.queue_fault(fault(written, Access::WriteProtected, 2));
    touch(&mut handler, start, Access::Write);
    assert_eq!(present(engine, start), pages(0..512));
    assert!(!is_clean() && !handler.has_more_to_do());
    assert_eq!(figures(engine, SizeCounter::SwapInFallback), [0; 10]);
}

#[test]
fn a_window_that_is_interrupted_too_often_ends() {
    let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
    for other in 1..=INTERRUPTIONS_MAX as usize + 1 {
        queue(&mut handler, start - other * 32 * PAGE);
    }
    touch(&mut handler, start, Access::Write);
    assert_eq!(present(engine, start), pages(0..16));
    assert!(handler.has_more_to_do(), "one waits still");
    assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[4]));
    assert_eq!(figures(engine, SizeCounter::SwapInFallback), once(&[9]));
}

/// In the middle of a window no other window begins: the thread of the first one would wait for all
/// of it.
#[test]
fn who_is_served_in_between_gets_a_piece_at_most() {
    let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
    let elsewhere = walked_to(engine).unwrap();
    queue(&mut handler, elsewhere);
    touch(&mut handler, start, Access::Write);
    assert_eq!(present(engine, start), pages(0..512));
    assert_eq!(present(engine, elsewhere), pages(0..16));
    assert_eq!(figures(engine, SizeCounter::SwapIn), once(&[4, 9]));
    // By itself the fault goes on with all pages of the window that are away.
    touch(&mut handler, elsewhere + 16 * PAGE, Access::Read);
    assert!(present(engine, elsewhere).len() > 16);
}

#[test]
fn a_stride_gets_its_next_pages_and_nothing_else() {
    let Some((engine, mut handler, start)) = scene(FolioOrders::ALL) else { return };
    // The pages are not at the border, where the walk through the block before would go on.
    for page in [3, 20, 37] {
        touch(&mut handler, start + page * PAGE, Access::Read);
    }
    assert_eq!(present(engine, start), [3, 20, 37, 54, 71]);
    touch(&mut handler, start + 88 * PAGE, Access::Read);
    assert_eq!(present(engine, start), [3, 20, 37, 54, 71, 88, 105, 122, 139, 156]);
    let figures = engine.figures();
    assert_eq!(figures.size(SizeCounter::SwapIn, 0), 10);
    assert_eq!(figures.counter(folioswap_group::counters::Counter::MajorFaults), 4);
    assert_eq!(figures.counter(folioswap_group::counters::Counter::PagesIn), 10);
}

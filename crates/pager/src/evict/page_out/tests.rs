use super::*;
use crate::engine::Engine;
use crate::test_memory::{decide, map, moving_engine_of, skip_without_huge_page};
use crate::units::{BLOCK, BLOCK_PAGES, BlockAddr, PAGE, PIECE_PAGES, PageInBlock};
use folioswap_group::counters::SizeCounter;
use folioswap_policy::page::PageState;
use rustix::mm::Advice as Madvise;
use rustix::mm::madvise;
use std::vec::Vec;

/// 2 MiB of the program, of single pages or huge, registered; and an evictor with room for them.
/// `None` where that is not possible.
fn scene(madvised: Madvise) -> Option<(&'static Engine, Evictor, usize)> {
    // Room for a huge page is an eighth of it.
    let engine = moving_engine_of(512)?;
    decide(engine).set_limit_bytes(1 << 30);
    let start = map(4 * BLOCK).next_multiple_of(BLOCK) + BLOCK;
    // SAFETY: mapped just now.
    unsafe {
        madvise((start - BLOCK) as *mut _, 3 * BLOCK, madvised).unwrap();
        for page in 0..BLOCK_PAGES {
            ((start + page * PAGE) as *mut usize).write_volatile(9 + page);
        }
    }
    engine.register_pieces(start - BLOCK, start + 2 * BLOCK);
    Some((engine, Evictor::new(engine), start))
}

/// Pages out this range, hot pages included; returns the orders in which they left, each with how
/// often.
fn page_out(
    engine: &Engine,
    evictor: &mut Evictor,
    start: usize,
    pages: core::ops::Range<usize>,
) -> Vec<(usize, u64)> {
    let before: Vec<_> = (0..10).map(|order| engine.figures().size(SizeCounter::SwapOut, order)).collect();
    let (from, end) = (start + pages.start * PAGE, start + pages.end * PAGE);
    let advised = Advised { place: 0, advice: Advice::PageOut, visit: Visit::Later, start: from, end };
    let mut batch = Batch::default();
    assert_eq!(evictor.page_out(advised, &mut batch), Step::Until(end));
    assert_eq!(batch.isolated, pages.len() as u64);
    let block = engine.table.block(BlockAddr::containing(start)).unwrap();
    let left = (0..BLOCK_PAGES)
        .filter(|&page| matches!(block.word(PageInBlock::new(page)).state(), PageState::Leaving(_)));
    assert_eq!(left.collect::<Vec<_>>(), pages.collect::<Vec<_>>());
    let out =
        (0..10).map(|order| (order, engine.figures().size(SizeCounter::SwapOut, order) - before[order]));
    out.filter(|(_, folios)| *folios > 0).collect()
}

#[test]
fn what_lies_in_the_range_leaves_in_folios_as_large_as_it_allows() {
    for (pages, expected) in [
        (0..512, &[(7, 4)][..]),
        (16..32, &[(4, 1)]),
        (17..32, &[(0, 1), (1, 1), (2, 1), (3, 1)]),
        (0..256, &[(7, 2)]),
        (128..256, &[(7, 1)]),
        (8..56, &[(3, 2), (4, 2)]),
        (5..6, &[(0, 1)]),
    ] {
        let Some((engine, mut evictor, start)) = scene(Madvise::LinuxNoHugepage) else { return };
        assert_eq!(page_out(engine, &mut evictor, start, pages.clone()), expected, "{pages:?}");
    }
}

/// Hot pages leave too: the program that advises knows better than the clock.
#[test]
fn a_huge_page_leaves_whole_if_all_of_it_lies_in_the_range_and_is_split_if_not() {
    let out: [(_, &[(usize, u64)]); 2] = [(0..512, &[(9, 1)]), (0..16, &[(4, 1)])];
    for (pages, expected) in out {
        let Some((engine, mut evictor, start)) = scene(Madvise::LinuxHugepage) else { return };
        if !pagemap::is_huge(engine.descriptors.pagemap.load(Relaxed), start) {
            skip_without_huge_page();
            return;
        }
        let block = engine.table.block_or_insert(BlockAddr::containing(start), engine.arena).unwrap();
        (0..BLOCK_PAGES).for_each(|page| {
            block.set(PageInBlock::new(page), folioswap_policy::page::PageWord::PRESENT_HOT)
        });
        let is_whole = pages.len() == BLOCK_PAGES;
        assert_eq!(page_out(engine, &mut evictor, start, pages.clone()), expected, "{pages:?}");
        let staging = evictor.staging();
        let berth = staging
            .waiting_berths()
            .find(|&berth| staging.berth(berth).piece == PieceAddr::containing(start))
            .unwrap();
        assert_eq!(staging.is_huge_page(berth), is_whole);
        assert_eq!(
            pagemap::is_huge(engine.descriptors.pagemap.load(Relaxed), staging.address(berth)),
            is_whole
        );
        // The rest of the huge page that was split is as it was.
        for page in pages.end..BLOCK_PAGES {
            assert_eq!(crate::test_memory::word_at(start + page * PAGE), 9 + page as u64);
        }
        assert_eq!(staging.waiting(), (pages.len() / PIECE_PAGES) as u64);
    }
}

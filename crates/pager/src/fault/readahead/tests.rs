use super::*;
use crate::test_memory;
use folioswap_devices::Page;
use folioswap_slots::{FolioId, Order};

const PROGRAM: usize = 0x7000_0000_0000;

fn store(engine: &Engine, page: usize) {
    let mut bytes: Page = [0; PAGE];
    bytes[..8].copy_from_slice(&(page + 1).to_le_bytes());
    test_memory::store_page(engine, PROGRAM + page * PAGE, &bytes);
}

/// Stages a page that waits in the swap cache as part of a folio.
fn stage(engine: &Engine, page: usize, folio: u32) {
    engine.space.reserve_frames().unwrap();
    let entry = engine.space.allocate(Order::ZERO, FolioId(folio)).unwrap();
    let word = PageWord::PRESENT.isolate(entry).and_then(PageWord::moved).unwrap();
    engine
        .table
        .block_or_insert(BlockAddr::containing(PROGRAM), engine.arena)
        .unwrap()
        .set(PageInBlock::new(page), word);
}

fn readahead(engine: &Engine, page: usize) -> Readahead {
    let (block, address) =
        (engine.table.block(BlockAddr::containing(PROGRAM)).unwrap(), PROGRAM + page * PAGE);
    engine.readahead(
        block,
        PageAddr::containing(address),
        engine.window(block, PageAddr::containing(address)),
    )
}

/// Makes bringing neighbours worth it: elsewhere, the pages around a touched page were wanted each
/// time.
fn make_worth_it(engine: &Engine) {
    for _ in 0..100 {
        (0..PIECE_PAGES).for_each(|piece| _ = engine.around.brings(piece, 0b10));
        (0..PIECE_PAGES).for_each(|piece| engine.around.came_back(piece, 1, 0b10));
    }
}

#[test]
fn out_of_the_swap_cache_a_folio_comes_whole_and_alone() {
    let engine = test_memory::engine();
    (0..6).for_each(|page| stage(engine, page, 3));
    (6..9).for_each(|page| stage(engine, page, 4));
    (9..16).for_each(|page| store(engine, page));
    let found = readahead(engine, 2);
    assert_eq!((found.pages, found.order), (0b11_1111, 0));
    assert_eq!(readahead(engine, 7).pages, 0b1_1100_0000);
    // From a device the page comes alone, until faults go on from it.
    let found = readahead(engine, 9);
    assert_eq!((found.pages, found.order), (1 << 9, 0));
    found.remember(engine.table.block(BlockAddr::containing(PROGRAM)).unwrap());
    let found = readahead(engine, 10);
    assert_eq!((found.pages, found.order), (0xf << 8, 2));
}

#[test]
fn what_lies_around_comes_along_from_the_store_where_that_is_worth_it() {
    let engine = test_memory::engine();
    (0..12).for_each(|page| store(engine, page));
    (12..14).for_each(|page| stage(engine, page, 3));
    make_worth_it(engine);
    let found = readahead(engine, 5);
    assert_eq!((found.pages, found.order), (0xfff, PIECE_ORDER));
    assert_eq!(found.heat(), Heat::Hot);
    // A walk that comes to the end of the piece goes on there with a window that grows.
    found.remember(engine.table.block(BlockAddr::containing(PROGRAM)).unwrap());
    (16..32).for_each(|page| store(engine, page));
    let found = readahead(engine, 16);
    assert_eq!((found.pages, found.order, found.heat()), (0b1111, 2, Heat::Cold));
    // Out of the swap cache nothing needs to be read, and nothing is.
    assert_eq!(readahead(engine, 12).pages, 0b11 << 12);
}

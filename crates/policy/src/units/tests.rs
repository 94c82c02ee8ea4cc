use super::*;

#[test]
fn an_address_names_the_unit_that_contains_it() {
    let address = 0x7f12_3456_789a;
    let page = PageAddr::containing(address);
    assert_eq!(page.raw(), 0x7f12_3456_7000);
    assert_eq!((page.piece().raw(), page.in_piece()), (0x7f12_3456_0000, 7));
    assert_eq!((page.block().raw(), page.index().get()), (0x7f12_3440_0000, 0x167));
    assert_eq!(page.piece().page(page.in_piece()), page);
    assert_eq!(page.block().page(page.index()), page);
    assert_eq!(page.block().piece(page.index().piece()), page.piece());
    assert_eq!((page.index().piece_start(), page.index().in_piece()), (page.piece().index(), 7));
    assert_eq!((BlockAddr::from(page), BlockAddr::from(page.piece())), (page.block(), page.piece().block()));
}

#[test]
fn units_follow_each_other() {
    let block = BlockAddr::containing(5 * BLOCK + 1);
    assert_eq!((block.number(), block.end()), (5, 6 * BLOCK));
    assert_eq!((block.plus(2).raw(), block.before().raw()), (7 * BLOCK, 4 * BLOCK));
    assert_eq!(block.plus(1).raw(), block.end());
    assert_eq!(PageAddr::containing(0).before().raw(), usize::MAX - (PAGE - 1));
    assert_eq!(std::format!("{block:x}"), "a00000");
}

#[test]
fn indices_of_a_block_count_its_pages() {
    assert_eq!(PageInBlock::all().count(), BLOCK_PAGES);
    assert_eq!(
        (PageInBlock::all().next(), PageInBlock::all().next_back()),
        (Some(PageInBlock::FIRST), Some(PageInBlock::LAST))
    );
    let index = PageInBlock::new(37);
    assert_eq!((index.piece(), index.in_piece(), index.piece_start().get()), (2, 5, 32));
    assert_eq!(index.piece_start().plus(5), index);
    assert_eq!(PageInBlock::range(3..5).map(PageInBlock::get).collect::<std::vec::Vec<_>>(), [3, 4]);
    let block = BlockAddr::containing(3 * BLOCK);
    assert_eq!(block.pages(), block.page(PageInBlock::FIRST)..block.plus(1).page(PageInBlock::FIRST));
    assert_eq!(block.page(PageInBlock::LAST).end(), block.end());
}

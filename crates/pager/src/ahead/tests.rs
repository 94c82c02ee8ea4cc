//! A walk of writes and the blocks that come ahead of it, one step at a time.

use super::*;
use crate::buffers::Buffers;
use crate::handler::Turn;
use crate::pagemap;
use crate::pool::For;
use crate::test_memory::{map, moving_engine, skip_without_huge_page, store_page, word_at};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_core::page::Heat;

const LIMIT: u64 = 1 << 30;
const BLOCKS: usize = 12;
const FORWARDS: Window = Window { order: WHOLE_ORDER, direction: Direction::Forwards };

/// An engine with a pool, its handler, and blocks of the program that were never touched. `None` where that is not possible.
fn scene() -> Option<(&'static Engine, Handler, usize)> {
    let engine = moving_engine()?;
    engine.segment().header.limit_bytes.store(LIMIT, Relaxed);
    engine.make_pool(LIMIT);
    let handler = Handler::new(engine, Buffers::of(engine)?);
    match engine.take_whole(For::FirstTouch) {
        Ok(taken) => engine.put_cleared_back(taken),
        Err(_) => {
            skip_without_huge_page();
            return None;
        }
    }
    let start = map((BLOCKS + 1) * BLOCK).next_multiple_of(BLOCK);
    engine.register_pieces(start, start + BLOCKS * BLOCK);
    Some((engine, handler, start))
}

/// Which of the blocks are there, each as one huge page, and which are protected.
fn blocks(engine: &Engine, start: usize) -> (Vec<usize>, Vec<usize>) {
    let pagemap = engine.descriptors.pagemap.load(Relaxed);
    let at = |block: usize| start + block * BLOCK;
    let protected = |block: usize| pagemap::now(pagemap, at(block) + 7 * PAGE, 1).unwrap().protected != 0;
    (
        (0..BLOCKS).filter(|&block| pagemap::is_huge(pagemap, at(block))).collect(),
        (0..BLOCKS).filter(|&block| protected(block)).collect(),
    )
}

fn write_to(address: usize) -> Fault {
    Fault { address, access: Access::WriteProtected, thread: 0, turn: Turn::First, since_ns: 0 }
}

fn pass(engine: &Engine, handler: &mut Handler, address: usize) -> Option<bool> {
    handler.pass_mark(engine.table.block(address).unwrap(), &write_to(address))
}

#[test]
fn a_walk_of_writes_gets_the_next_blocks_at_the_one_that_is_marked() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(start, Access::Write, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![2]));
    // Asked again before the walk gets there, nothing changes.
    handler.bring_blocks_ahead(start + BLOCK / 2, Access::Write, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![2]));
    let marked = write_to(start + 2 * BLOCK);
    assert!(handler.is_marked(&marked) && handler.needs_memory(&marked));
    assert!(!handler.is_marked(&Fault { access: Access::Write, ..marked }));
    assert_eq!(pass(engine, &mut handler, start + BLOCK), None, "another block");
    assert_eq!(pass(engine, &mut handler, marked.address), Some(true));
    assert_eq!(blocks(engine, start), (vec![1, 2, 3, 4, 5], vec![5]));
    // What came is zeroes, and can be written to.
    for page in 0..4 * BLOCK_PAGES {
        let address = start + BLOCK + page * PAGE;
        assert_eq!(word_at(address), 0);
        // SAFETY: mapped by the test, and not protected.
        unsafe { (address as *mut u64).write_volatile(page as u64) };
    }
    assert_eq!(pass(engine, &mut handler, marked.address), None, "it was passed");
    assert_eq!(pass(engine, &mut handler, start + 5 * BLOCK), Some(true));
    assert_eq!(blocks(engine, start), (vec![1, 2, 3, 4, 5, 6, 7, 8], vec![7]));
}

#[test]
fn backwards_as_well_and_at_the_limit_none_comes() {
    let Some((engine, mut handler, start)) = scene() else { return };
    let (last, window) =
        (start + BLOCKS * BLOCK - PAGE, Window { direction: Direction::Backwards, ..FORWARDS });
    handler.bring_blocks_ahead(last, Access::Write, window);
    assert_eq!(blocks(engine, start), (vec![8, 9, 10], vec![9]));
    engine.segment().header.device_bytes.store(LIMIT, Relaxed);
    assert_eq!(pass(engine, &mut handler, start + 10 * BLOCK - PAGE), Some(true));
    assert_eq!(blocks(engine, start), (vec![8, 9, 10], vec![]), "nothing is marked");
}

#[test]
fn a_walk_of_reads_marks_nothing() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(start, Access::Read, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![]));
}

/// Its page that is clean would be written to unseen, and its stored copy stand for it.
#[test]
fn a_block_of_which_a_page_is_clean_by_now_keeps_its_protection() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(start, Access::Write, FORWARDS);
    let (marked, clean) = (start + 2 * BLOCK, start + 2 * BLOCK + 9 * PAGE);
    store_page(engine, clean, &[7; PAGE]);
    let block = engine.table.block(marked).unwrap();
    let word = block.word(page_index(clean)).claim().and_then(|word| word.returned_clean(Heat::Cold));
    block.set(page_index(clean), word.expect("as a swap-in does it"));
    assert!(matches!(block.word(page_index(clean)).state(), PageState::Clean(..)));
    assert_eq!(pass(engine, &mut handler, marked), None);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![2]));
    assert_eq!(pass(engine, &mut handler, marked), None, "it is no mark any more");
}

//! Walks and the blocks that come ahead of them, one step at a time.

use super::*;
use crate::engine::pool::For;
use crate::fault::buffers::Buffers;
use crate::kernel::pagemap;
use crate::test_memory::{decide, engine_with_pool, map, skip_without_huge_page, store_page, word_at};
use crate::units::PAGE;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::page::{Heat, PageWord};

const LIMIT: u64 = 1 << 30;

const BLOCKS: usize = 12;

const FORWARDS: Window = Window { order: BLOCK_ORDER, direction: Direction::Forwards };

/// An engine with a pool, its handler, and blocks of the program that were never touched. `None`
/// where that is not possible.
fn scene() -> Option<(&'static Engine, Handler, usize)> {
    let engine = engine_with_pool(LIMIT)?;
    let handler = Handler::new(engine, Buffers::of(engine)?);
    match engine.take_huge_page(For::FirstTouch) {
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

/// The blocks that are present, each as one huge page, and the blocks that are protected.
fn blocks(engine: &Engine, start: usize) -> (Vec<usize>, Vec<usize>) {
    let pagemap = engine.descriptors.pagemap.load(Relaxed);
    let at = |block: usize| start + block * BLOCK;
    let protected = |block: usize| pagemap::now(pagemap, at(block) + 7 * PAGE, 1).unwrap().protected != 0;
    (
        (0..BLOCKS).filter(|&block| pagemap::is_huge(pagemap, at(block))).collect(),
        (0..BLOCKS).filter(|&block| protected(block)).collect(),
    )
}

fn fault(address: usize, access: Access) -> Fault {
    crate::test_memory::fault(address, access, 1)
}

fn write_to(address: usize) -> Fault {
    fault(address, Access::WriteProtected)
}

/// Notes that a walk went through the block from `start` on.
fn walk_through(engine: &Engine, start: usize) {
    let block = engine.table.block_or_insert(BlockAddr::containing(start), engine.arena).unwrap();
    block.history.remember(0, BLOCK_PAGES, BLOCK_ORDER);
}

/// Passes the trigger with a write; `None`: there is no trigger.
fn pass(handler: &mut Handler, address: usize) -> Option<bool> {
    let is_triggered = handler.is_triggered(&write_to(address));
    let resolved = handler.pass_trigger(&write_to(address));
    assert!(is_triggered || !resolved);
    is_triggered.then_some(resolved)
}

#[test]
fn a_walk_of_writes_gets_the_next_blocks_at_the_one_that_is_marked() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(PageAddr::containing(start), Access::Write, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![2]));
    // A second request before the walk gets there changes nothing.
    handler.bring_blocks_ahead(PageAddr::containing(start + BLOCK / 2), Access::Write, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![2]));
    let marked = write_to(start + 2 * BLOCK);
    assert!(handler.is_triggered(&marked) && handler.needs_memory(&marked));
    assert!(!handler.is_triggered(&Fault { access: Access::Write, ..marked }));
    assert_eq!(pass(&mut handler, start + BLOCK), None, "another block");
    assert_eq!(pass(&mut handler, marked.page.raw()), Some(true));
    assert_eq!(blocks(engine, start), (vec![1, 2, 3, 4, 5], vec![5]));
    // The pages that came are zeroes, and can be written to.
    for page in 0..4 * BLOCK_PAGES {
        let address = start + BLOCK + page * PAGE;
        assert_eq!(word_at(address), 0);
        // SAFETY: the memory is mapped by the test, and not protected.
        unsafe { (address as *mut u64).write_volatile(page as u64) };
    }
    assert_eq!(pass(&mut handler, marked.page.raw()), None, "it was passed");
    assert_eq!(pass(&mut handler, start + 5 * BLOCK), Some(true));
    assert_eq!(blocks(engine, start), (vec![1, 2, 3, 4, 5, 6, 7, 8], vec![7]));
}

#[test]
fn wherever_it_enters_the_marked_block() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(PageAddr::containing(start), Access::Write, FORWARDS);
    assert_eq!(pass(&mut handler, start + 2 * BLOCK + 77 * PAGE + 5), Some(true));
    assert_eq!(blocks(engine, start), (vec![1, 2, 3, 4, 5], vec![5]));
}

#[test]
fn backwards_as_well_and_at_the_limit_none_comes() {
    let Some((engine, mut handler, start)) = scene() else { return };
    let (last, window) =
        (start + BLOCKS * BLOCK - PAGE, Window { direction: Direction::Backwards, ..FORWARDS });
    handler.bring_blocks_ahead(PageAddr::containing(last), Access::Write, window);
    assert_eq!(blocks(engine, start), (vec![8, 9, 10], vec![9]));
    decide(engine).set_device_bytes(LIMIT);
    assert_eq!(pass(&mut handler, start + 10 * BLOCK - PAGE), Some(true));
    assert_eq!(blocks(engine, start), (vec![8, 9, 10], vec![]), "nothing is marked");
}

#[test]
fn a_walk_of_reads_marks_nothing() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(PageAddr::containing(start), Access::Read, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![]));
}

/// Stores blocks that left as huge pages, all pages of each; each page begins with its number.
fn store_blocks(engine: &Engine, start: usize, blocks: Range<usize>) {
    for block in blocks {
        for page in 0..BLOCK_PAGES {
            let mut bytes = [0; PAGE];
            bytes[..8].copy_from_slice(&(block * BLOCK_PAGES + page).to_le_bytes());
            store_page(engine, start + block * BLOCK + page * PAGE, &bytes);
        }
        engine.note_gone(BLOCK_PAGES as u64);
        engine
            .table
            .block(BlockAddr::containing(start + block * BLOCK))
            .unwrap()
            .left_huge
            .store(true, Relaxed);
    }
}

/// The walk is in the block whose first page was touched, and has to go through it with faults.
#[test]
fn a_walk_gets_the_next_blocks_while_it_waits_for_the_end_of_its_own() {
    for access in [Access::Read, Access::Write] {
        let Some((engine, mut handler, start)) = scene() else { return };
        store_blocks(engine, start, 1..6);
        walk_through(engine, start);
        // The walk has gone on to the last piece meanwhile.
        handler.queue_fault(fault(start + 2 * BLOCK - PIECE, access));
        handler.serve(fault(start + BLOCK, access));
        // Pages that were copied for a read are clean; pages that came in a huge page are not.
        let protected = if access == Access::Read { vec![1] } else { vec![3] };
        assert_eq!(blocks(engine, start), (vec![2, 3, 4], protected), "{access:?}");
        assert!(
            !engine.table.block(BlockAddr::containing(start + BLOCK)).unwrap().left_huge.load(Relaxed),
            "it has a page table"
        );
        for page in BLOCK_PAGES..5 * BLOCK_PAGES {
            assert_eq!(word_at(start + page * PAGE), page as u64);
        }
        assert_eq!(engine.validate(), Ok(if access == Access::Read { 2 } else { 1 } * BLOCK_PAGES as u64));
    }
}

#[test]
fn backwards_they_come_before_the_first_piece() {
    let Some((engine, mut handler, start)) = scene() else { return };
    store_blocks(engine, start, 1..6);
    walk_through(engine, start + 6 * BLOCK);
    handler.queue_fault(fault(start + 5 * BLOCK, Access::Read));
    handler.serve(fault(start + 6 * BLOCK - PAGE, Access::Read));
    assert_eq!(blocks(engine, start), (vec![2, 3, 4], vec![5]));
}

/// Others wait for the evictor and for a forking thread.
#[test]
fn who_must_not_wait_does_not_wait_within_the_block_either() {
    let Some((engine, mut handler, start)) = scene() else { return };
    store_blocks(engine, start, 1..6);
    engine.threads.evictor.store(77, Relaxed);
    handler.queue_fault(Fault { thread: 77, ..fault(start + BLOCK, Access::Read) });
    handler.bring_blocks_before_end(PageAddr::containing(start + BLOCK), Access::Read, Direction::Forwards);
    assert_eq!(blocks(engine, start).0, []);
    handler.bring_blocks_before_end(PageAddr::containing(start), Access::Read, Direction::Forwards);
    assert_eq!(blocks(engine, start).0, [], "nor for those of the block before");
}

/// The walk waits for the last piece: the blocks ahead leave headroom for it.
#[test]
fn where_the_group_has_no_room_for_both_the_last_piece_goes_first() {
    let Some((engine, mut handler, start)) = scene() else { return };
    store_blocks(engine, start, 2..6);
    let left = LIMIT - engine.group().charge_bytes();
    let mut room_of = |bytes: usize| {
        decide(engine).set_device_bytes(left - bytes as u64);
        handler.bring_blocks_before_end(
            PageAddr::containing(start + BLOCK),
            Access::Read,
            Direction::Forwards,
        );
        blocks(engine, start).0
    };
    assert_eq!(room_of(PIECE - PAGE), [], "not even for that");
    assert_eq!(room_of(PIECE), [2], "what waits in the pool is charged already");
    assert_eq!(room_of(BLOCK), [2]);
    assert_eq!(room_of(BLOCK + PIECE), [2, 3, 4]);
}

#[test]
fn beside_relatives_what_is_only_read_keeps_its_copies() {
    let Some((engine, mut handler, start)) = scene() else { return };
    store_blocks(engine, start, 2..6);
    let (sharing, header) = (&engine.member().sharing, &engine.segment().header);
    sharing.publish(sharing.before_measuring(header), 2 << 20);
    handler.bring_blocks_before_end(PageAddr::containing(start + BLOCK), Access::Read, Direction::Forwards);
    assert_eq!(blocks(engine, start).0, []);
    sharing.publish(sharing.before_measuring(header), 0);
    handler.bring_blocks_before_end(PageAddr::containing(start + BLOCK), Access::Read, Direction::Forwards);
    assert_eq!(blocks(engine, start).0, [2, 3, 4]);
}

/// A thread that waits in one of the blocks is served, with a piece at most, and the block does not
/// come as a huge page any more.
#[test]
fn who_waits_elsewhere_does_not_wait_for_the_blocks_ahead() {
    let Some((engine, mut handler, start)) = scene() else { return };
    store_blocks(engine, start, 1..6);
    walk_through(engine, start);
    handler.queue_fault(Fault { thread: 2, ..fault(start + 2 * BLOCK, Access::Read) });
    handler.serve(fault(start + BLOCK, Access::Read));
    assert_eq!(blocks(engine, start).0, []);
    assert!(!handler.has_more_to_do());
    assert_eq!(word_at(start + 2 * BLOCK), 2 * BLOCK_PAGES as u64);
    assert_eq!(word_at(start + 2 * BLOCK - PAGE), 2 * BLOCK_PAGES as u64 - 1);
}

/// A clean page of it would be written to unseen, and its stored copy would stand for it.
#[test]
fn a_block_of_which_a_page_is_clean_by_now_keeps_its_protection() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(PageAddr::containing(start), Access::Write, FORWARDS);
    let (marked, clean) = (start + 2 * BLOCK, start + 2 * BLOCK + 9 * PAGE);
    store_page(engine, clean, &[7; PAGE]);
    let block = engine.table.block(BlockAddr::containing(marked)).unwrap();
    let word = block
        .word(PageAddr::containing(clean).index())
        .claim()
        .and_then(|word| word.returned_clean(Heat::Cold));
    block.set(PageAddr::containing(clean).index(), word.expect("as a swap-in does it"));
    assert!(matches!(block.word(PageAddr::containing(clean).index()).state(), PageState::Clean(..)));
    // At the limit nothing else happens.
    decide(engine).set_device_bytes(LIMIT);
    assert_eq!(pass(&mut handler, marked), Some(false));
    assert_eq!(blocks(engine, start), (vec![1, 2, 3], vec![2]));
    assert_eq!(pass(&mut handler, marked), None, "it is no mark any more");
}

/// The race: a page that the evictor has claimed is no longer clean by its word, and leaves as such
/// because it is protected.
#[test]
fn a_mark_is_not_lifted_while_the_evictor_has_claimed_what_is_clean() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(PageAddr::containing(start), Access::Write, FORWARDS);
    let (marked, clean) = (start + 2 * BLOCK, start + 2 * BLOCK + 9 * PAGE);
    let entry = store_page(engine, clean, &[7; PAGE]);
    let block = engine.table.block(BlockAddr::containing(marked)).unwrap();
    let index = PageAddr::containing(clean).index();
    let returned = block.word(index).claim().and_then(|word| word.returned_clean(Heat::Cold)).unwrap();
    let claimed = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let nobody_else = engine.locks.moves.lock();
            block.set(index, PageWord::PRESENT.isolate(entry).unwrap());
            claimed.wait();
            std::thread::sleep(core::time::Duration::from_millis(20));
            assert_eq!(blocks(engine, start).1, [2], "it was lifted meanwhile");
            // The kernel has refused to move it.
            block.set(index, returned);
            drop(nobody_else);
        });
        claimed.wait();
        assert_eq!(handler.lift(BlockAddr::containing(marked)), Err(NotLifted::NotOurs));
    });
    assert_eq!(blocks(engine, start).1, [2]);
}

#[test]
fn a_mark_goes_with_its_mapping_and_is_lifted_where_another_takes_its_place() {
    let Some((engine, mut handler, start)) = scene() else { return };
    handler.bring_blocks_ahead(PageAddr::containing(start), Access::Write, FORWARDS);
    handler.forget_trigger(start, start + 2 * BLOCK);
    assert!(handler.is_triggered(&write_to(start + 2 * BLOCK)), "beside it");
    // Another walk begins.
    handler.bring_blocks_ahead(PageAddr::containing(start + 7 * BLOCK), Access::Write, FORWARDS);
    assert_eq!(blocks(engine, start), (vec![1, 2, 3, 8, 9, 10], vec![9]));
    handler.forget_trigger(start + 9 * BLOCK + PAGE, start + 9 * BLOCK + 2 * PAGE);
    assert!(!handler.is_triggered(&write_to(start + 9 * BLOCK)));
}

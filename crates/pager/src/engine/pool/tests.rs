//! The huge pages that the pool keeps, gives and misses, one step at a time.

use super::*;
use crate::test_memory::{
    decide, engine_with_pool, frees_page_tables, huge_page, map, skip_without_huge_page,
};
use crate::units::PAGE;

const LIMIT: u64 = 1 << 30;

/// An engine whose pool has one page to be had, and the huge page that was taken from there.
/// `None`: the system has none now, or userfaultfd is not allowed.
fn only_slot() -> Option<(&'static Engine, Taken)> {
    let engine = engine_with_pool(LIMIT)?;
    (1..engine.pool.slots()).for_each(|slot| engine.pool.states[slot].store(BUSY, Relaxed));
    let taken = engine.take_huge_page(For::SwapIn);
    if taken.is_err() {
        skip_without_huge_page();
    }
    Some((engine, taken.ok()?))
}

/// Whether every word of the 2 MiB at `address` is this one.
fn holds(address: usize, word: u64) -> bool {
    // SAFETY: mapped, and no thread writes to it.
    let words = unsafe { core::slice::from_raw_parts(address as *const u64, BLOCK / 8) };
    words.iter().all(|&found| found == word)
}

#[test]
fn what_is_kept_is_cleared_and_nobody_asking_ends_it() {
    let Some(engine) = engine_with_pool(LIMIT) else { return };
    // The group is far beyond its limit: no process takes more from the system by itself.
    decide(engine).set_device_bytes(LIMIT + BLOCK as u64);
    engine.prepare_huge_page(LIMIT);
    assert_eq!(engine.take_huge_page(For::FirstTouch), Err(NoHugePage::NotCharged), "nobody had asked");
    engine.prepare_huge_page(BLOCK as u64 - 1);
    assert_eq!(engine.take_huge_page(For::FirstTouch), Err(NoHugePage::NotCharged), "there was no room");
    engine.prepare_huge_page(BLOCK as u64);
    let Ok(first) = engine.take_huge_page(For::FirstTouch) else {
        skip_without_huge_page();
        return;
    };
    assert!(holds(first.address, 0));
    // SAFETY: taken.
    unsafe { (first.address as *mut u8).write_bytes(7, BLOCK) };
    engine.put_huge_page_back(first);
    let second = engine.take_huge_page(For::SwapIn).expect("what was put back");
    assert!(holds(second.address, u64::from_ne_bytes([7; 8])), "it is not cleared for who fills it");
    engine.put_huge_page_back(second);
    let third = engine.take_huge_page(For::FirstTouch).expect("what was put back");
    assert!(holds(third.address, 0));
    engine.put_huge_page_back(third);
    (0..=IDLE_LOOKS).for_each(|_| engine.look_at_pool());
    assert_eq!(engine.take_huge_page(For::SwapIn), Err(NoHugePage::NotCharged), "it was given to the system");
}

#[test]
fn a_huge_page_of_staging_is_kept_while_somebody_asks() {
    let Some(engine) = engine_with_pool(LIMIT) else { return };
    // The group is far beyond its limit: no process takes more from the system by itself.
    decide(engine).set_device_bytes(LIMIT + BLOCK as u64);
    let Some(staged) = huge_page(engine) else { return };
    assert!(!engine.keep_huge_page(staged), "nobody has asked");
    assert_eq!(engine.take_huge_page(For::SwapIn), Err(NoHugePage::NotCharged));
    assert!(engine.keep_huge_page(staged));
    let pagemap = engine.descriptors.pagemap.load(Relaxed);
    assert!(pagemap::is_empty(pagemap, staged, staged + BLOCK));
    engine.prepare_huge_page(0);
    let taken = engine.take_huge_page(For::FirstTouch).expect("it was kept");
    assert!(holds(taken.address, 0));
    assert!(!engine.keep_huge_page(staged), "nothing is there any more");
}

/// A huge page that is moved to where a page table stands goes there in single pages, and leaves
/// its own page table in the pool page.
#[test]
fn a_slot_with_a_page_table_does_not_split_what_comes_after() {
    if !frees_page_tables() {
        return;
    }
    let Some((engine, taken)) = only_slot() else { return };
    let pagemap = engine.descriptors.pagemap.load(Relaxed);
    let target = map(2 * BLOCK).next_multiple_of(BLOCK);
    engine.userfault().register(target, BLOCK, Watch::MoveTarget).unwrap();
    // SAFETY: mapped and taken; single pages leave a page table in the target.
    unsafe {
        engine.userfault().move_pages(target, taken.address, PAGE).unwrap();
        engine.userfault().move_pages(target + PAGE, taken.address + PAGE, BLOCK - PAGE).unwrap();
    }
    assert!(!pagemap::is_huge(pagemap, target));
    // As if no thread had looked at the result of the move.
    engine.pool.leave(taken, EMPTY);
    // Beyond the limit huge pages come from staging alone.
    decide(engine).set_device_bytes(LIMIT + BLOCK as u64);
    for round in 0..3 {
        let Some(staged) = huge_page(engine) else { return };
        engine.pool.wanted.store(IDLE_LOOKS, Relaxed);
        assert!(engine.keep_huge_page(staged));
        match engine.take_huge_page(For::SwapIn) {
            Ok(kept) => {
                assert!(pagemap::is_huge(pagemap, kept.address), "round {round}");
                engine.give_up_huge_page(kept);
            }
            Err(_) => assert_eq!(round, 0, "the slot is as new after the first"),
        }
    }
}

/// A huge page that comes after one that was split on its way is not split: the pool page keeps no
/// page table.
#[test]
fn a_slot_whose_huge_page_went_to_a_page_table_is_as_new() {
    if !frees_page_tables() {
        return;
    }
    let Some((engine, taken)) = only_slot() else { return };
    let pagemap = engine.descriptors.pagemap.load(Relaxed);
    let target = map(3 * BLOCK).next_multiple_of(BLOCK);
    engine.userfault().register(target, 2 * BLOCK, Watch::MoveTarget).unwrap();
    let zeroes = [0u8; PAGE];
    // SAFETY: mapped and taken. A page that came and went leaves a page table.
    unsafe {
        engine.userfault().copy(target, zeroes.as_ptr(), PAGE).unwrap();
        engine.userfault().move_pages(target + BLOCK, target, PAGE).unwrap();
        engine.userfault().move_pages(target, taken.address, BLOCK).unwrap();
    }
    assert!(!pagemap::is_huge(pagemap, target));
    engine.huge_page_has_moved(taken, BlockAddr::containing(target));
    // Beyond the limit huge pages come from staging alone.
    decide(engine).set_device_bytes(LIMIT + BLOCK as u64);
    let Some(staged) = huge_page(engine) else { return };
    assert!(engine.keep_huge_page(staged));
    let kept = engine.take_huge_page(For::SwapIn).expect("it was not split");
    assert!(pagemap::is_huge(pagemap, kept.address));
}

#[test]
fn what_is_asked_for_and_not_there_is_missing_unless_the_system_has_none() {
    let Some(engine) = engine_with_pool(LIMIT) else { return };
    engine.member().evictable_bytes.store(LIMIT, Relaxed);
    assert_eq!(engine.missing_huge_page_bytes(), 0, "nobody has asked");
    let Ok(taken) = engine.take_huge_page(For::SwapIn) else {
        skip_without_huge_page();
        return;
    };
    let all = (SLOTS_MAX * BLOCK) as u64;
    assert_eq!(engine.missing_huge_page_bytes(), all - BLOCK as u64);
    engine.pool.leave(taken, EMPTY);
    assert_eq!(engine.missing_huge_page_bytes(), all);
    // No more than is kept.
    decide(engine).set_limit_bytes(LIMIT / 16);
    assert_eq!(engine.missing_huge_page_bytes(), LIMIT / 16 / LIMIT_PART);
    // Nor for a process that has little memory.
    engine.member().evictable_bytes.store(9 * BLOCK as u64, Relaxed);
    assert_eq!(engine.missing_huge_page_bytes(), BLOCK as u64);
    engine.pool.pretend_barren();
    assert_eq!(engine.missing_huge_page_bytes(), 0);
    engine.pool.barren.store(0, Relaxed);
    (0..IDLE_LOOKS).for_each(|_| engine.look_at_pool());
    assert_eq!(engine.missing_huge_page_bytes(), 0, "nobody asks any more");
}

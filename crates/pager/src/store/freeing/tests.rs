use super::*;
use crate::test_memory;
use crate::units::PAGE;
use std::vec::Vec;

const PROGRAM: usize = 0x7000_0000_0000;

#[test]
fn each_entry_is_freed_once_whatever_their_order() {
    let engine = test_memory::engine();
    for order in [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [0, 1, 4, 5, 2, 3]] {
        let entries: Vec<_> = (0..6)
            .map(|page| test_memory::store_page(engine, PROGRAM + page * PAGE, &[page as u8 + 1; PAGE]))
            .collect();
        assert_eq!(engine.space.slots().stats().inuse, 6);
        let mut freeing = Freeing::new(engine);
        order.iter().for_each(|&index: &usize| freeing.put(entries[index]));
        drop(freeing);
        assert_eq!(engine.space.slots().stats().inuse, 0, "{order:?}");
        assert_eq!(engine.space.mm_stat().same_pages, 0);
    }
}

/// No entry is freed before the run ends or reaches its maximum; then all of the run are freed at
/// once.
#[test]
fn entries_in_a_row_are_freed_together() {
    let engine = test_memory::engine();
    let entries: Vec<_> = (0..200)
        .map(|page| test_memory::store_page(engine, PROGRAM + page * PAGE, &[page as u8 + 1; PAGE]))
        .collect();
    let in_use = || engine.space.slots().stats().inuse;
    let before = FREED.get();
    let mut freeing = Freeing::new(engine);
    for (put, &entry) in entries.iter().enumerate() {
        let together = TOGETHER as usize;
        // The entry that begins the next run ends the last one.
        freeing.put(entry);
        assert_eq!(in_use(), (200 - put / together * together) as u64, "{put}");
    }
    drop(freeing);
    assert_eq!(in_use(), 0);
    let (locks, slots) = (FREED.get().0 - before.0, FREED.get().1 - before.1);
    assert_eq!((locks, slots), (200u32.div_ceil(TOGETHER), 200));
}

//! Pages that cannot be read back, or not in the best way.

use super::*;

#[test]
fn what_is_damaged_on_the_file_is_named_and_nothing_else_is_lost() {
    let object = object_on_file::<Current>();
    let space = &object.space;
    damage(&object, 6);
    let mut page = vec![0; PAGE];
    for index in 0..PAGES {
        let outcome = object.read(index * PAGE as u64, &mut page);
        if index == 6 {
            assert_eq!(outcome, Err(ShmemError::Io { index: 6 }));
        } else {
            assert_eq!(outcome, Ok(PAGE));
            assert!(page == page_of(index), "page {index}");
        }
    }
    assert_eq!(object.read(6 * PAGE as u64, &mut page), Err(ShmemError::Io { index: 6 }), "it stays so");
    assert_eq!(object.write(6 * PAGE as u64 + 1, &[1]), Err(ShmemError::Io { index: 6 }));
    assert_eq!(object.write(6 * PAGE as u64, &page_of(6)), Ok(PAGE), "until it is overwritten as a whole");
    all_pages_are_right(&object);
    let counts = space.counters.now();
    assert_eq!(counts.poisoned, 1);
    assert!(counts.swap_ra > 0 && counts.swap_ra_hit > 0, "{counts:?}");
}

/// Without memory for a run of pages, each page is read alone: nothing is lost by that.
#[test]
fn without_memory_to_read_a_run_the_pages_come_back_one_by_one() {
    let object = object_on_file::<Current>();
    let space = &object.space;
    crate::swap::NO_MEMORY_FOR_RUNS.set(true);
    all_pages_are_right(&object);
    crate::swap::NO_MEMORY_FOR_RUNS.set(false);
    let counts = space.counters.now();
    assert!(counts.poisoned == 0 && counts.swap_ra > 0, "{counts:?}");
}

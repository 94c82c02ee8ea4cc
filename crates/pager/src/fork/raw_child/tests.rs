use super::*;
use crate::fault::buffers::Buffers;
use crate::test_memory::{map, store_page, watching_engine};
use crate::units::{ADDRESS_END, BlockAddr};
use rustix::mm::{Advice, MremapFlags, madvise, mremap_fixed};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::vec::Vec;

const PAGES: usize = 8;

/// Maps memory of the program whose pages are all stored, unannounced.
fn stored(engine: &'static Engine) -> usize {
    let start = map(PAGES * PAGE);
    engine.register_pieces(start, start + PAGES * PAGE);
    for page in 0..PAGES {
        store_page(engine, start + page * PAGE, &[page as u8 + 1; PAGE]);
    }
    start
}

fn advise(start: usize, pages: usize, advice: Advice) {
    // SAFETY: mapped by the test; nothing of it is changed for this process.
    unsafe { madvise(start as *mut _, pages * PAGE, advice) }.unwrap();
}

/// Returns the pages from `start` on that are stored according to this table.
fn stored_pages(table: &PageTable, start: usize) -> Vec<usize> {
    let is_stored = |&page: &usize| {
        let address = start + page * PAGE;
        let block = table.block(BlockAddr::containing(address));
        matches!(
            block.map(|block| block.word(PageAddr::containing(address).index()).state()),
            Some(PageState::Stored(_))
        )
    };
    (0..PAGES).filter(is_stored).collect()
}

/// The advice is not seen: it is given by a bare system call. It holds where the mapping has moved,
/// and not for a mapping in its place.
#[test]
fn what_a_child_does_not_inherit_is_not_served_to_it() {
    let Some(engine) = watching_engine() else { return };
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    let [kept, wiped, absent, in_part, moved, renewed] = [(); 6].map(|()| stored(engine));
    advise(wiped, PAGES, Advice::LinuxWipeOnFork);
    advise(absent, PAGES, Advice::LinuxDontFork);
    advise(in_part + 2 * PAGE, 3, Advice::LinuxWipeOnFork);
    advise(moved, PAGES, Advice::LinuxWipeOnFork);
    advise(renewed, PAGES, Advice::LinuxWipeOnFork);
    advise(renewed, PAGES, Advice::LinuxKeepOnFork);
    let target = map(PAGES * PAGE);
    // SAFETY: both are the test's. The moved pages were never present; `target` is replaced by
    // them.
    unsafe {
        engine.userfault().unregister(moved, PAGES * PAGE).unwrap();
        let flags = MremapFlags::MAYMOVE;
        mremap_fixed(moved as *mut _, PAGES * PAGE, PAGES * PAGE, flags, target as *mut _)
    }
    .unwrap();
    engine.move_words(moved, target, PAGES * PAGE);
    let all: Vec<usize> = (0..PAGES).collect();
    let in_use = engine.space.slots().stats().inuse;
    let (_, table) = handler.table_of_child();
    assert_eq!(stored_pages(table, kept), all);
    assert_eq!(stored_pages(table, renewed), all, "the advice was taken back");
    assert_eq!(stored_pages(table, in_part), [0, 1, 5, 6, 7]);
    for (start, name) in [(wiped, "wiped"), (absent, "absent"), (moved, "moved"), (target, "moved to")] {
        assert_eq!(stored_pages(table, start), [0; 0], "{name}");
    }
    assert_eq!(stored_pages(&engine.table, target), all, "they are this process's");
    drop_table(engine, table, 0, ADDRESS_END);
    assert_eq!(engine.space.slots().stats().inuse, in_use);
    // As in a child that the C library forked: now with this process's own words.
    handler.for_not_inherited(|range| engine.remove_pages(range.start, range.end));
    assert_eq!(stored_pages(&engine.table, kept), all);
    assert_eq!(stored_pages(&engine.table, in_part), [0, 1, 5, 6, 7]);
    for start in [wiped, absent, target] {
        assert_eq!(stored_pages(&engine.table, start), [0; 0]);
    }
}

/// The copies of raw children's tables that a forked child inherits hold entries that nothing would
/// ever give up.
#[test]
fn a_forked_child_holds_nothing_for_its_parents_bare_clones() {
    let Some(engine) = watching_engine() else { return };
    let mut parent = Handler::new(engine, Buffers::of(engine).unwrap());
    let start = stored(engine);
    let (control, _supervisor) = UnixDatagram::pair().unwrap();
    engine.descriptors.control.store(control.as_raw_fd(), Relaxed);
    for _ in 0..2 {
        let (index, table) = parent.table_of_child();
        parent.adopt(index, table, engine.userfault().0);
        assert_eq!(stored_pages(table, start).len(), PAGES);
    }
    engine.note_gone(PAGES as u64);
    assert_eq!(engine.validate(), Ok(PAGES as u64), "with two bare clones");
    engine.unmap_pages(start, start + PAGE);
    assert_eq!(engine.space.slots().stats().inuse, PAGES as u64, "they hold it still");
    // From here on as in a forked child: with a handler of its own, which has the same buffers.
    drop(parent);
    engine.forget_raw_children();
    assert_eq!(engine.validate(), Ok(PAGES as u64 - 1));
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    let (index, table) = handler.table_of_child();
    assert_eq!((index, stored_pages(table, start)), (0, (1..PAGES).collect()), "a table is used again");
}

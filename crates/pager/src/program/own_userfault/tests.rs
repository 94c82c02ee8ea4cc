use super::*;
use crate::test_memory::{map, moving_engine, store_page};
use folioswap_devices::PAGE_SIZE;
use folioswap_policy::page::PageWord;
use rustix::io::Errno;

const PAGES: usize = 8;

/// A range is given up as a whole, or not at all: a page that is away would read as zeroes.
#[test]
fn a_range_is_given_up_only_when_no_page_of_it_is_away() {
    let Some(engine) = moving_engine() else { return };
    let start = map(PAGES * PAGE);
    let (from, to) = (start + 2 * PAGE, start + 6 * PAGE);
    // SAFETY: the memory is the test's own.
    unsafe { (from as *mut u8).write(7) };
    engine.register_pieces(start, start + PAGES * PAGE);
    let is_registered = |page: usize| engine.userfault().check_registered(start + page * PAGE);
    let entry = store_page(engine, from + PAGE, &[9; PAGE_SIZE]);
    assert!(!engine.give_up_range(from, to));
    assert_eq!(is_registered(3), Ok(()));

    // It came back.
    let block = engine.table.block(crate::units::PageAddr::containing(from + PAGE)).unwrap();
    let index = crate::units::PageAddr::containing(from + PAGE).index();
    assert!(matches!(block.word(index).state(), PageState::Stored(stored) if stored == entry));
    block.set(index, PageWord::PRESENT_HOT);
    assert!(engine.give_up_range(from, to));
    for page in 0..PAGES {
        let expected = if (2..6).contains(&page) { Err(Errno::NOENT) } else { Ok(()) };
        assert_eq!(is_registered(page), expected, "page {page}");
    }
    assert_eq!(block.word(index), PageWord::PRESENT);
    // SAFETY: the memory is the test's own.
    assert_eq!(unsafe { (from as *const u8).read() }, 7);
    // The rest is managed as before, and the range may be registered again.
    assert!(engine.registered_around(crate::units::PageAddr::containing(start)).is_some());
    assert!(engine.registered_around(crate::units::PageAddr::containing(from)).is_none());
    assert!(engine.register_pieces(from, to).is_some());
}

/// Nobody registers memory between the moment in which a range is given up and the program's own
/// registration.
#[test]
fn nothing_is_registered_while_a_range_is_given_up() {
    let Some(engine) = moving_engine() else { return };
    let start = map(PAGES * PAGE);
    engine.register_pieces(start, start + PAGES * PAGE);
    engine.demand.start.store(start, Relaxed);
    engine.demand.end.store(start + PAGES * PAGE, Relaxed);
    engine.demand.state.store(WANTED, Release);
    assert!(engine.demand.lets_register());
    engine.follow_demand();
    assert_eq!(engine.demand.state.load(Acquire), GIVEN_UP);
    assert!(!engine.demand.lets_register());
    engine.demand.forget();
    assert!(engine.demand.lets_register());
}

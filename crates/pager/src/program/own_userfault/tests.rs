use super::*;
use crate::fault::handler::Handler;
use crate::fault::unmapped::Since;
use crate::kernel::uffd::Access;
use crate::test_memory::{map, moving_engine, store_page};
use crate::units::PageAddr;
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
    let away = PageAddr::containing(from + PAGE);
    let entry = store_page(engine, away.raw(), &[9; PAGE_SIZE]);
    assert_eq!(engine.give_up_range(from, to), Given::Not);
    assert_eq!(is_registered(3), Ok(()));

    // It came back.
    let block = engine.table.block(away).unwrap();
    assert!(matches!(block.word(away.index()).state(), PageState::Stored(stored) if stored == entry));
    block.set(away.index(), PageWord::PRESENT_HOT);
    assert_eq!(engine.give_up_range(from, to), Given::Up);
    for page in 0..PAGES {
        let expected = if (2..6).contains(&page) { Err(Errno::NOENT) } else { Ok(()) };
        assert_eq!(is_registered(page), expected, "page {page}");
    }
    assert_eq!(block.word(away.index()), PageWord::PRESENT);
    // SAFETY: the memory is the test's own.
    assert_eq!(unsafe { (from as *const u8).read() }, 7);
    // The rest is managed as before, and the range may be registered again.
    assert!(engine.registered_around(PageAddr::containing(start)).is_some());
    assert!(engine.registered_around(PageAddr::containing(from)).is_none());
    assert!(engine.register_pieces(from, to).is_some());
}

/// A page that a fork's freeze has served is in memory although its word says that it is stored:
/// nothing would ever bring it back.
#[test]
fn a_page_that_is_there_under_an_old_copy_is_no_hindrance() {
    let Some(engine) = moving_engine() else { return };
    let start = map(PAGES * PAGE);
    // SAFETY: the memory is the test's own.
    unsafe { (start as *mut u8).write(7) };
    engine.register_pieces(start, start + PAGES * PAGE);
    store_page(engine, start, &[9; PAGE_SIZE]);
    let swapped = engine.counts.swapped_pages.load(Relaxed);
    assert_eq!(engine.give_up_range(start, start + PAGES * PAGE), Given::Up);
    assert_eq!(engine.counts.swapped_pages.load(Relaxed), swapped.wrapping_sub(1));
    // SAFETY: the memory is the test's own.
    assert_eq!(unsafe { (start as *const u8).read() }, 7);
}

/// Nobody registers memory between the moment in which a range is given up and the program's own
/// registration; then a fault that was read before is not served any more.
#[test]
fn what_was_given_up_is_neither_registered_nor_served() {
    let Some(engine) = moving_engine() else { return };
    let start = map(PAGES * PAGE);
    let page = PageAddr::containing(start + PAGE);
    engine.register_pieces(start, start + PAGES * PAGE);
    let buffers = crate::fault::buffers::Buffers::of(engine).unwrap();
    let mut handler = Handler::new(engine, buffers);
    let fault = handler.fault_read_now(page, Access::Write, 1, 0);
    assert!(!handler.is_gone(&fault));

    let demand = &engine.demand;
    let mine = demand.take(start, start + PAGES * PAGE).unwrap();
    assert_eq!(demand.take(start, start + PAGE), None, "one at a time");
    assert_eq!(engine.kept_pages(page.piece()) >> page.in_piece() & 1, 1, "the range stays resident");
    assert!(demand.go(mine, Step::Wanted));
    assert!(demand.lets_register());
    engine.follow_demand();
    assert_eq!(demand.now(), mine.at(Step::GivenUp));
    assert_eq!(engine.register_pieces(start, start + PAGES * PAGE), None);
    handler.learn_what_was_given_up();
    assert_eq!(handler.unmapped.since(page, fault.read_at), Since::Unknown);
    assert!(handler.is_gone(&fault));

    assert!(demand.go(mine.at(Step::GivenUp), Step::Nothing));
    assert_eq!(engine.kept_pages(page.piece()), 0);
    assert!(engine.register_pieces(start, start + PAGES * PAGE).is_some());
    // A thread that comes late changes nothing of another's demand.
    let other = demand.take(start, start + PAGE).unwrap();
    assert_ne!(other, mine);
    assert!(!demand.go(mine, Step::Wanted));
    demand.forget();
    assert_eq!(demand.now().step(), Step::Nothing);
}

/// A handler in its round keeps addresses of words: the demand stands until it is outside.
#[test]
fn a_demand_waits_for_the_handler() {
    let Some(engine) = moving_engine() else { return };
    let start = map(PAGES * PAGE);
    engine.register_pieces(start, start + PAGES * PAGE);
    let mine = engine.demand.take(start, start + PAGES * PAGE).unwrap();
    assert!(engine.demand.go(mine, Step::Wanted));
    let in_its_round = engine.locks.serve.lock();
    engine.follow_demand();
    assert_eq!(engine.demand.now().step(), Step::Wanted);
    drop(in_its_round);
    engine.follow_demand();
    assert_eq!(engine.demand.now().step(), Step::GivenUp);
}

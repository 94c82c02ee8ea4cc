use super::*;
use crate::fault::buffers::Buffers;
use crate::kernel::uffd::Access;
use crate::test_memory::{engine, fault};
use crate::units::PAGE;

const START: usize = 0x7000_0000_0000;

#[test]
fn a_page_is_gone_since_its_range_was_unmapped_and_for_none_that_is_read_later() {
    let mut unmapped = Unmapped::new();
    let [page, behind] = [START + PAGE, START + 2 * PAGE].map(PageAddr::containing);
    let before = unmapped.now();
    assert_eq!(unmapped.since(page, before), Since::StillThere);
    unmapped.note(START, START + 2 * PAGE);
    assert_eq!(
        (unmapped.since(page, before), unmapped.since(behind, before)),
        (Since::Gone, Since::StillThere)
    );
    assert_eq!(
        unmapped.since(page, unmapped.now()),
        Since::StillThere,
        "it was mapped again before it was touched"
    );
}

/// A thread that waits for memory while another one unmaps all the time is served all the same.
#[test]
fn a_fault_older_than_all_that_is_known_is_served_where_its_page_is_registered() {
    let engine = engine();
    let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
    engine.mappings.registered.insert(START, START + PAGE).unwrap();
    let [ours, others] = [START, START + PAGE].map(|page| fault(page, Access::Write, 1));
    for _ in 0..KEPT {
        handler.unmapped.note(START + PAGE, START + 2 * PAGE);
        assert!(!handler.is_gone(&ours) && handler.is_gone(&others));
    }
    handler.unmapped.note(START + 8 * PAGE, START + 9 * PAGE);
    assert_eq!(handler.unmapped.since(ours.page, ours.read_at), Since::Unknown);
    assert!(!handler.is_gone(&ours) && handler.is_gone(&others));
}

use super::*;
use crate::units::PAGE;

const START: usize = 0x7000_0000_0000;

#[test]
fn a_page_is_gone_since_its_range_was_unmapped_and_for_none_that_is_read_later() {
    let mut unmapped = Unmapped::new();
    let [page, behind] = [START + PAGE, START + 2 * PAGE].map(PageAddr::containing);
    let before = unmapped.now();
    assert!(!unmapped.is_gone(page, before));
    unmapped.note(START, START + 2 * PAGE);
    assert!(unmapped.is_gone(page, before) && !unmapped.is_gone(behind, before));
    assert!(!unmapped.is_gone(page, unmapped.now()), "it was mapped again before it was touched");
}

#[test]
fn a_fault_older_than_all_that_is_known_is_taken_for_gone() {
    let mut unmapped = Unmapped::new();
    let (page, before) = (PageAddr::containing(START), unmapped.now());
    unmapped.note(START + PAGE, START + 2 * PAGE);
    let after = unmapped.now();
    for _ in 0..KEPT - 1 {
        assert!(!unmapped.is_gone(page, before));
        unmapped.note(START + PAGE, START + 2 * PAGE);
    }
    assert!(!unmapped.is_gone(page, before));
    unmapped.note(START + PAGE, START + 2 * PAGE);
    assert!(unmapped.is_gone(page, before) && !unmapped.is_gone(page, after));
}

use super::*;

#[test]
fn time_alone_is_no_reason() {
    let mut standstill = Standstill::new(0);
    assert!(!standstill.is_final(Sight::Waiting, 100 * STUCK_NS), "the evictor may not have run");
    assert!(!standstill.is_final(Sight::NothingLeft, 200 * STUCK_NS), "it looked once");
}

#[test]
fn many_looks_in_a_short_time_are_no_reason() {
    let mut standstill = Standstill::new(0);
    assert!(!(0..10 * WITNESSES).any(|_| standstill.is_final(Sight::NothingLeft, STUCK_NS)));
}

#[test]
fn many_looks_over_a_long_time_are() {
    let mut standstill = Standstill::new(0);
    let looks =
        (1..=WITNESSES as u64).filter(|look| standstill.is_final(Sight::NothingLeft, STUCK_NS + look));
    assert_eq!(looks.collect::<std::vec::Vec<_>>(), [WITNESSES as u64]);
}

#[test]
fn any_progress_begins_it_anew() {
    let mut standstill = Standstill::new(0);
    for look in 1..10 * WITNESSES as u64 {
        let sight = if look % 50 == 0 { Sight::Progress } else { Sight::NothingLeft };
        assert!(!standstill.is_final(sight, look * STUCK_NS));
    }
}

#[test]
fn a_group_that_crawls_is_said_once() {
    const LOOK: u64 = 500_000_000;
    let mut standstill = Standstill::new(0);
    let looks = (0..100).map(|look| standstill.crawls(Fill::FullOfStored, look * LOOK));
    let said = looks.enumerate().filter(|(_, crawls)| *crawls).map(|(look, _)| look as u64 * LOOK);
    let patience = Patience::MEMBER.stored_ns;
    assert_eq!(said.take(2).collect::<std::vec::Vec<_>>(), [patience, 2 * patience + LOOK]);
}

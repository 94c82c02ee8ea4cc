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
fn who_is_never_below_a_limit_that_the_store_fills_crawls() {
    const SECOND: u64 = 1_000_000_000;
    let mut standstill = Standstill::new(0);
    assert!(!standstill.crawls(100, 60, 100, 9 * SECOND));
    assert!(!standstill.crawls(99, 60, 100, 10 * SECOND), "below it for a moment");
    assert!(!standstill.crawls(105, 60, 100, 19 * SECOND));
    assert!(standstill.crawls(105, 60, 100, 21 * SECOND));
    assert!(!standstill.crawls(105, 60, 100, 22 * SECOND), "it is said once");
    assert!(!standstill.crawls(105, 50, 100, 40 * SECOND), "what fills it is not the store");
}

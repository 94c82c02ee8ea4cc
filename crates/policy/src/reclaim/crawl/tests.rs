use super::*;

const MS: u64 = 1_000_000;
const LIMIT: u64 = 64 << 20;
const LONG_NS: u64 = 10_000 * MS;
const LONG: Patience = Patience { stored_ns: LONG_NS, unswappable_ns: LONG_NS };
const NONE: Patience = Patience { stored_ns: 0, unswappable_ns: 0 };

/// A group that was found so at each look of 20 ms, until that time.
fn after(crawl: &mut Crawl, fill: Fill, from_ms: u64, until_ms: u64) {
    (from_ms..=until_ms).step_by(20).for_each(|at| crawl.look(fill, 0, at * MS));
}

#[test]
fn what_fills_a_group_is_told_apart() {
    let low = Watermarks::of(LIMIT).low;
    assert_eq!(Fill::of(LIMIT, LIMIT - 1, 0, LIMIT), Fill::Below);
    assert_eq!(Fill::of(LIMIT, LIMIT, 0, LIMIT / 2 + 1), Fill::FullOfStored);
    assert_eq!(Fill::of(LIMIT, LIMIT, LIMIT - low, 0), Fill::FullOfUnswappable);
    assert_eq!(Fill::of(LIMIT, LIMIT, LIMIT - low + 1, 0), Fill::Full);
    assert_eq!(Fill::of(LIMIT, LIMIT, u64::MAX, 0), Fill::Full, "members write what they like");
}

#[test]
fn a_group_that_is_full_of_either_for_long_crawls() {
    for fill in [Fill::FullOfStored, Fill::FullOfUnswappable] {
        let mut crawl = Crawl::new();
        after(&mut crawl, fill, 0, 10_000);
        assert!(!crawl.exceeds(LONG, 9_999 * MS), "{fill:?}");
        assert!(crawl.exceeds(LONG, 10_000 * MS), "{fill:?}");
    }
}

#[test]
fn stored_pages_alone_have_a_patience_of_their_own() {
    let mut crawl = Crawl::new();
    after(&mut crawl, Fill::FullOfStored, 0, 9_980);
    assert!(!crawl.exceeds(Patience { stored_ns: LONG_NS, unswappable_ns: 0 }, 9_980 * MS));
}

#[test]
fn a_group_that_could_give_something_does_not() {
    let mut crawl = Crawl::new();
    after(&mut crawl, Fill::Full, 0, 100_000);
    assert!(!crawl.exceeds(NONE, 100_000 * MS));
}

#[test]
fn a_moment_below_the_limit_ends_it() {
    let mut crawl = Crawl::new();
    after(&mut crawl, Fill::FullOfUnswappable, 0, 9_980);
    crawl.look(Fill::Below, 0, 9_990 * MS);
    after(&mut crawl, Fill::FullOfUnswappable, 10_000, 19_980);
    assert!(!crawl.exceeds(LONG, 19_980 * MS));
}

#[test]
fn a_member_that_tries_anew_is_overlooked_for_a_moment() {
    let mut crawl = Crawl::new();
    for second in 0..10 {
        after(&mut crawl, Fill::FullOfUnswappable, second * 1000, second * 1000 + 100);
        after(&mut crawl, Fill::Full, second * 1000 + 120, second * 1000 + 980);
    }
    crawl.look(Fill::FullOfUnswappable, 0, LONG_NS);
    assert!(crawl.exceeds(LONG, LONG_NS));
    after(&mut crawl, Fill::Full, 10_020, 11_020);
    assert!(!crawl.exceeds(NONE, 11_020 * MS), "it has something to give");
}

#[test]
fn other_memory_ends_a_crawl_for_stored_pages_at_once() {
    let mut crawl = Crawl::new();
    after(&mut crawl, Fill::FullOfStored, 0, 5_000);
    after(&mut crawl, Fill::Full, 5_020, 8_000);
    after(&mut crawl, Fill::FullOfStored, 8_020, 12_000);
    assert!(!crawl.exceeds(LONG, 12_000 * MS));
}

#[test]
fn a_group_that_serves_many_faults_goes_on() {
    for (a_second, goes_on) in [(50, false), (250, false), (300, true), (5000, true)] {
        let mut crawl = Crawl::new();
        (0..=10_000)
            .step_by(20)
            .for_each(|at| crawl.look(Fill::FullOfUnswappable, at * a_second / 1000, at * MS));
        assert_eq!(!crawl.exceeds(LONG, LONG_NS), goes_on, "{a_second}");
    }
}

#[test]
fn a_pause_in_looking_begins_it_anew() {
    let mut crawl = Crawl::new();
    after(&mut crawl, Fill::FullOfUnswappable, 0, 100);
    after(&mut crawl, Fill::FullOfUnswappable, 9_900, 10_100);
    assert!(!crawl.exceeds(LONG, 10_100 * MS), "it was frozen meanwhile");
}

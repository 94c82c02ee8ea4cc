use super::*;
use crate::build::{BuildParameters, NoRecorder, Scale, Sizes, Stopped, SwapDevice, Tally, run_build};
use crate::policies::{NoSuchPolicy, PolicyName, WithPolicy};
use folioswap_slots::{DeviceFlags, Order};

/// A build on a device that is nearly full, not synchronous, so that every choice matters.
struct Build;

impl WithPolicy for Build {
    type Output = Tally;
    fn run<P: Policy>(self) -> Tally {
        let parameters =
            BuildParameters { tasks: 48, ..BuildParameters::published(Sizes::All).scaled(Scale(16)) };
        let device = SwapDevice { pages: 60_000, flags: DeviceFlags::NONE };
        let outcome = run_build::<P, _>(&parameters, device, 2, NoRecorder, |_| Stopped::No).unwrap();
        assert!(outcome.consistent);
        outcome.tally
    }
}

fn built(policy: &str) -> Tally {
    let policy: PolicyName = policy.parse().unwrap();
    policy.apply(Build)
}

#[test]
fn combinations_do_what_the_types_of_the_series_do() {
    // With a device that does not discard, where discards run does not matter, so these are equal.
    let pairs = [
        ("scan-all+free-first+reclaim-early", "scan-all"),
        ("scan-one+free-first+reclaim-early", "scan-one"),
        ("scan-one+nonfull-first", "6.19"),
    ];
    let mut tallies = Vec::new();
    for (combined, named) in pairs {
        let tally = built(combined);
        assert_eq!(tally, built(named), "{combined} and {named}");
        tallies.push(tally);
    }
    assert!(tallies[0] != tallies[1] && tallies[1] != tallies[2], "the workload shows no difference");
}

#[test]
fn a_combination_ends_with_its_task() {
    let view = DeviceView {
        order: Order::ZERO,
        discards: false,
        clusters: 9,
        free: 3,
        nonfull: 2,
        fragments: 1,
        cpus: 1,
    };
    let free_first = Combination::parse("free-first").unwrap();
    let inside = free_first.during(|| ByParts::list_order(&view)[0]);
    assert_eq!((inside, ByParts::list_order(&view)[0]), (Some(Search::Free), Some(Search::Nonfull)));
}

#[test]
fn names_are_parsed_and_printed_and_wrong_ones_refused() {
    for (text, printed) in [
        ("scan-one+free-first", "scan-one+free-first"),
        ("free-first+scan-all+reclaim-early", "scan-all+free-first+reclaim-early"),
        ("nonfull-always-first", "scan-one+nonfull-always-first"),
        ("6.14", "6.14"),
        ("scan-all", "scan-all"),
    ] {
        assert_eq!(text.parse::<PolicyName>().unwrap().to_string(), printed);
    }
    for wrong in ["scan-one+scan-all", "scan-one+", "+", "", "6.14+free-first", "scan-two"] {
        let error: NoSuchPolicy = wrong.parse::<PolicyName>().unwrap_err();
        assert!(error.to_string().contains("scan-one+free-first"), "{error}");
    }
}

//! The experiment of series 4, small: the direction of every published result.

use folioswap_lab::experiments::round_robin::*;
use folioswap_report::Show;

fn outcomes() -> Vec<Outcome> {
    run(&Options { scale: 32, runs: 2 }, Show::No).unwrap()
}

#[test]
fn equal_devices_share_and_the_old_rule_drains_the_first() {
    let outcomes = outcomes();
    let find = |name: &str| outcomes.iter().find(|outcome| outcome.arrangement.name == name).unwrap();
    for name in [
        "before: equal priorities given",
        "after: default priorities",
        "after: default priorities, 64 kB folios",
        "after: equal priorities given",
    ] {
        let outcome = find(name);
        assert!(outcome.difference() <= outcome.tolerance, "{outcome:?}");
        assert!(outcome.used[0].iter().sum::<u64>() > outcome.pages * 3, "{outcome:?}");
    }
    let pages = find("after: default priorities").pages;
    for used in &find("before: default priorities, devices without node").used {
        // Slots that the second pass frees on the first device stay free until a CPU has consumed
        // its cluster on another.
        assert!(used[..3].iter().all(|used| *used > pages * 9 / 10) && used[3] < pages / 4, "{used:?}");
    }
    let nodes = find("before: default priorities, devices on nodes 0 to 3 of 8");
    assert!(nodes.difference() > nodes.tolerance, "{nodes:?}");
    // The published use, 15.7/3.4/3.4/2.6 of 25.1 G: the first device has its own node's share and
    // that of the four nodes without a device, the others have their own nodes' alone.
    let half = find("before: default priorities, devices on nodes 0 to 3 of 8, at 25.1 G");
    for used in &half.used {
        let sum = used.iter().sum::<u64>() as f64;
        let part = used.map(|used| used as f64 / sum);
        assert!((part[0] - 15.7 / 25.1).abs() < 0.05, "{half:?}");
        assert!(part[1..].iter().all(|part| (part - 3.2 / 25.1).abs() < 0.03), "{half:?}");
    }
}

#[test]
fn different_priorities_are_strictly_ordered() {
    let outcomes = outcomes();
    let outcome = outcomes.iter().find(|outcome| outcome.arrangement.priorities[0] == Some(1)).unwrap();
    assert!(outcome.strictly_ordered(), "{outcome:?}");
    // Priorities 1, 4, 3, 2: the first device comes last.
    for used in &outcome.used {
        let full = outcome.pages * 9 / 10;
        assert!(used[1..].iter().all(|used| *used > full) && used[0] < outcome.pages / 4, "{outcome:?}");
    }
    assert!(outcome.difference() > outcome.tolerance);
    // The check itself can fail.
    let mut wrong = outcome.clone();
    wrong.used[0].swap(0, 1);
    assert!(!wrong.strictly_ordered());
}

#[test]
fn the_report_says_what_was_published() {
    let options = Options { scale: 64, runs: 1 };
    let outcomes = run(&options, Show::No).unwrap();
    let text = report(&options, &outcomes, None).text();
    for part in ["15.7/3.4/3.4/2.6", "12.6 each", "strictly ordered", "Not comparable:"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_tolerance_larger_than_what_is_used_tells_nothing() {
    assert_eq!(Sharing::of(&[100, 100, 100, 100], 0, 10), Sharing::Equal);
    assert_eq!(Sharing::of(&[100, 100, 100, 80], 20, 10), Sharing::Unequal);
    assert_eq!(Sharing::of(&[129, 130, 99, 0], 130, 2048), Sharing::TooSmallToTell);
    assert_eq!(Sharing::of(&[129, 130, 99, 0], 130, 100), Sharing::Unequal);
    assert_eq!(Sharing::TooSmallToTell.name(), "too small to tell");
}

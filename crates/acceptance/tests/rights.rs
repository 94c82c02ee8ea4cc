//! A program that gives up rights, as daemons do, keeps children that read what it had swapped out.

use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, skip};
use std::ffi::OsStr;
use std::time::Duration;

const LIMIT: u64 = 32 * MIB;

fn run(case: &str) -> Outcome {
    run_by(&[], case)
}

/// Runs a case of the program, started by the words before it.
fn run_by(words: &[&str], case: &str) -> Outcome {
    let program = c_program("rights", "", &[]);
    let words = words.iter().map(OsStr::new).chain([program.as_os_str(), case.as_ref(), "64".as_ref()]);
    let outcome = Job::new(words).timeout(Duration::from_secs(300)).within(LIMIT);
    job::report(case, &outcome);
    job::check_swapped(&outcome, 40 * MIB);
    assert_eq!(outcome.text(), format!("ok {case}\n"), "{}", outcome.describe());
    outcome
}

fn case(name: &str) {
    check_all_managed(&run(name));
}

fn check_all_managed(outcome: &Outcome) {
    let stats = outcome.stats.as_ref().expect("statistics");
    assert_eq!(stats["unmanaged"]["processes"], 0, "{}", outcome.describe());
}

#[test]
fn after_a_change_of_user() {
    case("user");
}

#[test]
fn after_a_change_of_the_effective_user() {
    case("effective-user");
}

#[test]
fn after_a_change_of_root() {
    case("root");
}

#[test]
fn after_a_change_of_root_and_user() {
    case("root-and-user");
}

#[test]
fn in_another_network_namespace() {
    case("network");
}

#[test]
fn started_in_another_network_namespace() {
    check_all_managed(&run_by(&["unshare", "--net"], "network"));
}

#[test]
fn in_another_namespace_of_process_ids() {
    case("processes");
}

#[test]
fn under_landlock() {
    case("landlock");
}

/// A child that has no way to the group ends, and the run says so.
#[test]
fn a_child_that_cannot_reach_the_group_is_named() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let outcome = run("network-and-user");
    let words = "cannot have what it inherited: it cannot reach the group";
    assert!(outcome.stderr.contains(words), "{}", outcome.describe());
}

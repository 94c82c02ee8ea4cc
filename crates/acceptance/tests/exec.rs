//! Programs that replace themselves, change their environment, close all descriptors, and limit
//! themselves.

use folioswap_acceptance::MIB;
use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use std::time::Duration;

fn job(case: &str) -> Job {
    let program = c_program("exec", "", &[]);
    Job::new([program.as_os_str(), case.as_ref(), "160".as_ref()]).timeout(Duration::from_secs(900))
}

fn run(name: &str, job: &Job) -> Outcome {
    let outcome = job.within(40 * MIB);
    job::report(name, &outcome);
    job::check_swapped(&outcome, 100 * MIB);
    outcome
}

fn ends_with(name: &str, wanted: &str) {
    let outcome = run(name, &job(name));
    assert_eq!(outcome.text(), format!("ok {wanted}\n"), "{}", outcome.describe());
}

/// The agent is there before main, and calls no function that would call the malloc of a program at
/// a fixed address, whose heap may have been dumped.
#[test]
fn a_malloc_of_its_own_is_not_called_before_main() {
    let program = c_program("own_malloc", "-fixed", &["-no-pie"]);
    let outcome = run("own-malloc", &Job::new([program.as_os_str(), "160".as_ref()]));
    assert_eq!(outcome.text(), "calls of malloc before main: 0, 0 wrong\n", "{}", outcome.describe());
}

#[test]
fn exec_with_an_empty_environment() {
    ends_with("empty-environment", "plain");
}

#[test]
fn exec_with_another_environment() {
    ends_with("other-environment", "plain");
}

#[test]
fn exec_with_the_same_environment() {
    ends_with("same-environment", "plain");
}

#[test]
fn children_that_clear_their_environment() {
    let outcome = run("cleared", &job("cleared"));
    assert_eq!(outcome.text(), "ok plain\nok plain\nok cleared\n", "{}", outcome.describe());
}

#[test]
fn an_exec_that_fails() {
    ends_with("failed", "failed");
}

#[test]
fn all_descriptors_closed() {
    ends_with("close-all", "close-all");
}

#[test]
fn no_descriptor_of_ours_in_the_program() {
    ends_with("own-descriptors", "own-descriptors");
}

#[test]
fn a_limit_on_the_address_space() {
    ends_with("address-space", "address-space");
}

#[test]
fn a_limit_of_eight_descriptors() {
    ends_with("few-descriptors", "few-descriptors");
}

/// The statistics are written all the same.
#[test]
fn standard_error_closed() {
    let outcome = run("close-errors", &job("close-errors").option("--stats=all"));
    assert_eq!(outcome.text(), "ok close-errors\n");
    if job::judging_folioswap() {
        for word in ["pswpout", "NAME", "TYPE", "SIZE", "USED", "PRIO"] {
            assert!(outcome.stderr.contains(word), "--stats lacks {word}: {}", outcome.describe());
        }
    }
}

#[test]
fn a_child_that_outlives_the_program() {
    let outcome = run("outlived", &job("outlived").lingering(Duration::from_secs(60)));
    assert_eq!(outcome.text(), "ok outlived\nthe child has ended well\n", "{}", outcome.describe());
    assert!(
        outcome.lingered > Duration::from_millis(500),
        "`run` did not return at once: {:?}",
        outcome.lingered
    );
}

/// The library loads, its functions are found, and its name stays in `LD_PRELOAD` over an exec.
#[test]
fn a_preloaded_library_of_the_user() {
    let library = c_program("preload", ".so", &["-shared", "-fPIC"]);
    let job = job("preloaded").env("LD_PRELOAD", &library);
    let outcome = run("preloaded", &job);
    let twice = "preloaded by the user\nLD_PRELOAD names the user's library\n".repeat(2);
    assert_eq!(outcome.text(), format!("{twice}ok preloaded\n"), "{}", outcome.describe());
}

/// The program sees its own variables, signal dispositions and limits.
#[test]
fn the_program_sees_what_it_would_see_alone() {
    let job = job("look").env("SEEN_A", "1").env("SEEN_B", "x = y");
    let alone = job.unlimited();
    alone.check();
    assert!(alone.text().contains("SEEN_B=x = y"));
    let limited = run("look", &job);
    assert_eq!(limited.text(), alone.text());
}

//! The pager is a process of its own: what a program, its parent and its debugger notice of that.

use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, skip};
use std::ffi::OsStr;
use std::time::Duration;

const LIMIT: u64 = 32 * MIB;

/// Runs a case of the program, which prints this; more words follow its size.
fn run_with(case: &str, more: &[&str], prints: &str) -> Outcome {
    let program = c_program("apart", "", &[]);
    let words = [program.as_os_str(), OsStr::new(case), OsStr::new("64")];
    let words = words.into_iter().chain(more.iter().map(OsStr::new));
    let outcome = Job::new(words).timeout(Duration::from_secs(300)).within(LIMIT);
    job::report(case, &outcome);
    job::check_swapped(&outcome, 40 * MIB);
    assert_eq!(outcome.text(), format!("ok {prints}\n"), "{}", outcome.describe());
    outcome
}

fn run(case: &str, prints: &str) -> Outcome {
    run_with(case, &[], prints)
}

fn case(name: &str) {
    run(name, name);
}

#[test]
fn a_program_with_one_thread_has_one_and_no_child() {
    case("alone");
}

#[test]
fn a_filter_for_all_threads_does_not_reach_the_pager() {
    case("filter");
}

#[test]
fn a_stopped_process_gives_its_memory_up() {
    case("stopped");
}

#[test]
fn a_process_is_read_while_all_its_threads_are_stopped() {
    case("read-while-stopped");
}

#[test]
fn the_pager_has_no_capability() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    case("rights");
}

/// The program gives its rights up in this way, and runs its own code in its pager.
fn take_over(way: &str) {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("takeover", "", &[]);
    let words = [program.as_os_str(), OsStr::new(way), OsStr::new("64")];
    let outcome = Job::new(words).timeout(Duration::from_secs(120)).within(LIMIT);
    assert_eq!(outcome.text(), "ok\n", "{}", outcome.describe());
}

#[test]
fn a_pager_that_is_taken_over_can_do_nothing_that_the_program_cannot() {
    take_over("user");
}

#[test]
fn a_pager_that_is_taken_over_is_no_way_out_of_a_sandbox() {
    take_over("sandbox");
}

#[test]
fn a_bare_exec_ends_the_old_pager() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    run("bare-exec", "bare-exec-after");
}

#[test]
fn pagers_of_earlier_images_do_not_pile_up() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    run_with("execs", &["30"], "execs");
}

/// One process ends, with its message; its parent goes on.
#[test]
fn a_program_whose_pager_is_killed_is_ended_by_name() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let outcome = run("pager-killed", "pager-killed");
    let words = "was ended: the process that held its swapped memory has ended";
    assert!(outcome.stderr.contains(words), "{}", outcome.describe());
}

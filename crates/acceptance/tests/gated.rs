//! Programs whose forks no event reports, because that takes CAP_SYS_PTRACE: the system-call gate
//! makes them (race 78 of `docs/races.md`).
#![cfg(target_arch = "x86_64")]

use folioswap_acceptance::job::{self, Job, NOBODY, Outcome};
use folioswap_acceptance::programs::c_program;
use folioswap_acceptance::{MIB, only_root};
use std::time::Duration;

const LIMIT: u64 = 32 * MIB;

fn job(program: &str, case: &str) -> Job {
    let program = c_program(program, "", &["-pthread"]);
    Job::new([program.as_os_str(), case.as_ref(), "64".as_ref()]).timeout(Duration::from_secs(300))
}

/// Runs a case that swaps, and checks that all of it was managed and that the gate made the forks.
fn check(case: &str, job: &Job) -> Outcome {
    let outcome = job.within(LIMIT);
    job::report(case, &outcome);
    job::check_swapped(&outcome, 40 * MIB);
    assert_eq!(outcome.text(), format!("ok {case}\n"), "{}", outcome.describe());
    job::check_way(&outcome, "gated-forks");
    let stats = outcome.stats.as_ref().expect("statistics");
    assert_eq!(stats["raw_forks"], 0, "{}", outcome.describe());
    outcome
}

#[test]
fn root_without_the_capability() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    for case in ["threads", "burst", "often"] {
        check(case, &job("fork", case).without_sys_ptrace());
    }
}

#[test]
fn a_user_who_may_open_the_device() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    let outcome = check("instruction", &job("gated", "instruction").without_sys_ptrace().user(NOBODY));
    let stats = outcome.stats.as_ref().expect("statistics");
    // Two kinds of fork, four rounds, a child and a grandchild each.
    assert_eq!(stats["forks"], 16, "{}", outcome.describe());
}

/// The child may not open the device any more: it gets it from the supervisor.
#[test]
fn a_program_that_becomes_another_user_forks() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    check("user", &job("gated", "user").option("--gate").option("always"));
}

/// Without the capability the supervisor may not look at such a child, and so cannot know what it
/// is: it ends, by name, before it could read zeroes.
#[test]
fn without_the_capability_its_children_are_ended_by_name() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    let outcome = job("gated", "user").without_sys_ptrace().under(job::engine(LIMIT));
    assert_eq!(outcome.code, Some(70), "{}", outcome.describe());
    assert!(outcome.stderr.contains("killed by signal 9"), "{}", outcome.describe());
    let said = outcome.said().join("\n");
    assert!(said.contains("it has become another user") && said.contains("CAP_SYS_PTRACE"), "{said}");
}

#[test]
fn a_fork_by_the_number_of_the_call() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    check("number", &job("gated", "number").option("--gate").option("always"));
}

/// What was swapped out is registered in the child whatever has become of its mapping.
#[test]
fn memory_that_could_not_leave_any_more_is_inherited() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    check("protected", &job("gated", "protected").without_sys_ptrace());
}

#[test]
fn a_parent_that_waits_for_a_copy_of_itself() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    check("waiting", &job("gated", "waiting").without_sys_ptrace());
}

#[test]
fn signals_in_the_midst_of_forks() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    check("signals", &job("gated", "signals").without_sys_ptrace());
}

/// What a bare clone would have been ended for runs: its child is a member like others.
#[test]
fn bare_clones_are_members() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    for case in ["raw-clone", "wiped"] {
        check(case, &job("fork", case).option("--gate").option("always"));
    }
}

#[test]
fn without_the_gate_nothing_is_started() {
    only_root!("give up CAP_SYS_PTRACE and mount a device");
    let outcome = job("gated", "number")
        .without_sys_ptrace()
        .option("--gate")
        .option("never")
        .under(job::engine(LIMIT));
    assert_eq!(outcome.code, Some(125), "{}", outcome.describe());
    let said = outcome.said().join("\n");
    assert!(said.contains("CAP_SYS_PTRACE") && said.contains("--gate never"), "{said}");
}

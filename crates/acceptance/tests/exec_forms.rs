//! Every form in which a program starts another one, with a changed and with an empty environment:
//! the new program stays managed, and gets its arguments and its environment whole.

use folioswap_acceptance::MIB;
use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use std::time::Duration;

/// The memory in MiB that each started program needs. One that is not managed exceeds the limit by
/// it.
const NEED: u64 = 64;
const LIMIT: u64 = 32 * MIB;

fn run(case: &str, swapped: u64) -> Outcome {
    let program = c_program("forms", "", &[]);
    let job = Job::new([program.as_os_str(), case.as_ref(), NEED.to_string().as_ref()])
        .timeout(Duration::from_secs(900));
    let outcome = job.within(LIMIT);
    job::report(case, &outcome);
    job::check_swapped(&outcome, swapped);
    assert_eq!(outcome.text(), format!("ok {case}\n"), "{}", outcome.describe());
    if job::judging_folioswap() {
        let stats = outcome.stats.as_ref().expect("statistics");
        assert_eq!(stats["unmanaged"]["processes"], 0, "{} in {}", stats["unmanaged"], outcome.describe());
    }
    outcome
}

macro_rules! forms {
    ($($test:ident = $name:literal,)*) => { $(#[test] fn $test() { run($name, 2 * (NEED * MIB - LIMIT)); })* };
}

forms! {
    execl = "execl",
    execl_without_stack_arguments = "execl-short",
    execle = "execle",
    execlp = "execlp",
    execv = "execv",
    execve = "execve",
    execvp = "execvp",
    execvpe = "execvpe",
    fexecve = "fexecve",
    execveat = "execveat",
    posix_spawn = "posix_spawn",
    posix_spawnp = "posix_spawnp",
    vfork_and_execle = "vfork",
    system = "system",
    popen = "popen",
}

/// The environments range from one variable to more than a stack should hold.
#[test]
fn environments_of_every_size() {
    run("many-variables", NEED * MIB - LIMIT);
}

#[test]
fn exec_in_a_signal_handler_on_a_small_stack() {
    run("small-handler", NEED * MIB - LIMIT);
}

#[test]
fn what_fails_says_so_and_leaves_nothing() {
    run("failing", NEED * MIB - LIMIT);
}

#[test]
fn a_thread_in_system_is_cancelled() {
    run("cancelled", NEED * MIB - LIMIT);
}

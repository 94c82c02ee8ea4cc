//! Children and grandchildren read the memory that their parent had at the fork, whatever happens
//! afterwards.

use folioswap_acceptance::MIB;
use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::c_program;
use std::time::Duration;

const LIMIT: u64 = 48 * MIB;

fn job(case: &str) -> Job {
    let program = c_program("fork", "", &[]);
    Job::new([program.as_os_str(), case.as_ref(), "160".as_ref()]).timeout(Duration::from_secs(900))
}

fn run(case: &str, job: &Job) -> Outcome {
    let outcome = job.within(LIMIT);
    job::report(case, &outcome);
    job::check_swapped(&outcome, 100 * MIB);
    outcome
}

fn case(name: &str) {
    let outcome = run(name, &job(name));
    assert_eq!(outcome.text(), format!("ok {name}\n"), "{}", outcome.describe());
}

#[test]
fn a_storm_while_the_parent_rewrites_everything() {
    case("storm");
}

#[test]
fn grandchildren_whose_parents_have_ended() {
    case("grandchildren");
}

#[test]
fn five_generations() {
    case("generations");
}

/// A process may have any number of ancestors: the long form has 20 000.
#[test]
fn hundreds_of_generations() {
    let outcome = run("dynasty", &job("dynasty"));
    assert_eq!(outcome.text(), "ok dynasty\n", "{}", outcome.describe());
    let stats = outcome.stats.as_ref().expect("statistics");
    assert_eq!(stats["forks"].as_u64(), Some(job::amount(601, 20_001)), "{}", outcome.describe());
    assert_eq!(stats["unmanaged"]["processes"], 0, "{}", outcome.describe());
}

#[test]
fn forks_from_several_threads_while_others_write() {
    case("threads");
}

/// A handler interrupts forks at any place, and reads what is away.
#[test]
fn signals_whose_handlers_fault_in_the_midst_of_forks() {
    let program = c_program("gated", "", &["-pthread"]);
    let job = Job::new([program.as_os_str(), "handlers".as_ref(), "160".as_ref()]);
    let outcome = run("handlers", &job.timeout(Duration::from_secs(300)));
    assert_eq!(outcome.text(), "ok handlers\n", "{}", outcome.describe());
}

#[test]
fn vfork_and_posix_spawn() {
    case("spawn");
}

/// The memory that the child inherits (none of it the engine's) and touches fits the limit, with
/// room for its parent.
#[test]
fn a_bare_clone() {
    let outcome = job("raw-clone").within(80 * MIB);
    job::report("raw-clone", &outcome);
    job::check_swapped(&outcome, 100 * MIB);
    assert_eq!(outcome.text(), "ok raw-clone\n", "{}", outcome.describe());
}

/// Memory that such a child touches cannot be taken out of it again: UFFDIO_MOVE and MADV_DONTNEED
/// work only from within. When that memory exceeds the limit, the run ends with one message, and
/// the child has read nothing wrong.
#[test]
fn a_bare_clone_that_touches_more_than_the_limit() {
    if !job::judging_folioswap() {
        return;
    }
    let outcome = job("raw-clone-too-much").under(job::engine(LIMIT));
    job::report("raw-clone-too-much", &outcome);
    job::check_out_of_memory(&outcome);
}

#[test]
fn wipe_on_fork_and_dont_fork() {
    case("advice");
}

/// MADV_WIPEONFORK holds whoever asked for it, and wherever the memory is by now; and no memory is
/// wiped merely because it lies where such memory was. Half of the children are bare clones, with
/// room as in [`a_bare_clone`].
#[test]
fn wipe_on_fork_that_nobody_saw_and_that_moved() {
    let outcome = job("wiped").within(80 * MIB);
    job::report("wiped", &outcome);
    job::check_swapped(&outcome, 100 * MIB);
    assert_eq!(outcome.text(), "ok wiped\n", "{}", outcome.describe());
}

/// The parent's pager recognises each child for what it is, and takes none of them for a bare
/// clone.
#[test]
fn short_forks_of_several_threads_at_once() {
    let outcome = run("often", &job("often"));
    assert_eq!(outcome.text(), "ok often\n", "{}", outcome.describe());
    if job::judging_folioswap() {
        assert_eq!(outcome.figure("forks"), Some(240.0), "{}", outcome.describe());
        assert_eq!(outcome.figure("raw_forks"), Some(0.0), "{}", outcome.describe());
    }
}

#[test]
fn a_burst_of_short_children() {
    case("burst");
}

/// `run` returns at once with the parent's status, and the child finds its data.
#[test]
fn a_child_that_outlives_its_parent() {
    let outcome = run("orphan", &job("orphan").lingering(Duration::from_secs(60)));
    let text = outcome.text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["child ok", "ok orphan"], "{}", outcome.describe());
}

/// No process can serve the child any more: it finds its data or is ended, and never reads anything
/// else.
#[test]
fn a_bare_clone_that_outlives_its_parent() {
    let outcome = run("raw-orphan", &job("raw-orphan").lingering(Duration::from_secs(60)));
    assert_eq!(outcome.text(), "ok raw-orphan\n", "{}", outcome.describe());
    assert!(!outcome.stderr.contains("fork.c:"), "it read something else: {}", outcome.describe());
}

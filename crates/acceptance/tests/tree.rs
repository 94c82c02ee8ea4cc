//! A tree of members of which some are killed at any moment: the others go on, and the swap that
//! the dead held is freed.

use folioswap_acceptance::job::{self, Job, Running};
use folioswap_acceptance::killer::Killer;
use folioswap_acceptance::programs::{c_program, run_folioswap};
use folioswap_acceptance::shown::used_in_all;
use folioswap_acceptance::waiting::wait_until;
use folioswap_acceptance::{MIB, skip};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The unit in which a process owns a file.
const CLUSTER: u64 = 2 * MIB;

/// The bytes still in use, once they are at most `allowed`, or at the first look that begins more
/// than a second after the death.
fn used_within_a_second(running: &Running, dead: Instant, allowed: u64) -> u64 {
    loop {
        let is_late = dead.elapsed() >= Duration::from_secs(1);
        let left = used_in_all(running);
        if left <= allowed || is_late {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn members_that_are_killed_lose_nothing_of_the_others() {
    let program = c_program("tree", "", &[]);
    let seconds = job::amount(12, 60);
    for seed in [1u64, 2] {
        let words =
            ["5".into(), "48".into(), seconds.to_string(), (seconds * 2).to_string(), seed.to_string()];
        let job = Job::new(std::iter::once(program.display().to_string()).chain(words))
            .timeout(Duration::from_secs(900));
        let outcome = job.within(64 * MIB);
        job::report("tree", &outcome);
        job::check_swapped(&outcome, 150 * MIB);
        assert_eq!(outcome.text(), "only the root is left\nok\n", "{}", outcome.describe());
    }
}

#[test]
fn slots_of_the_dead_are_free_within_a_second() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("tree", "", &[]);
    let job = Job::new([program.as_os_str(), "4".as_ref(), "48".as_ref(), "4".as_ref(), "4".as_ref()]);
    let mut running = job.start(job::engine(64 * MIB));
    let mut most = 0;
    let start = Instant::now();
    while !running.output().contains("only the root is left") {
        assert!(!running.poll(), "ended early: {}", running.errors());
        assert!(start.elapsed() < Duration::from_secs(120), "it hangs: {}", running.state());
        most = most.max(used_in_all(&running));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(most > 60 * MIB, "never more than {most} bytes in use: nothing is shown by their absence");
    // The root itself still has a few pages swapped out: its libraries' data and its stack. Where
    // one of them went on to the file, its cluster counts as a whole.
    let allowed = 2 * MIB + CLUSTER;
    let left = used_within_a_second(&running, Instant::now(), allowed - 1);
    assert!(left < allowed, "{left} of {most} bytes are still in use one second after the deaths");
    running.finish().check();
}

/// One member dies and its parent lives on: swap that belonged to the dead one alone is freed, and
/// nothing of the swap that they shared.
#[test]
fn slots_of_a_dead_child_are_free_within_a_second_while_its_parent_goes_on() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("tree", "", &[]);
    let job = Job::new([program.as_os_str(), "pair".as_ref(), "64".as_ref()])
        .option("--swap")
        .option("file:/var/tmp");
    let mut running = job.start(job::engine(48 * MIB));
    running.wait_for_output("ready");
    let ready = running.output();
    let victim: i32 =
        ready.trim().rsplit(' ').next().and_then(|pid| pid.parse().ok()).expect("the child's number");
    // The memory that both share, and a quarter more that the parent keeps for later writes.
    let allowed = 64 * MIB * 5 / 4 + 8 * MIB;
    let mut before = 0;
    // Both processes go on touching their memory.
    wait_until("so much is in use that something is shown by its absence", || {
        before = used_in_all(&running);
        before > allowed + 48 * MIB
    });
    // SAFETY: kill has no memory effects; the process is a descendant of ours.
    assert_eq!(unsafe { libc::kill(victim, libc::SIGKILL) }, 0);
    let dead = Instant::now();
    running.wait_for_output("the child is dead");
    let left = used_within_a_second(&running, dead, allowed);
    assert!(left <= allowed, "{left} of {before} bytes are still in use one second after the death");
    running.finish().check();
}

/// The agent and the memories of the group are there once, whatever number of processes maps them.
/// They were counted for each: 1 MiB of 1.4 that a `sleep` was charged.
#[test]
fn what_all_processes_share_is_charged_to_none() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    const PROCESSES: u64 = 64;
    let script = format!("for i in $(seq {PROCESSES}); do sleep 600 & done; wait");
    let running = Job::new(["sh", "-c", &script]).start(job::engine(256 * MIB));
    // A `sleep` has 0.4 MiB of its own. A child is charged more, and is a member for a moment
    // beside the image that it becomes, so the charge is looked at when all are there. With what
    // all share charged to each, it would be 90 MiB.
    let begun = Instant::now();
    loop {
        let shown = run_folioswap(&["stats", "--json", &running.pid.to_string()]);
        let seen: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let charges: Vec<u64> = seen["members"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|member| member["name"] == "sleep")
            .filter_map(|member| member["charge_bytes"].as_u64())
            .collect();
        let all: u64 = charges.iter().sum();
        let are_there = charges.len() as u64 == PROCESSES && !charges.contains(&0);
        if are_there && all < PROCESSES * MIB * 5 / 8 {
            break;
        }
        let is_late = begun.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "{} of them are charged {all} bytes: {seen:#}", charges.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    running.signal(libc::SIGKILL);
}

/// Swap of memory that a living program gives up is freed while the program lives.
#[test]
fn slots_of_what_is_unmapped_or_given_up_are_free() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("tree", "", &[]);
    let job = Job::new([program.as_os_str(), "shrink".as_ref(), "192".as_ref()]);
    let mut running = job.start(job::engine(48 * MIB));
    running.wait_for_output("full");
    let before = used_in_all(&running);
    assert!(before > 144 * MIB, "only {before} bytes in use: nothing is shown by their absence");
    running.wait_for_output("given up");
    let given_up = Instant::now();
    // An eighth of the memory is still there, 24 MiB, in clusters of the file that it shares with
    // memory that is gone (clusters count whole: 40 to 60 MiB), and a quarter as many empty
    // clusters are kept for later writes. Unmapped memory was 96 MiB, memory given up by advice 72
    // MiB: if either were not given back, more than this would be left.
    let allowed = 80 * MIB;
    let left = used_within_a_second(&running, given_up, allowed);
    assert!(left <= allowed, "{left} of {before} bytes are still in use a second later");
    running.finish().check();
}

/// A member is killed before each message that it sends to the supervisor, and before it takes each
/// answer, in turn. These messages are all that others know of its taking clusters, of its sharing
/// them with a child, and of its giving them back. The remaining processes (the child or its
/// parent, and the root) have their data, and the swap of the dead one is freed. There are some
/// seventy steps; all of them run with `FOLIOSWAP_LONG=1`.
#[test]
fn a_member_is_killed_at_every_step_of_taking_sharing_and_giving_back_clusters() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("tree", "", &[]);
    let job = Job::new([program.as_os_str(), "steps".as_ref(), "80".as_ref()])
        .option("--swap")
        .option("file:/var/tmp");
    let mut running = job.start(job::engine(32 * MIB));
    // The steps of joining, of the first clusters and of the fork run one by one. After them, where
    // one cluster follows the other, they run in strides.
    let (one_by_one, stride) = (24, job::amount(5, 1) as usize);
    let mut ends = Vec::new();
    let (mut step, mut most, mut refused) = (0, 0, 0);
    while ends.last().is_none_or(|end| end != "whole") {
        step += if step < one_by_one { 1 } else { stride };
        let number = ends.len() + 1;
        let begun = format!("victim {number} is ");
        running.wait_for_output(&begun);
        let victim = number_after(&running.output(), &begun);
        let killer = Killer::at_call(victim, step).expect("it is a descendant of ours");
        signal(victim, libc::SIGUSR1);
        let ended = format!("victim {number} of ");
        most = most.max(wait_and_watch(&mut running, &ended));
        // The child of a killed member goes on with the memory that it has inherited.
        let calls = killer.wait_for_the_last().expect("ptrace");
        let dead = Instant::now();
        let said = running.output();
        let (_, end) = said.trim_end().rsplit_once(": ").expect("how it ended");
        assert_eq!(end == "whole", calls < step, "{calls} calls, step {step}: {end}");
        // The pages that the root itself has swapped out, and the clusters that it keeps for later
        // writes.
        let left = used_within_a_second(&running, dead, 40 * MIB);
        assert!(left <= 40 * MIB, "step {step}, {end}: {left} bytes are in use a second later");
        refused = only_refused_children(&running.errors())
            .unwrap_or_else(|other| panic!("step {step}, {end}: {other}"));
        ends.push(end.to_owned());
        signal(number_after(&said, &ended), libc::SIGUSR1);
    }
    println!("{}; {refused} children refused; {} MiB in use at most", ends.join(", "), most / MIB);
    // Between its fork and its message to the supervisor, a parent makes few calls.
    assert!(refused <= 3, "{refused} children are refused what they inherited");
    for wanted in ["killed", "child killed"] {
        assert!(ends.iter().any(|end| end == wanted), "nobody was {wanted}: {ends:?}");
    }
    assert!(most > 100 * MIB, "never more than {most} bytes in use: nothing is shown by their absence");
    running.finish().check();
}

/// The number of forked children that ended, as they must, because their parent was killed before
/// it handed over the memory that they inherit. That the group thrashes may be said too: it does.
///
/// # Errors
/// The first line with any other message.
fn only_refused_children(errors: &str) -> Result<usize, String> {
    let expected =
        "cannot have what it inherited: its parent has ended without handing its swapped memory over";
    match job::said(errors).find(|line| !line.ends_with(expected)) {
        Some(other) => Err(other.to_owned()),
        None => Ok(errors.lines().filter(|line| line.ends_with(expected)).count()),
    }
}

fn number_after(text: &str, before: &str) -> i32 {
    let (_, after) = text.rsplit_once(before).expect("it was waited for");
    let digits = after.find(|character: char| !character.is_ascii_digit()).unwrap_or(after.len());
    after[..digits].parse().expect("a number")
}

/// Sends a signal to a descendant.
fn signal(pid: i32, signal: i32) {
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until the program has printed `text`. Returns the most bytes that were in use meanwhile.
fn wait_and_watch(running: &mut Running, text: &str) -> u64 {
    let (start, mut most) = (Instant::now(), 0);
    while !running.output().contains(text) {
        assert!(!running.poll(), "ended early: {} {}", running.output(), running.errors());
        assert!(start.elapsed() < Duration::from_secs(60), "it hangs: {}", running.state());
        most = most.max(used_in_all(running));
        std::thread::sleep(Duration::from_millis(20));
    }
    most
}

//! The status of a run tells how it ended, and nothing is left behind, however it ended.

use folioswap_acceptance::job::{self, Engine, Job, Outcome, Running};
use folioswap_acceptance::programs::{self, c_program};
use folioswap_acceptance::{MIB, skip};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: u64 = 40 * MIB;

fn job(words: &[&str]) -> Job {
    let program = c_program("ending", "", &[]).display().to_string();
    Job::new(std::iter::once(program.as_str()).chain(words.iter().copied())).timeout(Duration::from_secs(60))
}

fn end(outcome: &Outcome) -> &str {
    let stats = outcome.stats.as_ref().unwrap_or_else(|| panic!("no statistics: {}", outcome.describe()));
    stats["end"].as_str().unwrap_or_else(|| panic!("no \"end\" in {stats}"))
}

/// Asserts that the members found every invariant intact as long as they lived, however the run
/// ended.
fn check_invariants(outcome: &Outcome) {
    if job::judging_folioswap() {
        outcome.check_validated();
    }
}

#[test]
fn the_exit_status_is_passed_on() {
    for status in [0, 1, 7, 124, 255] {
        let outcome = job(&["exit", "96", &status.to_string()]).under(job::engine(LIMIT));
        assert_eq!(outcome.code, Some(status), "{}", outcome.describe());
        outcome.check_limit();
        outcome.check_clean();
        check_invariants(&outcome);
    }
}

/// The first thread has ended before. Both end with this status.
#[test]
fn a_process_ends_with_its_last_thread() {
    let outcome = job(&["last-thread", "96", "6"]).under(job::engine(LIMIT));
    assert_eq!(outcome.code, Some(6), "{}", outcome.describe());
    outcome.check_limit();
    outcome.check_clean();
    check_invariants(&outcome);
}

/// The pager of a large child still gives its memory back when the child has been waited for and
/// CMD has ended too. `within` asserts that no slot is in use in the report.
#[test]
fn what_a_child_used_is_free_when_the_report_is_written() {
    let outcome = job(&["after-child", "1024"]).within(768 * MIB);
    job::report("after a child", &outcome);
    job::check_swapped(&outcome, 128 * MIB);
}

#[test]
fn a_signal_becomes_128_and_its_number() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGABRT, libc::SIGKILL, libc::SIGUSR1] {
        let outcome = job(&["signal", "96", &signal.to_string()]).under(job::engine(LIMIT));
        assert_eq!(outcome.code, Some(128 + signal), "{}", outcome.describe());
        assert_ne!(end(&outcome), "out_of_swap");
        outcome.check_clean();
        check_invariants(&outcome);
    }
    let outcome = job(&["crash", "96"]).under(job::engine(LIMIT));
    assert_eq!(outcome.code, Some(128 + libc::SIGSEGV), "{}", outcome.describe());
    outcome.check_clean();
    check_invariants(&outcome);
}

/// As with a shell's `kill` of the job, the signal goes to the command, which passes it on.
#[test]
fn a_signal_to_the_command_reaches_the_program_once() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut running = job(&["count", "96"]).start(job::engine(LIMIT));
        running.wait_for_output("ready");
        running.signal(signal);
        let outcome = running.finish();
        assert_eq!(
            (outcome.code, outcome.text()),
            (Some(5), "ready\n1 signals\n".into()),
            "{}",
            outcome.describe()
        );
        outcome.check_clean();
        check_invariants(&outcome);
    }
}

/// Runs a program that ends in this way on a terminal, presses Ctrl-C when it is ready, and waits
/// for its end.
fn ctrl_c_on_a_terminal(how: &str, mebibytes: &str) -> Outcome {
    let program = c_program("ending", "", &[]).display().to_string();
    let folioswap = programs::folioswap().display().to_string();
    let pty = env!("CARGO_BIN_EXE_acc-pty");
    let words = [pty, &folioswap, "run", "--memory", "40M", "--", &program, how, mebibytes];
    let mut running = Job::new(words).timeout(Duration::from_secs(60)).start(Engine::Nothing);
    running.wait_for_output("ready");
    running.signal(libc::SIGUSR1);
    running.finish()
}

/// Ctrl-C on a terminal reaches the whole foreground group by itself, so no process gets it twice.
#[test]
fn ctrl_c_on_a_terminal_arrives_once() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let outcome = ctrl_c_on_a_terminal("count", "96");
    let text = outcome.text();
    assert!(text.contains("1 signals"), "{}", outcome.describe());
    assert_eq!(outcome.code, Some(5), "{}", outcome.describe());
    outcome.check_clean();
}

/// A tree that does not handle Ctrl-C ends completely.
#[test]
fn ctrl_c_on_a_terminal_ends_what_does_not_handle_it() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let outcome = ctrl_c_on_a_terminal("wait", "48");
    assert_eq!(outcome.code, Some(128 + libc::SIGINT), "{}", outcome.describe());
    outcome.check_clean();
}

#[test]
fn sigterm_ends_a_program_that_does_not_handle_it() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut running = job(&["wait", "48"]).start(job::engine(LIMIT));
        running.wait_for_output("ready");
        running.signal_group(signal);
        let outcome = running.finish();
        if job::judging_folioswap() {
            assert_eq!(outcome.code, Some(128 + signal), "{}", outcome.describe());
        } else {
            assert_eq!(outcome.signal, Some(signal), "{}", outcome.describe());
        }
        outcome.check_clean();
    }
}

/// Whether this process runs this program.
fn runs(pid: i32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program)
}

fn kill_9(pid: i32) {
    // SAFETY: kill has no memory effects; the process is in our own cgroup.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

/// kill -9 of each of the command's own processes, in one run for each: the managed tree ends with
/// it.
#[test]
fn kill_9_of_the_command_ends_everything() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let folioswap = programs::folioswap().canonicalize().expect("path");
    let mut index = 0;
    loop {
        let mut running = job(&["wait", "48"]).start(job::engine(LIMIT));
        running.wait_for_output("ready");
        let mut own: Vec<i32> = running
            .processes()
            .into_iter()
            .filter(|&pid| runs(pid, &folioswap) || pid == running.pid)
            .collect();
        own.sort_unstable();
        let Some(&victim) = own.get(index) else {
            assert!(index >= 1, "no process of the command was found");
            // This last run is one in which no process was killed.
            running.signal_group(libc::SIGTERM);
            running.finish().check_clean();
            return;
        };
        kill_9(victim);
        let outcome = running.finish();
        assert!(outcome.code != Some(0), "killed, but: {}", outcome.describe());
        outcome.check_clean();
        index += 1;
    }
}

/// The same after `run` has returned: the supervisor alone looks after the processes left behind.
#[test]
fn kill_9_of_the_supervisor_of_what_was_left_behind() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("ending", "", &[]).canonicalize().expect("path");
    let folioswap = programs::folioswap().canonicalize().expect("path");
    let line = format!("{} wait 48 & while [ ! -e go ]; do sleep 0.05; done", program.display());
    let mut running = Job::new(["sh", "-c", &line]).start(job::engine(LIMIT));
    running.wait_for_output("ready");
    std::fs::File::create(running.directory().join("go")).expect("a file");
    let until = Instant::now() + Duration::from_secs(30);
    let supervisor = loop {
        let mut own = running.processes();
        own.retain(|&pid| runs(pid, &folioswap));
        match own[..] {
            [only] if only != running.pid => break only,
            _ => assert!(Instant::now() < until, "`run` has not returned: {own:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    kill_9(supervisor);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    outcome.check_clean();
}

/// kill -9 of the program by another process is not reported as a want of swap.
#[test]
fn kill_9_of_the_program() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let program = c_program("ending", "", &[]).canonicalize().expect("path");
    let mut running = job(&["count", "96"]).start(job::engine(LIMIT));
    running.wait_for_output("ready");
    let victim = running.processes().into_iter().find(|&pid| runs(pid, &program)).expect("the program runs");
    kill_9(victim);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(137), "{}", outcome.describe());
    assert_ne!(end(&outcome), "out_of_swap");
    outcome.check_clean();
}

/// When no swap is left, there is one message, status 137, and the reason in the statistics.
#[test]
fn out_of_swap() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let touch = env!("CARGO_BIN_EXE_acc-touch");
    let job = Job::new([touch, "--size", "256M", "--kind", "random", "--phases", "fill,verify"]);
    for most in ["0", "32M"] {
        let job = job.clone().option("--swap-max").option(most).timeout(Duration::from_secs(60));
        let outcome = job.under(job::engine(64 * MIB));
        assert_eq!(outcome.code, Some(137), "{}", outcome.describe());
        assert_eq!(end(&outcome), "out_of_swap", "{}", outcome.describe());
        let messages = outcome.stderr.lines().filter(|line| line.starts_with("folioswap")).count();
        assert_eq!(messages, 1, "one message: {}", outcome.describe());
        outcome.check_limit();
        outcome.check_clean();
        check_invariants(&outcome);
    }
}

/// When the memory that cannot be swapped is alone above the limit, there is one message with its
/// figure, and status 137.
#[test]
fn a_limit_below_what_cannot_be_swapped() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    // The run is ended while the memory grows, so the figure is that of this moment. A user who
    // raises the limit to it repeatedly reaches one at which the program goes on.
    let mut limit = 48;
    for _ in 0..8 {
        let outcome = job(&["unmanaged", "24"]).under(job::engine(limit * MIB));
        outcome.check_clean();
        if outcome.code == Some(0) {
            assert!(limit > 96, "96 MiB of shared memory within {limit}: {}", outcome.describe());
            assert!(outcome.text().contains("went on"), "{}", outcome.describe());
            return;
        }
        assert_eq!(outcome.code, Some(137), "{}", outcome.describe());
        let messages: Vec<_> = outcome.stderr.lines().filter(|line| line.starts_with("folioswap")).collect();
        assert_eq!(messages.len(), 1, "one message: {}", outcome.describe());
        assert_eq!(end(&outcome), "unmanaged_above_limit");
        assert!(!outcome.text().contains("went on"), "{}", outcome.describe());
        let (_, figure) = messages[0].split_once("--memory ").expect("a figure");
        let figure = figure.split(|c: char| !c.is_ascii_alphanumeric()).next().expect("a figure");
        let wanted: u64 = figure.strip_suffix('M').and_then(|number| number.parse().ok()).expect("MiB");
        assert!(wanted > limit && wanted < 192, "{wanted} MiB asked for at {limit}: {}", messages[0]);
        limit = wanted;
    }
    panic!("{limit} MiB are not enough");
}

/// Where what cannot be swapped leaves hardly anything of the limit, a run goes on, or it is ended
/// with the sum. In between it crawled for ever, 20 ms a fault: 3 226 faults in a minute.
#[test]
fn a_limit_just_above_what_cannot_be_swapped() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    for tenths in [600, 605, 610, 615, 620] {
        let shared = (tenths * 1024 / 10).to_string();
        // What goes on does so slowly: on a machine of which others have a part, for over a minute.
        let brink = job(&["brink", "24", &shared]).timeout(Duration::from_secs(240));
        let outcome = brink.under(job::engine(64 * MIB));
        outcome.check_clean();
        check_invariants(&outcome);
        if outcome.code == Some(0) {
            assert!(outcome.text().contains("went on"), "{}", outcome.describe());
            continue;
        }
        assert_eq!(outcome.code, Some(137), "{}", outcome.describe());
        assert_eq!(end(&outcome), "unmanaged_above_limit", "{}", outcome.describe());
        let mut messages = outcome.stderr.lines().filter(|line| line.contains("ended CMD"));
        let message = messages.next().unwrap_or_else(|| panic!("one message: {}", outcome.describe()));
        assert!(message.contains(" (shared memory 6"), "{message}");
    }
}

/// A signal at any moment of the start ends the command at once, and nothing of it is left.
#[test]
fn a_signal_at_any_moment_of_the_start() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    type Send = fn(&Running, i32);
    let (alone, whole_group): (Send, Send) = (Running::signal, Running::signal_group);
    let ways =
        [(libc::SIGINT, alone), (libc::SIGINT, whole_group), (libc::SIGTERM, alone), (libc::SIGKILL, alone)];
    for (signal, send) in ways {
        for step in 0..24u64 {
            let running =
                Job::new(["sleep", "60"]).timeout(Duration::from_secs(20)).start(job::engine(LIMIT));
            // The moments range from the first microseconds to a time at which the program has long
            // been running.
            std::thread::sleep(Duration::from_micros(step * step * 50));
            send(&running, signal);
            let outcome = running.finish();
            let by_signal = outcome.signal == Some(signal);
            let passed_on = signal != libc::SIGKILL && outcome.code == Some(128 + signal);
            assert!(by_signal || passed_on, "signal {signal} in step {step}: {}", outcome.describe());
            outcome.check_clean();
        }
    }
}

//! kill -9 at random moments, of everything that a run consists of: pagers, programs, the
//! supervisor and the command. Who is left verifies its memory, nothing is left behind, and one
//! message says what ended by somebody's doing.
//!
//! `FOLIOSWAP_KILLS=300` kills so many of each. The seed is printed; `FOLIOSWAP_SEED` sets it.

use folioswap_acceptance::job::{self, Job, Outcome, Running};
use folioswap_acceptance::programs::{c_program, folioswap};
use folioswap_acceptance::{MIB, skip};
use folioswap_test_support::{environment, random::Random};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

const LIMIT: u64 = 48 * MIB;
const MEMBERS: &str = "4";
const MEBIBYTES: &str = "24";

/// The longest time between two kills, or from the start to the kill.
const PAUSE_MS: u64 = 400;

/// How long a program whose pager was killed may go on: as long as it touches nothing that is away.
const PATIENCE: Duration = Duration::from_secs(5);

fn kills() -> u64 {
    environment::number("FOLIOSWAP_KILLS", job::amount(12, 60))
}

/// Random numbers, whose seed is printed.
fn random(name: &str) -> Random {
    let seed = environment::number("FOLIOSWAP_SEED", Random::fresh_seed());
    println!("{name}: FOLIOSWAP_SEED={seed}, {} kills", kills());
    Random::new(seed)
}

/// Lets some time pass.
fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_micros(random.below(PAUSE_MS * 1000)));
}

fn kill_9(pid: i32) {
    // SAFETY: kill has no memory effects; the process is a descendant of ours, or was one.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

fn tree() -> Job {
    let program = c_program("kills", "", &[]);
    Job::new([program.as_os_str(), MEMBERS.as_ref(), MEBIBYTES.as_ref()]).timeout(Duration::from_secs(3600))
}

/// The name and the parent of a process.
fn name_and_parent(pid: i32) -> Option<(String, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let parent = stat[end + 2..].split(' ').nth(1)?.parse().ok()?;
    Some((stat[start + 1..end].to_owned(), parent))
}

/// Members, each with its pager once it has one, but the root.
fn members(running: &Running, root: i32) -> Vec<(i32, Option<i32>)> {
    let all: Vec<_> =
        running.processes().into_iter().filter_map(|pid| Some((pid, name_and_parent(pid)?))).collect();
    let is_pager = |name: &str| name.starts_with("pager-");
    let members = all.iter().filter(|(_, (name, parent))| *parent == root && !is_pager(name));
    let pager_of = |member: i32| {
        all.iter().find(|(_, (name, parent))| *parent == member && is_pager(name)).map(|(pid, _)| *pid)
    };
    members.map(|(pid, _)| (*pid, pager_of(*pid))).collect()
}

/// Waits until the root says that this member was killed, at most so long.
fn is_replaced(running: &mut Running, member: i32, patience: Duration) -> bool {
    let (start, words) = (Instant::now(), format!("killed {member}\n"));
    while start.elapsed() < patience {
        if running.output().contains(&words) {
            return true;
        }
        assert!(!running.poll(), "it ended: {:?} {:?}", running.output(), running.errors());
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Kills the pagers of members, or members themselves, one after the other. Returns how many
/// members ended by themselves after their pager, and the outcome.
fn kill_in_the_tree(name: &str, choose: impl Fn((i32, Option<i32>)) -> Option<i32>) -> (u64, Outcome) {
    let mut random = random(name);
    let mut running = tree().start(job::engine(LIMIT));
    running.wait_for_output("ready");
    let ready = running.output();
    let root = ready.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("the root's number");
    let (mut killed, mut ended) = (0, 0);
    while killed < kills() {
        pause(&mut random);
        let members = members(&running, root);
        let Some(&(member, pager)) = members.get(random.below(members.len().max(1) as u64) as usize) else {
            continue;
        };
        let Some(victim) = choose((member, pager)) else { continue };
        killed += 1;
        kill_9(victim);
        if is_replaced(&mut running, member, PATIENCE) {
            ended += 1;
        } else {
            // Nothing of it is away, so it lost nothing.
            assert!(victim != member, "a member that was killed goes on: {}", running.state());
            kill_9(member);
            assert!(is_replaced(&mut running, member, Duration::from_secs(60)), "{}", running.state());
        }
    }
    // SAFETY: kill has no memory effects; the root is a descendant of ours.
    unsafe { libc::kill(root, libc::SIGTERM) };
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    outcome.check_clean();
    outcome.check_validated();
    outcome.check_devices();
    assert!(outcome.text().ends_with("ok\n"), "{}", outcome.describe());
    job::report(name, &outcome);
    (ended, outcome)
}

/// The messages that something was ended; a run that waits much for pages says that too.
fn messages(outcome: &Outcome) -> Vec<&str> {
    let lines = outcome.stderr.lines();
    lines.filter(|line| line.starts_with("folioswap: ") && line.contains(" ended")).collect()
}

#[test]
fn programs() {
    let (ended, outcome) = kill_in_the_tree("programs", |(member, _)| Some(member));
    assert_eq!(ended, kills());
    // A program whose pager was killed keeps its memory until it ends; here all have theirs.
    outcome.check_limit();
    assert!(messages(&outcome).is_empty(), "nobody but us ended anything: {}", outcome.stderr);
}

#[test]
fn pagers() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let (ended, outcome) = kill_in_the_tree("pagers", |(_, pager)| pager);
    assert!(ended > kills() / 2, "{ended} of {} programs ended with their pagers", kills());
    let lines = messages(&outcome);
    let named = lines.iter().map(|line| line.split(' ').nth(2)).collect::<BTreeSet<_>>();
    assert_eq!(named.len(), lines.len(), "more than one message each: {lines:?}");
    assert!(lines.iter().all(|line| line.contains("was ended: ")), "{lines:?}");
    // A fork at that moment ends the program by itself, without a word of the supervisor's.
    println!("pagers: {ended} programs ended with their pagers, {} by name", lines.len());
}

/// A run that is killed at a random moment: everything ends.
fn kill_a_run(name: &str, choose: impl Fn(&Running) -> Option<i32>) {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let mut random = random(name);
    for _ in 0..kills() {
        let mut running = tree().start(job::engine(LIMIT));
        pause(&mut random);
        let victim = loop {
            if let Some(victim) = choose(&running) {
                break victim;
            }
            assert!(!running.poll(), "it ended: {}", running.errors());
        };
        kill_9(victim);
        let outcome = running.finish();
        assert!(outcome.code != Some(0), "killed, but: {}", outcome.describe());
        outcome.check_clean();
        let lines = messages(&outcome);
        assert!(lines.len() <= 1, "{lines:?}");
        // The command says it, unless it was killed itself.
        assert_eq!(outcome.code.is_some(), lines.len() == 1, "{}", outcome.describe());
    }
}

#[test]
fn the_command() {
    kill_a_run("the command", |running| Some(running.pid));
}

#[test]
fn the_supervisor() {
    let command = folioswap().canonicalize().expect("a path");
    kill_a_run("the supervisor", |running| {
        let is_ours = |pid: &i32| {
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|it| it == command) && *pid != running.pid
        };
        running.processes().into_iter().find(is_ours)
    });
}

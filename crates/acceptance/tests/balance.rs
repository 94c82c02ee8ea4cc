//! `folioswap balance`: groups that verify their own data share memory by their weights.

use folioswap_acceptance::job;
use folioswap_acceptance::programs::{ForEverybody, folioswap, refused, run_folioswap};
use folioswap_acceptance::waiting::wait_until;
use folioswap_acceptance::{MIB, skip};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

/// Goes through its memory at random until the file is there, then checks every page against a
/// plain count of what it wrote.
const TOUCHER: &str = "
import os, random, sys
size, go = int(sys.argv[1]) << 20, sys.argv[2]
piece = b''.join(random.Random(page).randbytes(2048) + bytes(2048) for page in range(256))
memory = bytearray(piece * (size >> 20))
written = bytearray(size >> 12)
print('here', flush=True)
while not os.path.exists(go):
    for _ in range(2000):
        page = random.randrange(len(written))
        written[page] = (written[page] + 1) & 255
        memory[(page << 12) + 4095] = written[page]
for page, count in enumerate(written):
    start = (page & 255) << 12
    wanted = piece[start:start + 4095] + bytes([count])
    assert memory[page << 12:(page + 1) << 12] == wanted, page
print('right', flush=True)
";

/// A group of one process with so many MiB, ended on drop.
struct Toucher {
    group: Child,
    /// A file that lets it check its memory and end, and one with its figures.
    go: PathBuf,
    stats: PathBuf,
}

impl Toucher {
    fn start(name: &str, mib: u64, limit: u64, options: &[&str]) -> Self {
        let file =
            |end: &str| PathBuf::from(format!("/var/tmp/folioswap-acc-{name}-{}.{end}", std::process::id()));
        let (go, stats) = (file("go"), file("json"));
        let mut command = Command::new(folioswap());
        command.args(["run", "--name", name, "-m", &format!("{limit}M"), "--validate", "--stats-json"]);
        command.arg(&stats).args(options).args(["--", "python3", "-c", TOUCHER, &mib.to_string()]).arg(&go);
        let group = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started");
        let mut toucher = Toucher { group, go, stats };
        assert_eq!(toucher.line(), "here\n");
        toucher
    }

    /// The next line that it says.
    fn line(&mut self) -> String {
        let output = self.group.stdout.as_mut().expect("a pipe");
        let mut line = String::new();
        // Byte by byte, so that nothing of the next line is read.
        let mut byte = [0];
        while !line.ends_with('\n') && output.read(&mut byte).expect("read") == 1 {
            line.push(byte[0].into());
        }
        line
    }

    /// Lets it check its memory and end.
    fn finish(mut self) {
        fs::write(&self.go, "").expect("written");
        assert_eq!(self.line(), "right\n");
        assert!(self.group.wait().expect("our child").success());
        let text = fs::read_to_string(&self.stats).expect("figures");
        let all: Value = serde_json::from_str(&text).expect("JSON");
        let stats = &all["counters"];
        for figure in ["violations", "pages_poisoned"] {
            assert_eq!(stats[figure].as_u64(), Some(0), "{figure} in {stats:#}");
        }
        let has_swapped = stats["pswpout"].as_u64() > Some(0);
        assert!(!has_swapped || stats["validations"].as_u64() > Some(0), "{stats:#}");
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        drop(self.group.kill());
        drop(self.group.wait());
        drop(fs::remove_file(&self.go));
        drop(fs::remove_file(&self.stats));
    }
}

/// A `balance` that runs, ended on drop. A user can have one.
struct Balance {
    process: Child,
    _turn: MutexGuard<'static, ()>,
}

impl Balance {
    fn start(words: &[&str]) -> Self {
        Balance::start_as(words, &folioswap(), None)
    }

    fn start_as(words: &[&str], program: &Path, user: Option<u32>) -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let turn = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut command = Command::new(program);
        command.arg("balance").args(words).stdout(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        Balance { process: command.spawn().expect("started"), _turn: turn }
    }

    /// The bytes of this text, as it says them.
    fn hear(&mut self, text: &str) {
        let mut said = vec![0; text.len()];
        self.process.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("read");
        assert_eq!(String::from_utf8_lossy(&said), text);
    }

    /// Interrupts it; returns its status and what it has said.
    fn interrupt(&mut self) -> (Option<i32>, String) {
        // SAFETY: kill has no memory effects; the process is our child.
        assert_eq!(unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGINT) }, 0);
        wait_until("it ends", || self.process.try_wait().expect("our child").is_some());
        let mut said = String::new();
        self.process.stdout.as_mut().expect("a pipe").read_to_string(&mut said).expect("read");
        (self.process.wait().expect("our child").code(), said)
    }
}

impl Drop for Balance {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The limit of a group, in MiB, and its weight.
fn limit_and_weight(name: &str) -> (u64, u64) {
    let output = run_folioswap(&["stats", name, "--json"]);
    let stats: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figure = |key: &str| stats[key].as_u64().expect("a number");
    (figure("limit_bytes") / MIB, figure("weight"))
}

/// The limits of two groups at one moment: that of the first one was the same before and after.
fn limits(one: &str, other: &str) -> [u64; 2] {
    loop {
        let before = limit_and_weight(one).0;
        let limits = [before, limit_and_weight(other).0];
        if limit_and_weight(one).0 == before {
            return limits;
        }
    }
}

/// Of two groups that swap the heavier one has more, a weight can be changed, what one does not
/// need the other gets, and their limits are never more than what they share.
#[test]
fn groups_share_by_weight_and_what_one_leaves_the_other_gets() {
    only_folioswap!();
    let first = Toucher::start("acc-share-a", 80, 48, &["--weight", "300"]);
    let second = Toucher::start("acc-share-b", 80, 48, &[]);
    let (a, b) = ("acc-share-a", "acc-share-b");
    assert_eq!((limit_and_weight(a), limit_and_weight(b)), ((48, 300), (48, 100)));
    // Other tests may have groups of their own.
    let mut balance = Balance::start(&["-d", "0.2", "--memory", "96M", a, b]);
    let limits_become = |what: &str, wanted: [u64; 2]| {
        wait_until(what, || {
            let limits = limits(a, b);
            assert!(limits[0] + limits[1] <= 96, "{what}: {limits:?}");
            limits.iter().zip(wanted).all(|(limit, wanted)| limit.abs_diff(wanted) <= 4)
        });
    };
    limits_become("three quarters and a quarter", [72, 24]);
    assert!(run_folioswap(&["set", b, "--weight", "900"]).status.success());
    limits_become("a quarter and three quarters", [24, 72]);
    first.finish();
    wait_until("the other has all", || limit_and_weight(b).0 == 96);
    // A third one begins with more than is left: the second gives up what the third has. A quarter
    // is enough for what an interpreter has that cannot be swapped out.
    let third = Toucher::start(a, 8, 32, &["--weight", "300"]);
    wait_until("the sum is what they share", || limits(a, b).iter().sum::<u64>() <= 96);
    assert_eq!(limit_and_weight(b).1, 900);
    let (status, said) = balance.interrupt();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("acc-share-a: 48.0M -> ") && said.contains(" -> 24.0M\n"), "{said}");
    assert!(said.ends_with("ended; the limits stay as they are\n"), "{said}");
    assert!(limit_and_weight(b).0 > 48, "the limit stays");
    second.finish();
    third.finish();
}

/// A group that cannot come within its part keeps what it has; the other gets what is left.
#[test]
fn a_frozen_group_keeps_what_it_has() {
    only_folioswap!();
    let first = Toucher::start("acc-keeps-a", 40, 64, &[]);
    let second = Toucher::start("acc-keeps-b", 80, 32, &[]);
    assert!(run_folioswap(&["freeze", "acc-keeps-a"]).status.success());
    // 96 MiB are shared, of which the frozen one has some 50 and a weight of next to nothing.
    let words = ["-d", "0.2", "-m", "96M", "acc-keeps-a=1", "acc-keeps-b=10000"];
    let mut balance = Balance::start(&words);
    wait_until("the other has what is left", || {
        let [frozen, other] = limits("acc-keeps-a", "acc-keeps-b");
        assert!(frozen >= 40 && frozen + other <= 96, "{frozen} and {other}");
        frozen < 60 && other > 36
    });
    assert_eq!(balance.interrupt().0, Some(0));
    assert!(run_folioswap(&["thaw", "acc-keeps-a"]).status.success());
    first.finish();
    second.finish();
}

/// A stopped process that goes on when this is dropped.
struct Stopped(libc::pid_t);

impl Stopped {
    fn stop(pid: libc::pid_t) -> Self {
        // SAFETY: kill has no memory effects; the process is of a group of ours.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

/// A group whose supervisor does not answer keeps its limit, holds no other up, and does not keep
/// the command from ending.
#[test]
fn a_group_that_does_not_answer_holds_nobody_up() {
    only_folioswap!();
    let first = Toucher::start("acc-silent-a", 80, 48, &[]);
    let second = Toucher::start("acc-silent-b", 80, 24, &[]);
    let output = run_folioswap(&["stats", "acc-silent-a", "--json"]);
    let stats: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let supervisor = stats["pid"].as_i64().expect("a number") as libc::pid_t;
    let words = ["-d", "0.2", "-m", "128M", "acc-silent-a=1", "acc-silent-b=10000"];
    let mut balance = Balance::start(&words);
    wait_until("it has begun", || limit_and_weight("acc-silent-b").0 > 24);
    let stopped = Stopped::stop(supervisor);
    assert!(run_folioswap(&["set", "acc-silent-b", "-m", "24M"]).status.success());
    wait_until("the other one is served", || limit_and_weight("acc-silent-b").0 > 32);
    drop(stopped);
    let limits = limits("acc-silent-a", "acc-silent-b");
    assert!(limits[0] + limits[1] <= 128, "what the silent one had is its own: {limits:?}");
    assert_eq!(balance.interrupt().0, Some(0));
    first.finish();
    second.finish();
}

/// Groups of another user are left alone, a second balance of one user is refused, and one without
/// groups waits for them.
#[test]
fn one_balance_of_a_user_shares_its_own_groups() {
    only_folioswap!();
    // A delay of more than a second is waited for and can be interrupted.
    let mut first = Balance::start(&["-d", "30", "-m", "64M", "acc-not-there"]);
    // It has its name before it says the first word.
    first.hear("no such group runs yet; waiting\n");
    refused(&run_folioswap(&["balance", "-m", "64M"]), 125, &["another `folioswap balance` of yours runs"]);
    assert_eq!(first.interrupt(), (Some(0), "ended; the limits stay as they are\n".to_owned()));
    drop(first);
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        skip!("only root has another user");
    }
    let group = Toucher::start("acc-foreign", 40, 32, &[]);
    let copy = ForEverybody::new("balance");
    let words = ["-d", "0.2", "-m", "64M", "acc-foreign"];
    let mut other = Balance::start_as(&words, copy.path(), Some(65_534));
    other.hear("no such group runs yet; waiting\n");
    assert_eq!(other.interrupt().0, Some(0));
    assert_eq!(limit_and_weight("acc-foreign"), (32, 100));
    group.finish();
}

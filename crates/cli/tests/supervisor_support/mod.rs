//! Helpers of the supervisor's tests: they start `folioswap run` without an agent, and look at the
//! processes and files that it leaves.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod members;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// The environment variable by which the processes of a run are found again.
pub const MARK: &str = "FOLIOSWAP_TEST_MARK";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// One run that a test prepares.
pub struct Run {
    pub command: Command,
    pub mark: String,
    pub directory: PathBuf,
}

impl Run {
    /// Prepares `folioswap run --memory 64M --agent none OPTIONS -- CMD`.
    pub fn new(options: &[&str], cmd: &[&str]) -> Self {
        let agent: &[&str] = if options.contains(&"--agent") { &[] } else { &["--agent", "none"] };
        Self::with_agent(agent, options, cmd)
    }

    /// As [`Run::new`], with the agent that is built in.
    pub fn managed(options: &[&str], cmd: &[&str]) -> Self {
        Self::with_agent(&[], options, cmd)
    }

    fn with_agent(agent: &[&str], options: &[&str], cmd: &[&str]) -> Self {
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(format!("folioswap-test-{mark}"));
        fs::create_dir_all(&directory).expect("temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_folioswap"));
        command.args(["run", "--memory", "64M", "--stats-json"]).arg(directory.join("stats.json"));
        command.args(agent).args(options).arg("--").args(cmd).env(MARK, &mark).stdin(Stdio::null());
        Run { command, mark, directory }
    }

    /// The path of a file in the directory of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts the run with its output captured.
    pub fn spawn(&mut self) -> Child {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("folioswap starts")
    }

    /// Runs the command to its end; returns status, standard output and standard error.
    pub fn output(&mut self) -> (i32, String, String) {
        let output = self.spawn().wait_with_output().expect("waited");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// The statistics that the run wrote.
    pub fn stats(&self) -> serde_json::Value {
        let text = fs::read_to_string(self.file("stats.json")).expect("statistics were written");
        serde_json::from_str(&text).expect("they are JSON")
    }

    /// The live processes of this run, front and supervisor included.
    pub fn processes(&self) -> Vec<u32> {
        processes_of(&self.mark)
    }

    /// Waits until no process of this run lives.
    pub fn assert_all_gone(&self) {
        wait_until("all processes of the run have ended", || self.processes().is_empty());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for pid in self.processes() {
            kill(pid as i32, libc::SIGKILL);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The live processes of the run with this mark, front and supervisor included.
pub fn processes_of(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let marked = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes()))
    };
    let all = fs::read_dir("/proc").expect("proc").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(marked).collect()
}

/// Waits up to 5 s until `reached` returns true.
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(5), "within 5 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal to a process, or to a process group when `pid` is negative.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: sends a signal to a process that a test started.
    unsafe { libc::kill(pid, signal) };
}

/// Waits until a process has a child; returns the first one.
pub fn child_of(pid: u32) -> u32 {
    let mut found = 0;
    wait_until("the process has a child", || {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        found != 0
    });
    found
}

/// The state letter of a process.
pub fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('X')
}

/// Waits until a file has a whole line of text; returns the text.
pub fn text_of(path: &Path) -> String {
    let mut text = String::new();
    wait_until(&format!("{} is written", path.display()), || {
        text = fs::read_to_string(path).unwrap_or_default();
        text.ends_with('\n')
    });
    text
}

//! A running program, until its end.

use super::engine::Engine;
use super::outcome::{Outcome, shorten};
use super::watch::{Watch, Watched};
use super::{Job, ScratchDirectory};
use crate::traces;
use folioswap_peer::{Cgroup, Zram};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest time that a tree may take to end once it should: a loaded machine needs some of it,
/// and a tree that takes longer hangs.
const GONE_AT_LAST: Duration = Duration::from_secs(20);

/// Shortens a timeout to `FOLIOSWAP_ACCEPTANCE_TIMEOUT` seconds, for work on a defect that hangs.
fn most(timeout: Duration) -> Duration {
    let shorter = std::env::var("FOLIOSWAP_ACCEPTANCE_TIMEOUT").ok().and_then(|text| text.parse().ok());
    shorter.map_or(timeout, |seconds| timeout.min(Duration::from_secs(seconds)))
}

/// A running program. Dropping it kills its whole tree and removes its files.
pub struct Running {
    pub(super) job: Job,
    pub(super) engine: Engine,
    /// Process id of the started process: `folioswap` itself, or the program when it runs without.
    pub pid: i32,
    pub(super) started: Instant,
    pub(super) ended: Option<(i32, libc::rusage, Duration)>,
    // The order of the fields is the order of dropping: stop watching, end the tree, then remove
    // zram and the files.
    pub(super) watch: Option<Watch>,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) zram: Option<Zram>,
    pub(super) stats: PathBuf,
    pub(super) out: PathBuf,
    pub(super) err: PathBuf,
    pub(super) traces_before: BTreeSet<String>,
    pub(super) scratch: ScratchDirectory,
    pub(super) _turn: MutexGuard<'static, ()>,
}

impl Running {
    /// The processes of the tree, `folioswap` included. Without a cgroup only the first is known.
    pub fn processes(&self) -> Vec<i32> {
        self.cgroup.as_ref().map_or_else(|| vec![self.pid], Cgroup::processes)
    }
    /// Standard output until now.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap_or_default()).into_owned()
    }
    /// Standard error until now.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap_or_default()).into_owned()
    }
    /// Anonymous and shared memory of the tree now, in bytes.
    pub fn resident(&self) -> Option<u64> {
        self.cgroup.as_ref()?.resident().ok().map(|(rss, shmem)| rss + shmem)
    }
    /// The directory that the program runs in.
    pub fn directory(&self) -> &Path {
        &self.scratch.0
    }
    /// Waits until standard output contains `text`.
    ///
    /// # Panics
    /// When the program ends, or when 60 s have passed.
    pub fn wait_for_output(&mut self, text: &str) {
        let start = Instant::now();
        while !self.output().contains(text) {
            assert!(
                !self.poll(),
                "it ended before it said {text:?}; it said {:?} and {:?}",
                self.output(),
                self.errors()
            );
            assert!(start.elapsed() < Duration::from_secs(60), "not said in time: {text:?}{}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// Sends a signal to the started process alone.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill has no memory effects; the process is our unreaped child.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }
    /// Sends a signal to the whole process group, as a terminal does for Ctrl-C.
    pub fn signal_group(&self, signal: i32) {
        // SAFETY: kill has no memory effects; the group's leader is our unreaped child.
        assert_eq!(unsafe { libc::kill(-self.pid, signal) }, 0);
    }

    /// Whether the started process has ended.
    pub fn poll(&mut self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let mut status = 0;
        // SAFETY: rusage is plain integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for writing; the child is ours.
        let result = unsafe { libc::wait4(self.pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if result == self.pid {
            self.ended = Some((status, usage, self.started.elapsed()));
        }
        assert!(result >= 0, "wait4: {}", io::Error::last_os_error());
        self.ended.is_some()
    }

    /// The state and kernel stack of every thread of the tree, for the report of a hang.
    pub fn state(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for pid in self.processes() {
            let read = |path: String| fs::read_to_string(path).unwrap_or_default();
            let command = read(format!("/proc/{pid}/cmdline")).replace('\0', " ");
            _ = write!(text, "\n  {pid} {}", command.chars().take(100).collect::<String>());
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for thread in threads.take(24) {
                let base = thread.path().display().to_string();
                let status = read(format!("{base}/status"));
                let field = |name: &str| {
                    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned()
                };
                let stack = read(format!("{base}/stack"));
                let top: Vec<&str> = stack
                    .lines()
                    .take(4)
                    .filter_map(|line| line.split_whitespace().nth(1)?.split('+').next())
                    .collect();
                _ = write!(text, "\n    {} {}: {}", field("Name:"), field("State:"), top.join(" < "));
            }
        }
        text
    }

    /// Waits for the end of the program and of its descendants, and collects the outcome.
    ///
    /// # Panics
    /// When they do not end in time.
    pub fn finish(mut self) -> Outcome {
        // A pidfd becomes readable at the end: nothing polls busily on a machine with few cores.
        // SAFETY: pidfd_open has no memory effects; the process is our unreaped child.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) } as i32;
        while !self.poll() {
            let left = most(self.job.timeout).saturating_sub(self.started.elapsed());
            if left.is_zero() {
                let (state, errors) = (self.state(), self.errors());
                panic!(
                    "{:?} under {:?} did not end within {:?}; it printed {:?}, and {errors:?}{state}",
                    self.job.command,
                    self.engine,
                    most(self.job.timeout),
                    shorten(&self.output())
                );
            }
            let mut poll = libc::pollfd { fd: pidfd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            unsafe { libc::poll(&raw mut poll, 1, left.as_millis().min(1000) as i32) };
        }
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(pidfd) };
        let (status, usage, wall) = self.ended.expect("ended");
        // The address space of a killed process takes a moment to go; no other process may remain.
        let allowed = self.job.lingering + GONE_AT_LAST;
        let after = Instant::now();
        let empty = self.cgroup.as_ref().is_none_or(|cgroup| cgroup.wait_empty(allowed));
        let lingered = after.elapsed();
        let left_running = if empty { String::new() } else { self.state() };
        let compressed = self.zram.as_ref().map(|zram| zram.sizes()[2]);
        let oom_kills = self.cgroup.as_ref().map_or(0, Cgroup::oom_kills);
        let watched = self.watch.take().map(|watch| watch.shared.clone());
        drop(self.cgroup.take());
        let mut traces: Vec<String> = Vec::new();
        for _ in 0..20 {
            traces = traces::present().difference(&self.traces_before).cloned().collect();
            if traces.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        // The file is created at the start, and stays empty when the command is killed.
        let stats_text = fs::read_to_string(&self.stats).ok().filter(|text| !text.is_empty());
        let stats = stats_text.map(|text| {
            serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("--stats-json is no JSON: {error}: {text}"))
        });
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let load = |value: fn(&Watched) -> &AtomicU64| watched.as_ref().map(|w| value(w).load(Relaxed));
        Outcome {
            command: self.job.command.clone(),
            engine: self.engine.clone(),
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
            stdout: fs::read(&self.out).expect("stdout"),
            stderr: String::from_utf8_lossy(&fs::read(&self.err).expect("stderr")).into_owned(),
            stats,
            wall,
            cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            peak: load(|w| &w.peak),
            peak_rss: load(|w| &w.peak_rss),
            longest_gap_us: load(|w| &w.longest_gap_us),
            samples: load(|w| &w.samples),
            left_running,
            lingered,
            traces,
            oom_kills,
            compressed,
            lingers: !self.job.lingering.is_zero(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch = None;
        if self.ended.is_none() {
            // SAFETY: kill and waitpid without memory effects on our own unreaped child.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
        self.cgroup = None;
        self.zram = None;
    }
}

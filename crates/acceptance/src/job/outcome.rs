//! The outcome of a run, and the checks that every run must pass.

use super::engine::Engine;
use crate::MIB;
use std::ffi::OsString;
use std::time::Duration;

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The command.
    pub command: Vec<OsString>,
    /// The engine that it ran under.
    pub engine: Engine,
    /// Exit status, when it exited.
    pub code: Option<i32>,
    /// The signal that ended it, when one did.
    pub signal: Option<i32>,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: String,
    /// The document that `--stats-json` wrote.
    pub stats: Option<serde_json::Value>,
    /// The time from start to end of the started process.
    pub wall: Duration,
    /// User and system time in seconds of the processes that were waited for.
    pub cpu: f64,
    /// The highest sum of anonymous and shared memory seen, in bytes.
    pub peak: Option<u64>,
    /// The highest anonymous memory seen, in bytes.
    pub peak_rss: Option<u64>,
    /// The longest time between two samples, in microseconds.
    pub longest_gap_us: Option<u64>,
    /// The number of samples.
    pub samples: Option<u64>,
    /// The processes that did not end, as text; empty when all ended.
    pub left_running: String,
    /// The time that descendants stayed after the end of the started process.
    pub lingered: Duration,
    /// Files, mounts, sockets and shared memory left behind.
    pub traces: Vec<String>,
    /// Whether descendants were expected to outlive the program.
    pub lingers: bool,
    /// Kills by the kernel's OOM killer.
    pub oom_kills: u64,
    /// Bytes that zram occupied at the end of a run under the kernel.
    pub compressed: Option<u64>,
}

/// The lines of messages without the one that says that a run thrashes.
pub fn said(errors: &str) -> impl Iterator<Item = &str> {
    errors.lines().filter(|line| !line.contains("it does little but wait for pages"))
}

impl Outcome {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The lines on standard error, without the one that says that a run thrashes: a slow machine
    /// is enough for that.
    pub fn said(&self) -> Vec<&str> {
        said(&self.stderr).collect()
    }

    /// A short description for messages and reports.
    pub fn describe(&self) -> String {
        let command: Vec<_> = self.command.iter().map(|word| word.display().to_string()).collect();
        format!(
            "{} under {:?}: status {:?} signal {:?} in {:.2} s, {:.2} s CPU, peak {:.1} MiB, {} OOM kills\nstdout: {}\nstderr: {}",
            shorten(&command.join(" ")),
            self.engine,
            self.code,
            self.signal,
            self.wall.as_secs_f64(),
            self.cpu,
            self.peak.unwrap_or(0) as f64 / MIB as f64,
            self.oom_kills,
            shorten(&self.text()),
            shorten(&self.stderr)
        )
    }

    /// A counter of the statistics, by the kernel's name for it.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.stats.as_ref()?["counters"][name].as_f64()
    }

    /// A counter of a folio size ("64kB", ...), by the kernel's name for it.
    pub fn size_figure(&self, size: &str, name: &str) -> Option<u64> {
        self.stats.as_ref()?["sizes"][size][name].as_u64()
    }

    /// Asserts what holds for every run that ends well: status 0, the limit, nothing left behind,
    /// and all slots free.
    ///
    /// # Panics
    /// When any of it does not hold.
    pub fn check(&self) {
        assert!(self.code == Some(0), "failed: {}", self.describe());
        self.check_limit();
        self.check_clean();
        if matches!(self.engine, Engine::Folioswap { .. }) {
            assert!(self.stats.is_some(), "no statistics were written: {}", self.describe());
            assert_eq!(self.figure("pages_poisoned"), Some(0.0), "pages were lost: {}", self.describe());
            self.check_validated();
            if !self.lingers {
                self.check_devices();
            }
        }
    }

    /// Asserts that every invariant of the swap space held each time that members and supervisor
    /// checked, and that they did check when pages were swapped out.
    ///
    /// # Panics
    /// When an invariant was violated, or none was checked.
    pub fn check_validated(&self) {
        assert_eq!(self.figure("violations"), Some(0.0), "invariants were violated: {}", self.describe());
        if self.figure("pswpout").is_some_and(|pages| pages > 0.0) {
            let looks = self.figure("validations").unwrap_or(0.0);
            assert!(looks > 0.0, "nobody checked the invariants: {}", self.describe());
        }
    }

    /// Asserts that after the end of the whole tree no device is in use.
    ///
    /// # Panics
    /// When a device is.
    pub fn check_devices(&self) {
        let stats = self.stats.as_ref().unwrap_or_else(|| panic!("no statistics: {}", self.describe()));
        let slots = stats["levels"]["slots_used_pages"].as_u64();
        assert_eq!(slots, Some(0), "slots in use after the end: {}", self.describe());
        let devices = stats["devices"].as_array().filter(|devices| !devices.is_empty());
        for device in devices.unwrap_or_else(|| panic!("no devices: {}", self.describe())) {
            assert_eq!(device["used_bytes"].as_u64(), Some(0), "{device} after the end: {}", self.describe());
        }
    }

    /// Asserts that the tree stayed within its limit + 5 % + 16 MiB, where the limit counts
    /// everything that the cgroup counts.
    ///
    /// # Panics
    /// When it did not.
    pub fn check_limit(&self) {
        let Some(limit) = self.engine.limit() else { return };
        if matches!(self.engine, Engine::Folioswap { scope: "resident", .. }) {
            return;
        }
        let Some(peak) = self.peak else { return };
        let samples = self.samples.unwrap_or(0);
        assert!(
            self.wall < Duration::from_millis(100) || samples > 2,
            "the watch did not work: {samples} looks in {:?}",
            self.wall
        );
        let allowed = limit + limit / 20 + 16 * MIB;
        assert!(
            peak <= allowed,
            "peak {:.1} MiB exceeds the limit of {:.1} MiB by more than 5 % + 16 MiB (longest time between looks {} us): {}",
            peak as f64 / MIB as f64,
            limit as f64 / MIB as f64,
            self.longest_gap_us.unwrap_or(0),
            self.describe()
        );
    }

    /// Asserts that no process, file, mount, socket or shared memory is left.
    ///
    /// # Panics
    /// When one is.
    pub fn check_clean(&self) {
        assert!(self.left_running.is_empty(), "still running: {}\n{}", self.left_running, self.describe());
        assert!(self.traces.is_empty(), "left behind: {:?}\n{}", self.traces, self.describe());
    }
}

pub(super) fn shorten(text: &str) -> String {
    if text.len() <= 2000 {
        return text.to_owned();
    }
    let head: String = text.chars().take(900).collect();
    let tail: String = text.chars().rev().take(900).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{head} [...] {tail}")
}

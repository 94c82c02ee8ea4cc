//! Runs a program without a limit, under folioswap, or under the kernel's own swap, and tells what happened.

use crate::cgroup::Cgroup;
use crate::zram::Zram;
use crate::{MIB, programs, skipping, traces};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What keeps the program within its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Nothing: to learn its need and its output.
    Nothing,
    /// `folioswap run --memory N`.
    Folioswap {
        /// The limit in bytes; `None` leaves `--memory` away.
        memory: Option<u64>,
        /// `total` or `resident`.
        scope: &'static str,
    },
    /// A memory cgroup with this limit on resident memory, and zram with LZ4.
    Kernel {
        /// The limit in bytes.
        memory: u64,
    },
}

impl Engine {
    /// The limit in bytes, where there is one.
    pub fn limit(&self) -> Option<u64> {
        match *self {
            Engine::Nothing => None,
            Engine::Folioswap { memory, .. } => memory,
            Engine::Kernel { memory } => Some(memory),
        }
    }
}

/// The engine that the tests judge: folioswap, or with `FOLIOSWAP_ACCEPTANCE_ENGINE=kernel` the kernel (which proves the
/// tests themselves: what fails there is a defect of the test).
pub fn engine(memory: u64) -> Engine {
    match std::env::var("FOLIOSWAP_ACCEPTANCE_ENGINE").as_deref() {
        Ok("kernel") => Engine::Kernel { memory },
        Ok("nothing") => Engine::Nothing,
        Ok("folioswap") | Err(_) => Engine::Folioswap { memory: Some(memory), scope: "total" },
        Ok(other) => panic!("FOLIOSWAP_ACCEPTANCE_ENGINE={other}: folioswap, kernel or nothing"),
    }
}

/// Whether the tests judge folioswap itself (see [`engine`]).
pub fn judging_folioswap() -> bool {
    matches!(engine(MIB), Engine::Folioswap { .. })
}

/// Seconds that timed programs run: `long` as the requirement says when `FOLIOSWAP_LONG=1`, else `short`.
pub fn seconds(short: u64, long: u64) -> u64 {
    if std::env::var_os("FOLIOSWAP_LONG").is_some_and(|value| value == "1") { long } else { short }
}

/// A program to be run.
#[derive(Clone, Debug)]
pub struct Job {
    command: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    options: Vec<OsString>,
    directory: Option<PathBuf>,
    timeout: Duration,
    lingering: Duration,
    cgroup_limit: Option<u64>,
    user: Option<u32>,
}

impl Job {
    /// Starts the description of a program.
    pub fn new<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(command: I) -> Self {
        Job {
            command: command.into_iter().map(|word| word.as_ref().to_owned()).collect(),
            environment: Vec::new(),
            options: Vec::new(),
            directory: None,
            timeout: Duration::from_secs(300),
            lingering: Duration::ZERO,
            cgroup_limit: None,
            user: None,
        }
    }
    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }
    /// Adds an option of `folioswap run`; without effect under other engines.
    #[must_use]
    pub fn option(mut self, word: impl AsRef<OsStr>) -> Self {
        self.options.push(word.as_ref().to_owned());
        self
    }
    /// Runs it in this directory instead of a fresh one.
    #[must_use]
    pub fn directory(mut self, path: &Path) -> Self {
        self.directory = Some(path.to_owned());
        self
    }
    /// Kills it and fails the test after this time (300 s otherwise).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
    /// Lets descendants outlive the program for this long. Otherwise everything must be gone within 2 s.
    #[must_use]
    pub fn lingering(mut self, time: Duration) -> Self {
        self.lingering = time;
        self
    }
    /// Puts a limit on the cgroup around it also under folioswap (which finds it when `--memory` is left away).
    #[must_use]
    pub fn cgroup_limit(mut self, bytes: u64) -> Self {
        self.cgroup_limit = Some(bytes);
        self
    }
    /// Runs it, folioswap included, as another user.
    #[must_use]
    pub fn user(mut self, id: u32) -> Self {
        self.user = Some(id);
        self
    }

    /// Runs it to its end without a limit.
    pub fn unlimited(&self) -> Outcome {
        self.start(Engine::Nothing).finish()
    }
    /// Runs it to its end under an engine.
    pub fn under(&self, engine: Engine) -> Outcome {
        self.start(engine).finish()
    }
    /// Runs it to its end within `memory` bytes under the engine that is judged, and checks the limit and the ending.
    pub fn within(&self, memory: u64) -> Outcome {
        let outcome = self.under(engine(memory));
        outcome.check();
        outcome
    }

    /// Starts it. One job runs at a time: others wait here.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&self, engine: Engine) -> Running {
        static ONE: Mutex<()> = Mutex::new(());
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        traces::remove_stale();
        let place = Place(PathBuf::from(format!(
            "/var/tmp/folioswap-acc-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        )));
        fs::create_dir_all(&place.0).expect("a directory in /var/tmp");
        if let Some(user) = self.user {
            std::os::unix::fs::chown(&place.0, Some(user), Some(user)).expect("chown");
        }
        let stats = place.0.join("stats.json");
        let mut words: Vec<OsString> = Vec::new();
        if let Engine::Folioswap { memory, scope } = &engine {
            words.push(programs::folioswap().into());
            words.push("run".into());
            if let Some(memory) = memory {
                words.extend(["--memory".into(), memory.to_string().into()]);
            }
            words.extend(["--memory-scope".into(), OsString::from(scope), "--stats-json".into()]);
            words.push(stats.clone().into());
            words.extend(
                std::env::var("FOLIOSWAP_ACCEPTANCE_OPTIONS")
                    .iter()
                    .flat_map(|options| options.split_whitespace().map(OsString::from).collect::<Vec<_>>()),
            );
            words.extend(self.options.iter().cloned());
            words.push("--".into());
        }
        words.extend(self.command.iter().cloned());

        let zram = match engine {
            // Large enough that only the limit counts, never the size of the swap.
            Engine::Kernel { .. } => Some(Zram::new(8 << 30).expect("zram for a kernel run")),
            _ => None,
        };
        let limit = match engine {
            Engine::Kernel { memory } => Some(memory),
            _ => self.cgroup_limit,
        };
        let cgroup = match Cgroup::new(limit) {
            Ok(cgroup) => Some(cgroup),
            Err(error) => {
                assert!(zram.is_none(), "a kernel run needs a memory cgroup: {error}");
                skipping::note_part(&format!("memory not watched, no memory cgroup: {error}"));
                None
            }
        };
        let traces_before = traces::present();
        let (out, err) = (place.0.join("stdout"), place.0.join("stderr"));
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(File::create(&out).expect("file"))
            .stderr(File::create(&err).expect("file"))
            .current_dir(self.directory.as_deref().unwrap_or(&place.0))
            .process_group(0)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        let entrance = cgroup
            .as_ref()
            .map(|cgroup| fs::OpenOptions::new().write(true).open(cgroup.entrance()).expect("cgroup.procs"));
        let user = self.user;
        // SAFETY: only async-signal-safe calls in the child: write, prctl, set*id.
        unsafe {
            command.pre_exec(move || {
                if let Some(mut entrance) = entrance.as_ref() {
                    entrance.write_all(b"0")?;
                }
                if let Some(user) = user
                    && (libc::setgroups(0, std::ptr::null()) != 0
                        || libc::setgid(user) != 0
                        || libc::setuid(user) != 0)
                {
                    return Err(io::Error::last_os_error());
                }
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let started = Instant::now();
        #[expect(
            clippy::zombie_processes,
            reason = "Running waits with wait4, which also tells the resources used"
        )]
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", words[0].display()));
        let pid = child.id() as i32;
        let watch = cgroup.as_ref().map(Watch::start);
        Running {
            job: self.clone(),
            engine,
            pid,
            started,
            ended: None,
            watch,
            cgroup,
            zram,
            stats,
            out,
            err,
            traces_before,
            place,
            _turn: turn,
        }
    }
}

/// `FOLIOSWAP_ACCEPTANCE_TIMEOUT` (seconds) shortens every timeout, for those who work on a defect that hangs.
fn most(timeout: Duration) -> Duration {
    let shorter = std::env::var("FOLIOSWAP_ACCEPTANCE_TIMEOUT").ok().and_then(|text| text.parse().ok());
    shorter.map_or(timeout, |seconds| timeout.min(Duration::from_secs(seconds)))
}

/// A directory of one run, removed on drop.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Reads the group's memory every 10 ms.
struct Watch {
    thread: Option<JoinHandle<()>>,
    shared: Arc<Watched>,
}

#[derive(Default)]
struct Watched {
    stop: AtomicBool,
    peak: AtomicU64,
    peak_rss: AtomicU64,
    samples: AtomicU64,
    longest_gap_us: AtomicU64,
}

impl Watch {
    fn start(cgroup: &Cgroup) -> Self {
        let shared = Arc::new(Watched::default());
        let watched = shared.clone();
        let reader = cgroup.reader().expect("memory.stat can be read");
        let thread = std::thread::spawn(move || {
            // Ahead of the watched programs on a busy machine; without the right to it, as good as it goes.
            // SAFETY: setpriority on the calling thread has no memory effects.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
            let mut last = Instant::now();
            while !watched.stop.load(Relaxed) {
                if let Ok((rss, shmem)) = reader.resident() {
                    watched.peak.fetch_max(rss + shmem, Relaxed);
                    watched.peak_rss.fetch_max(rss, Relaxed);
                    watched.samples.fetch_add(1, Relaxed);
                }
                let now = Instant::now();
                watched.longest_gap_us.fetch_max((now - last).as_micros() as u64, Relaxed);
                last = now;
                std::thread::sleep(Duration::from_millis(10).saturating_sub(now.elapsed()));
            }
        });
        Watch { thread: Some(thread), shared }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A program that runs. Dropping it kills its whole tree and removes everything of it.
pub struct Running {
    job: Job,
    engine: Engine,
    /// Process id of what was started: `folioswap` itself, or the program where there is none.
    pub pid: i32,
    started: Instant,
    ended: Option<(i32, libc::rusage, Duration)>,
    // In this order on drop: stop watching, end the tree, then give zram back and remove the files.
    watch: Option<Watch>,
    cgroup: Option<Cgroup>,
    zram: Option<Zram>,
    stats: PathBuf,
    out: PathBuf,
    err: PathBuf,
    traces_before: BTreeSet<String>,
    place: Place,
    _turn: MutexGuard<'static, ()>,
}

impl Running {
    /// The processes of the tree, `folioswap` included. Without a cgroup only the first.
    pub fn processes(&self) -> Vec<i32> {
        self.cgroup.as_ref().map_or_else(|| vec![self.pid], Cgroup::processes)
    }
    /// What it has printed until now.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.out).unwrap_or_default()).into_owned()
    }
    /// What it has printed on standard error until now.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.err).unwrap_or_default()).into_owned()
    }
    /// Anonymous and shared memory of the tree now, in bytes.
    pub fn resident(&self) -> Option<u64> {
        self.cgroup.as_ref()?.resident().ok().map(|(rss, shmem)| rss + shmem)
    }
    /// The directory that it runs in.
    pub fn directory(&self) -> &Path {
        &self.place.0
    }
    /// Waits until its output contains `text`.
    ///
    /// # Panics
    /// When it ends or 60 s pass before.
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

    /// What every process of the tree is doing, for the report of a hang.
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

    /// Waits for its end and for that of its descendants, and gathers everything.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn finish(mut self) -> Outcome {
        // A pidfd becomes readable at the end: no busy waiting on a machine of few cores.
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
        // A killed process's address space takes a moment to go; nobody else may still be there.
        let allowed = self.job.lingering + Duration::from_secs(2);
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
        // The file is made at the start; it stays empty when the command is killed.
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

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// The command.
    pub command: Vec<OsString>,
    /// What it ran under.
    pub engine: Engine,
    /// Exit status, when it exited.
    pub code: Option<i32>,
    /// The signal that ended it, when one did.
    pub signal: Option<i32>,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: String,
    /// What `--stats-json` wrote.
    pub stats: Option<serde_json::Value>,
    /// From start to end of the started process.
    pub wall: Duration,
    /// User and system time of the tree, as far as it was waited for.
    pub cpu: f64,
    /// The highest sum of anonymous and shared memory seen.
    pub peak: Option<u64>,
    /// The highest anonymous memory seen.
    pub peak_rss: Option<u64>,
    /// The longest time between two looks at it.
    pub longest_gap_us: Option<u64>,
    /// How often it was looked at.
    pub samples: Option<u64>,
    /// The processes that did not go (empty when all went).
    pub left_running: String,
    /// How long descendants stayed after the end of the started process.
    pub lingered: Duration,
    /// Files, mounts, sockets and shared memory left behind.
    pub traces: Vec<String>,
    /// Whether descendants were expected to outlive the program.
    pub lingers: bool,
    /// Kills by the kernel's out-of-memory killer (kernel runs).
    pub oom_kills: u64,
    /// Occupied bytes of zram at the end (kernel runs).
    pub compressed: Option<u64>,
}

impl Outcome {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Short description for messages and reports.
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

    /// Everything that holds for every run that ends well: status 0, the limit, nothing left behind, all slots free.
    ///
    /// # Panics
    /// When it does not.
    pub fn check(&self) {
        assert!(self.code == Some(0), "failed: {}", self.describe());
        self.check_limit();
        self.check_clean();
        if matches!(self.engine, Engine::Folioswap { .. }) {
            assert!(self.stats.is_some(), "no statistics were written: {}", self.describe());
            assert_eq!(self.figure("pages_poisoned"), Some(0.0), "pages were lost: {}", self.describe());
            if !self.lingers {
                self.check_devices();
            }
        }
    }

    /// After the end of the whole tree nothing is in use on any device.
    ///
    /// # Panics
    /// When something is.
    pub fn check_devices(&self) {
        let stats = self.stats.as_ref().unwrap_or_else(|| panic!("no statistics: {}", self.describe()));
        let slots = stats["levels"]["slots_used_pages"].as_u64();
        assert_eq!(slots, Some(0), "slots in use after the end: {}", self.describe());
        let devices = stats["devices"].as_array().filter(|devices| !devices.is_empty());
        for device in devices.unwrap_or_else(|| panic!("no devices: {}", self.describe())) {
            assert_eq!(device["used_bytes"].as_u64(), Some(0), "{device} after the end: {}", self.describe());
        }
    }

    /// The tree stayed within limit + 5 % + 16 MiB (where the limit counts everything that the cgroup counts).
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

    /// No process, file, mount, socket or shared memory is left.
    ///
    /// # Panics
    /// When something is.
    pub fn check_clean(&self) {
        assert!(self.left_running.is_empty(), "still running: {}\n{}", self.left_running, self.describe());
        assert!(self.traces.is_empty(), "left behind: {:?}\n{}", self.traces, self.describe());
    }
}

fn shorten(text: &str) -> String {
    if text.len() <= 2000 {
        return text.to_owned();
    }
    let head: String = text.chars().take(900).collect();
    let tail: String = text.chars().rev().take(900).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{head} [...] {tail}")
}

/// The figures of one run as a line, for the reader of a test's output.
pub fn report(name: &str, outcome: &Outcome) {
    let engine = match &outcome.engine {
        Engine::Nothing => "no limit".to_owned(),
        Engine::Folioswap { memory, .. } => {
            format!("folioswap {:.0}M", memory.unwrap_or(0) as f64 / MIB as f64)
        }
        Engine::Kernel { memory } => format!("kernel {:.0}M", *memory as f64 / MIB as f64),
    };
    println!(
        "{name:32} {engine:16} {:7.2} s wall {:7.2} s cpu  peak {:7.1} MiB",
        outcome.wall.as_secs_f64(),
        outcome.cpu,
        outcome.peak.unwrap_or(0) as f64 / MIB as f64
    );
}

/// Runs a program without a limit, then at a half and a quarter of what it needed: its output must be the same to the
/// byte, within the limit, with nothing left behind. Returns what it needed.
///
/// # Panics
/// When any of that does not hold.
pub fn same_at_half_and_quarter(name: &str, job: &Job) -> u64 {
    let free = job.unlimited();
    free.check();
    report(name, &free);
    let Some(need) = free.peak_rss else {
        panic!("{name}: its need cannot be measured without a memory cgroup");
    };
    for part in [2, 4] {
        let limit = need / part;
        let limited = job.within(limit);
        report(name, &limited);
        assert!(
            limited.stdout == free.stdout,
            "{name}: other output at 1/{part} of its need:\n{}\nwithout a limit:\n{}",
            limited.describe(),
            free.describe()
        );
        check_swapped(&limited, need - limit);
    }
    need
}

/// Makes sure that a run under folioswap really swapped: without it a test of swapping shows nothing.
///
/// # Panics
/// When fewer pages went out than had to.
pub fn check_swapped(outcome: &Outcome, bytes: u64) {
    if let Engine::Folioswap { .. } = outcome.engine {
        let out = outcome.figure("pswpout").unwrap_or_else(|| panic!("no pswpout: {}", outcome.describe()));
        let wanted = (bytes / 4096) as f64 * 0.8;
        assert!(
            out >= wanted,
            "only {out} pages were swapped out of {wanted} at least: {}",
            outcome.describe()
        );
    }
}

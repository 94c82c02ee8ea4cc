//! One run of a program under one engine.

use crate::folios::{self, FolioCounts};
use crate::memory;
use crate::touch::Timing;
use folioswap_group::decisions::Scope;
use folioswap_peer::{Cgroup, CpuGroup, FolioSizes, HugePages, SwapLock, Zram};
use serde::Serialize;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The engine that holds the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// No limit.
    Unlimited,
    /// `folioswap run`.
    Folioswap(Scope),
    /// `folioswap run` with further options.
    FolioswapWith(Scope, Vec<String>),
    /// A memory cgroup and zram.
    Kernel(FolioSizes),
}

impl Engine {
    /// Whether the engine is folioswap, with whatever options.
    pub const fn is_ours(&self) -> bool {
        matches!(self, Engine::Folioswap(_) | Engine::FolioswapWith(..))
    }

    /// The options of `folioswap run` besides the limit; `None` where it is not run.
    fn run_options(&self) -> Option<(Scope, &[String])> {
        match self {
            Engine::Folioswap(scope) => Some((*scope, &[])),
            Engine::FolioswapWith(scope, options) => Some((*scope, options)),
            Engine::Unlimited | Engine::Kernel(_) => None,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Unlimited => formatter.write_str("unlimited"),
            Engine::Folioswap(scope) => write!(formatter, "folioswap {}", scope.name()),
            Engine::FolioswapWith(scope, options) => {
                write!(formatter, "folioswap {} {}", scope.name(), options.join(" "))
            }
            Engine::Kernel(sizes) => write!(formatter, "kernel {}", name_of(*sizes)),
        }
    }
}

/// The name of the folio sizes on the command line.
pub const fn name_of(sizes: FolioSizes) -> &'static str {
    match sizes {
        FolioSizes::Only4K => "4k",
        FolioSizes::Only64K => "64k",
        FolioSizes::Only2M => "2m",
        FolioSizes::All => "all",
    }
}

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// The phases in order.
    pub phases: Vec<Timing>,
    /// Wall time of the whole run, seconds.
    pub wall: f64,
    /// Peak resident memory of all its processes, bytes: anonymous and shared memory, sampled every
    /// 5 ms; under the kernel's swap the highest charge of the group, page cache included. `None`
    /// without a memory cgroup.
    pub peak: Option<u64>,
    /// User and system time of all its processes, seconds. `None` without a cpuacct cgroup.
    pub cpu: Option<f64>,
    /// Pages swapped out and in; `None` without a limit.
    pub out_in: Option<[u64; 2]>,
    /// Folios by size, the smallest first; empty without a limit. The kernel's counters are those
    /// of the whole machine during the run.
    pub folios: Vec<FolioCounts>,
}

/// Why a run gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A step of the set-up failed.
    #[error("{doing}: {source}; everything was undone")]
    Step {
        /// The step.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The program failed, or read wrong data.
    #[error("under {engine}: {why}")]
    Program {
        /// The engine of the run.
        engine: Engine,
        /// The program's message, or how it ended.
        why: String,
    },
    /// SIGINT, SIGTERM or SIGHUP.
    #[error("interrupted; everything was undone")]
    Interrupted,
}

/// Makes an error of a failed step, for `map_err`.
pub fn step(doing: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |source| RunError::Step { doing, source }
}

/// Prefix of the names of our cgroups and files.
pub const PREFIX: &str = "folioswap-bench-";
/// How long the supervisor's end is waited for, so that its processor time is counted.
const SUPERVISOR_ENDS: Duration = Duration::from_secs(2);
const SAMPLE: Duration = Duration::from_millis(5);
/// Memory touched before each run: this many limits, which is the default need of the programs, and
/// at most `WARMED_MAX` bytes.
const WARMED_LIMITS: u64 = 4;
const WARMED_MAX: u64 = 4 << 30;

/// The set-up that all runs share.
pub struct Bench {
    /// folioswap itself, which is started again as `bench worker ...`.
    pub program: PathBuf,
    /// The limit, bytes.
    pub limit: u64,
    /// Size of the kernel's zram device, bytes.
    pub zram: u64,
    /// The right to change the machine's swap; `None` without the kernel.
    pub swap_lock: Option<Arc<SwapLock>>,
    /// Polled now and then: whether to end.
    pub interrupted: fn() -> bool,
}

impl Bench {
    /// Runs `folioswap bench WORKER` with these arguments.
    ///
    /// # Errors
    /// [`RunError`]; everything is undone.
    pub fn run(&self, engine: &Engine, worker: &str, arguments: &[String]) -> Result<Figures, RunError> {
        memory::warm(self.limit.saturating_mul(WARMED_LIMITS).min(WARMED_MAX) as usize, self.interrupted);
        let stats = Scratch::new();
        let mut command = Command::new(&self.program);
        if let Some((scope, options)) = engine.run_options() {
            command.args(["run", "--memory", &self.limit.to_string(), "--memory-scope", scope.name()]);
            command.args(options).arg("--stats-json").arg(&stats.0).arg("--").arg(&self.program);
        }
        command.args(["bench", worker]).args(arguments);
        // Dropped in reverse order of declaration: the group first, then the device, last the
        // settings.
        let (_huge, _zram, limit);
        if let (Engine::Kernel(sizes), Some(lock)) = (engine, &self.swap_lock) {
            let lz4 = Some("lz4");
            _zram = Zram::new(lock, self.zram, Some(folioswap_peer::HIGHEST_PRIORITY), lz4)
                .map_err(step("a zram device as swap"))?;
            _huge = HugePages::set(lock, *sizes).map_err(step("the settings of huge pages"))?;
            limit = Some(self.limit);
        } else {
            limit = None;
        }
        let group = match Cgroup::new(PREFIX, limit) {
            Ok(group) => Some(group),
            Err(source) if limit.is_some() => return Err(step("a memory cgroup")(source)),
            Err(_) => None,
        };
        let processors = CpuGroup::new(PREFIX).ok();
        let before = (swapped(), folios::kernel());
        let begin = Instant::now();
        let mut child =
            start(&mut command, group.as_ref(), processors.as_ref()).map_err(step("the program"))?;
        // Sampling would change the measured reclaim: see `Reader::resident`.
        let sampled = group.as_ref().filter(|_| limit.is_none());
        let sampled = self.watch(&mut child, group.as_ref(), sampled)?;
        let peak = match limit {
            Some(_) => group.as_ref().and_then(|group| group.most_charged().ok()),
            None => sampled,
        };
        let wall = begin.elapsed().as_secs_f64();
        let output = child.wait_with_output().map_err(step("the program's output"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() || group.as_ref().is_some_and(|group| group.oom_kills() > 0) {
            let killed = group.as_ref().is_some_and(|group| group.oom_kills() > 0);
            let why = match (killed, output.status.signal()) {
                (true, _) => "killed by the kernel for want of memory".to_owned(),
                (false, Some(signal)) => format!("ended by signal {signal}"),
                _ => said.trim().to_owned(),
            };
            return Err(RunError::Program { engine: engine.clone(), why });
        }
        let after = swapped();
        let folios_after = folios::kernel_since(&before.1);
        if let Some(group) = group.as_ref().filter(|_| engine.is_ours()) {
            // The supervisor ends a moment after the program.
            group.wait_empty(SUPERVISOR_ENDS);
        }
        let cpu = processors.and_then(|group| group.seconds().ok());
        let (out_in, folios) = match engine {
            Engine::Unlimited => (None, Vec::new()),
            Engine::Kernel(_) => (Some([0, 1].map(|which| after[which] - before.0[which])), folios_after),
            Engine::Folioswap(_) | Engine::FolioswapWith(..) => {
                let document = stats.document();
                let folios = document.as_ref().map(folios::of_statistics);
                (document.as_ref().and_then(pages_out_in), folios.unwrap_or_default())
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let phases = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Figures { phases, wall, peak, cpu, out_in, folios })
    }

    /// Waits for the end of the program, which is in `group`. Returns the peak of the resident
    /// memory of `sampled`.
    fn watch(
        &self,
        child: &mut Child,
        group: Option<&Cgroup>,
        sampled: Option<&Cgroup>,
    ) -> Result<Option<u64>, RunError> {
        let mut peak = None;
        loop {
            if let Some((anonymous, shared)) = sampled.and_then(|group| group.resident().ok()) {
                peak = peak.max(Some(anonymous + shared));
            }
            if child.try_wait().map_err(step("waiting for the program"))?.is_some() {
                return Ok(peak);
            }
            if (self.interrupted)() {
                match group {
                    Some(group) => group.kill(),
                    None => drop(child.kill()),
                }
                drop(child.wait());
                return Err(RunError::Interrupted);
            }
            std::thread::sleep(SAMPLE);
        }
    }
}

/// Starts the program inside the groups.
fn start(command: &mut Command, group: Option<&Cgroup>, processors: Option<&CpuGroup>) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let entrances = [group.map(Cgroup::entrance), processors.map(CpuGroup::entrance)];
    let mut open = Vec::new();
    for entrance in entrances.into_iter().flatten() {
        open.push(OpenOptions::new().write(true).open(entrance)?);
    }
    for entrance in &open {
        let descriptor = entrance.as_raw_fd();
        // SAFETY: between fork and exec the closure only calls write(2), on a descriptor that stays
        // open until the child has been started.
        unsafe {
            command.pre_exec(move || match libc::write(descriptor, c"0".as_ptr().cast(), 1) {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }
    command.spawn()
}

/// Pages that the kernel has swapped out and in since boot.
fn swapped() -> [u64; 2] {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    ["pswpout ", "pswpin "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.parse().ok()).unwrap_or(0)
    })
}

/// A file for the statistics of a run, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let root = Path::new("/var/tmp");
        // Files that killed processes left.
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(".json"));
            if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
                drop(fs::remove_file(entry.path()));
            }
        }
        Scratch(root.join(format!("{PREFIX}{}.json", std::process::id())))
    }

    fn document(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&fs::read_to_string(&self.0).ok()?).ok()
    }
}

/// Reads pages swapped out and in from a document of `folioswap run --stats-json`.
fn pages_out_in(document: &serde_json::Value) -> Option<[u64; 2]> {
    let counter = |name: &str| document.get("counters")?.get(name)?.as_u64();
    Some([counter("pswpout")?, counter("pswpin")?])
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Prints a worker's line for a finished phase.
///
/// # Errors
/// Nobody reads the output.
pub fn tell(timing: &Timing) -> io::Result<()> {
    let line = serde_json::to_string(timing).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{line}")
}

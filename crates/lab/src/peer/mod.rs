//! The running kernel under the same arrangement: four zram devices, a memory cgroup, and tasks
//! that need more than its limit.
//!
//! Needs root, zram and cgroup v1. Everything is undone at the end, also after a failure, SIGINT,
//! SIGTERM or SIGHUP. The next run removes what a SIGKILL leaves behind.

mod hog;

pub use hog::hog;

use crate::experiments::round_robin::Peer;
use folioswap_peer::{Cgroup, SwapLock, Version, Zram};
use hog::Hogs;
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A line of /proc/swaps.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct DeviceUse {
    /// The device's name, as the kernel shows it.
    pub name: String,
    /// Size, KiB.
    pub size_kib: u64,
    /// Use, KiB.
    pub used_kib: u64,
    /// Priority, as the kernel shows it.
    pub priority: i32,
}

/// The size of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Size of each of the four devices, MiB.
    pub device_mib: u64,
    /// Number of tasks.
    pub tasks: u32,
    /// Memory that each task fills, MiB.
    pub task_mib: u64,
    /// Limit of all tasks together, MiB.
    pub limit_mib: u64,
}

impl Load {
    /// Some seconds: 768 MiB to four devices of 512 MiB.
    pub const QUICK: Load = Load { device_mib: 512, tasks: 4, task_mib: 256, limit_mib: 256 };
    /// `usemem -n 4 1G` within 1 GiB, four devices of 2 GiB.
    pub const FULL: Load = Load { device_mib: 2048, tasks: 4, task_mib: 1024, limit_mib: 1024 };
}

/// Why the kernel could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// We are not root.
    #[error("--peer kernel sets up zram devices, swap and a memory cgroup: it must be run as root")]
    NotRoot,
    /// There is no memory controller of cgroup v1.
    #[error(
        "--peer kernel needs the memory controller of cgroup v1, which is not mounted here (cgroup v2 is not supported by it)"
    )]
    NoCgroup,
    /// Other swap is in use.
    #[error(
        "--peer kernel needs to be alone with its devices, but swap is on already: {0}; `swapoff` it first"
    )]
    SwapInUse(String),
    /// A step failed.
    #[error("{doing}: {source}; everything was undone")]
    Step {
        /// The step.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A task was killed or ended.
    #[error("a task ended before it had filled its memory ({0}); everything was undone")]
    TaskEnded(String),
    /// SIGINT, SIGTERM or SIGHUP.
    #[error("interrupted; everything was undone")]
    Interrupted,
    /// The tasks took too long.
    #[error("the tasks did not fill their memory within {0} s; everything was undone")]
    Timeout(u64),
}

pub(crate) fn step(doing: &'static str) -> impl FnOnce(io::Error) -> PeerError {
    move |source| PeerError::Step { doing, source }
}

/// Prefix of the names of our memory cgroups.
const PREFIX: &str = "folioswap-lab-";
const TIMEOUT: Duration = Duration::from_secs(120);

/// A flag that signals set while this value lives; afterwards they do again what they did before.
struct Interrupts {
    flag: Arc<AtomicBool>,
    ids: Vec<signal_hook::SigId>,
}

impl Interrupts {
    fn new() -> Result<Interrupts, PeerError> {
        let mut interrupts = Interrupts { flag: Arc::new(AtomicBool::new(false)), ids: Vec::new() };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let id = signal_hook::flag::register(signal, Arc::clone(&interrupts.flag));
            interrupts.ids.push(id.map_err(step("signal handlers"))?);
        }
        Ok(interrupts)
    }

    fn check(&self) -> Result<(), PeerError> {
        if self.flag.load(Ordering::Relaxed) { Err(PeerError::Interrupted) } else { Ok(()) }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

/// Lets the kernel swap to four devices, first with default priorities, then with equal explicit
/// ones. `program` is this very program, which is started again as `program lab hog ...` for the
/// tasks.
///
/// # Errors
/// [`PeerError`]; everything is undone.
pub fn four_zrams(load: Load, program: &Path) -> Result<Peer, PeerError> {
    if !rustix::process::geteuid().is_root() {
        return Err(PeerError::NotRoot);
    }
    match folioswap_peer::controller() {
        Some((Version::One, _)) => {}
        _ => return Err(PeerError::NoCgroup),
    }
    let interrupts = Interrupts::new()?;
    let lock = SwapLock::take(|| interrupts.check().is_err()).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => PeerError::Interrupted,
        _ => step("the lock file")(error),
    })?;
    // Groups are removed first, because the processes inside keep the devices in use.
    Cgroup::remove_stale(PREFIX);
    lock.remove_stale();
    let lock = Arc::new(lock);
    if let Some(other) = swaps().map_err(step("/proc/swaps"))?.first() {
        return Err(PeerError::SwapInUse(other.name.clone()));
    }
    let default = once(&lock, load, None, program, &interrupts)?;
    let equal = once(&lock, load, Some(5), program, &interrupts)?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(Peer {
        kernel: format!("Linux {release}"),
        setup: format!(
            "{} tasks of {} MiB within {} MiB, 4 zram devices of {} MiB",
            load.tasks, load.task_mib, load.limit_mib, load.device_mib
        ),
        default,
        equal,
    })
}

fn once(
    lock: &Arc<SwapLock>,
    load: Load,
    priority: Option<u16>,
    program: &Path,
    interrupts: &Interrupts,
) -> Result<Vec<DeviceUse>, PeerError> {
    let mut devices = Vec::new();
    for _ in 0..4 {
        interrupts.check()?;
        let device = Zram::new(lock, load.device_mib << 20, priority, None);
        devices.push(device.map_err(step("a zram device"))?);
    }
    let group = Cgroup::new(PREFIX, Some(load.limit_mib << 20)).map_err(step("a memory cgroup"))?;
    // The tasks are dropped before the group and the devices.
    let mut hogs = Hogs::start(load, program, group.path()).map_err(step("a task"))?;
    let begin = Instant::now();
    while !hogs.all_ready()? {
        interrupts.check()?;
        if begin.elapsed() > TIMEOUT {
            return Err(PeerError::Timeout(TIMEOUT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let lines = swaps().map_err(step("/proc/swaps"))?;
    let ours =
        devices.iter().filter_map(|device| lines.iter().find(|line| line.name == device.name()).cloned());
    Ok(ours.collect())
}

fn swaps() -> io::Result<Vec<DeviceUse>> {
    Ok(parse_swaps(&std::fs::read_to_string("/proc/swaps")?))
}

fn parse_swaps(text: &str) -> Vec<DeviceUse> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let mut words = words.skip(1);
        Some(DeviceUse {
            name,
            size_kib: words.next()?.parse().ok()?,
            used_kib: words.next()?.parse().ok()?,
            priority: words.next()?.parse().ok()?,
        })
    };
    text.lines().skip(1).filter_map(line).collect()
}

#[cfg(test)]
mod tests;

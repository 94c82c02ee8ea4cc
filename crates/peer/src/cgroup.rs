//! A memory cgroup around a process tree: measures it, limits it (only for runs under the kernel's
//! swap), and ends it as a whole.

use crate::mounts::{mounts, version_one};
use procfs::process::MountInfo;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The interface of the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy of its own (cgroup v1).
    One,
    /// The unified hierarchy (cgroup v2).
    Two,
}

/// Finds the mounted memory controller, once: version and mount point. `None` without one.
pub fn controller() -> Option<(Version, &'static Path)> {
    static FOUND: OnceLock<Option<(Version, PathBuf)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mounts = mounts()?;
        if let Some(point) = version_one(&mounts, "memory") {
            return Some((Version::One, point));
        }
        let has_memory = |mount: &&MountInfo| {
            let file = mount.mount_point.join("cgroup.controllers");
            let controllers = fs::read_to_string(file).unwrap_or_default();
            controllers.split_whitespace().any(|name| name == "memory")
        };
        let mut unified = mounts.iter().filter(|mount| mount.fs_type == "cgroup2");
        unified.rfind(has_memory).map(|mount| (Version::Two, mount.mount_point.clone()))
    });
    found.as_ref().map(|(version, path)| (*version, path.as_path()))
}

/// A memory cgroup. Dropping it kills the processes inside and removes it.
pub struct Cgroup {
    path: PathBuf,
    version: Version,
    reader: Reader,
}

/// Reads the statistics of a group.
#[derive(Debug)]
pub struct Reader {
    version: Version,
    stat: File,
}

impl Cgroup {
    /// Makes a new group directly below the mount point. Its name begins with `prefix`, which ends
    /// in `-`. `limit` bounds its resident memory, in bytes; it is for runs under the kernel's
    /// swap. Groups that killed processes left with the same prefix are removed first.
    ///
    /// # Errors
    /// There is no memory controller, or no permission.
    pub fn new(prefix: &str, limit: Option<u64>) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (version, root) = controller().ok_or(io::ErrorKind::Unsupported)?;
        Self::remove_stale(prefix);
        let path = root.join(format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
        if version == Version::Two {
            // Fails with EBUSY where processes are in the root of a delegated tree; opening
            // memory.stat below then fails.
            drop(fs::write(root.join("cgroup.subtree_control"), "+memory"));
        }
        fs::create_dir(&path)?;
        let stat = File::open(path.join("memory.stat"));
        let stat = match stat {
            Ok(stat) => stat,
            Err(error) => {
                drop(fs::remove_dir(&path));
                return Err(error);
            }
        };
        let group = Cgroup { path, version, reader: Reader { version, stat } };
        if let Some(limit) = limit {
            let file = if version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
            fs::write(group.path.join(file), limit.to_string())?;
        }
        Ok(group)
    }

    /// Keeps the group's memory out of the kernel's own swap, which others on the machine may have
    /// turned on.
    ///
    /// # Errors
    /// The file cannot be written: a kernel without swap has none.
    pub fn without_kernel_swap(&self) -> io::Result<()> {
        let file = if self.version == Version::One { "memory.swappiness" } else { "memory.swap.max" };
        fs::write(self.path.join(file), "0")
    }

    /// The group's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file into which a process writes `0` to enter the group.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Reads anonymous and shared memory, as [`Reader::resident`] does.
    ///
    /// # Errors
    /// The statistics cannot be read.
    pub fn resident(&self) -> io::Result<(u64, u64)> {
        self.reader.resident()
    }

    /// The highest charge so far, in bytes, page cache and kernel memory included. Reading it does
    /// not disturb reclaim, unlike the statistics ([`Reader::resident`]).
    ///
    /// # Errors
    /// The file cannot be read: cgroup v2 has it since Linux 5.19.
    pub fn most_charged(&self) -> io::Result<u64> {
        let file = if self.version == Version::One { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.path.join(file))?.trim().parse().map_err(io::Error::other)
    }

    /// Makes a reader that another thread may have.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn reader(&self) -> io::Result<Reader> {
        Ok(Reader { version: self.version, stat: self.reader.stat.try_clone()? })
    }

    /// Number of processes of the group that the OOM killer has killed.
    pub fn oom_kills(&self) -> u64 {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// The processes inside the group.
    pub fn processes(&self) -> Vec<i32> {
        processes_in(&self.path)
    }

    /// Waits until the group is empty; `false` when it is not after `timeout`.
    pub fn wait_empty(&self, timeout: Duration) -> bool {
        let start = Instant::now();
        while !self.processes().is_empty() {
            if start.elapsed() > timeout {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Kills all processes inside and waits until they are gone.
    pub fn kill(&self) {
        kill_all(&self.path);
    }

    /// Removes the groups whose names begin with `prefix` and whose makers are gone.
    pub fn remove_stale(prefix: &str) {
        if let Some((_, root)) = controller() {
            remove_stale_in(root, prefix);
        }
    }
}

impl Reader {
    /// Reads anonymous and shared memory of the whole tree, in bytes (`total_rss`, `total_shmem`).
    ///
    /// Do not call it for a group with a limit whose reclaim is measured: the kernel brings its
    /// statistics up to date for the reader, and reclaims by them. GNU sort at a third of its need
    /// was OOM-killed in 6 of 6 runs without readers, and in none of 6 while this was read every 5
    /// ms (Linux 6.18).
    ///
    /// # Errors
    /// The statistics cannot be read.
    pub fn resident(&self) -> io::Result<(u64, u64)> {
        let mut buffer = [0u8; 8192];
        let length = self.stat.read_at(&mut buffer, 0)?;
        let text = std::str::from_utf8(&buffer[..length]).map_err(io::Error::other)?;
        let [rss, shmem] = match self.version {
            Version::One => ["total_rss ", "total_shmem "],
            Version::Two => ["anon ", "shmem "],
        };
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.parse().ok())
                .ok_or_else(|| io::Error::other(format!("memory.stat lacks {name}")))
        };
        Ok((value(rss)?, value(shmem)?))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the groups in `root` whose names are `prefix` and the number of a process that is gone.
pub(crate) fn remove_stale_in(root: &Path, prefix: &str) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next());
        if let Some(pid) = pid
            && pid.parse::<u32>().is_ok()
            && !Path::new("/proc").join(pid).exists()
        {
            remove(&entry.path());
        }
    }
}

fn processes_in(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid > 0).collect()
}

fn kill_all(path: &Path) {
    for _ in 0..1000 {
        let inside = processes_in(path);
        if inside.is_empty() {
            return;
        }
        for pid in inside {
            // SAFETY: kill has no memory effects; the pid was read from our own cgroup just now.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn remove(path: &Path) {
    kill_all(path);
    for _ in 0..200 {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

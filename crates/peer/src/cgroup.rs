//! A memory cgroup around a process tree: to watch it, to limit it (kernel runs only), and to end it as a whole.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Which interface the memory controller has here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy of its own.
    One,
    /// The unified hierarchy.
    Two,
}

/// The mounted memory controller: version and mount point. `None` where there is none that can be written.
pub fn controller() -> Option<(Version, &'static Path)> {
    static FOUND: OnceLock<Option<(Version, PathBuf)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mut two = None;
        for line in mounts.lines() {
            let (left, right) = line.split_once(" - ")?;
            let point = PathBuf::from(left.split(' ').nth(4)?);
            let mut right = right.split(' ');
            let (kind, options) = (right.next()?, right.nth(1).unwrap_or(""));
            if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
                return Some((Version::One, point));
            }
            if kind == "cgroup2" {
                let controllers = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
                if controllers.split_whitespace().any(|name| name == "memory") {
                    two = Some((Version::Two, point));
                }
            }
        }
        two
    });
    found.as_ref().map(|(version, path)| (*version, path.as_path()))
}

/// A memory cgroup. Dropping it kills what is inside and removes it.
pub struct Cgroup {
    path: PathBuf,
    version: Version,
    reader: Reader,
}

/// Reads the figures of a group.
#[derive(Debug)]
pub struct Reader {
    version: Version,
    stat: File,
}

impl Cgroup {
    /// Makes a new one, directly below the mount point, with a name that begins with `prefix` (which ends in `-`). `limit`: bytes of
    /// resident memory, for kernel runs. Removes those of killed processes with the same prefix before.
    ///
    /// # Errors
    /// When there is no memory controller or no permission.
    pub fn new(prefix: &str, limit: Option<u64>) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (version, root) = controller().ok_or(io::ErrorKind::Unsupported)?;
        Self::remove_stale(prefix);
        let path = root.join(format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
        if version == Version::Two {
            // Answers EBUSY where processes are in the root of a delegated tree; the open below then fails.
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

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file into which a process writes `0` to enter.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// As [`Reader::resident`].
    ///
    /// # Errors
    /// When the statistics cannot be read.
    pub fn resident(&self) -> io::Result<(u64, u64)> {
        self.reader.resident()
    }

    /// The most that was charged to it so far, in bytes, page cache and the kernel's own memory with the rest. Reading it does not disturb the
    /// kernel, as reading the statistics does ([`Reader::resident`]).
    ///
    /// # Errors
    /// When it cannot be read: where cgroups are of version 2, Linux has it since 5.19.
    pub fn most_charged(&self) -> io::Result<u64> {
        let file = if self.version == Version::One { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.path.join(file))?.trim().parse().map_err(io::Error::other)
    }

    /// A reader that another thread may have.
    ///
    /// # Errors
    /// When the descriptor cannot be duplicated.
    pub fn reader(&self) -> io::Result<Reader> {
        Ok(Reader { version: self.version, stat: self.reader.stat.try_clone()? })
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// The processes inside.
    pub fn processes(&self) -> Vec<i32> {
        processes_in(&self.path)
    }

    /// Waits until nothing is inside any more. `false` when something still is after `timeout`.
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

    /// Kills everything inside and waits until it is gone.
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
    /// Anonymous memory and shared memory of the whole tree, in bytes (total_rss, total_shmem). Not for a group with a limit whose reclaim is to be
    /// measured: the kernel brings its statistics up to date for the reader, and reclaims by them. GNU sort at a third of its need was killed
    /// for want of memory in 6 of 6 runs, and in none of 6 while this was read every 5 ms (Linux 6.18).
    ///
    /// # Errors
    /// When the statistics cannot be read.
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

/// Removes the groups in `root` whose names begin with `prefix` and the number of a process that is gone.
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

//! Processor time of a process tree, by a cgroup of its own: children that nobody waited for are in it too.

use crate::cgroup::{remove, remove_stale_in};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A cpuacct cgroup (version 1). Dropping it kills what is inside and removes it.
pub struct CpuGroup {
    path: PathBuf,
}

impl CpuGroup {
    /// Makes one, with a name that begins with `prefix` (which ends in `-`). Removes those of killed processes with the same prefix before.
    ///
    /// # Errors
    /// When there is no such controller, or no permission.
    pub fn new(prefix: &str) -> io::Result<CpuGroup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = controller().ok_or(io::ErrorKind::Unsupported)?;
        remove_stale_in(&root, prefix);
        let path = root.join(format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
        fs::create_dir(&path)?;
        Ok(CpuGroup { path })
    }

    /// The file into which a process writes `0` to enter.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// User and system time so far, seconds.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn seconds(&self) -> io::Result<f64> {
        let text = fs::read_to_string(self.path.join("cpuacct.usage"))?;
        text.trim().parse::<u64>().map(|nanoseconds| nanoseconds as f64 / 1e9).map_err(io::Error::other)
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Where cpuacct is mounted.
fn controller() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind, options) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup" && options.split(',').any(|option| option == "cpuacct"))
            .then(|| PathBuf::from(point))
    })
}

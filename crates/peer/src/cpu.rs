//! The processor time of a process tree, measured by a cgroup of its own so that children that
//! nobody waited for count too.

use crate::cgroup::{remove, remove_stale_in};
use crate::mounts::{mounts, version_one};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A cpuacct cgroup (v1). Dropping it kills the processes inside and removes it.
pub struct CpuGroup {
    path: PathBuf,
}

impl CpuGroup {
    /// Makes a group whose name begins with `prefix`, which ends in `-`. Groups that killed
    /// processes left with the same prefix are removed first.
    ///
    /// # Errors
    /// There is no such controller, or no permission.
    pub fn new(prefix: &str) -> io::Result<CpuGroup> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = mounts().and_then(|mounts| version_one(&mounts, "cpuacct"));
        let root = root.ok_or(io::ErrorKind::Unsupported)?;
        remove_stale_in(&root, prefix);
        let path = root.join(format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
        fs::create_dir(&path)?;
        Ok(CpuGroup { path })
    }

    /// The file into which a process writes `0` to enter the group.
    pub fn entrance(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// User and system time so far, seconds.
    ///
    /// # Errors
    /// The file cannot be read.
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

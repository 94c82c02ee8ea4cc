//! A memory cgroup (version 1).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "folioswap-lab-";

/// Where the memory controller of version 1 is mounted.
pub(super) fn root() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let memory = kind == "cgroup" && options.split(',').any(|option| option == "memory");
        memory.then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// A group; what is inside is killed and it is removed on drop.
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    pub(super) fn new(limit: u64) -> io::Result<Cgroup> {
        let path = root().ok_or(io::ErrorKind::Unsupported)?.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Cgroup(path);
        fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string())?;
        Ok(group)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(path: &Path) {
    for _ in 0..500 {
        let inside = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0) {
            // SAFETY: kill has no memory effects; the pid was read from our own cgroup just now.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(10))
            }
            _ => return,
        }
    }
}

/// Removes groups whose makers are gone.
pub(super) fn remove_stale() {
    let Some(entries) = root().and_then(|root| fs::read_dir(root).ok()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            remove(&entry.path());
        }
    }
}

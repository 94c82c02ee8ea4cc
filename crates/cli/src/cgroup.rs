//! The memory limit of the cgroup (v2 or v1) of this process: the tightest one on the way to the
//! root.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A limit and the file that states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit in bytes.
    pub bytes: u64,
    /// The file.
    pub source: PathBuf,
}

/// Finds the limit of this process. A limit that is not below the machine's memory counts as none.
pub fn memory_limit() -> Option<Limit> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    find(&membership, &mounts, crate::host::memory_bytes())
}

fn find(membership: &str, mounts: &str, ram: u64) -> Option<Limit> {
    let mut found: Option<Limit> = None;
    let mut consider = |bytes: u64, source: PathBuf| {
        if bytes < ram && found.as_ref().is_none_or(|limit| bytes < limit.bytes) {
            found = Some(Limit { bytes, source });
        }
    };
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if hierarchy == "0" && controllers.is_empty() {
            for (top, directory) in mounted(mounts, path, |kind, _| kind == "cgroup2") {
                for level in directory.ancestors().take_while(|level| level.starts_with(&top)) {
                    let file = level.join("memory.max");
                    if let Some(bytes) = read_number(&file) {
                        consider(bytes, file);
                    }
                }
            }
        } else if controllers.split(',').any(|controller| controller == "memory") {
            let is_memory =
                |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|o| o == "memory");
            for (_, directory) in mounted(mounts, path, is_memory) {
                let file = directory.join("memory.limit_in_bytes");
                if let Some(bytes) = read_number(&file) {
                    consider(bytes, file);
                }
                let file = directory.join("memory.stat");
                if let Some(bytes) = read_hierarchical(&file) {
                    consider(bytes, file);
                }
            }
        }
    }
    found
}

/// Lists the mounts of a hierarchy: the mount point, and the directory of the cgroup `path` in it.
fn mounted(mounts: &str, path: &str, wanted: impl Fn(&str, &str) -> bool) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        // mountinfo: id parent dev ROOT POINT options... - TYPE source SUPER-OPTIONS
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (left, right): (Vec<_>, Vec<_>) = (left.split(' ').collect(), right.split(' ').collect());
        let (Some(root), Some(point), Some(kind)) = (left.get(3), left.get(4), right.first()) else {
            continue;
        };
        if !wanted(kind, right.get(2).copied().unwrap_or_default()) {
            continue;
        }
        let point = PathBuf::from(point);
        // In a container the mount shows a part of the hierarchy, or the path is relative to a
        // cgroup namespace.
        let inside = Path::new(path).strip_prefix(root).unwrap_or(Path::new("")).to_owned();
        let directory = point.join(inside);
        let directory = if directory.is_dir() { directory } else { point.clone() };
        found.push((point, directory));
    }
    found
}

fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn read_hierarchical(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests;

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
    find(&own_directories(), crate::host::memory_bytes())
}

/// The limit of this process, as [`memory_limit`] finds it, and the kernel's kills from now on.
pub fn memory_limit_with_kills() -> Option<(Limit, OomKills)> {
    let directories = own_directories();
    Some((find(&directories, crate::host::memory_bytes())?, OomKills::begin(&directories)))
}

/// The kernel's kills for want of memory in the cgroup of this process.
#[derive(Debug, PartialEq, Eq)]
pub struct OomKills {
    /// The files that count them.
    counters: Vec<PathBuf>,
    /// The sum when counting began.
    before: u64,
}

impl OomKills {
    fn begin(directories: &[Directory]) -> Self {
        let counters = directories.iter().map(|it| match it.version {
            Version::Two => it.path.join("memory.events"),
            Version::One => it.path.join("memory.oom_control"),
        });
        let counters = counters.collect::<Vec<_>>();
        let before = kills(&counters);
        OomKills { counters, before }
    }

    /// The kills since then.
    pub fn since(&self) -> u64 {
        kills(&self.counters).saturating_sub(self.before)
    }
}

fn kills(counters: &[PathBuf]) -> u64 {
    let count = |file: &PathBuf| {
        let text = fs::read_to_string(file).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
    };
    counters.iter().filter_map(count).fold(0, u64::saturating_add)
}

/// A version of the cgroup interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The directory of a cgroup that counts memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Directory {
    version: Version,
    /// Where its hierarchy is mounted.
    top: PathBuf,
    path: PathBuf,
}

/// The directories for this process; none where the kernel does not say.
fn own_directories() -> Vec<Directory> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    directories(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

fn directories(membership: &str, mounts: &str) -> Vec<Directory> {
    let is_memory = |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|o| o == "memory");
    let mut found = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (version, mounted) = if hierarchy == "0" && controllers.is_empty() {
            (Version::Two, mounted(mounts, path, |kind, _| kind == "cgroup2"))
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (Version::One, mounted(mounts, path, is_memory))
        } else {
            continue;
        };
        found.extend(mounted.into_iter().map(|(top, path)| Directory { version, top, path }));
    }
    found
}

fn find(directories: &[Directory], ram: u64) -> Option<Limit> {
    let mut found: Option<Limit> = None;
    let mut consider = |bytes: Option<u64>, source: PathBuf| {
        if let Some(bytes) = bytes
            && bytes < ram
            && found.as_ref().is_none_or(|limit| bytes < limit.bytes)
        {
            found = Some(Limit { bytes, source });
        }
    };
    for Directory { version, top, path } in directories {
        match version {
            Version::Two => {
                for level in path.ancestors().take_while(|level| level.starts_with(top)) {
                    let file = level.join("memory.max");
                    consider(read_number(&file), file);
                }
            }
            Version::One => {
                let file = path.join("memory.limit_in_bytes");
                consider(read_number(&file), file);
                let file = path.join("memory.stat");
                consider(read_hierarchical(&file), file);
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

//! The memory limit of the cgroup (v2 or v1) that this process is in: the tightest one up to the root.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A limit and the file that states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit.
    pub bytes: u64,
    /// Where it was read.
    pub source: PathBuf,
}

/// Finds it. A limit that is not below this machine's memory is none.
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

/// For each mount of a hierarchy: the mount point, and the directory of the group `path` in it.
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
        // In a container the mount shows a part of the hierarchy, or the path is relative to a cgroup namespace.
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
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("folioswap-cgroup-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("a/b")).expect("temporary directory");
        path
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_holds_in_v2() {
        let top = directory("v2");
        fs::write(top.join("a/b/memory.max"), "max\n").expect("written");
        fs::write(top.join("a/memory.max"), "268435456\n").expect("written");
        let mounts = format!("30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", top.display());
        let found = find("0::/a/b\n", &mounts, 1 << 40).expect("a limit");
        assert_eq!(found, Limit { bytes: 256 << 20, source: top.join("a/memory.max") });
        assert_eq!(find("0::/a/b\n", &mounts, 1 << 20), None, "above the machine's memory");
        fs::remove_dir_all(top).expect("removed");
    }

    #[test]
    fn v1_states_the_limit_of_its_hierarchy() {
        let top = directory("v1");
        fs::write(top.join("a/memory.limit_in_bytes"), "9223372036854771712\n").expect("written");
        fs::write(top.join("a/memory.stat"), "cache 0\nhierarchical_memory_limit 536870912\n")
            .expect("written");
        let mounts = format!("35 31 0:32 / {} rw - cgroup cgroup rw,memory\n", top.display());
        let found = find("4:memory:/a\n1:cpu:/\n", &mounts, 1 << 40).expect("a limit");
        assert_eq!(found.bytes, 512 << 20);
        fs::remove_dir_all(top).expect("removed");
    }
}

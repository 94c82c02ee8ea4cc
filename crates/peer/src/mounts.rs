//! Where cgroup hierarchies are mounted.

use procfs::process::{MountInfos, Process};
use std::path::PathBuf;

/// The mounts that this process sees; `None` where `/proc` cannot be read.
pub(crate) fn mounts() -> Option<MountInfos> {
    Process::myself().ok()?.mountinfo().ok()
}

/// The mount point of a version-1 cgroup hierarchy that has `controller`.
pub(crate) fn version_one(mounts: &MountInfos, controller: &str) -> Option<PathBuf> {
    mounts
        .iter()
        .find(|mount| mount.fs_type == "cgroup" && mount.super_options.contains_key(controller))
        .map(|mount| mount.mount_point.clone())
}

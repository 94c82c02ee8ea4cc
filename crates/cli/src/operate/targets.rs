//! What a name, a process id or a directory on a command line means.

use super::OperateError;
use crate::mount::mounts::{self, MountPoint};
use folioswap_supervisor::{
    ipc::groups::{self, Group},
    processes::proc,
};
use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A running group, or a mount.
pub enum Target {
    /// A group.
    Group(Box<Group>),
    /// A mount.
    Mount(MountPoint),
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Group(group) => write!(formatter, "{} ({})", group.description.name, group.supervisor()),
            Target::Mount(point) => write!(formatter, "{}", point.directory.display()),
        }
    }
}

/// Finds what is meant: digits are a process id, a word with a slash is a directory, another word
/// the name of a group, or else the directory of a mount.
///
/// # Errors
/// [`OperateError`]: there is no such group or mount, or more than one.
pub fn find(given: &OsStr) -> Result<Target, OperateError> {
    let text = given.to_string_lossy();
    if let Ok(pid) = text.parse::<u32>() {
        return of_process(pid);
    }
    let directory = Path::new(given);
    if given.as_bytes().contains(&b'/') || given == "." || given == ".." {
        return mount_at(directory).map(Target::Mount);
    }
    let all = groups::running(None).unwrap_or_default();
    let (mut named, others): (Vec<Group>, Vec<Group>) =
        all.into_iter().partition(|group| group.description.name == *text);
    match named.len() {
        0 if directory.is_dir() => mount_at(directory).map(Target::Mount),
        0 => Err(OperateError::NoSuchName { name: text.into_owned(), have: list(&others) }),
        1 => Ok(Target::Group(Box::new(named.remove(0)))),
        count => {
            let pids: Vec<String> = named.iter().map(|group| group.supervisor().to_string()).collect();
            Err(OperateError::Ambiguous { name: text.into_owned(), count, pids: pids.join(", ") })
        }
    }
}

/// The group of a process.
///
/// # Errors
/// There is no such process, or it is in no group.
pub fn of_process(pid: u32) -> Result<Target, OperateError> {
    match groups::running(Some(pid)) {
        Ok(mut groups) if groups.len() == 1 => Ok(Target::Group(Box::new(groups.remove(0)))),
        Ok(groups) if !groups.is_empty() => {
            let pids: Vec<String> = groups.iter().map(|group| group.supervisor().to_string()).collect();
            let (name, count) = (format!("process {pid}"), groups.len());
            Err(OperateError::Ambiguous { name, count, pids: pids.join(", ") })
        }
        _ if proc::status(pid).is_none() => Err(OperateError::NoProcess(pid)),
        _ => Err(OperateError::NoSuchProcess(pid)),
    }
}

/// The mount at a directory.
///
/// # Errors
/// It is none of ours.
pub fn mount_at(given: &Path) -> Result<MountPoint, OperateError> {
    let not_a_mount = || OperateError::NotAMount(given.to_owned());
    let directory: PathBuf = mounts::resolve(given).map_err(|_| not_a_mount())?;
    mounts::ours().into_iter().rev().find(|point| point.directory == directory).ok_or_else(not_a_mount)
}

/// The names that there are, for a user who has to choose another.
fn list(groups: &[Group]) -> String {
    let mut names: Vec<&str> = groups.iter().map(|group| group.description.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => "is none".to_owned(),
        [one] => format!("is {one}"),
        names => format!("are {}", names.join(", ")),
    }
}

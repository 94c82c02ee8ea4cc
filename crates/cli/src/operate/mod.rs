//! Looking at running groups and mounts, and changing them: `ps`, `stats`, `set`, `freeze`, `thaw`.
//!
//! All of them find what they act on by [`targets`]. Groups are read by
//! `folioswap_supervisor::view`, mounts by [`mounts`]; nothing here reads the memory of a group
//! itself.

pub mod arguments;
pub mod change;
pub mod mounts;
pub mod ps;
pub mod set;
pub mod stats;
pub mod targets;
pub mod users;

use std::{io, path::PathBuf};

/// Why a command did not look at, or change, what it was given. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// No group has this name.
    #[error("no folioswap group named {name} runs that you may look at; there {have} (`folioswap ps`)")]
    NoSuchName {
        /// The name as given.
        name: String,
        /// What there is instead.
        have: String,
    },
    /// Several groups have this name.
    #[error(
        "{count} groups are named {name}: name the one that is meant by its process id, one of {pids} (`folioswap ps`)"
    )]
    Ambiguous {
        /// The name as given.
        name: String,
        /// How many there are.
        count: usize,
        /// Their supervisors.
        pids: String,
    },
    /// The process belongs to no group.
    #[error("process {0} belongs to no running folioswap group that you may look at (`folioswap ps`)")]
    NoSuchProcess(u32),
    /// There is no such process.
    #[error("there is no process {0} (`folioswap ps` lists the groups)")]
    NoProcess(u32),
    /// The directory is no mount.
    #[error("{} is not a folioswap mount (`folioswap ps` lists them)", .0.display())]
    NotAMount(PathBuf),
    /// The mount does not answer.
    #[error("the mount at {} does not answer: {reason}", directory.display())]
    Mount {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        reason: String,
    },
    /// `--size` was given for a group.
    #[error(
        "--size {0}: a group has no size, only a mount has; what a group may swap is given by its devices (`folioswap swapon`)"
    )]
    NoSize(String),
    /// A mount has no processes.
    #[error("{} is a mount: only a group and its processes have weights", .0.display())]
    NoWeight(PathBuf),
    /// A mount cannot do that.
    #[error("{} is a mount: only the processes of a group can be frozen; stop the programs that use it", .0.display())]
    NotFrozen(PathBuf),
    /// The limit is absurd for this machine.
    #[error(
        "--memory {given} is more than a thousand times this machine's RAM ({ram}): give a smaller one, e.g. 512M"
    )]
    TooLarge {
        /// The limit, readable.
        given: String,
        /// The machine's memory, readable.
        ram: String,
    },
    /// The group or mount refused, or did not come within the limit.
    #[error("{target}: {reason}")]
    Refused {
        /// The group or mount.
        target: String,
        /// The reason, and the remedy.
        reason: String,
    },
    /// The group is making another change of its limit.
    #[error("{0}: another change of its limit is under way; wait for it")]
    Busy(String),
    /// The group ended meanwhile.
    #[error("{0}: the group has ended")]
    Ended(String),
    /// A system call failed.
    #[error("{target}: {source}")]
    System {
        /// The group or mount.
        target: String,
        /// The reason.
        source: io::Error,
    },
}

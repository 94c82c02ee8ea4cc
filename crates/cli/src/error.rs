//! Every way in which folioswap refuses, with the exit status of each. A message says what to do next.

use folioswap_supervisor::{
    devices::DeviceError,
    ipc::groups::GroupError,
    processes::{limits::LimitsError, program::ProgramError},
};
use std::{io, path::PathBuf};

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No limit was given and none was found.
    #[error(
        "no memory limit: neither --memory was given nor does a cgroup limit this process; say for example `folioswap run --memory 512M -- CMD`"
    )]
    NoLimit,
    /// The limit is absurd for this machine.
    #[error(
        "--memory {given} is more than a thousand times this machine's RAM ({ram}): give a smaller one, e.g. 512M"
    )]
    LimitTooLarge {
        /// The limit, readable.
        given: String,
        /// The machine's memory, readable.
        ram: String,
    },
    /// A cgroup's limit is too small for anything.
    #[error(
        "the cgroup's memory limit is {found}, which is too small to run anything in; raise it, or give --memory"
    )]
    CgroupLimitTooSmall {
        /// The limit, readable.
        found: String,
    },
    /// The resource limits are too low.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// We are in a group already.
    #[error(
        "this already runs inside a folioswap group ({group}), whose limit holds for everything started within it: run the command without `folioswap run`"
    )]
    Nested {
        /// The group's socket.
        group: String,
    },
    /// CMD cannot be started within a group.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel does not give what paging in user space needs.
    #[error("this machine does not let folioswap manage memory:\n{0}\n`folioswap doctor` shows all of it.")]
    Host(String),
    /// This binary was built without the agent.
    #[error(
        "this folioswap was built without its agent (crates/agent was absent): build it again from a complete source tree"
    )]
    NoAgent,
    /// The agent given by --agent is not readable.
    #[error("--agent {}: {source}", path.display())]
    Agent {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The swap devices cannot be had.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    /// `mkswap` refused.
    #[error(transparent)]
    Mkswap(#[from] crate::mkswap::MkswapError),
    /// The JSON file cannot be opened.
    #[error("--stats-json {}: {source}", path.display())]
    StatsFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The trace cannot be begun.
    #[error("--trace {}: {source}", path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A step of the start that works on every supported kernel failed.
    #[error("{doing}: {source}; nothing was started")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A comparison.
    #[error("{0}")]
    Bench(#[from] folioswap_bench::engine::RunError),
    /// A command of the lab.
    #[error("{0}")]
    Lab(#[from] crate::lab::LabError),
    /// `mount` and `umount`.
    #[error(transparent)]
    Mount(#[from] crate::mount::MountCommandError),
    /// Which group?
    #[error(transparent)]
    Group(#[from] GroupError),
    /// `swapon` of a running group.
    #[error(transparent)]
    Swapon(#[from] crate::swapon::SwaponError),
    /// `swapoff` of a running group.
    #[error(transparent)]
    Swapoff(#[from] crate::swapoff::SwapoffError),
    /// Output could not be written.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl Error {
    /// The exit status that goes with it, as in env(1).
    pub fn status(&self) -> i32 {
        match self {
            Error::Program(error) => error.status(),
            // As mount(8), umount(8) and swapoff(8) have it.
            Error::Mount(_) | Error::Swapoff(_) => 1,
            // As a shell has it for SIGINT.
            Error::Bench(folioswap_bench::engine::RunError::Interrupted) => 130,
            _ => crate::STATUS_REFUSED,
        }
    }

    /// For `map_err` on a step of the start.
    pub fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { doing, source: source.into() }
    }
}

//! Every way in which folioswap refuses, with its exit status. Each message says what to do next.

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
    /// The limit of the cgroup is too small to run anything.
    #[error(
        "the cgroup's memory limit is {found}, which is too small to run anything in; raise it, or give --memory"
    )]
    CgroupLimitTooSmall {
        /// The limit, readable.
        found: String,
    },
    /// The part of what there is, is too small to run anything.
    #[error("--memory {percent}% of {of} is {found}, which is too small to run anything in; the least is 8M")]
    PercentTooSmall {
        /// The part, in percent.
        percent: f64,
        /// The whole, readable.
        of: String,
        /// The limit, readable.
        found: String,
    },
    /// Environment or configuration files are not understood.
    #[error(transparent)]
    Defaults(#[from] crate::run::defaults::DefaultsError),
    /// No device is in a tier that was named.
    #[error(transparent)]
    Tiers(#[from] crate::swap_tiers::TiersRefusal),
    /// There is no such help.
    #[error("there is no help on '{topic}'{meant}; there is help on {known}")]
    NoTopic {
        /// The topic as given.
        topic: String,
        /// What it was probably meant to be.
        meant: String,
        /// The topics that there are.
        known: String,
    },
    /// The resource limits are too low.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// This process is in a group already.
    #[error(
        "this already runs inside a folioswap group ({group}), whose limit holds for everything started within it: run the command without `folioswap run`"
    )]
    Nested {
        /// The group's socket.
        group: String,
    },
    /// Another group has the name.
    #[error(
        "--name {name}: a group of this name runs already (its supervisor is process {pid}, `folioswap ps`): choose another"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The supervisor of that group.
        pid: u32,
    },
    /// The program cannot be started within a group.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel lacks or forbids something that paging in user space needs.
    #[error("this machine does not let folioswap manage memory:\n{0}\n`folioswap doctor` shows all of it.")]
    Host(String),
    /// This binary was built without the agent.
    #[error(
        "this folioswap was built without its agent (crates/agent was absent): build it again from a complete source tree"
    )]
    NoAgent,
    /// The file of `--agent` is not readable.
    #[error("--agent {}: {source}", path.display())]
    Agent {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The swap devices cannot be prepared.
    #[error(transparent)]
    Devices(#[from] DeviceError),
    /// `mkswap` refused.
    #[error(transparent)]
    Mkswap(#[from] crate::mkswap::MkswapError),
    /// A file that an option names cannot be made.
    #[error("{option} {}: {source}", path.display())]
    OutputFile {
        /// The option.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Two options want standard output.
    #[error("{first} and {second} both write to standard output: give one of them a file")]
    TwoOnOutput {
        /// An option.
        first: &'static str,
        /// Another one.
        second: &'static str,
    },
    /// The file of `--trace` cannot be made.
    #[error("--trace {}: {source}", path.display())]
    TraceFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A step of the start that works on every supported kernel failed.
    #[error("{doing}: {source}; nothing was started")]
    System {
        /// The step.
        doing: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The kernel's own swap is root's to set up.
    #[error(
        "--peer kernel makes a zram device and a memory cgroup, which takes root: run it with sudo, or leave --peer away"
    )]
    PeerWantsRoot,
    /// A comparison of `bench` failed.
    #[error("{0}")]
    Bench(#[from] folioswap_bench::engine::RunError),
    /// A command of `lab` failed.
    #[error("{0}")]
    Lab(#[from] crate::lab::LabError),
    /// `mount`, `umount`, or `swapoff` of a mount failed.
    #[error(transparent)]
    Mount(#[from] crate::mount::MountCommandError),
    /// `ps`, `stats`, `set`, `freeze` or `thaw` failed.
    #[error(transparent)]
    Operate(#[from] crate::operate::OperateError),
    /// `balance` was refused.
    #[error(transparent)]
    Balance(#[from] crate::balance::BalanceError),
    /// `top` has no terminal.
    #[error(transparent)]
    Top(#[from] crate::top::TopError),
    /// `metrics` has no address or file.
    #[error(transparent)]
    Metrics(#[from] crate::metrics::MetricsError),
    /// mount(8) asks for something that we do not know.
    #[error(transparent)]
    Helper(#[from] crate::mount::helper::HelperError),
    /// There is no group to act on, or more than one.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// `swapon` of a running group failed.
    #[error(transparent)]
    Swapon(#[from] crate::swapon::SwaponError),
    /// `swapoff` of a running group failed.
    #[error(transparent)]
    Swapoff(#[from] crate::swapoff::SwapoffError),
    /// The output could not be written.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl Error {
    /// The exit status for this error, as in env(1).
    pub fn status(&self) -> i32 {
        match self {
            Error::Program(error) => error.status(),
            // The status of mount(8).
            Error::Helper(_) => 1,
            // It is done, but not well.
            Error::Swapoff(crate::swapoff::SwapoffError::Lost { .. }) => 1,
            // The status that a shell gives for SIGINT.
            Error::Bench(folioswap_bench::engine::RunError::Interrupted) => 130,
            _ => crate::STATUS_REFUSED,
        }
    }

    /// Makes the function for `map_err` on a step of the start.
    pub fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { doing, source: source.into() }
    }
}

//! The one definition of the command line: help, completions and man pages come from it.

use crate::balance::arguments::BalanceArguments;
use crate::bench::arguments::BenchArguments;
use crate::lab::arguments::LabArguments;
use crate::metrics::MetricsArguments;
use crate::mount::arguments::{MountArguments, UmountArguments};
use crate::operate::arguments::{FreezeArguments, PsArguments, SetArguments, StatsArguments};
pub use crate::run::arguments::{AdviseArguments, RunArguments};
use crate::top::TopArguments;
use clap::{Args, Parser, Subcommand, ValueHint, builder::TypedValueParser};
use folioswap_supervisor::{size, swap_option};
use std::{ffi::OsString, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  folioswap run --memory 512M -- python3 train.py
        python3 and all that it starts live in 512 MiB; what is cold is
        compressed
  folioswap run -m 2G --stats -- sort -S 8G big.txt
        ... and print what was swapped when it ends
  folioswap run -m 1G --swap-dir /mnt/fast --swap-max 20G -- ./server
        let cold memory that even compressed does not fit go to a file there
  folioswap advise -m 64M -- ./job
        run it once, and say how much a larger limit would spare
  folioswap run -- ./job
        take the limit of the container (cgroup) that we are in
  folioswap mount /mnt/build --memory 1G --size 8G
        a tmpfs of up to 8 GiB whose contents live in 1 GiB
  folioswap ps
        the groups and mounts that run now; `set` changes their limit,
        `stats` shows their counters
  folioswap swapon --show
        the swap devices of everything that runs now
  folioswap doctor
        what this machine allows, and the command that mends what is missing
  folioswap bench touch --peer kernel
        the same program within the same limit, here and under the kernel's
        zram (root)
  folioswap lab cluster-scan --quick
        an experiment with the allocator, the published table beside ours";

/// Lets programs live within a memory limit: cold memory goes to compressed RAM and files, in user
/// space.
#[derive(Parser)]
#[command(name = "folioswap", version, after_help = EXAMPLES, max_term_width = 80, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a program, and all that it starts, within a memory limit
    Run(RunArguments),
    /// Run a program once, and say which limit would cost how much
    Advise(AdviseArguments),
    /// Mount a tmpfs whose contents live within a memory limit
    Mount(MountArguments),
    /// Unmount it, also when its daemon was killed
    Umount(UmountArguments),
    /// List the groups and mounts that run
    Ps(PsArguments),
    /// Show groups and mounts live
    Top(TopArguments),
    /// Serve figures of groups and mounts to Prometheus, or write them to a file
    Metrics(MetricsArguments),
    /// Show what has happened in a group or mount so far
    Stats(StatsArguments),
    /// Change the limit of a group, or of a mount, while it runs
    Set(SetArguments),
    /// Share memory among groups, by their weights, while they run
    Balance(BalanceArguments),
    /// Stop all processes of a group where they are
    Freeze(FreezeArguments),
    /// Let a frozen group go on
    Thaw(FreezeArguments),
    /// Take a swap device of a running group, or of a mount, out of use
    Swapoff(SwapoffArguments),
    /// Show the swap devices of running groups, or add one
    Swapon(SwaponArguments),
    /// Prepare a file or block device as a swap device: the one command that writes its header
    Mkswap(MkswapArguments),
    /// Say what this machine allows, and how to mend what is missing
    Doctor(DoctorArguments),
    /// Measure the same program under folioswap and under the kernel's own swap
    Bench(BenchArguments),
    /// Experiments with the allocator, beside the published ones
    Lab(LabArguments),
    /// Print the help of a command, or of devices, sizes or configuration
    Help(HelpArguments),
    /// Print a shell's completion script
    #[command(hide = true)]
    Completions(CompletionsArguments),
    /// Print or write the man pages
    #[command(hide = true)]
    Man(ManArguments),
}

const SWAPON_EXAMPLES: &str = "\
Examples:
  folioswap swapon --show
        the devices of everything that runs
  folioswap swapon --show 4711
        those of the group that process 4711 belongs to (a process of it, or
        its `folioswap run`)
  folioswap swapon --swap file:/mnt/big,prio=0
        one more device for the only group that runs: it is used at once, by
        its priority
  folioswap swapon --swap nbd://host/export,prio=0 4711
        the same for the group of process 4711

DEVICE is as for `folioswap run --swap`; the supervisor of the group opens it.
zram cannot be added, and a group can have 32 devices in its life. Exit
status: 0; 125 when there is no such group, or the device cannot be had (one
message says why): nothing is changed then.";

#[derive(Args)]
#[command(after_help = SWAPON_EXAMPLES, group = clap::ArgGroup::new("what").required(true).args(["show", "swap"]))]
pub struct SwaponArguments {
    /// Print NAME TYPE SIZE USED PRIO of each device
    #[arg(long)]
    pub show: bool,
    /// Add this device to a group while it runs
    #[arg(long, value_name = "DEVICE", value_parser = clap::builder::OsStringValueParser::new().try_map(|value| swap_option::parse(&value).map(|_| value)))]
    pub swap: Option<OsString>,
    /// Print sizes in bytes
    #[arg(long, conflicts_with = "swap")]
    pub bytes: bool,
    /// Only the group that this process belongs to
    pub pid: Option<u32>,
}

const SWAPOFF_EXAMPLES: &str = "\
Examples:
  folioswap swapon --show
        the devices of what runs now
  folioswap swapoff /var/tmp
        takes that one out of use, of the only group that runs; what is on it
        goes to the group's other devices
  folioswap swapoff --pid 4711 nbd0
        the same of the group that process 4711 belongs to (a process of it,
        or its `folioswap run`)
  folioswap swapoff /mnt/build /var/tmp
        of the mount at /mnt/build; what is on it is read back, and goes where
        there is room
  folioswap swapoff /mnt/build zram
        nothing is compressed there any more

Group and mount can be used meanwhile. When what is on the device finds no
room, or on Ctrl-C, the device stays in use, and nothing is lost. The zram of
a running group is each process's own and cannot be taken out of use; that of
a mount can. Exit status: 0 when it is off; 125 when not (it is in use as
before; one message says why); 1 when it is off, but pages of it could not be
read.";

#[derive(Args)]
#[command(after_help = SWAPOFF_EXAMPLES, allow_missing_positional = true)]
pub struct SwapoffArguments {
    /// The group that this process belongs to [default: the only one that runs]
    #[arg(long, value_name = "PID", conflicts_with = "directory")]
    pub pid: Option<u32>,
    /// Directory of a mount
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// A device, as the table shows it or --swap named it: a directory, a file or block device,
    /// ram0, nbd0
    #[arg(value_name = "DEVICE", value_hint = ValueHint::AnyPath)]
    pub device: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Examples:
  folioswap mkswap --size 16G /var/swap        make the file and prepare it
  folioswap mkswap /dev/sdb2                   prepare a block device that is
      blank
  folioswap run -m 1G --swap zram,prio=1 --swap file:/var/swap,prio=0 -- ./job

All that PATH holds is lost. Without --force it must be blank (zeroes at both
ends). What is mounted, swap of the kernel, behind a loop device or used by a
run is refused even with it. Exit status: 0; 125 when it is refused: nothing
is written then.")]
pub struct MkswapArguments {
    /// Overwrite whatever PATH holds
    #[arg(long)]
    pub force: bool,
    /// Make PATH, a new file of this size with all its blocks
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max, conflicts_with = "force")]
    pub size: Option<u64>,
    /// A file or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub path: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Exit status: 0 when `folioswap run` works here, 1 when it does not.")]
pub struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct HelpArguments {
    /// A command with its subcommands, or devices, sizes, configuration
    #[arg(value_name = "TOPIC")]
    pub topic: Vec<String>,
}

#[derive(Args)]
pub struct CompletionsArguments {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct ManArguments {
    /// Write one page per command into this directory instead of printing folioswap(1)
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

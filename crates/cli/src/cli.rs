//! The one definition of the command line: help, completions and man pages come from it.

use crate::bench::arguments::BenchArguments;
use crate::folio_option::FolioOption;
use crate::lab::arguments::LabArguments;
use crate::metrics::MetricsArguments;
use crate::mount::arguments::{MountArguments, UmountArguments};
use crate::operate::arguments::{FreezeArguments, PsArguments, SetArguments, StatsArguments};
use crate::top::TopArguments;
use clap::{Args, Parser, Subcommand, ValueEnum, builder::TypedValueParser};
use folioswap_group::decisions::{PAGE_CLUSTER_DEFAULT, PAGE_CLUSTER_MAX, Scope};
use folioswap_supervisor::{
    size,
    swap_option::{self, SwapOption},
};
use std::{ffi::OsString, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  folioswap run --memory 512M -- python3 train.py
        python3 and all that it starts live in 512 MiB; what is cold is compressed
  folioswap run -m 2G --stats -- sort -S 8G big.txt
        ... and print what was swapped when it ends
  folioswap run -m 1G --swap-dir /mnt/fast --swap-max 20G -- ./server
        let cold memory that even compressed does not fit go to a file there
  folioswap run -- ./job
        take the limit of the container (cgroup) that we are in
  folioswap mount /mnt/build --memory 1G --size 8G
        a tmpfs of up to 8 GiB whose contents live in 1 GiB
  folioswap ps
        the groups and mounts that run now; `set` changes their limit, `stats` shows their counters
  folioswap swapon --show
        the swap devices of everything that runs now
  folioswap doctor
        what this machine allows, and the command that mends what is missing
  folioswap bench touch --peer kernel
        the same program within the same limit, here and under the kernel's zram (root)
  folioswap lab cluster-scan --quick
        an experiment with the allocator, the published table beside ours";

const RUN_EXAMPLES: &str = "\
Examples:
  folioswap run --memory 512M -- python3 train.py --epochs 3
  folioswap run -m 1.5G --stats -- make -j8
  folioswap run -m 256M --stats-json stats.json -- ./server
  folioswap run -m 1G --swap-max 0 -- ./job          (compressed memory only, no file)
  folioswap run -m 1G --trace job.trace -- ./job && folioswap lab replay job.trace --policy scan-all
                                                     (each process that swaps takes up to 2 MiB more meanwhile)
  folioswap run -m 1G --swap zram,prio=1 --swap file:/var/tmp,size=20G,prio=0 -- ./job
  folioswap run -m 1G --swap file:/mnt/a --swap file:/mnt/b -- ./job          (two disks in turn)
  folioswap run -m 1G --swap zram,prio=1 --swap nbd://host/export,prio=0 -- ./job

DEVICE is TYPE[:TARGET][,KEY[=VALUE]]...:
  zram[,prio=P]
        compressed RAM, which grows within the limit
  file:DIR[,size=SIZE][,prio=P][,discard[=once|pages]][,encrypt=yes|no]
        a temporary file without a name in DIR, of at most SIZE (else half of the free space of its disk);
        discard: its clusters are given back to the disk when they are free; encrypt=yes: each process encrypts its pages
        under random keys of its own, which are kept in memory only
  file:PATH[,uuid=UUID][,size=SIZE][,prio=P][,discard[=once|pages]][,encrypt=yes|no]
        a file or block device that `folioswap mkswap` has prepared, used by one run at a time; uuid: refuse another one
  nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH (with TLS nbds://, nbds+unix://, and ?tls-certificates=DIR)
    [,size=SIZE][,prio=P][,discard[=once|pages]][,encrypt=yes|no][,timeout=SECONDS][,connections=N]
        an export of an NBD server; encrypted unless encrypt=no; a page is waited for 30 s unless timeout says otherwise
  ram,size=SIZE[,prio=P][,encrypt=yes|no][,synchronous=yes|no][,orders=all|0]
        plain RAM, not compressed, for comparisons; it counts to the limit in scope total. orders=0: it takes single
        pages only, so larger folios are split (swpout_fallback), as the kernel does for swap files
Higher priorities (0 to 32767) are used first, the next one when they are full; equal ones take turns of
2 MiB; without prio all have -1. In scope total zram and ram are full when they take half of the limit,
and what lies longest in zram goes on to files of lower priority.
Built in are --swap zram,prio=1 --swap file:/var/tmp,prio=0,discard. Write \\, for a comma in DIR.

SIZES is SIZE=WORD[,SIZE=WORD]..., e.g. 64k=always,2m=inherit. Sizes are 8k, 16k, 32k, 64k, 128k, 256k, 512k, 1m, 2m,
and all for those that are not named; words are those of the kernel's transparent_hugepage/hugepages-*kB/enabled:
  always      wherever it is worth it
  madvise     only where the program asks for huge pages (MADV_HUGEPAGE)
  inherit     as transparent_hugepage/enabled of this machine says at the start
  never       not at all; so are sizes that are not named, without all

SIZE is bytes or has a unit: 512M, 1.5G, 1GiB (all of them binary: 512M is 512 MiB).

Exit status:
  CMD's own   when it exits; 128+N when signal N ended it
  125         folioswap refused (bad option, no userfaultfd, CMD static or set-user-id, ...), or its supervisor was killed
  126, 127    CMD cannot be executed; CMD was not found
  137         nothing was left to swap to, or what cannot be swapped is above the limit (one message says which;
              \"end\" in the JSON tells it from somebody's SIGKILL)

`run` returns when CMD ends. Processes that CMD leaves behind keep running within the limit under the supervisor, which
ends with the last of them. kill -9 of folioswap ends everything that it runs.
A run inside another run is refused: the outer limit already holds for all that is started within it.";

/// Lets programs live within a memory limit: cold memory goes to compressed RAM and files, in user
/// space.
#[derive(Parser)]
#[command(name = "folioswap", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a program, and all that it starts, within a memory limit
    Run(RunArguments),
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
    /// Print a shell's completion script
    #[command(hide = true)]
    Completions(CompletionsArguments),
    /// Print or write the man pages
    #[command(hide = true)]
    Man(ManArguments),
}

/// The memory that `--memory` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScopeArgument {
    /// Resident memory, the compressed store and our own tables: what a container's limit counts
    #[default]
    Total,
    /// Only the program's resident memory, to compare with kernel zram
    Resident,
}

impl From<ScopeArgument> for Scope {
    fn from(scope: ScopeArgument) -> Scope {
        match scope {
            ScopeArgument::Total => Scope::Total,
            ScopeArgument::Resident => Scope::Resident,
        }
    }
}

#[derive(Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArguments {
    /// Limit of the whole process tree [default: that of the cgroup we are in]
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub memory: Option<u64>,
    /// Name for `folioswap ps`, `top`, `set` and the like [default: that of the program]
    #[arg(long, value_name = "NAME", value_parser = folioswap_supervisor::ipc::description::parse_name)]
    pub name: Option<String>,
    /// What the limit counts
    #[arg(long, value_enum, default_value_t, value_name = "SCOPE")]
    pub memory_scope: ScopeArgument,
    /// Print statistics to standard error when CMD ends
    #[arg(long)]
    pub stats: bool,
    /// Write statistics as JSON to FILE when CMD ends
    #[arg(long, value_name = "FILE")]
    pub stats_json: Option<PathBuf>,
    /// Record every allocation and free of swap slots into FILE, for `folioswap lab replay` and
    /// `lab fit`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Swap device, in place of the built-in ones: zram | ram,size=SIZE | file:DIR | file:PATH |
    /// nbd://...; repeatable (see below)
    #[arg(long, value_name = "DEVICE", value_parser = clap::builder::OsStringValueParser::new().try_map(|value| swap_option::parse(&value)))]
    pub swap: Vec<SwapOption>,
    /// Directory of the built-in (unlinked) swap file [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub swap_dir: Option<PathBuf>,
    /// Most that the built-in swap file may take; 0: no file [default: half of the free space of
    /// its disk]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max)]
    pub swap_max: Option<u64>,
    /// Folio sizes to make of memory, and when: SIZE=WORD[,SIZE=WORD]... (see below) [default:
    /// all=always]
    #[arg(long, value_name = "SIZES", value_parser = crate::folio_option::parse)]
    pub thp: Option<FolioOption>,
    /// Read up to 2^N pages around a page that comes back from a slow device (a file); 0 to 5, 0:
    /// the page alone
    #[arg(
        long,
        value_name = "N",
        default_value_t = PAGE_CLUSTER_DEFAULT,
        value_parser = clap::value_parser!(u32).range(..=i64::from(PAGE_CLUSTER_MAX))
    )]
    pub page_cluster: u32,
    /// Check every invariant of the swap space now and then, and count what does not hold (for
    /// developers of folioswap)
    #[arg(long, hide = true)]
    pub validate: bool,
    /// Preload this agent instead of the built-in one; `none`: preload nothing (for developers of
    /// folioswap)
    #[arg(long, value_name = "FILE", hide = true)]
    pub agent: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const SWAPON_EXAMPLES: &str = "\
Examples:
  folioswap swapon --show
        the devices of everything that runs
  folioswap swapon --show 4711
        those of the group that process 4711 belongs to (a process of it, or its `folioswap run`)
  folioswap swapon --swap file:/mnt/big,prio=0
        one more device for the only group that runs: it is used at once, by its priority
  folioswap swapon --swap nbd://host/export,prio=0 4711
        the same for the group of process 4711

DEVICE is as for `folioswap run --swap`; the supervisor of the group opens it. zram cannot be added, and a group can have 32 devices in its life.
Exit status: 0; 125 when there is no such group, or the device cannot be had (one message says why): nothing is changed then.";

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
        takes that one out of use, of the only group that runs; what is on it goes to the group's other devices
  folioswap swapoff --pid 4711 nbd0
        the same of the group that process 4711 belongs to (a process of it, or its `folioswap run`)
  folioswap swapoff /mnt/build /var/tmp
        of the mount at /mnt/build; what is on it is read back, and goes where there is room
  folioswap swapoff /mnt/build zram
        nothing is compressed there any more

Group and mount can be used meanwhile. When what is on the device finds no room, or on Ctrl-C, the device stays in use, and nothing is lost.
The zram of a running group is each process's own and cannot be taken out of use; that of a mount can.
Exit status: 0 when it is off, 1 when not, or when pages of it could not be read (one message says which).";

#[derive(Args)]
#[command(after_help = SWAPOFF_EXAMPLES, allow_missing_positional = true)]
pub struct SwapoffArguments {
    /// The group that this process belongs to [default: the only one that runs]
    #[arg(long, value_name = "PID", conflicts_with = "directory")]
    pub pid: Option<u32>,
    /// Directory of a mount
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// A device, as the table shows it or --swap named it: a directory, a file or block device,
    /// ram0, nbd0
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Examples:
  folioswap mkswap --size 16G /var/swap        make the file and prepare it
  folioswap mkswap /dev/sdb2                   prepare a block device that is blank
  folioswap run -m 1G --swap zram,prio=1 --swap file:/var/swap,prio=0 -- ./job

All that PATH holds is lost. Without --force it must be blank (zeroes at both ends). What is mounted, swap of the kernel, behind
a loop device or used by a run is refused even with it. Exit status: 0; 125 when it is refused: nothing is written then.")]
pub struct MkswapArguments {
    /// Overwrite whatever PATH holds
    #[arg(long)]
    pub force: bool,
    /// Make PATH, a new file of this size with all its blocks
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max, conflicts_with = "force")]
    pub size: Option<u64>,
    /// A file or block device
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
pub struct CompletionsArguments {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct ManArguments {
    /// Write one page per command into this directory instead of printing folioswap(1)
    pub directory: Option<PathBuf>,
}

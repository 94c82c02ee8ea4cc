//! The command line of `folioswap lab`.

use super::over_time;
use clap::{Args, Subcommand, ValueEnum};
use folioswap_lab::{
    policies::PolicyName,
    replay::{Device, DeviceError},
};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  folioswap lab cluster-scan --quick
        do folios find room? before and after series 1, the published table on
        the left
  folioswap lab cluster-scan --json > scan.json
  folioswap lab cluster-scan --plot scan.svg
        all figures; a picture
  folioswap lab slot-cache --quick
  folioswap lab thp-swapout --quick
  folioswap lab round-robin --quick
  folioswap lab shmem-swapin --quick
        the same for series 2, 3, 4 and 5
  folioswap lab tiers --quick
        groups with different swap devices on one CPU: three designs
  folioswap lab contention --quick
        series 1, 2 and 4 on 96 CPUs, in simulated time: system time, lock
        waits, hot locks by name
  folioswap lab generate build.trace --scale 4 && folioswap lab replay \\
      build.trace --policy scan-all --device zram,size=2G
        make a trace of allocations, and replay it through a policy from
        before
  folioswap lab policies
        the behaviours from before that can be chosen by name

All of it runs in this process on the allocator that `run` uses. Nothing needs
root but `--peer kernel`; `calibrate` measures more as root.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct LabArguments {
    #[command(subcommand)]
    pub command: LabCommand,
}

#[derive(Subcommand)]
pub enum LabCommand {
    /// Series 1: folios that find no run of slots, and clusters scanned, before and after
    ClusterScan(ClusterScanArguments),
    /// Series 2: is anything slower without the slot cache? An equivalence test with real threads
    SlotCache(SlotCacheArguments),
    /// Series 3: what does it bring that large folios leave whole? 4 kB, 64 kB and 2 MB, with real
    /// threads
    ThpSwapout(ThpSwapoutArguments),
    /// Series 4: do devices of equal priority share the load? Also by the running kernel
    RoundRobin(RoundRobinArguments),
    /// Series 5: what does a large object cost that comes back from swap? Before the series and
    /// after its patches
    ShmemSwapin(ShmemSwapinArguments),
    /// Tiers: groups with different devices on one CPU overwrite each other's hint. What do other
    /// designs bring?
    Tiers(TiersArguments),
    /// Series 1, 2 and 4 on 96 and more CPUs in simulated time: system time, lock waits, hot locks
    Contention(super::simulated_arguments::ContentionArguments),
    /// Measure what locks, steps and pages cost on this machine, for `contention`
    Calibrate(super::simulated_arguments::CalibrateArguments),
    /// Replay a trace through any policy, on any devices
    Replay(ReplayArguments),
    /// Make a trace of a build
    Generate(GenerateArguments),
    /// Make a trace of a text, as scripts/trace writes it from the running kernel
    Import(ImportArguments),
    /// Print a trace as text
    Export(ExportArguments),
    /// Derive the parameters of a build from a trace
    Fit(FitArguments),
    /// List the policies that can be chosen by name
    Policies,
    /// Fill memory (what `--peer kernel` starts)
    #[command(hide = true)]
    Hog(HogArguments),
}

/// What all experiments have in common.
#[derive(Args)]
pub struct OutputArguments {
    /// Smaller and fewer runs: about half a minute on two cores
    #[arg(long)]
    pub quick: bool,
    /// Print JSON with every figure instead of tables
    #[arg(long)]
    pub json: bool,
    /// Draw the result into FILE
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
A build of many short tasks lives within a memory limit; its cold folios leave
through the allocator, with the policy from before series 1, with patch 1, and
with both. Counted are the folios that found no run of slots and had to be
split. Runs of the three policies do exactly the same work (same seeds).

Examples:
  folioswap lab cluster-scan --quick
  folioswap lab cluster-scan --scale 1 --tasks-per-job 29 --runs 1
        the whole published build: 96 logical CPUs, 2 GiB; minutes
  folioswap lab cluster-scan --fill 50,70,90,95,99
        devices that become this full
  folioswap lab cluster-scan --trace real.trace
        what a recorded program asked for")]
pub struct ClusterScanArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Run on this trace (`folioswap run --trace`, `folioswap lab generate`) instead of the model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scale", "tasks_per_job", "runs"])]
    pub trace: Option<PathBuf>,
    /// Divide the published machine and build by this [default: 2; quick: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=48))]
    pub scale: Option<u32>,
    /// Tasks that each job runs one after the other [default: 10; quick: 8; the published build has
    /// 29]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub tasks_per_job: Option<u32>,
    /// Sizes of the device, as the part of it in percent that the build needs at most [default:
    /// 78,90,97]
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(5..=100))]
    pub fill: Option<Vec<u32>>,
    /// Runs of each kind, with different seeds [default: 3; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
}

#[derive(Args)]
#[command(after_help = "\
A trace is what a program asked of the allocator, one record of 16 bytes per
allocation and free. A replay asks the same of another allocator: slots are
freed when the trace frees them, and a folio that finds no run of slots is
split.

DEVICE is TYPE[,size=S][,prio=P][,sync|async][,discard] with TYPE zram
(synchronous), ram (as brd: not synchronous), file or disk (rotating). Without
a size: what the trace needs at most, and a quarter more. When all devices are
synchronous, pages that come back free their slots at once; else those that
were recorded as only cached stay.

Examples:
  folioswap lab replay build.trace
  folioswap lab replay build.trace \\
      --policy 6.9,6.14,6.18,6.19,current --device zram,size=8G
  folioswap lab replay build.trace \\
      --policy scan-all+free-first,scan-one+free-first,scan-one+nonfull-first
  folioswap lab replay build.trace --policy scan-all,current \\
      --over-time build.svg
        a heat map of the devices, from the first operation to the last
  folioswap lab replay build.trace --policy drained-first --device ram \\
      --device ram --threads 2 --json")]
pub struct ReplayArguments {
    /// The trace
    pub file: PathBuf,
    /// Behaviours, each a column of the table; `folioswap lab policies` lists them
    #[arg(long, default_value = "current", value_name = "NAME,...", value_delimiter = ',')]
    pub policy: Vec<PolicyName>,
    /// A swap device; may be repeated [default: zram]
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub device: Vec<Device>,
    /// Real threads, among which the logical CPUs are divided
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Logical CPUs; those of the trace are taken modulo this [default: as recorded]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: Option<u32>,
    /// Count lock acquisitions too (costs time)
    #[arg(long)]
    pub locks: bool,
    /// Write how the allocator was meanwhile: FILE.svg heat maps of the devices and clusters by
    /// list, FILE.csv a table, FILE.json all of it (one thread; times include the looks)
    #[arg(long, value_name = "FILE", value_parser = over_time::Format::of_file)]
    pub over_time: Option<over_time::Format>,
    /// Looks at the allocator for --over-time
    #[arg(long, value_name = "N", default_value_t = 200, requires = "over_time", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub looks: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "\
The trace is that of a build of many short tasks within a memory limit, on a
device where room never lacks. The same options and seed give the same file on
every host. --parameters takes JSON as `folioswap lab fit` prints it (its
\"parameters\"); --print-parameters shows those that would be used, with which
to begin.

Examples:
  folioswap lab generate build.trace --scale 4
  folioswap lab generate build.trace --sizes all --seed 7 --tasks 500
  folioswap lab generate --print-parameters > p.json && folioswap lab \\
      generate build.trace --parameters p.json")]
pub struct GenerateArguments {
    /// Where to write the trace
    #[arg(required_unless_present = "print_parameters")]
    pub file: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Folio sizes
    #[arg(long, value_enum, default_value_t, value_name = "SIZES")]
    pub sizes: SizesArgument,
    /// Divide the published build (96 jobs on 96 logical CPUs in 2 GiB) by this
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=48))]
    pub scale: u32,
    /// Tasks in all [default: 2800 / scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tasks: Option<u32>,
    /// Swap as to a device that is not synchronous: pages come back singly, and keep their slots
    /// while they are only read
    #[arg(long = "async")]
    pub asynchronous: bool,
    /// Take the parameters of the build from this JSON file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sizes", "scale"])]
    pub parameters: Option<PathBuf>,
    /// Print the parameters as JSON and make no trace
    #[arg(long)]
    pub print_parameters: bool,
}

/// The folio sizes of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SizesArgument {
    /// Order 0 and 64 kB
    #[default]
    #[value(name = "64k")]
    Only64k,
    /// Order 0 and 16 kB to 2 MB
    All,
}

#[derive(Args)]
#[command(after_help = "\
Prints, as JSON, what the trace shows of a build (order mix, tasks by their
bursts of frees, folios that came back), and the parameters for `folioswap lab
generate` that follow. What a trace of slots cannot show (limit, files, reads)
keeps its default.

Example:
  folioswap lab fit real.trace | jq .parameters > p.json && folioswap lab \\
      generate like-real.trace --parameters p.json")]
pub struct FitArguments {
    /// The trace
    pub file: PathBuf,
}

#[derive(Args)]
#[command(after_help = "\
A line of the text is a record: time, logical CPU, event, its order or number
of slots, the first slot as device:offset, and what else is known.

  # folioswap-trace tick_ns=1 cpus=4
  1200 0 alloc 4 0:512 group=7 folio=3
  1350 1 free 16 0:512 cause=swap-in
  1360 1 fallback 4

Events are alloc and fallback with an order, free, retain (only cached from
here on) and reuse (swapped out again unchanged) with a number of slots,
member, end and fork with a member. Lines may be out of order; the first
record's time becomes 0. scripts/trace/kernel.sh records the running kernel so
(Linux 6.18, root, clang and libbpf).

Examples:
  folioswap lab import build.txt build.trace && folioswap lab replay \\
      build.trace --policy 6.14,6.18,current
  zcat build.txt.gz | folioswap lab import - build.trace")]
pub struct ImportArguments {
    /// The text; - is standard input
    pub text: PathBuf,
    /// Where to write the trace
    pub file: PathBuf,
    /// Take only the allocations of this memory group, and the frees of their slots
    #[arg(long, value_name = "N")]
    pub group: Option<u16>,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  folioswap lab generate build.trace --scale 16 && folioswap lab export \\
      build.trace | head")]
pub struct ExportArguments {
    /// The trace
    pub file: PathBuf,
}

fn device(text: &str) -> Result<Device, DeviceError> {
    Device::parse(text, |size| folioswap_supervisor::size::parse_swap_max(size).ok())
}

#[derive(Args)]
#[command(after_help = "\
Each thread goes through its memory, randomly or from start to end, with
folios of 4 kB or 64 kB; what does not fit goes out and comes back through the
allocator of Linux 6.14, which has the slot cache (before), and the same
without it (after), in turn; beside them stand 6.18's order of lists and
today's. The claim to be tested is that nothing is lost: the 90 % confidence
interval of after / before must not reach below the margin. Anything else that
runs on the machine widens the interval.

Examples:
  folioswap lab slot-cache --quick
  folioswap lab slot-cache --pairs 30 --margin 3 --json")]
pub struct SlotCacheArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Run on this trace (`folioswap run --trace`, `folioswap lab generate`) instead of the model
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Rounds, in each of which every allocator runs once [default: 16, as published; quick: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub pairs: Option<u32>,
    /// Real threads [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub threads: Option<u32>,
    /// Greatest loss that counts as none, in percent
    #[arg(long, default_value_t = 5, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub margin: u32,
}

#[derive(Args)]
#[command(after_help = "\
Tasks write memory once from start to end, as usemem does; what is beyond the
limit leaves for a device in RAM, and when a task ends its slots are freed.
Before the series every large folio but those of 2 MB was split first, and its
pages left and were freed one by one; since then folios of all sizes leave
whole: one allocation, one request, one free. Memory comes in pieces of 4 kB,
64 kB or 2 MB. The rates stand beside the published ones, all relative to 4 kB
before.

The series claims that 64 kB becomes faster and that the rest is noise. Each
kind runs once in every round; the table has medians with the lowest and
highest round, and the 90 % confidence interval of after / before: noise is
borne out by *equivalent*, which means the whole interval within the margin.
Anything else that runs on the machine widens it, less so in the second table,
of processor time. Two more tables count what a run does, and what becomes of
large folios on a device without a run of slots, partially mapped, advised in
part, or still under write-back: swpout, swpout_fallback, splits.

*with memory* has the kernel give and take the memory of each folio; *with
data* writes and copies only; *slots only* does neither. Memory needed: 1.7
GiB (quick: 0.5 GiB) with two threads.

Examples:
  folioswap lab thp-swapout --quick
  folioswap lab thp-swapout --rounds 30 --margin 3 --json
  folioswap lab thp-swapout --threads 1 --plot swapout.svg
        no other thread whose processor an unmapping interrupts")]
pub struct ThpSwapoutArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Rounds, in each of which every kind runs once [default: 12; quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub rounds: Option<u32>,
    /// Real threads, each with nine tasks [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub threads: Option<u32>,
    /// Memory of each task in MiB, rounded down to 2 MiB [default: 64; quick: 16]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub task_mib: Option<u32>,
    /// Greatest difference that counts as noise, in percent
    #[arg(long, default_value_t = 5, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=50))]
    pub margin: u32,
}

/// The peer that does the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerArgument {
    /// The running kernel, with four zram devices and a memory cgroup (v1); needs root
    Kernel,
}

#[derive(Args)]
#[command(after_help = "\
Tasks swap out to four equal devices, under the old rule (default priorities
by order of swapon, a node's own device first) and today's (one default
priority for all, devices in turn). Equal devices must end within 1 % of each
other, or a cluster per CPU, whichever is larger; with different priorities no
device may be used before the ones above it are full.

--peer kernel sets up four zram devices, swap and a cgroup, twice, reads
/proc/swaps, and undoes everything, also after Ctrl-C.

Examples:
  folioswap lab round-robin
  sudo folioswap lab round-robin --quick --peer kernel")]
pub struct RoundRobinArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Run on this trace (`folioswap run --trace`, `folioswap lab generate`) instead of the model
    #[arg(long, value_name = "FILE", conflicts_with = "peer")]
    pub trace: Option<PathBuf>,
    /// Do the same on something else
    #[arg(long, value_enum, value_name = "PEER")]
    pub peer: Option<PeerArgument>,
    /// Runs of each kind, with different seeds
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
}

#[derive(Args)]
#[command(after_help = "\
An object in folios of 2 MB is written, swapped out whole to compressed RAM,
and read back from start to end: before series 5, after its patches 1, 2, 5
and 7, after all of it, and as it is today. Once with large folios always to
be had, and once with every second one refused, so that the fallbacks differ.
Counted are walks of the map, fallbacks, splits and major faults. One byte of
each page is read, and compared with what was written. Memory needed: one and
a half times the object.

Examples:
  folioswap lab shmem-swapin --quick
  folioswap lab shmem-swapin --mib 2048 --rounds 6 --json")]
pub struct ShmemSwapinArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Size of the object in MiB, rounded down to 2 MiB [default: 1024; quick: 256; published:
    /// 24576]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..=65536))]
    pub mib: Option<u32>,
    /// Rounds, in each of which every variant runs once [default: 24, as published; quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
}

#[derive(Args)]
#[command(after_help = "\
Groups that may use different devices take turns on the same CPUs. The kernel
keeps one next offset per CPU and order, so such groups overwrite each
other's, and each begins a cluster again and again. Beside it stand two other
designs: a next offset for each device, and one for each mask of devices.
Shown are the allocations that the CPU's own cluster served, large folios that
found no room, clusters that hold something, and locks.

Examples:
  folioswap lab tiers --quick
  folioswap lab tiers --runs 10 --json")]
pub struct TiersArguments {
    #[command(flatten)]
    pub output: OutputArguments,
    /// Runs of each kind, with different seeds [default: 5; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
}

#[derive(Args)]
pub struct HogArguments {
    /// Bytes to fill
    #[arg(long)]
    pub bytes: u64,
    /// Directory of the memory cgroup to enter
    #[arg(long)]
    pub group: PathBuf,
}

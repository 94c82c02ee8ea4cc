//! The arguments of `run` and `advise`.

use super::memory::{self, MemoryArgument};
use crate::{folio_option::FolioOption, swap_tiers};
use clap::{
    Args, ValueEnum, ValueHint,
    builder::{EnumValueParser, TypedValueParser},
    error::{ContextKind, ContextValue},
};
use folioswap_group::decisions::{Failures, PAGE_CLUSTER_DEFAULT, PAGE_CLUSTER_MAX, Scope, Way};
use folioswap_supervisor::{
    course::thrashing::WhenThrashing,
    size,
    swap_option::{self, SwapOption},
};
use std::{ffi::OsString, path::PathBuf};

const RUN_EXAMPLES: &str = "\
Examples:
  folioswap run --memory 512M -- python3 train.py --epochs 3
  folioswap run -m 50% --stats -- make -j8
        half of what the container, or the machine, has
  folioswap run -m 256M --stats-json stats.json -- ./server
  folioswap run -m 1G --report out.html -- ./job
        what happened, as one page for a browser
  folioswap run -m 1G --timeline out.json -- ./job
        what happened when, for ui.perfetto.dev or chrome://tracing
  folioswap run -m 1G --swap-max 0 -- ./job
        compressed memory only, no file
  folioswap run -m 1G --swap zram,prio=1 \\
                --swap file:/var/tmp,size=20G,prio=0 -- ./job
  folioswap run -m 1G --thrashing end -- ./nightly
        rather no result than one after hours: ended after ten seconds in
        which it did little but wait, with the limit that it needs
  folioswap run --profile build -- make -j8
        as [profile.build] of the configuration file says
  folioswap run -m 1G --trace job.trace -- ./job
  folioswap lab replay job.trace --policy scan-all
        (each process that swaps takes up to 2 MiB more meanwhile)

DEVICE: `folioswap help devices`. SIZE and SIZES: `folioswap help sizes`.
Environment and files: `folioswap help configuration`.

Exit status:
  CMD's own   when it exits; 128+N when signal N ended it
  125         folioswap refused (bad option, no userfaultfd, CMD set-user-id,
              ...), or its supervisor was killed
  126, 127    CMD cannot be executed; CMD was not found
  137         nothing was left to swap to, what cannot be swapped is above
              the limit, or --thrashing end (one message says which; \"end\"
              in the JSON tells it from somebody's SIGKILL)

`run` returns when CMD ends. Processes that CMD leaves behind keep running
within the limit under the supervisor, which ends with the last of them.
kill -9 of folioswap ends everything that it runs. A run inside another run is
refused: the outer limit already holds for all that is started within it.";

const ADVISE_EXAMPLES: &str = "\
Examples:
  folioswap advise -m 64M -- ./job
        how much would 96M spare? and 128M?
  folioswap advise -m 25% -- python3 train.py

CMD runs once, to its end, within the limit that you give. The table has the
pages that came back within it, as measured, and for larger limits those that
would have come back, as predicted from how long pages were away. Choose a
limit well below what you think that CMD needs: of smaller limits than that of
the run nothing is known. Exit status: as that of `folioswap run`.";

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

/// When the system-call gate stands before the calls of CMD and its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GateArgument {
    /// Where the kernel does not report all that is needed, because that takes CAP_SYS_PTRACE
    #[default]
    Auto,
    /// Wherever it works
    Always,
    /// Nowhere: without CAP_SYS_PTRACE nothing is started
    Never,
    /// Wherever it works, as for a user without any permission: it holds what calls use
    Unprivileged,
}

impl GateArgument {
    /// The ways that may be taken, the cheapest first.
    pub fn ways(self) -> &'static [Way] {
        match self {
            GateArgument::Auto => &Way::ALL,
            GateArgument::Always => &[Way::GatedForks, Way::GatedCalls],
            GateArgument::Never => &[Way::Kernel],
            GateArgument::Unprivileged => &[Way::GatedCalls],
        }
    }

    /// Whether the gate is to stand there in any case.
    pub fn is_wanted(self) -> bool {
        matches!(self, GateArgument::Always | GateArgument::Unprivileged)
    }
}

/// What `--thrashing` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ThrashingArgument {
    /// Say it once, with the limit that would be enough, and go on
    #[default]
    Tell,
    /// End CMD and all that it started, with the same words and status 137
    End,
}

impl From<ThrashingArgument> for WhenThrashing {
    fn from(argument: ThrashingArgument) -> WhenThrashing {
        match argument {
            ThrashingArgument::Tell => WhenThrashing::Tell,
            ThrashingArgument::End => WhenThrashing::End,
        }
    }
}

/// What `--stats` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsArgument {
    /// The ten lines that matter most
    Short,
    /// Every counter
    All,
    /// Nothing, whatever environment or profile say
    Off,
}

/// Reads [`StatsArgument`]; a path gets the option that writes a file.
#[derive(Clone)]
struct StatsParser;

impl TypedValueParser for StatsParser {
    type Value = StatsArgument;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<StatsArgument, clap::Error> {
        let read = EnumValueParser::<StatsArgument>::new().parse_ref(command, option, value);
        read.map_err(|mut error| {
            let hint = "--stats-json FILE writes a file".to_owned().into();
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        Some(Box::new(StatsArgument::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// What a group is made with. The environment and the configuration files have the same.
#[derive(Args, Clone, Debug, Default)]
pub struct GroupArguments {
    /// Limit of the whole process tree: a size, or 50% of the cgroup's limit or RAM [default: the
    /// limit of the cgroup we are in]
    #[arg(short, long, value_name = "SIZE", value_parser = memory::parse)]
    pub memory: Option<MemoryArgument>,
    /// What the limit counts [default: total]
    #[arg(long, value_enum, value_name = "SCOPE")]
    pub memory_scope: Option<ScopeArgument>,
    /// Swap device, in place of the built-in ones: zram | ram,size=SIZE | file:DIR | file:PATH |
    /// nbd://...; repeatable (`folioswap help devices`)
    #[arg(long, value_name = "DEVICE", value_parser = clap::builder::OsStringValueParser::new().try_map(|value| swap_option::parse(&value)))]
    pub swap: Vec<SwapOption>,
    /// Tiers that take pages, as the priorities of their devices: 10,0 [default: all]; others wait
    /// for `folioswap set --swap-tiers`
    #[arg(long, value_name = "TIERS", value_parser = swap_tiers::parse, allow_hyphen_values = true)]
    pub swap_tiers: Option<String>,
    /// Directory of the built-in (unlinked) swap file [default: /var/tmp]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub swap_dir: Option<PathBuf>,
    /// Most that the built-in swap file may take; 0: no file [default: half of the free space of
    /// its disk]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max)]
    pub swap_max: Option<u64>,
    /// Folio sizes to make of memory, and when: SIZE=WORD[,SIZE=WORD]... (`folioswap help sizes`)
    /// [default: all=always]
    #[arg(long, value_name = "SIZES", value_parser = crate::folio_option::parse)]
    pub thp: Option<FolioOption>,
    /// Read up to 2^N pages around a page that comes back from a slow device (a file); 0 to 5, 0:
    /// the page alone [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(PAGE_CLUSTER_MAX)))]
    pub page_cluster: Option<u32>,
    /// What to do about a run that for 10 s does little but wait for pages [default: tell]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub thrashing: Option<ThrashingArgument>,
    /// When a gate of ours stands before the system calls of CMD and its children, which follows
    /// forks without CAP_SYS_PTRACE; costs each call some 0.1 us [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub gate: Option<GateArgument>,
    /// Take what is not given here from [profile.NAME] of a configuration file
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

impl GroupArguments {
    /// The readahead from slow devices, as a power of two of pages.
    pub fn page_cluster(&self) -> u32 {
        self.page_cluster.unwrap_or(PAGE_CLUSTER_DEFAULT)
    }
}

#[derive(Args, Default)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArguments {
    #[command(flatten)]
    pub group: GroupArguments,
    /// Name for `folioswap ps`, `top`, `set` and the like [default: that of the program]
    #[arg(long, value_name = "NAME", value_parser = folioswap_supervisor::ipc::description::parse_name)]
    pub name: Option<String>,
    /// Weight of the group where `folioswap balance` shares memory among several, 1 to 10000
    /// [default: 100]
    #[arg(long, value_name = "N", value_parser = crate::operate::arguments::parse_weight)]
    pub weight: Option<u32>,
    /// Print the ten figures that matter most to standard error when CMD ends; =all: all
    #[arg(long, value_parser = StatsParser, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "short")]
    pub stats: Option<StatsArgument>,
    /// Write statistics as JSON to FILE when CMD ends; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats_json: Option<PathBuf>,
    /// Write a report with charts to FILE when CMD ends: one page of HTML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    /// Write what happened when to FILE when CMD ends, as Chrome trace events (Perfetto)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub timeline: Option<PathBuf>,
    /// Record every allocation and free of swap slots into FILE, for `folioswap lab replay` and
    /// `lab fit`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Check every invariant of the swap space now and then, and count what does not hold (for
    /// developers of folioswap)
    #[arg(long, hide = true)]
    pub validate: bool,
    /// Take everything that may leave out of the programs, whatever the limit, again and again (for
    /// developers of folioswap)
    #[arg(long, hide = true, env = "FOLIOSWAP_EVICT_ALL", hide_env = true)]
    pub evict_all: bool,
    /// Let one system call in RATE of the pagers fail at random, as the kernel may let it fail, by
    /// a series from SEED on (for developers of folioswap)
    #[arg(long, hide = true, value_name = "SEED,RATE", env = "FOLIOSWAP_FAIL", hide_env = true,
          value_parser = failures)]
    pub fail: Option<Failures>,
    /// Preload this agent instead of the built-in one; `none`: preload nothing (for developers of
    /// folioswap)
    #[arg(long, value_name = "FILE", hide = true, value_hint = ValueHint::FilePath)]
    pub agent: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = ADVISE_EXAMPLES)]
pub struct AdviseArguments {
    #[command(flatten)]
    pub group: GroupArguments,
    /// Write statistics as JSON to FILE when CMD ends (`refaults` has the curve); `-` is standard
    /// output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats_json: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Parses SEED,RATE.
fn failures(text: &str) -> Result<Failures, String> {
    let parsed = text.split_once(',').and_then(|(seed, rate)| Some((seed.parse().ok()?, rate.parse().ok()?)));
    parsed
        .map(|(seed, rate)| Failures { seed, rate })
        .ok_or_else(|| "two numbers are wanted, as in 7,20".to_owned())
}

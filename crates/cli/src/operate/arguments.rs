//! The arguments of the commands that look at running groups and mounts, and change them.

use crate::swap_tiers;
use clap::Args;
use folioswap_group::seat::{WEIGHT_DEFAULT, WEIGHT_MAX};
use folioswap_supervisor::size;

const TARGET: &str = "\
TARGET is the name of a group (`run --name`, else that of its program), the id
of any process of it, or the directory of a mount. `folioswap ps` lists them
all.";

const PS_EXAMPLES: &str = "\
Examples:
  folioswap ps                  every group and mount that you may look at
  folioswap ps --json | jq '.groups[] | select(.swapped_bytes > 1e9) | .name'

LIMIT is what --memory says, CHARGE what counts towards it now, SWAPPED the
memory that is out (compressed or on a device), RATIO how much smaller
compressed memory is. Mounts have a directory as their name. Exit status: 0,
also when nothing runs.";

const STATS_EXAMPLES: &str = "\
Examples:
  folioswap stats train         what has happened in the group so far
  folioswap stats 4711 --json
  folioswap stats /mnt/build    figures of a mount

Counters have the kernel's names where it has them, and count all processes of
the group, also those that have ended. Exit status: 0; 125 when there is no
such group or mount.";

const SET_EXAMPLES: &str = "\
Examples:
  folioswap set train --memory 2G       another limit for the running group
  folioswap set 4711 --memory 512M      the same for that of process 4711
  folioswap set /mnt/build --memory 2G --size 16G
  folioswap set train --swap-tiers 10   new pages go to devices of priority 10
  folioswap set train --weight 4711=400 process 4711 keeps more than others
  folioswap set train --weight 400      the group does (`folioswap balance`)

The command returns when the group or mount is within the new limit. If it
does not come so far (memory is locked, or swap is full), or on Ctrl-C, the
old limit and the old tiers hold again and nothing is lost. Processes of a
group cannot change it. Exit status: 0; 125 when it is refused, or did not
come within the limit: that is as before then. What stands before a refused
--weight is done.";

const FREEZE_EXAMPLES: &str = "\
Examples:
  folioswap set train --memory 64M && folioswap freeze train
        page most of it out, and stop it
  folioswap thaw train

All processes of the group are stopped (SIGSTOP), parents first, and keep the
memory that they have. Processes that were stopped before stay stopped after
the thaw. Exit status: 0; 125 when one of them cannot be stopped: all go on
then.";

#[derive(Args)]
#[command(after_help = PS_EXAMPLES)]
pub struct PsArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = STATS_EXAMPLES)]
pub struct StatsArguments {
    /// A group or a mount: NAME, PID or DIR
    #[arg(value_name = "TARGET", long_help = TARGET)]
    pub target: std::ffi::OsString,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = SET_EXAMPLES, group = clap::ArgGroup::new("what").required(true).multiple(true).args(["memory", "size", "weight", "swap_tiers"]))]
pub struct SetArguments {
    /// A group or a mount: NAME, PID or DIR
    #[arg(value_name = "TARGET", long_help = TARGET)]
    pub target: std::ffi::OsString,
    /// The new limit
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_limit)]
    pub memory: Option<u64>,
    /// The most contents of a mount
    #[arg(long, value_name = "SIZE", value_parser = size::parse_swap_max)]
    pub size: Option<u64>,
    /// Tiers that take pages from now on, as the priorities of their devices: 10,0; or all. Pages
    /// that are in others stay there
    #[arg(long, value_name = "TIERS", value_parser = swap_tiers::parse, allow_hyphen_values = true)]
    pub swap_tiers: Option<String>,
    /// Weight as cgroups have it, 1 to 10000, else 100. N: of the group, where `folioswap balance`
    /// shares memory among several. PID=N: of a process, and of those that it starts from now on;
    /// near the limit busy processes give memory in inverse proportion. Repeatable
    #[arg(long, value_name = "[PID=]N", value_parser = parse_weighed)]
    pub weight: Vec<Weighed>,
}

/// What gets a weight, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighed {
    /// The group, among groups.
    Group(u32),
    /// A process, within its group.
    Process {
        /// The process.
        process: u32,
        /// Its weight.
        weight: u32,
    },
}

/// Reads what gets which weight.
fn parse_weighed(text: &str) -> Result<Weighed, String> {
    let Some((process, weight)) = text.split_once('=') else {
        return parse_weight(text).map(Weighed::Group);
    };
    let process = process.parse().ok().filter(|&process: &u32| process > 0);
    let process = process.ok_or("PID is the id of a process (`folioswap stats` lists them)")?;
    Ok(Weighed::Process { process, weight: parse_weight(weight)? })
}

/// Reads a weight.
pub fn parse_weight(text: &str) -> Result<u32, String> {
    let weight = text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| format!("N is a weight, 1 to {WEIGHT_MAX}; the default is {WEIGHT_DEFAULT}"))
}

#[derive(Args)]
#[command(after_help = FREEZE_EXAMPLES)]
pub struct FreezeArguments {
    /// A group: NAME, or PID of any process of it
    #[arg(value_name = "TARGET", long_help = TARGET)]
    pub target: std::ffi::OsString,
}

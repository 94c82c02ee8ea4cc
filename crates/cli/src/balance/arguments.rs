//! The arguments of `balance`.

use crate::{
    delay,
    operate::arguments::parse_weight,
    run::memory::{self, MemoryArgument},
};
use clap::Args;
use folioswap_supervisor::ipc::description;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  folioswap run --name train --weight 300 -m 2G -- ./train &
  folioswap run --name nightly -m 2G -- ./nightly &
  folioswap balance --memory 8G
        all groups of yours share 8G; where both swap, train has three
        quarters of it, and what one does not need the other gets
  folioswap balance -m 50% train=300 nightly
        half of the RAM, for these two alone; weights given here go first
  folioswap set nightly --weight 400
        another weight meanwhile

The command sets the limits of the groups, as `folioswap set` does, until it
is ended (Ctrl-C): the last limits stay. Groups that begin meanwhile take part
as soon as they run; their first limit is their own. A limit that a group
cannot come within is left as it was and tried again. It prints a line for
each change. One `balance` of a user can run. Exit status: 0; 125 when it is
refused.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BalanceArguments {
    /// What the groups share: a size, or 50% of the cgroup's limit or RAM
    #[arg(short, long, value_name = "SIZE", value_parser = memory::parse)]
    pub memory: MemoryArgument,
    /// Groups that share it, each with a weight of 1 to 10000 [default: all of yours, with the
    /// weights that they have]
    #[arg(value_name = "NAME[=WEIGHT]", value_parser = parse_group)]
    pub groups: Vec<(String, Option<u32>)>,
    /// Seconds between two looks, 0.1 to 60
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "0.5", value_parser = parse_delay)]
    pub delay: Duration,
}

/// Reads the name of a group, and its weight if one is given.
fn parse_group(text: &str) -> Result<(String, Option<u32>), String> {
    let (name, weight) = match text.split_once('=') {
        Some((name, weight)) => (name, Some(parse_weight(weight)?)),
        None => (text, None),
    };
    let name = description::parse_name(name).map_err(|error| error.to_string())?;
    Ok((name, weight))
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    delay::parse(text, 60)
}

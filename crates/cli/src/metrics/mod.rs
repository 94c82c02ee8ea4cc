//! `folioswap metrics`: figures of all groups and mounts for Prometheus and its like, in the
//! OpenMetrics text format: over HTTP, or as a file for node_exporter's textfile collector.

mod families;
mod file;
mod http;

use crate::{
    error::Error,
    operate::{mounts, ps},
};
use clap::Args;
use std::{io, path::PathBuf, time::Duration};

const EXAMPLES: &str = "\
Examples:
  folioswap metrics 127.0.0.1:9709
        serves http://127.0.0.1:9709/metrics until it is ended
  folioswap metrics /var/lib/node_exporter/folioswap.prom --interval 15
        writes the file anew every 15 s, each time as a whole
  folioswap metrics -
        prints them once

TO with a colon and a port is an address, anything else a file. One exporter
serves all groups and mounts that its user may look at; it reads their memory
and takes nothing from them. Names: docs/reference/operate.md. Exit status: 0
when it was ended by SIGTERM or SIGINT; 125 when the address or file cannot be
had.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct MetricsArguments {
    /// An address HOST:PORT, a file, or - for standard output
    #[arg(value_name = "TO")]
    pub to: String,
    /// Seconds between two writings of a file, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
}

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address cannot be had.
    #[error("metrics {address}: {source}; give a free one, e.g. 127.0.0.1:9709, or a file")]
    Address {
        /// The address as given.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("metrics {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The command.
///
/// # Errors
/// [`MetricsError`].
pub fn metrics(arguments: &MetricsArguments) -> Result<i32, Error> {
    if arguments.to == "-" {
        print!("{}", text());
        return Ok(0);
    }
    if is_address(&arguments.to) {
        http::serve(&arguments.to)?;
    } else {
        file::keep(&PathBuf::from(&arguments.to), Duration::from_secs(arguments.interval))?;
    }
    Ok(0)
}

/// Whether this is HOST:PORT and no file.
fn is_address(text: &str) -> bool {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    !text.contains('/') && port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// All figures now.
fn text() -> String {
    families::encode(&ps::groups(), &mounts::all())
}

#[cfg(test)]
mod tests;

//! The kernel's kills at the limit of the container, which no limit of ours above it can prevent.

use crate::cgroup::{Limit, OomKills, memory_limit_with_kills};
use folioswap_supervisor::size;

/// The least that is left to the kernel of the limit of a cgroup, in bytes.
const RESERVE_MIN: u64 = 16 << 20;

/// The part of the limit of a cgroup, in bytes, that is left to the kernel: the cgroup also counts
/// page tables and the like, and kills at its limit.
pub fn reserve(limit: u64) -> u64 {
    (limit / 8).max(RESERVE_MIN).min(limit / 3)
}

/// The highest `--memory` that leaves the kernel its part, as an argument.
fn advice(limit: u64) -> String {
    format!("{}M", (limit - reserve(limit)) >> 20)
}

/// A line for the user who gives a limit that the container does not allow.
pub fn warning(given: u64, container: Option<&Limit>) -> Option<String> {
    let Limit { bytes, source } = container.filter(|limit| given >= limit.bytes)?;
    Some(format!(
        "folioswap: --memory {} is not below the limit of this container, {} ({}), at which the kernel kills; give {} or \
         less, or leave --memory out\n",
        size::show(given),
        size::show(*bytes),
        source.display(),
        advice(*bytes)
    ))
}

/// The kills since a run began.
pub struct ContainerKills {
    kills: OomKills,
    limit: Limit,
}

impl ContainerKills {
    /// Begins to count; `None` without a container's limit.
    pub fn begin() -> Option<Self> {
        memory_limit_with_kills().map(|(limit, kills)| ContainerKills { limit, kills })
    }

    /// The limit of the container.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// A line that names the kills, if there were any.
    pub fn message(&self) -> Option<String> {
        let count = self.kills.since();
        let Limit { bytes, source } = &self.limit;
        (count > 0).then(|| {
            format!(
                "folioswap: the kernel killed {count} process{} in this container, whose limit of {} ({}) was reached; give \
                 --memory {} or less\n",
                if count == 1 { "" } else { "es" },
                size::show(*bytes),
                source.display(),
                advice(*bytes)
            )
        })
    }
}

#[cfg(test)]
mod tests;

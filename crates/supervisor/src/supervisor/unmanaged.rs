//! Memory that no member counts: descendants without an agent, and our own processes.

use super::Supervisor;
use crate::{processes::proc, recording::MemberRing, report::outcome::Outcome, size};
use std::{collections::HashSet, time::Instant};

/// Unmanaged memory above the limit ends the group when so many walks in a row found it.
const EXCESS_WALKS: u32 = 2;

impl Supervisor {
    /// Walks the tree, publishes what no member counts, and ends the group if that alone is above
    /// the limit.
    pub(super) fn count_unmanaged(&mut self, now: Instant) {
        self.end_stray_pagers(now, |_| true);
        let members = self.connections.iter().filter(|connection| connection.is_member());
        let members: HashSet<u32> = members.flat_map(|member| [member.pid, member.pager_pid()]).collect();
        let found = self.census.walk(&members, now);
        let front = if self.link.is_some() { self.front } else { 0 };
        let own: u64 = [std::process::id(), front]
            .iter()
            .filter(|pid| **pid != 0)
            .filter_map(|pid| proc::status(*pid).map(|status| (*pid, status)))
            // One is a fork of the other, and shares half of its pages with it.
            .map(|(pid, status)| {
                proc::proportional_anonymous(pid).unwrap_or(status.anonymous) + status.shared
            })
            .sum();
        // The members count the rings.
        let rings = self.connections.iter().filter(|connection| connection.ring.is_some()).count();
        let bytes = found.bytes + own.saturating_sub((rings * MemberRing::BYTES) as u64);
        self.unmanaged = bytes;
        self.settings.memory.writer().publish_census(bytes);
        self.unmanaged_peak = self.unmanaged_peak.max(bytes);
        if bytes > self.settings.limit && self.limit_change.is_some() {
            self.give_up_limit();
        }
        self.excess_walks = if bytes > self.settings.limit { self.excess_walks + 1 } else { 0 };
        if self.excess_walks >= EXCESS_WALKS {
            let message = format!(
                "folioswap: what cannot be swapped out ({} without the agent: {}) takes {}, more than the limit of {}; ended \
                 CMD and everything that it started. Give at least --memory {}\n",
                found.processes,
                self.census.largest(),
                size::show(bytes),
                size::show(self.settings.limit),
                size::suggest(bytes),
            );
            self.end_group(Outcome::UnmanagedAboveLimit, &message);
        }
    }
}

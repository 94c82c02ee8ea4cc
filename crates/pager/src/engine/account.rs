//! The memory that the process counts towards the group's limit.

use crate::engine::Engine;
use crate::kernel::proc::ProcessSize;
use crate::units::PAGE;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::{Counter, Gauge};
use folioswap_group::decisions::Scope;
use folioswap_group::nested::{Bound, WHOLE};
use folioswap_group::sums::saturating_sum;

/// Bytes that relatives may share without effect on any decision.
const SHARED_BYTES_MIN: u64 = 1 << 20;

impl Engine {
    /// The limit that leaves the least headroom, of the limits that hold here.
    pub(crate) fn bound(&self) -> Bound {
        self.group().tightest(self.seat())
    }

    /// The least of the limits that hold here, in bytes.
    pub(crate) fn least_limit(&self) -> u64 {
        self.decisions().least_limit(self.seat())
    }

    /// Whether a group that this process is in has reached its limit.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.bound().is_reached()
    }

    /// The part of the process's anonymous memory that counts towards the limit: all of it, or all
    /// but the engine's own.
    pub(crate) fn charge_of(&self, anonymous: u64) -> u64 {
        match self.decisions().scope() {
            Scope::Total => anonymous,
            Scope::Resident => anonymous.saturating_sub(self.own_bytes()),
        }
    }

    /// The resident memory of the engine itself: store and tables.
    pub(crate) fn own_bytes(&self) -> u64 {
        let tables = (self.table.blocks() * size_of::<folioswap_policy::page_table::Block>()) as u64;
        let store = self.space.mm_stat().mem_used_total + self.arena.chunks().waiting_bytes();
        store + self.space.metadata_bytes() + tables + (128 << 10)
    }

    /// Whether this process shares more than a little of its memory with relatives, as last
    /// measured. Its store and the pages that were swapped out before the fork are included.
    pub(crate) fn shares_memory(&self) -> bool {
        self.member().sharing.discount() > SHARED_BYTES_MIN
    }

    /// Memory that the devices of a group occupy: the compressed stores of its members, as last
    /// published, and plain RAM. (Plain RAM is counted for the whole group: that of groups within
    /// it is not looked at separately.)
    pub(crate) fn stored_by(&self, group: u32) -> u64 {
        let in_memory = if group == WHOLE { self.decisions().device_bytes() } else { 0 };
        self.sum_over(group, Gauge::MemUsedTotal).saturating_add(in_memory)
    }

    /// The sum of a figure over the members of a group, as last published.
    pub(crate) fn sum_over(&self, group: u32, gauge: Gauge) -> u64 {
        saturating_sum(self.group().members_within(group).map(|member| member.figures.gauge(gauge)))
    }

    /// Whether the devices of any group that this process is in occupy more than this part of its
    /// limit (2: half).
    pub(crate) fn store_exceeds(&self, part: u64) -> bool {
        let decisions = self.decisions();
        let mut groups = decisions.around(self.seat().group());
        groups.any(|group| self.stored_by(group) > decisions.limit_of(group) / part)
    }

    /// Publishes the store's figures.
    pub(crate) fn publish_gauges(&self, size: ProcessSize, staging_bytes: u64) {
        let (figures, stat) = (self.figures(), self.space.mm_stat());
        let swapped = self.counts.swapped_pages.load(Relaxed);
        figures.set(Gauge::Swapped, swapped * PAGE as u64);
        let clean = self.counts.clean_pages.load(Relaxed);
        figures.set(Gauge::SwapCached, clean * PAGE as u64);
        figures.set(Gauge::SlotsUsed, swapped + clean);
        figures.set(Gauge::OrigDataSize, stat.orig_data_size);
        figures.set(Gauge::ComprDataSize, stat.compr_data_size);
        figures.set(Gauge::MemUsedTotal, stat.mem_used_total);
        figures.set(Gauge::MemLimit, stat.mem_limit);
        figures.set(Gauge::MemUsedMax, stat.mem_used_max);
        figures.set(Gauge::SamePages, stat.same_pages);
        figures.set(Gauge::PagesCompacted, stat.pages_compacted);
        figures.set(Gauge::HugePages, stat.huge_pages);
        figures.set(Gauge::HugePagesSince, stat.huge_pages_since);
        figures.add(Counter::ReadRetries, self.space.take_read_retries());
        figures.set(Gauge::FileBytes, self.space.file_space().used_slots() * PAGE as u64);
        figures.set(Gauge::Metadata, self.own_bytes() - stat.mem_used_total);
        figures.set(Gauge::Staging, staging_bytes);
        figures.set(Gauge::Resident, size.anonymous);
    }
}

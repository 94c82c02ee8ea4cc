//! What the process counts towards the group's limit.

use crate::engine::Engine;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::{Counter, Gauge};
use folioswap_group::nested::{Bound, WHOLE};
use folioswap_group::segment::Scope;
use folioswap_policy::page_table::PAGE;
use rustix::fd::BorrowedFd;

/// Sizes of the process, in bytes, from `/proc/self/statm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSize {
    /// Address space of private writable mappings and stacks: what can be touched. It grows also when memory that was reserved
    /// without access is made writable, as allocators do, which the size of the whole address space does not tell.
    pub writable: u64,
    /// Resident anonymous memory.
    pub anonymous: u64,
    /// Resident file and shared memory.
    pub shared: u64,
}

/// Parses `/proc/self/statm`: size, resident, shared, text, lib, data, ... in pages.
pub fn parse_statm(text: &[u8]) -> Option<ProcessSize> {
    let mut fields = text.split(|byte| byte.is_ascii_whitespace()).map(decimal);
    let (_size, resident, shared) = (fields.next()??, fields.next()??, fields.next()??);
    let (_text, _lib, data) = (fields.next()??, fields.next()??, fields.next()??);
    let page = PAGE as u64;
    Some(ProcessSize {
        writable: data * page,
        anonymous: resident.saturating_sub(shared) * page,
        shared: shared * page,
    })
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        byte.is_ascii_digit().then(|| value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')))
    })
}

/// Field `number` (from 3 on, as proc_pid_stat(5) counts them) of a `stat` file, found after the name, which may hold anything.
fn stat_field(text: &[u8], number: usize) -> Option<u64> {
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = text[name_end + 1..].trim_ascii().split(|&byte| byte == b' ');
    fields.nth(number - 3).and_then(decimal)
}

/// The minor faults in `/proc/self/stat`.
pub fn minor_faults(text: &[u8]) -> Option<u64> {
    stat_field(text, 10)
}

/// The CPU that a thread ran on last, in its `stat`.
pub fn last_cpu(text: &[u8]) -> Option<u32> {
    stat_field(text, 39).and_then(|cpu| cpu.try_into().ok())
}

/// The number after `name` in a file like `/proc/self/status` or `smaps_rollup` (which says kB), in bytes.
pub fn field_bytes(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let number = line.trim_ascii_start();
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    decimal(&number[..digits]).map(|kilobytes| kilobytes * 1024)
}

/// Opens, reads and closes a small file of `/proc`: for those that are seldom read, since a program may allow itself
/// only a handful of descriptors.
pub fn read_proc_path<'a>(path: &core::ffi::CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    use rustix::fs::{Mode, OFlags};
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => match rustix::io::read(&file, &mut *buffer) {
            Ok(length) => &buffer[..length],
            Err(_) => &[],
        },
        Err(_) => &[],
    }
}

/// Reads a small file of `/proc` from its start.
pub fn read_proc(descriptor: i32, buffer: &mut [u8]) -> &[u8] {
    if descriptor < 0 {
        return &[];
    }
    // SAFETY: the descriptor is in the pager threads' table and stays open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    match rustix::io::pread(descriptor, &mut *buffer, 0) {
        Ok(length) => &buffer[..length],
        Err(_) => &[],
    }
}

/// What relatives may share without its being worth a thought, in bytes.
const SHARED_BYTES_MIN: u64 = 1 << 20;

impl Engine {
    /// The limit that leaves the least room, of those that hold here.
    pub(crate) fn bound(&self) -> Bound {
        self.segment().tightest(self.member())
    }

    /// The least of the limits that hold here, in bytes.
    pub(crate) fn least_limit(&self) -> u64 {
        self.segment().least_limit(self.member())
    }

    /// Has a group that we are in reached its limit?
    pub(crate) fn is_at_limit(&self) -> bool {
        self.bound().is_reached()
    }

    /// What of the process's anonymous memory counts towards the limit: all of it, or all but the engine's own.
    pub(crate) fn charge_of(&self, anonymous: u64) -> u64 {
        match self.segment().scope() {
            Scope::Total => anonymous,
            Scope::Resident => anonymous.saturating_sub(self.own_bytes()),
        }
    }

    /// Resident memory of the engine itself: store and tables.
    pub(crate) fn own_bytes(&self) -> u64 {
        let tables = (self.table.blocks() * size_of::<folioswap_policy::page_table::Block>()) as u64;
        let store = self.space.mm_stat().mem_used_total + self.arena.chunks().waiting_bytes();
        store + self.space.metadata_bytes() + tables + (128 << 10)
    }

    /// Does this process share more than a little of its memory with relatives, its store and what was swapped out before the fork
    /// included? As last measured.
    pub(crate) fn shares_memory(&self) -> bool {
        self.member().sharing.discount() > SHARED_BYTES_MIN
    }

    /// Memory that the devices of a group occupy: the compressed stores of its members, as last published, and plain RAM (of the whole: that of
    /// groups within it is not looked at apart).
    pub(crate) fn stored_by(&self, group: u32) -> u64 {
        let segment = self.segment();
        let in_memory = if group == WHOLE { segment.header.device_bytes.load(Relaxed) } else { 0 };
        self.sum_over(group, Gauge::MemUsedTotal) + in_memory
    }

    /// The sum of a figure over the members of a group, as last published.
    pub(crate) fn sum_over(&self, group: u32, gauge: Gauge) -> u64 {
        self.segment().members_within(group).map(|member| member.figures.gauge(gauge)).sum()
    }

    /// Do the devices of any group that we are in occupy more than this part of its limit (2: half)?
    pub(crate) fn store_exceeds(&self, part: u64) -> bool {
        let segment = self.segment();
        let groups = segment.around(self.member().group.load(Relaxed));
        let mut exceeding =
            groups.filter(|&group| self.stored_by(group) > segment.limit_of(group).load(Relaxed) / part);
        exceeding.next().is_some()
    }

    /// Publishes the store's figures.
    pub(crate) fn publish_gauges(&self, size: ProcessSize, staging_bytes: u64) {
        let (figures, stat) = (self.figures(), self.space.mm_stat());
        let swapped = self.swapped_pages.load(Relaxed);
        figures.set(Gauge::Swapped, swapped * PAGE as u64);
        let clean = self.clean_pages.load(Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_is_pages() {
        let size = parse_statm(b"1000 300 100 5 0 200 0\n").unwrap();
        assert_eq!(size, ProcessSize { writable: 200 * 4096, anonymous: 200 * 4096, shared: 100 * 4096 });
        assert_eq!(parse_statm(b""), None);
        assert_eq!(parse_statm(b"12 x 3"), None);
    }

    #[test]
    fn minor_faults_are_found_after_any_name() {
        assert_eq!(minor_faults(b"12 (a) b) c) S 1 12 12 0 -1 4194304 4711 0 0 0 1 2"), Some(4711));
        assert_eq!(minor_faults(b"12 (cut) S 1"), None);
    }

    #[test]
    fn a_cpu_is_found_after_any_name() {
        let rest = " S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 15 2 3 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0";
        assert_eq!(last_cpu(format!("12 (a) 1 2 (b){rest}\n").as_bytes()), Some(1));
        assert_eq!(last_cpu(b"12 (cut) S 1 2"), None);
    }

    #[test]
    fn fields_are_kilobytes() {
        let text = b"Name:\tx\nRssAnon:\t     123 kB\nRssShmem:\t       4 kB\n";
        assert_eq!(field_bytes(text, b"RssShmem:"), Some(4096));
        assert_eq!(field_bytes(text, b"RssAnon:"), Some(123 << 10));
        assert_eq!(field_bytes(text, b"Pss:"), None);
    }
}

//! Reports of members that memory is used up, and what the supervisor itself sees of it.
//!
//! A member that finds its group at a standstill, or crawling, reports it, and the group ends with
//! one message. Any process of any user can send that report, so a report alone ends nothing. The
//! supervisor ends the group when it has seen the same: for some time in the segment, and then in
//! the kernel's figures, which rise only for a process that takes memory.
//!
//! A report stays open until then, or until a look finds the group below its limit. So nobody can
//! keep a true report from being heard by false ones before it.

use super::{Supervisor, connection::Role, freeze::Frozen, members::After};
use crate::{processes::proc, size};
use folioswap_group::{
    counters::Gauge, decisions::Scope, group::Group, nested::WHOLE, protocol::OutOfMemory, segment::Member,
    sums::saturating_sum,
};
use folioswap_policy::reclaim::{
    crawl::{Crawl, Fill, Patience},
    standstill::swappable_bytes,
};
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// How long each look must have found the group at its limit, and no fault served. Members report
/// after 3 s of it (`standstill.rs` of the policies); our looks begin at another moment.
const STILL: Duration = Duration::from_secs(2);
/// The least time between two readings of the kernel's figures, as long as they contradict the
/// segment.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The contradictions that are told to the user.
const TOLD: u32 = 4;
/// The readings take at most one part in so many of the supervisor's time.
const COST_DIVISOR: u32 = 20;

/// The bytes that the kernel's figures may be below a limit that members have reached: they are of
/// another moment than those that the members have published.
fn slack(limit: u64) -> u64 {
    (limit / 64).max(1 << 20).min(limit / 8)
}

/// A member's report that is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    /// The process.
    pub pid: u32,
    /// Why it cannot keep the limit.
    pub reason: OutOfMemory,
    /// Bytes that it has.
    pub has: u64,
    /// Bytes that it would need.
    pub needed: u64,
}

/// What the looks at the segment have found, and the report that waits for them.
#[derive(Debug)]
pub(super) struct Shortage {
    /// The moment from which the times of the looks are counted.
    epoch: Instant,
    /// Faults that the group had served at the last look.
    served: u64,
    still_since: Option<Instant>,
    crawl: Crawl,
    complaint: Option<Complaint>,
    next_reading: Option<Instant>,
    /// Reports that the kernel's figures have contradicted.
    refuted: u32,
}

impl Shortage {
    /// The state before the first look.
    pub(super) fn new(now: Instant) -> Self {
        Shortage {
            epoch: now,
            served: 0,
            still_since: None,
            crawl: Crawl::new(),
            complaint: None,
            next_reading: None,
            refuted: 0,
        }
    }

    /// Notes a report. One that is open already stays.
    fn report(&mut self, complaint: Complaint) {
        self.complaint.get_or_insert(complaint);
    }

    /// Notes how full the group is, of which all members together have served so many faults. Below
    /// the limit a report is settled: there is memory again.
    fn look(&mut self, fill: Fill, served: u64, now: Instant) {
        if fill == Fill::Below {
            self.begin_anew();
            self.served = served;
            return;
        }
        if served != self.served {
            (self.served, self.still_since) = (served, None);
        }
        self.still_since.get_or_insert(now);
        self.crawl.look(fill, served, self.nanoseconds(now));
    }

    /// Forgets what was seen, and the open report.
    pub(super) fn begin_anew(&mut self) {
        *self = Shortage { refuted: self.refuted, ..Shortage::new(self.epoch) };
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// The open report, if the looks agree with it and the kernel may be asked.
    fn plausible(&self, now: Instant) -> Option<Complaint> {
        let stands_still = self.still_since.is_some_and(|since| now >= since + STILL);
        let agreed = stands_still || self.crawl.exceeds(Patience::SUPERVISOR, self.nanoseconds(now));
        let may_read = self.next_reading.is_none_or(|next| now >= next);
        self.complaint.filter(|_| agreed && may_read)
    }
}

impl Supervisor {
    /// Takes a member's word that it cannot keep the limit, or that its pager has failed.
    pub(super) fn cannot_go_on(&mut self, index: usize, [reason, has, needed]: [u64; 3]) -> After {
        match OutOfMemory::from_number(reason) {
            None => return After::Close,
            Some(OutOfMemory::PagerFailed) => self.pager_failed(index, has as i32),
            Some(reason) => {
                let pid = self.connections[index].pid;
                self.shortage.report(Complaint { pid, reason, has, needed });
            }
        }
        After::Keep
    }

    /// Looks how full the group is, and ends it if a member has reported that memory is used up and
    /// all that we see agrees. A lower limit that is being tried, or a swapoff, is given up first:
    /// it may be what the members lack.
    pub(super) fn tend_shortage(&mut self, now: Instant) {
        if self.frozen.as_ref().is_some_and(Frozen::stands_still) {
            // A frozen group stands still, whatever it has.
            return;
        }
        let served = self.settings.memory.group().faults_served();
        self.shortage.look(self.fill(), served, now);
        let Some(complaint) = self.shortage.plausible(now) else { return };
        let (limit, begun) = (self.settings.bound(), Instant::now());
        let charge = self.charge_by_kernel();
        if charge < limit - slack(limit) {
            let pause = (begun.elapsed() * COST_DIVISOR).max(READ_AGAIN);
            if self.shortage.next_reading.replace(now + pause).is_none() {
                self.refute(complaint, charge);
            }
            return;
        }
        if self.limit_change.is_some() {
            self.give_up_limit();
            self.shortage.begin_anew();
            return;
        }
        if self.swapoff.is_some() {
            self.give_up_swapoff();
            // The members have the device again, and time to use it.
            self.shortage.begin_anew();
            return;
        }
        self.out_of_memory(complaint, charge.max(limit))
    }

    /// Says that a report is not believed, since the group may stand still for what some member
    /// writes into the segment. After a few times the user knows.
    fn refute(&mut self, Complaint { pid, .. }: Complaint, charge: u64) {
        self.shortage.refuted += 1;
        if self.shortage.refuted > TOLD {
            return;
        }
        let (name, has) = (proc::name(pid), size::show(charge));
        let limit = size::show(self.settings.bound());
        self.say(&format!(
            "folioswap: process {pid} ({name}) reports that memory is used up, but all processes together have {has} of \
             {limit}; they go on\n"
        ));
    }

    /// How full the group is, by what its members have measured.
    fn fill(&self) -> Fill {
        let (group, limit) = (self.settings.memory.group(), self.settings.bound());
        let stored = match self.settings.scope {
            Scope::Total => stored_bytes(group).saturating_add(self.clusters.memory_bytes()),
            // There the stored pages are no part of the charge.
            Scope::Resident => 0,
        };
        Fill::of(limit, group.certain_charge_bytes(), swappable_bytes(group, WHOLE), stored)
    }

    /// What stands behind the sum that cannot be swapped out: its parts by the kernel's figures, in
    /// brackets; nothing if they are small.
    pub(super) fn parts_of_unswappable(&self) -> String {
        const SMALL: u64 = 2 << 20;
        let pids: HashSet<u32> = self
            .connections
            .iter()
            .filter(|connection| matches!(connection.role, Role::Member(_)))
            .map(|connection| connection.pid)
            .collect();
        let memories = pids.into_iter().filter_map(proc::memory);
        let parts = match self.settings.scope {
            Scope::Total => [
                ("shared memory", saturating_sum(memories.map(|memory| memory.shared))),
                ("swapped pages, compressed", stored_bytes(self.settings.memory.group())),
                ("memory that is not managed", self.unmanaged),
            ],
            Scope::Resident => [("", 0), ("", 0), ("memory that is not managed", self.unmanaged)],
        };
        let named: Vec<_> = parts
            .into_iter()
            .filter(|&(_, bytes)| bytes >= SMALL)
            .map(|(what, bytes)| format!("{what} {}", size::show(bytes)))
            .collect();
        if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
    }

    /// The charge of the group by the kernel's figures: as the members count it, but from what the
    /// kernel says of each process. Only what a member does not count is taken from the segment.
    fn charge_by_kernel(&self) -> u64 {
        let (group, scope) = (self.settings.memory.group(), self.settings.scope);
        let mut charge = self.unmanaged;
        if scope == Scope::Total {
            charge = charge.saturating_add(self.clusters.memory_bytes());
        }
        let mut seen = HashSet::new();
        for connection in &self.connections {
            let Role::Member(id) = connection.role else { continue };
            let Some(member) = group.segment.member(id).filter(|_| seen.insert(connection.pid)) else {
                continue;
            };
            let Some(memory) = proc::memory(connection.pid) else { continue };
            let counted = match scope {
                Scope::Total => memory.anonymous.saturating_add(memory.shared),
                Scope::Resident => memory.anonymous.saturating_sub(own_bytes(member)),
            };
            charge = charge.saturating_add(counted.saturating_sub(member.sharing.discount()));
        }
        charge
    }
}

/// The memory that the members' stores take, as last published.
fn stored_bytes(group: Group<'_>) -> u64 {
    saturating_sum(group.live_members().map(|member| member.figures.gauge(Gauge::MemUsedTotal)))
}

/// The memory of a member's pager, which scope resident does not count, as last published.
fn own_bytes(member: &Member) -> u64 {
    saturating_sum([Gauge::MemUsedTotal, Gauge::Metadata].map(|gauge| member.figures.gauge(gauge)))
}

#[cfg(test)]
mod tests;

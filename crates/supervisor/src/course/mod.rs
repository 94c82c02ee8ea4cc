//! The course of a run: what members tell of refaults and times, gathered while they live.
//!
//! | file | concept |
//! |---|---|
//! | `mod` | the looks at the members' [`Course`](folioswap_group::moments::Course)s |
//! | `curve` | the miss-ratio curve |
//! | `record` | samples, lives of processes and moments, for `--report` and `--timeline` |
//! | `thrashing` | the one line for a run that hardly does anything but wait for pages |
//!
//! A distance is one of its process's own nonresident age. The curve is about the group, so each
//! distance is stretched by the pages that the whole group evicted while that age went on by one.

pub mod curve;
pub mod record;
pub mod thrashing;

use curve::{Away, Refaulted};
use folioswap_group::{
    counters::{Counter, Figures},
    group::Group,
    moments::LATENCY_BUCKETS,
    refaults::{REFAULT_BUCKETS, refault_bucket_start},
};
use record::{Record, SliceKind};
use std::collections::HashMap;
use thrashing::Thrashing;

/// The gathered course of all members, ended and live.
pub struct Course {
    members: HashMap<u32, Seen>,
    /// Evictions of members that have ended.
    ended_evictions: u64,
    distances: [f64; REFAULT_BUCKETS],
    /// Faults by the time that they took.
    pub latency: [u64; LATENCY_BUCKETS],
    /// The watch for a run that does little but wait.
    pub thrashing: Thrashing,
    /// What only `--report` and `--timeline` want.
    pub record: Option<Record>,
}

/// What was gathered of one live member.
struct Seen {
    pid: u32,
    distances: [u32; REFAULT_BUCKETS],
    latency: [u32; LATENCY_BUCKETS],
    faults: u64,
    batches: u64,
    /// Evictions of the group when it began.
    evictions_before: u64,
}

/// The pages that a member has evicted.
fn evictions(figures: &Figures) -> u64 {
    figures.counter(Counter::PagesOut).saturating_add(figures.counter(Counter::StolenClean))
}

/// The nonresident age that a member has passed.
fn age(figures: &Figures) -> u64 {
    let activations =
        figures.counter(Counter::Activated).saturating_add(figures.counter(Counter::WorkingsetActivate));
    evictions(figures).saturating_add(activations)
}

impl Course {
    /// The course of a run that has had no member.
    pub fn new(record: Option<Record>) -> Self {
        Course {
            members: HashMap::new(),
            ended_evictions: 0,
            distances: [0.0; REFAULT_BUCKETS],
            latency: [0; LATENCY_BUCKETS],
            thrashing: Thrashing::default(),
            record,
        }
    }

    /// A process has become member `id`.
    pub fn began(&mut self, group: Group<'_>, id: u32, pid: u32) {
        let seen = Seen {
            pid,
            distances: [0; REFAULT_BUCKETS],
            latency: [0; LATENCY_BUCKETS],
            faults: 0,
            batches: 0,
            evictions_before: self.evictions(group),
        };
        self.members.insert(id, seen);
        self.record.iter_mut().for_each(|record| record.began(pid));
    }

    /// A member has ended. Must be called before its place is released.
    pub fn ended(&mut self, group: Group<'_>, id: u32) {
        self.look_at(group, id);
        if let (Some(seen), Some(member)) = (self.members.remove(&id), group.segment.member(id)) {
            self.ended_evictions = self.ended_evictions.saturating_add(evictions(&member.figures));
            self.record.iter_mut().for_each(|record| record.ended(seen.pid));
        }
    }

    /// Looks at all members. Must be called now and then: moments are overwritten.
    pub fn look(&mut self, group: Group<'_>) {
        let all: Vec<u32> = self.members.keys().copied().collect();
        all.into_iter().for_each(|id| self.look_at(group, id));
    }

    fn look_at(&mut self, group: Group<'_>, id: u32) {
        let evicted = self.evictions(group);
        let (Some(seen), Some(member)) = (self.members.get_mut(&id), group.segment.member(id)) else {
            return;
        };
        let stretch = match age(&member.figures) {
            0 => 1.0,
            // A member may write any number.
            age => (evicted.saturating_sub(seen.evictions_before) as f64 / age as f64).clamp(1e-3, 1e6),
        };
        let counts = member.course.refaults.counts();
        for (bucket, (now, then)) in counts.iter().zip(&mut seen.distances).enumerate() {
            let new = now.wrapping_sub(*then);
            *then = *now;
            if new > 0 {
                spread(&mut self.distances, bucket, stretch, f64::from(new));
            }
        }
        let counts = member.course.latency.counts();
        for ((now, then), sum) in counts.iter().zip(&mut seen.latency).zip(&mut self.latency) {
            *sum = sum.saturating_add(u64::from(now.wrapping_sub(*then)));
            *then = *now;
        }
        if let Some(record) = &mut self.record {
            let pid = seen.pid;
            let looks = [
                (SliceKind::Fault, &member.course.faults, &mut seen.faults),
                (SliceKind::Batch, &member.course.batches, &mut seen.batches),
            ];
            for (kind, moments, seen) in looks {
                let lost;
                (*seen, lost) = moments.since(*seen, |moment| record.slice(kind, pid, moment));
                record.lost(lost);
            }
        }
    }

    /// The evictions of the group since the beginning.
    fn evictions(&self, group: Group<'_>) -> u64 {
        let live = self.members.keys().filter_map(|&id| group.segment.member(id));
        live.map(|member| evictions(&member.figures)).fold(self.ended_evictions, u64::saturating_add)
    }

    /// What the run shows of its refaults so far.
    pub fn refaulted(&self, group: Group<'_>, pages_in: u64, away: Away, limit: u64) -> Refaulted {
        Refaulted { distances: self.distances, evictions: self.evictions(group), pages_in, away, limit }
    }
}

/// Adds `count` refaults of `bucket`, with distances `stretch` times as long.
fn spread(distances: &mut [f64; REFAULT_BUCKETS], bucket: usize, stretch: f64, count: f64) {
    let (start, end) = (refault_bucket_start(bucket) as f64, refault_bucket_start(bucket + 1) as f64);
    let (start, end) = (start * stretch, end * stretch);
    for (target, sum) in distances.iter_mut().enumerate() {
        let (low, high) = (refault_bucket_start(target) as f64, refault_bucket_start(target + 1) as f64);
        let high = if target + 1 == REFAULT_BUCKETS { f64::INFINITY } else { high };
        let part = (end.min(high) - start.max(low)).max(0.0) / (end - start);
        *sum += count * part;
    }
}

#[cfg(test)]
mod tests;

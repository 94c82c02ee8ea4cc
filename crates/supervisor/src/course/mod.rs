//! The course of a run: what members tell of refaults and times, gathered while they live.
//!
//! | file | concept |
//! |---|---|
//! | `mod` | the looks at the members' [`Course`](folioswap_group::moments::Course)s |
//! | `curve` | the miss-ratio curve |
//! | `stack` | the pages that are away, by when they left |
//! | `pace` | the group's evictions while one member's age goes on |
//! | `record` | samples, lives of processes and moments, for `--report` and `--timeline` |
//! | `thrashing` | the one line for a run that hardly does anything but wait for pages |

pub mod curve;
mod pace;
pub mod record;
mod stack;
pub mod thrashing;

use curve::{Away, Came, Gathered, Refaulted};
use folioswap_group::{
    counters::{Counter, Figures},
    group::Group,
    moments::LATENCY_BUCKETS,
    refaults::{REFAULT_BUCKETS, refault_bucket_start},
};
use pace::Pace;
use record::{Record, SliceKind};
use std::collections::HashMap;
use thrashing::Thrashing;

/// The gathered course of all members, ended and live.
pub struct Course {
    members: HashMap<u32, Seen>,
    /// Evictions of members that have ended.
    ended_evictions: u64,
    /// Evictions of the group at the last look.
    evictions_seen: u64,
    distances: [u64; REFAULT_BUCKETS],
    /// What came back since the last look at the curve.
    came: Vec<Came>,
    curve: Gathered,
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
    pace: Pace,
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
            evictions_seen: 0,
            distances: [0; REFAULT_BUCKETS],
            came: Vec::new(),
            curve: Gathered::default(),
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
            pace: Pace::new(self.evictions(group) as f64),
        };
        self.members.insert(id, seen);
        self.record.iter_mut().for_each(|record| record.began(pid));
    }

    /// A member has ended. Must be called before its place is released.
    pub fn ended(&mut self, group: Group<'_>, id: u32) {
        self.look_at(group, id, self.evictions(group));
        if let (Some(seen), Some(member)) = (self.members.remove(&id), group.segment.member(id)) {
            self.ended_evictions = self.ended_evictions.saturating_add(evictions(&member.figures));
            self.record.iter_mut().for_each(|record| record.ended(seen.pid));
        }
    }

    /// Looks at all members; `away` is away now, within `limit`. Must be called often: moments are
    /// overwritten, and what comes back is judged by what is away at the next look.
    pub fn look(&mut self, group: Group<'_>, away: Away, limit: u64) {
        let all: Vec<u32> = self.members.keys().copied().collect();
        let evictions = self.evictions(group);
        all.into_iter().for_each(|id| self.look_at(group, id, evictions));
        let left = evictions.saturating_sub(self.evictions_seen);
        self.evictions_seen = self.evictions_seen.max(evictions);
        self.curve.look(left, &self.came, away, limit);
        self.came.clear();
    }

    /// Looks at a member of a group that has evicted so many pages.
    fn look_at(&mut self, group: Group<'_>, id: u32, evicted: u64) {
        let (Some(seen), Some(member)) = (self.members.get_mut(&id), group.segment.member(id)) else {
            return;
        };
        let before = seen.pace.age();
        seen.pace.note(age(&member.figures) as f64, evicted as f64);
        // Pages came back all the time since the last look.
        let now_age = (before + seen.pace.age()) / 2.0;
        let counts = member.course.refaults.counts();
        for (bucket, (now, then)) in counts.iter().zip(&mut seen.distances).enumerate() {
            let new = now.wrapping_sub(*then);
            *then = *now;
            if new > 0 {
                self.distances[bucket] += u64::from(new);
                let moment = |distance: u64| seen.pace.evictions_at(now_age - distance as f64);
                let (from, to) =
                    (moment(refault_bucket_start(bucket + 1)), moment(refault_bucket_start(bucket)));
                self.came.push(Came { from, to, pages: f64::from(new) });
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

    /// What the run shows of its refaults so far, of which so many pages were read.
    pub fn refaulted(&self, group: Group<'_>, pages_in: u64) -> Refaulted {
        let needed = self.curve.needed.clone();
        Refaulted { distances: self.distances, evictions: self.evictions(group), pages_in, needed }
    }
}

//! Fits the parameters of a build to a trace.
//!
//! | Parameter | From the trace |
//! |---|---|
//! | `cpus` | the header |
//! | `order_weights` | allocations and fallbacks by order, without the pages of split folios |
//! | `task_pages_median`, `task_pages_sigma` | slots of the bursts of frees (see below) |
//! | `tasks` | number of these bursts |
//! | `jobs` | most logical CPUs that allocated within one span of 1/100 of the trace |
//! | `order0_odds_sigma` | how much the members' parts of order 0 differ (see below) |
//! | `cold_touches_per_step` | frees outside of bursts (folios that came back) per allocation |
//!
//! A burst of frees is 64 slots and more without an allocation between them: a task that ends. Only
//! memory that was swapped out shows, so a burst is a lower bound of a task's memory.
//!
//! `order0_odds_sigma` is weighted by pages and taken over the members with 256 pages and more, if
//! there are three.
//!
//! `returns_per_allocation` and `pages_per_return` are for calibration: they count how often
//! something came back, however many pages it was. The model makes them of `cold_touches_per_step`,
//! `touch_run_pages`, `work_steps_per_folio` and the limit. The limit, the files and the read-only
//! part are not in a trace of slots; they have the defaults.

use crate::build::{BuildParameters, Sizes};
use crate::traces::Trace;
use folioswap_report::statistics::Summary;
use folioswap_trace::{Event, Header, Record};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Frees of one CPU and member belong to one burst when they are no further apart than this and no
/// allocation lies between them.
const BURST_GAP_NS: u64 = 1_000_000;
/// The least slots of a burst that is taken for the end of a task.
const BURST_SLOTS_MIN: u64 = 64;

/// The least pages of a member whose mix of orders counts.
const MIX_PAGES_MIN: f64 = 256.0;

/// Observed figures, and the parameters that follow from them.
#[derive(Debug, Clone, Serialize)]
pub struct Fit {
    /// Allocations, fallbacks included.
    pub allocations: u64,
    /// Length of the trace, seconds.
    pub seconds: f64,
    /// Peak of the slots held at a time.
    pub slots_peak: u64,
    /// Bursts that are taken for ends of tasks.
    pub bursts: u64,
    /// Slots freed in such bursts.
    pub slots_in_bursts: u64,
    /// Slots freed otherwise.
    pub slots_singly: u64,
    /// Returns of neighbouring slots to memory, per allocation.
    pub returns_per_allocation: f64,
    /// Slots of such a return.
    pub pages_per_return: f64,
    /// The fitted parameters.
    pub parameters: BuildParameters,
}

/// Derives the parameters that the trace shows; the others have the defaults.
pub fn fit(trace: &Trace) -> Fit {
    let last = trace.records.iter().map(|record| record.tick).max().unwrap_or(0);
    let mut observed = Observed::new((last / 100).max(1));
    for record in &trace.records {
        observed.add(record, trace.header.tick_ns);
    }
    observed.finish(trace.header, last)
}

/// The counts that are taken while the records go by.
struct Observed {
    /// The member of the current records.
    member: u32,
    allocations: u64,
    /// Allocations and fallbacks by order.
    weights: [f64; 10],
    /// Allocations of order 0 that still belong to a split folio, by member and CPU.
    split_pages: HashMap<(u32, u16), u64>,
    bursts: Bursts,
    returns: Returns,
    /// Slots held, by member.
    held: HashMap<u32, i64>,
    /// Pages allocated with order 0 and above, by member.
    mixes: HashMap<u32, [f64; 2]>,
    slots: i64,
    slots_peak: i64,
    /// Ticks of a span.
    span: u64,
    /// Members and CPUs that allocated, by span.
    busy: HashMap<u64, HashSet<(u32, u16)>>,
}

impl Observed {
    fn new(span: u64) -> Observed {
        Observed {
            member: 0,
            allocations: 0,
            weights: [0.0; 10],
            split_pages: HashMap::new(),
            bursts: Bursts::default(),
            returns: Returns::default(),
            held: HashMap::new(),
            mixes: HashMap::new(),
            slots: 0,
            slots_peak: 0,
            span,
            busy: HashMap::new(),
        }
    }

    fn add(&mut self, record: &Record, tick_ns: u32) {
        let time = record.tick * u64::from(tick_ns);
        let member = self.member;
        let mut change = 0i64;
        match record.event {
            Event::Member { member } => self.member = member,
            Event::End { member } => {
                change = -self.held.remove(&member).unwrap_or(0);
                self.bursts.end((member, u16::MAX), time, change.unsigned_abs());
            }
            Event::Alloc { cpu, order, .. } => {
                change = 1 << order;
                self.allocated(cpu, order);
                self.busy.entry(record.tick / self.span).or_default().insert((member, cpu));
            }
            Event::Fallback { cpu, order } => {
                self.allocations += 1;
                self.weights[usize::from(order)] += 1.0;
                self.split_pages.insert((member, cpu), 1 << order);
            }
            Event::Free { cpu, slots, entry } => {
                change = -i64::from(slots);
                self.bursts.add((member, cpu), time, u64::from(slots));
                self.returns.add(member, time, entry, u64::from(slots));
            }
            // The slots that a fork shares are counted for the parent alone.
            Event::Retain { .. } | Event::Reuse { .. } | Event::Fork { .. } => {}
        }
        if !matches!(record.event, Event::End { .. }) {
            *self.held.entry(self.member).or_default() += change;
        }
        self.slots += change;
        self.slots_peak = self.slots_peak.max(self.slots);
    }

    fn allocated(&mut self, cpu: u16, order: u8) {
        let source = (self.member, cpu);
        self.bursts.interrupt(source);
        let pages = self.mixes.entry(self.member).or_default();
        pages[usize::from(order > 0)] += f64::from(1u32 << order);
        let split = self.split_pages.entry(source).or_default();
        if order == 0 && *split > 0 {
            *split -= 1;
        } else {
            self.allocations += 1;
            self.weights[usize::from(order)] += 1.0;
        }
    }

    /// `last` is the trace's last tick.
    fn finish(mut self, header: Header, last: u64) -> Fit {
        self.bursts.finish();
        let (returns, slots_returned) = self.returns.finish();
        let defaults = BuildParameters::published(Sizes::Only64k);
        let ends = self.bursts.ends();
        let logarithms: Vec<f64> = ends.iter().map(|slots| (*slots as f64).ln()).collect();
        let median = ends.get(ends.len() / 2).map_or(defaults.task_pages_median, |slots| *slots as f64);
        let sigma = Summary::of(&logarithms).deviation;
        let in_bursts: u64 = ends.iter().sum();
        let freed: u64 = self.bursts.large.iter().sum::<u64>() + self.bursts.small_slots;
        let jobs = self.busy.values().map(HashSet::len).max().unwrap_or(1).max(1) as u32;
        let allocations = self.allocations.max(1) as f64;
        Fit {
            allocations: self.allocations,
            seconds: (last * u64::from(header.tick_ns)) as f64 / 1e9,
            slots_peak: self.slots_peak.max(0) as u64,
            bursts: ends.len() as u64,
            slots_in_bursts: in_bursts,
            slots_singly: freed - in_bursts,
            returns_per_allocation: returns as f64 / allocations,
            pages_per_return: slots_returned as f64 / returns.max(1) as f64,
            parameters: BuildParameters {
                cpus: header.cpus,
                jobs,
                tasks: (ends.len() as u32).max(jobs),
                task_pages_median: median,
                task_pages_sigma: sigma.min(3.0),
                order_weights: self.weights,
                order0_odds_sigma: order0_odds_sigma(&self.mixes).unwrap_or(defaults.order0_odds_sigma),
                cold_touches_per_step: (self.bursts.small as f64 / allocations).min(1e3),
                ..defaults
            },
        }
    }
}

/// Standard deviation of the logarithm of the members' odds of order 0, weighted by pages. `mixes`
/// has the pages of order 0 and above of each member.
fn order0_odds_sigma(mixes: &HashMap<u32, [f64; 2]>) -> Option<f64> {
    let mut odds: Vec<(f64, f64)> = mixes
        .values()
        .map(|[small, large]| ((small + 1.0).ln() - (large + 1.0).ln(), small + large))
        .filter(|(_, pages)| *pages >= MIX_PAGES_MIN)
        .collect();
    // The odds come from a hash table, and the sums below must not depend on its order.
    odds.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let pages: f64 = odds.iter().map(|(_, pages)| pages).sum();
    let mean = odds.iter().map(|(odds, pages)| odds * pages).sum::<f64>() / pages;
    let squares: f64 = odds.iter().map(|(odds, pages)| (odds - mean).powi(2) * pages).sum();
    (odds.len() >= 3).then(|| (squares / pages).sqrt().min(3.0))
}

/// Frees of neighbouring slots of one member in a row: a folio or a readahead that came back.
#[derive(Default)]
struct Returns {
    /// Returns that may go on, by member.
    open: HashMap<u32, Return>,
    count: u64,
    slots: u64,
}

/// A return of neighbouring slots that may go on.
struct Return {
    last_ns: u64,
    /// The entry that would continue the return.
    next: u64,
    slots: u64,
}

impl Returns {
    fn add(&mut self, member: u32, time: u64, entry: u64, slots: u64) {
        if let Some(open) = self.open.get_mut(&member)
            && time.saturating_sub(open.last_ns) <= BURST_GAP_NS
            && open.next == entry
        {
            *open = Return { last_ns: time, next: entry + slots, slots: open.slots + slots };
        } else if let Some(ended) =
            self.open.insert(member, Return { last_ns: time, next: entry + slots, slots })
        {
            self.close(ended.slots);
        }
    }

    /// Longer runs are freed for good, not brought back.
    fn close(&mut self, slots: u64) {
        if slots < BURST_SLOTS_MIN {
            self.count += 1;
            self.slots += slots;
        }
    }

    fn finish(mut self) -> (u64, u64) {
        let open: Vec<u64> = self.open.drain().map(|(_, open)| open.slots).collect();
        open.into_iter().for_each(|slots| self.close(slots));
        (self.count, self.slots)
    }
}

#[derive(Default)]
struct Bursts {
    open: HashMap<(u32, u16), Burst>,
    large: Vec<u64>,
    small: u64,
    small_slots: u64,
}

#[derive(Clone, Copy)]
struct Burst {
    last_ns: u64,
    slots: u64,
    frees: u64,
}

impl Bursts {
    fn add(&mut self, source: (u32, u16), time: u64, slots: u64) {
        let burst = self.open.entry(source).or_insert(Burst { last_ns: time, slots: 0, frees: 0 });
        let before = *burst;
        if time.saturating_sub(burst.last_ns) > BURST_GAP_NS {
            *burst = Burst { last_ns: time, slots, frees: 1 };
            self.close(before);
        } else {
            *burst = Burst { last_ns: time, slots: before.slots + slots, frees: before.frees + 1 };
        }
    }

    /// An allocation ends a burst: its source is at work, and memory that comes back to it sends
    /// other memory out.
    fn interrupt(&mut self, source: (u32, u16)) {
        if let Some(burst) = self.open.remove(&source) {
            self.close(burst);
        }
    }

    fn end(&mut self, source: (u32, u16), time: u64, slots: u64) {
        if slots > 0 {
            self.add(source, time, slots);
        }
        if let Some(burst) = self.open.remove(&source) {
            self.close(burst);
        }
    }

    fn close(&mut self, burst: Burst) {
        if burst.slots >= BURST_SLOTS_MIN {
            self.large.push(burst.slots);
        } else {
            self.small += burst.frees;
            self.small_slots += burst.slots;
        }
    }

    /// Sizes of the bursts that end a task, ascending. The typical burst is the one for which half
    /// of all slots in bursts lie in bursts of its size and more. Bursts down to an eighth of it
    /// count; smaller ones are pages that came back while there was room.
    fn ends(&self) -> Vec<u64> {
        let mut sorted = self.large.clone();
        sorted.sort_unstable();
        let half = sorted.iter().sum::<u64>() / 2;
        let mut sum = 0;
        let typical = sorted.iter().rev().find(|slots| {
            sum += **slots;
            sum >= half
        });
        let least = typical.copied().unwrap_or(0) / 8;
        sorted.retain(|slots| *slots >= least);
        sorted
    }

    fn finish(&mut self) {
        let open: Vec<Burst> = self.open.drain().map(|(_, burst)| burst).collect();
        open.into_iter().for_each(|burst| self.close(burst));
    }
}

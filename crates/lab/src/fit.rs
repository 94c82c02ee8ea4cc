//! What a trace says of the parameters of a build.
//!
//! | Parameter | From the trace |
//! |---|---|
//! | `cpus` | the header |
//! | `order_weights` | allocations and fallbacks of each order, without the order-0 allocations of split folios |
//! | `task_pages_median`, `task_pages_sigma` | slots of the bursts of frees, of 64 slots and more without an allocation between them: a task that ends. Only what was swapped out shows, so this is a lower bound of a task's memory |
//! | `tasks`, `jobs` | number of such bursts; most logical CPUs that allocated within one span of 1/100 of the trace |
//! | `order0_odds_sigma` | how much the members differ in their part of pages of order 0 (weighted by pages; of those with 256 pages and more, if there are three) |
//! | `cold_touches_per_step` | frees outside of bursts (folios that came back) per allocation |
//!
//! `returns_per_allocation` and `pages_per_return` are for calibration: how often something came back, however many pages it was, which the model makes of
//! the last one, `touch_run_pages`, `work_steps_per_folio` and the limit.
//! The limit, the files and what is read only are not in a trace of slots: they are taken over from the defaults.

use crate::build::{BuildParameters, Sizes};
use crate::traces::{Trace, cpu_of};
use folioswap_trace::Event;
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Frees of one CPU and member that are no further apart than this, with no allocation between them, belong to one burst.
const BURST_GAP_NS: u64 = 1_000_000;
/// Slots from which on a burst is taken for the end of a task.
const BURST_SLOTS_MIN: u64 = 64;

/// Pages from which on a member's mix of orders counts.
const MIX_PAGES_MIN: f64 = 256.0;

/// What was observed, and the parameters that follow.
#[derive(Debug, Clone, Serialize)]
pub struct Fit {
    /// Allocations, fallbacks included.
    pub allocations: u64,
    /// Length of the trace, seconds.
    pub seconds: f64,
    /// Most slots held at a time.
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
    /// What follows.
    pub parameters: BuildParameters,
}

/// Derives what can be derived.
pub fn fit(trace: &Trace) -> Fit {
    let mut weights = [0.0; 10];
    let mut split_pages: HashMap<(u32, u16), u64> = HashMap::new();
    let mut bursts = Bursts::default();
    let mut held: HashMap<u32, i64> = HashMap::new();
    let mut mixes: HashMap<u32, [f64; 2]> = HashMap::new();
    let mut returns = Returns::default();
    let (mut total, mut peak, mut allocations) = (0i64, 0i64, 0u64);
    let mut member = 0;
    let last = trace.records.iter().map(|record| record.tick).max().unwrap_or(0);
    let span = (last / 100).max(1);
    let mut busy: HashMap<u64, HashSet<(u32, u16)>> = HashMap::new();
    for record in &trace.records {
        let time = record.tick * u64::from(trace.header.tick_ns);
        let mut change = 0i64;
        match record.event {
            Event::Member { member: number } => member = number,
            Event::End { member: number } => {
                change = -held.remove(&number).unwrap_or(0);
                bursts.end((number, u16::MAX), time, change.unsigned_abs());
            }
            Event::Alloc { cpu, order, .. } => {
                change = 1 << order;
                bursts.interrupt((member, cpu));
                let pages = mixes.entry(member).or_default();
                pages[usize::from(order > 0)] += f64::from(1u32 << order);
                let split = split_pages.entry((member, cpu)).or_default();
                if order == 0 && *split > 0 {
                    *split -= 1;
                } else {
                    allocations += 1;
                    weights[usize::from(order)] += 1.0;
                }
            }
            Event::Fallback { cpu, order } => {
                allocations += 1;
                weights[usize::from(order)] += 1.0;
                split_pages.insert((member, cpu), 1 << order);
            }
            Event::Free { cpu, slots, entry } => {
                change = -i64::from(slots);
                bursts.add((member, cpu), time, u64::from(slots));
                returns.add(member, time, entry, u64::from(slots));
            }
            // What a fork shares is counted for its parent alone.
            Event::Retain { .. } | Event::Reuse { .. } | Event::Fork { .. } => {}
        }
        if matches!(record.event, Event::Alloc { .. })
            && let Some(cpu) = cpu_of(&record.event)
        {
            busy.entry(record.tick / span).or_default().insert((member, cpu));
        }
        if !matches!(record.event, Event::End { .. }) {
            *held.entry(member).or_default() += change;
        }
        total += change;
        peak = peak.max(total);
    }
    bursts.finish();
    let (returns, slots_returned) = returns.finish();
    let defaults = BuildParameters::published(Sizes::Only64k);
    let ends = bursts.ends();
    let logarithms: Vec<f64> = ends.iter().map(|slots| (*slots as f64).ln()).collect();
    let median = ends.get(ends.len() / 2).map_or(defaults.task_pages_median, |slots| *slots as f64);
    let sigma = folioswap_report::statistics::Summary::of(&logarithms).deviation;
    let in_bursts: u64 = ends.iter().sum();
    let freed: u64 = bursts.large.iter().sum::<u64>() + bursts.small_slots;
    let jobs = busy.values().map(HashSet::len).max().unwrap_or(1).max(1) as u32;
    Fit {
        allocations,
        seconds: (last * u64::from(trace.header.tick_ns)) as f64 / 1e9,
        slots_peak: peak.max(0) as u64,
        bursts: ends.len() as u64,
        slots_in_bursts: in_bursts,
        slots_singly: freed - in_bursts,
        returns_per_allocation: returns as f64 / allocations.max(1) as f64,
        pages_per_return: slots_returned as f64 / returns.max(1) as f64,
        parameters: BuildParameters {
            cpus: trace.header.cpus,
            jobs,
            tasks: (ends.len() as u32).max(jobs),
            task_pages_median: median,
            task_pages_sigma: sigma.min(3.0),
            order_weights: weights,
            order0_odds_sigma: order0_odds_sigma(&mixes).unwrap_or(defaults.order0_odds_sigma),
            cold_touches_per_step: (bursts.small as f64 / allocations.max(1) as f64).min(1e3),
            ..defaults
        },
    }
}

/// Of pages of order 0 and above, by member.
fn order0_odds_sigma(mixes: &HashMap<u32, [f64; 2]>) -> Option<f64> {
    let mut odds: Vec<(f64, f64)> = mixes
        .values()
        .map(|[small, large]| ((small + 1.0).ln() - (large + 1.0).ln(), small + large))
        .filter(|(_, pages)| *pages >= MIX_PAGES_MIN)
        .collect();
    // The sums below must not depend on the order of a hash table.
    odds.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let pages: f64 = odds.iter().map(|(_, pages)| pages).sum();
    let mean = odds.iter().map(|(odds, pages)| odds * pages).sum::<f64>() / pages;
    let squares: f64 = odds.iter().map(|(odds, pages)| (odds - mean).powi(2) * pages).sum();
    (odds.len() >= 3).then(|| (squares / pages).sqrt().min(3.0))
}

/// Frees of neighbouring slots of one member, one after the other: something that came back.
#[derive(Default)]
struct Returns {
    /// By member: time, the next slot, slots so far.
    open: HashMap<u32, (u64, u64, u64)>,
    count: u64,
    slots: u64,
}

impl Returns {
    fn add(&mut self, member: u32, time: u64, entry: u64, slots: u64) {
        if let Some((last, next, sum)) = self.open.get_mut(&member)
            && time.saturating_sub(*last) <= BURST_GAP_NS
            && *next == entry
        {
            (*last, *next, *sum) = (time, entry + slots, *sum + slots);
        } else if let Some((_, _, sum)) = self.open.insert(member, (time, entry + slots, slots)) {
            self.close(sum);
        }
    }

    /// Longer runs are given up, not brought back.
    fn close(&mut self, slots: u64) {
        if slots < BURST_SLOTS_MIN {
            self.count += 1;
            self.slots += slots;
        }
    }

    fn finish(mut self) -> (u64, u64) {
        let open: Vec<u64> = self.open.drain().map(|(_, (_, _, slots))| slots).collect();
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
    fn add(&mut self, who: (u32, u16), time: u64, slots: u64) {
        let burst = self.open.entry(who).or_insert(Burst { last_ns: time, slots: 0, frees: 0 });
        let before = *burst;
        if time.saturating_sub(burst.last_ns) > BURST_GAP_NS {
            *burst = Burst { last_ns: time, slots, frees: 1 };
            self.close(before);
        } else {
            *burst = Burst { last_ns: time, slots: before.slots + slots, frees: before.frees + 1 };
        }
    }

    /// Who allocates is at work: what comes back to it sends something else out.
    fn interrupt(&mut self, who: (u32, u16)) {
        if let Some(burst) = self.open.remove(&who) {
            self.close(burst);
        }
    }

    fn end(&mut self, who: (u32, u16), time: u64, slots: u64) {
        if slots > 0 {
            self.add(who, time, slots);
        }
        if let Some(burst) = self.open.remove(&who) {
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

    /// Bursts that end a task, ascending: half of all slots in bursts lie in bursts of some size and more; all down to an eighth of it count.
    /// (Smaller ones are pages that came back while there was room.)
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

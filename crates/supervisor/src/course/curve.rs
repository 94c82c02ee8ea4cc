//! The miss-ratio curve of a run: how many pages would have come back within a larger limit.
//!
//! Under LRU a larger memory holds what a smaller one holds, and besides the pages that left it
//! last (Mattson's inclusion). So a page that comes back would have stayed within a memory that is
//! larger by the pages that left after it and are still away. Their number is its stack distance;
//! `Stack` has it at each moment of the run. It is less than the refault distance, which counts
//! every eviction meanwhile, those of pages that have come back or were given up too.
//!
//! Each refault is counted at the limit that it would have needed, which is found from the sizes at
//! that moment: so phases of a program, and limits that change, each speak for themselves. In scope
//! total memory that is not needed for the store is there for pages that stay (`Away::limit`).
//! Nothing is known of limits below that of the run, where pages would leave that did not.

use super::stack::Stack;
use folioswap_group::{refaults::REFAULT_BUCKETS, units::PAGE_SIZE};

/// Bytes of a page.
const PAGE: f64 = PAGE_SIZE as f64;
/// The limits of the table, in percent of that of the run.
const PERCENT: [u64; 10] = [100, 112, 125, 150, 175, 200, 250, 300, 400, 600];
/// The part of the pages that came back with which a program is said to run well.
const WELL: f64 = 0.02;
/// Limits that are told apart within a power of two.
const STEPS: f64 = 64.0;
/// Powers of two that are told apart: limits from 64 KiB to 64 TiB.
const POWERS: (f64, f64) = (16.0, 46.0);

/// What is away at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Away {
    /// Memory of the programs that is away, and not in staging.
    pub out: u64,
    /// Pages in the compressed store, uncompressed.
    pub stored: u64,
    /// What the store takes of the limit for them; 0 where it does not count.
    pub taken: u64,
    /// Pages on devices below.
    pub below: u64,
}

impl Away {
    /// Bytes of all that devices hold, uncompressed.
    fn all(&self) -> f64 {
        self.stored as f64 + self.below as f64
    }

    /// The limit within which `more` bytes of pages would stay, beyond those that stay within
    /// `limit`.
    fn limit(&self, limit: f64, more: f64) -> f64 {
        if self.taken == 0 || self.stored == 0 {
            return limit + more;
        }
        let taken = (self.taken as f64).min(limit * 0.9);
        let resident = limit - taken + more;
        // The part of a page's size that it takes in the store.
        let part = (self.taken as f64 / self.stored as f64).min(0.97);
        let store = part * (self.all() - more).max(0.0);
        // As long as something is below, the store keeps its share of the limit.
        let shared = resident / (1.0 - taken / limit);
        if self.below > 0 && store > shared - resident { shared } else { resident + store }
    }
}

/// Pages that came back, and had left between two moments, counted in evictions of the group.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// The earlier moment.
    pub from: f64,
    /// The later moment.
    pub to: f64,
    /// The pages.
    pub pages: f64,
}

/// Pages that came back, by the limit within which they would have stayed.
#[derive(Clone, Debug)]
pub struct Needed {
    pages: Vec<f64>,
    /// The highest limit within which pages left: nothing is known of lower ones.
    from: u64,
}

impl Default for Needed {
    fn default() -> Self {
        Needed { pages: vec![0.0; ((POWERS.1 - POWERS.0) * STEPS) as usize], from: 0 }
    }
}

impl Needed {
    /// Where a limit in bytes lies among the steps.
    fn place(&self, limit: f64) -> f64 {
        ((limit.max(1.0).log2() - POWERS.0) * STEPS).clamp(0.0, self.pages.len() as f64 - 1e-6)
    }

    /// Adds pages that need limits between two, spread evenly over them.
    fn add(&mut self, low: f64, high: f64, pages: f64) {
        let (low, high) = (self.place(low), self.place(high));
        let width = high - low;
        if width < 1e-3 {
            self.pages[low as usize] += pages;
            return;
        }
        for step in low as usize..=high as usize {
            let part = (high.min(step as f64 + 1.0) - low.max(step as f64)).max(0.0) / width;
            self.pages[step] += pages * part;
        }
    }

    fn all(&self) -> f64 {
        self.pages.iter().sum()
    }

    /// The part of the pages that would come back within a limit.
    fn part(&self, limit: f64) -> f64 {
        let place = self.place(limit);
        let step = place as usize;
        let above: f64 = self.pages[step + 1..].iter().sum();
        (above + self.pages[step] * (step as f64 + 1.0 - place)) / self.all()
    }
}

/// The curve while it is gathered.
#[derive(Debug, Default)]
pub struct Gathered {
    /// What is away.
    pub stack: Stack,
    /// What it would have needed.
    pub needed: Needed,
}

impl Gathered {
    /// So many pages left since the last look, and these came back; that is away now, within that
    /// limit.
    pub fn look(&mut self, left: u64, came: &[Came], away: Away, limit: u64) {
        if left == 0 && came.is_empty() {
            return;
        }
        if left > 0 {
            self.needed.from = self.needed.from.max(limit);
        }
        // Pages came back all the time meanwhile: they saw half of what left.
        let half = left as f64 / 2.0;
        self.stack.left(half);
        let above = self.stack.above();
        for came in came {
            let within = |moment: f64| {
                let more = self.stack.younger(&above, moment) * PAGE;
                away.limit(limit as f64, more)
            };
            let (low, high) = (within(came.to), within(came.from));
            self.needed.add(low.min(high), low.max(high), came.pages);
        }
        came.iter().for_each(|came| self.stack.came(came.from, came.to, came.pages));
        self.stack.left(half);
        self.stack.settle(away.out as f64 / PAGE);
    }
}

/// What a run shows of its refaults.
#[derive(Clone, Debug)]
pub struct Refaulted {
    /// The pages that came back, by distance in evictions of their process.
    pub distances: [u64; REFAULT_BUCKETS],
    /// The pages that were evicted.
    pub evictions: u64,
    /// The pages that were read back.
    pub pages_in: u64,
    /// The limits that they would have needed.
    pub needed: Needed,
}

/// One point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// A limit in bytes.
    pub limit_bytes: u64,
    /// The pages that would have been read back within it.
    pub pages_in: u64,
}

impl Refaulted {
    /// The least limit of which something is known, in bytes: that of the run, or the highest of
    /// them where it was changed.
    pub fn known_from(&self) -> u64 {
        self.needed.from
    }

    /// The pages that would have been read back within a limit of so many bytes; `None` below the
    /// limit of the run, or when nothing came back.
    pub fn pages_in(&self, limit: u64) -> Option<u64> {
        if limit < self.needed.from || self.needed.all() < 1.0 {
            return None;
        }
        // What the run needs within its own limit is what was measured, if it was one limit.
        let least = self.needed.pages.iter().position(|pages| *pages > 0.0)?;
        let part = if self.needed.place(limit as f64) as usize <= least {
            1.0
        } else {
            self.needed.part(limit as f64)
        };
        Some((part * self.pages_in as f64).round() as u64)
    }

    /// The curve at the limits of the table, up to the first at which nothing comes back.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for percent in PERCENT {
            let limit_bytes = (u128::from(self.needed.from) * u128::from(percent) / 100) as u64;
            let Some(pages_in) = self.pages_in(limit_bytes) else { break };
            points.push(Point { limit_bytes, pages_in });
            if pages_in == 0 {
                break;
            }
        }
        points
    }

    /// The least limit, in bytes, within which all but `WELL` of the pages would have stayed;
    /// `None` when nothing came back.
    pub fn runs_well(&self) -> Option<u64> {
        let all = self.needed.all();
        if all < 1.0 {
            return None;
        }
        let (mut above, mut step) = (0.0, self.needed.pages.len());
        while step > 0 && above + self.needed.pages[step - 1] <= all * WELL {
            step -= 1;
            above += self.needed.pages[step];
        }
        // Within the step that exceeds it, on the line.
        let pages = step.checked_sub(1).map_or(0.0, |step| self.needed.pages[step]);
        let way = if pages > 0.0 { (all * WELL - above) / pages } else { 0.0 };
        let limit = ((step as f64 - way) / STEPS + POWERS.0).exp2() as u64;
        Some(limit.max(self.needed.from))
    }
}

#[cfg(test)]
mod tests;

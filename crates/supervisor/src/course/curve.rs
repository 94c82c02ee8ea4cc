//! The miss-ratio curve of a run: how many pages would have come back within a larger limit.
//!
//! While a page is away others leave; how many is its refault distance. A page that had stayed for
//! `d` more evictions would have been found by a refault of distance `d` or less. So if every page
//! stayed for `tau` evictions more, the pages that still come back are those of a longer distance,
//! and the memory that this takes is the number of pages that are away for less than `tau`
//! (Denning's relation between the working-set size and the missing-page rate, with time measured
//! in evictions):
//!
//! ```text
//!   away(t)     = part of the evicted pages that are wanted again, and not within t evictions
//!   memory(tau) = integral from 0 to tau of away(t) dt, and what is never wanted again
//!   come back   = refaults with a distance above tau
//! ```
//!
//! Distances alone would be wrong where a page leaves more than once while another is away: the
//! same page counts twice among the evictions, but takes memory once. For pages touched at random
//! the relation is exact: what comes back falls in proportion to the memory that is missing.
//!
//! A run ends while pages are away. As many as the integral says would have come back later; the
//! rest of them is dead, and a dead page takes memory for `tau` evictions for nothing. More memory
//! than for all pages that were away at one time is never needed.
//!
//! In scope total memory that is not needed for the store is there for pages that stay
//! (`Away::limit`). Nothing is known of limits below that of the run, where pages would leave
//! that did not.

use folioswap_group::{
    refaults::{REFAULT_BUCKETS, refault_bucket_start},
    units::PAGE_SIZE,
};

/// Bytes of a page.
const PAGE: f64 = PAGE_SIZE as f64;
/// The limits of the table, in percent of that of the run.
const PERCENT: [u64; 10] = [100, 112, 125, 150, 175, 200, 250, 300, 400, 600];
/// The part of the pages that came back with which a program is said to run well.
const WELL: f64 = 0.02;

/// What was away when most was, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Away {
    /// Pages in the compressed store, uncompressed.
    pub stored: u64,
    /// What the store took of the limit for them; 0 where it does not count.
    pub taken: u64,
    /// Pages on devices below.
    pub below: u64,
}

impl Away {
    /// Bytes of all that was away, uncompressed.
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

/// What a run shows of its refaults.
#[derive(Clone, Debug)]
pub struct Refaulted {
    /// The pages that came back, by distance in evictions of the group.
    pub distances: [f64; REFAULT_BUCKETS],
    /// The pages that were evicted.
    pub evictions: u64,
    /// The pages that were read back.
    pub pages_in: u64,
    /// What was away when most was.
    pub away: Away,
    /// The limit of the run, in bytes.
    pub limit: u64,
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
    /// The points at which the curve is known, by rising limit: the first is the run itself. Empty
    /// when nothing came back.
    fn known(&self) -> Vec<(f64, f64)> {
        let all: f64 = self.distances.iter().sum();
        if all < 1.0 {
            return Vec::new();
        }
        let (limit, evictions) = (self.limit as f64, (self.evictions as f64).max(all));
        let width = |bucket: usize| (refault_bucket_start(bucket + 1) - refault_bucket_start(bucket)) as f64;
        // The part of the pages that is still away in the middle of a bucket, among those that
        // come back at all. Within a bucket refaults are taken to be spread evenly.
        let mut came = 0.0;
        let away: Vec<f64> = (self.distances.iter())
            .map(|count| {
                came += count;
                (1.0 - (came - count / 2.0) / all).max(0.0)
            })
            .collect();
        let mean: f64 = away.iter().enumerate().map(|(bucket, away)| width(bucket) * away).sum();
        let dead = ((evictions - all - mean).max(0.0) / evictions).min(1.0);
        let (mut memory, mut came) = (0.0, 0.0);
        let mut points = vec![(limit, 1.0)];
        for (bucket, &count) in self.distances.iter().enumerate() {
            let wanted = width(bucket) * away[bucket] * (1.0 - dead);
            let unwanted = (dead * refault_bucket_start(bucket + 1) as f64).min(dead * evictions);
            memory += wanted;
            came += count;
            let bytes = (memory + unwanted) * PAGE;
            let part = (1.0 - came / all).max(0.0);
            // Figures of members that do not fit together must not make the curve run back.
            let last = points.last().map_or(limit, |point: &(f64, f64)| point.0);
            if bytes >= self.away.all() || came >= all - 0.5 {
                let bytes = bytes.min(self.away.all()).max(PAGE);
                points.push((self.away.limit(limit, bytes).max(last + PAGE), 0.0));
                break;
            }
            points.push((self.away.limit(limit, bytes).max(last + PAGE), part));
        }
        points
    }

    /// The pages that would have been read back within a limit of so many bytes; `None` below the
    /// limit of the run, or when nothing came back.
    pub fn pages_in(&self, limit: u64) -> Option<u64> {
        interpolate(&self.known(), limit as f64).map(|part| (part * self.pages_in as f64).round() as u64)
    }

    /// The curve at the limits of the table, up to the first at which nothing comes back.
    pub fn points(&self) -> Vec<Point> {
        let known = self.known();
        let mut points = Vec::new();
        for percent in PERCENT {
            let limit_bytes = (u128::from(self.limit) * u128::from(percent) / 100) as u64;
            let Some(part) = interpolate(&known, limit_bytes as f64) else { break };
            points.push(Point { limit_bytes, pages_in: (part * self.pages_in as f64).round() as u64 });
            if part <= 0.0 {
                break;
            }
        }
        points
    }

    /// The least limit, in bytes, within which all but `WELL` of the pages would have stayed;
    /// `None` when nothing came back.
    pub fn runs_well(&self) -> Option<u64> {
        let known = self.known();
        let after = known.iter().position(|&(_, part)| part <= WELL)?;
        let ((low, above), (high, below)) = (known[after.checked_sub(1)?], known[after]);
        let way = if above > below { (above - WELL) / (above - below) } else { 1.0 };
        Some((low + (high - low) * way) as u64)
    }
}

/// The part of the pages at a limit, on the lines between known points; that of the last one
/// beyond it.
fn interpolate(known: &[(f64, f64)], limit: f64) -> Option<f64> {
    let (first, last) = (known.first()?, known.last()?);
    if limit < first.0 {
        return None;
    }
    let Some(after) = known.iter().position(|point| point.0 > limit) else { return Some(last.1) };
    let ((low, above), (high, below)) = (known[after - 1], known[after]);
    Some(above + (below - above) * (limit - low) / (high - low))
}

#[cfg(test)]
mod tests;

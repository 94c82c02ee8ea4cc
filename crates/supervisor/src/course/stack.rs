//! The pages that are away, by the moment at which they left: the part of an LRU stack that lies
//! beyond the limit.
//!
//! Moments are counted in evictions of the group. Pages that left within one span are a cohort, of
//! which only the number is known that is still away; within a cohort they are taken to be spread
//! evenly. When there are too many cohorts, each two become one.

/// The most cohorts.
const COHORTS: usize = 4096;
/// Evictions in a cohort at first: 256 KiB.
const SPAN: f64 = 64.0;

/// The cohorts.
#[derive(Debug)]
pub struct Stack {
    /// Pages of each cohort that are still away, the oldest first.
    cohorts: Vec<f64>,
    /// Evictions in a cohort.
    span: f64,
    /// All evictions so far.
    evictions: f64,
}

impl Default for Stack {
    fn default() -> Self {
        Stack { cohorts: Vec::new(), span: SPAN, evictions: 0.0 }
    }
}

/// Part of a cohort's pages that left within a span of evictions.
struct Within {
    cohort: usize,
    part: f64,
}

impl Stack {
    /// So many pages have left.
    pub fn left(&mut self, pages: f64) {
        while (self.evictions + pages) / self.span >= COHORTS as f64 {
            self.cohorts = self.cohorts.chunks(2).map(|two| two.iter().sum()).collect();
            self.span *= 2.0;
        }
        let (from, to) = (self.evictions, self.evictions + pages);
        self.evictions = to;
        self.cohorts.resize((to / self.span) as usize + 1, 0.0);
        let first = (from / self.span) as usize;
        for (cohort, away) in self.cohorts.iter_mut().enumerate().skip(first) {
            let start = cohort as f64 * self.span;
            *away += (to.min(start + self.span) - from.max(start)).max(0.0);
        }
    }

    /// All evictions so far.
    pub fn evictions(&self) -> f64 {
        self.evictions
    }

    /// The pages that are away.
    pub fn away(&self) -> f64 {
        self.cohorts.iter().sum()
    }

    /// For each cohort, the pages of all younger ones that are away.
    pub fn above(&self) -> Vec<f64> {
        let mut sum = 0.0;
        let mut above: Vec<f64> = (self.cohorts.iter().rev())
            .map(|away| {
                sum += away;
                sum - away
            })
            .collect();
        above.reverse();
        above
    }

    /// The pages away that left after so many evictions; `above` is what [`Stack::above`] gave.
    pub fn younger(&self, above: &[f64], moment: f64) -> f64 {
        let cohort = (moment.max(0.0) / self.span) as usize;
        let (Some(away), Some(above)) = (self.cohorts.get(cohort), above.get(cohort)) else { return 0.0 };
        let after = 1.0 - (moment.max(0.0) - cohort as f64 * self.span) / self.span;
        above + away * after.clamp(0.0, 1.0)
    }

    /// So many pages that left between two moments have come back.
    pub fn came(&mut self, from: f64, to: f64, pages: f64) {
        let within = self.within(from, to);
        let all: f64 = within.iter().map(|it| self.cohorts[it.cohort] * it.part).sum();
        if all <= 0.0 {
            return;
        }
        let part = (pages / all).min(1.0);
        within.iter().for_each(|it| self.cohorts[it.cohort] *= 1.0 - it.part * part);
    }

    fn within(&self, from: f64, to: f64) -> Vec<Within> {
        let (from, to) = (from.max(0.0), to.min(self.evictions));
        let cohorts =
            (from / self.span) as usize..self.cohorts.len().min((to.max(0.0) / self.span) as usize + 1);
        let part = |cohort: usize| {
            let start = cohort as f64 * self.span;
            ((to.min(start + self.span) - from.max(start)) / self.span).clamp(0.0, 1.0)
        };
        cohorts.map(|cohort| Within { cohort, part: part(cohort) }).collect()
    }

    /// So many pages are away in all. What is missing was given up by its program; nobody says when
    /// it had left, so it is taken from all cohorts alike.
    pub fn settle(&mut self, pages: f64) {
        let away = self.away();
        if away > 0.0 {
            let part = pages / away;
            self.cohorts.iter_mut().for_each(|away| *away *= part);
        }
    }
}

#[cfg(test)]
mod tests;

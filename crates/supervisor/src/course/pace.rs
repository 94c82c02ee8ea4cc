//! How fast the group evicts while one member's nonresident age goes on.
//!
//! A refault distance is one of the member's own age, and the curve is about the group: the moment
//! at which a page left, by the member's age, is looked up here as one of the group's evictions.

/// The most points that are kept; when there are more every other one goes.
const POINTS: usize = 1024;

/// Ages of a member, and the group's evictions at each of them.
#[derive(Debug)]
pub struct Pace {
    points: Vec<(f64, f64)>,
}

impl Pace {
    /// The pace of a member that begins after so many evictions.
    pub fn new(evictions: f64) -> Self {
        Pace { points: vec![(0.0, evictions)] }
    }

    /// The member's age now, and the evictions of the group; neither goes back.
    pub fn note(&mut self, age: f64, evictions: f64) {
        let last = self.points.last().copied().unwrap_or_default();
        let evictions = evictions.max(last.1);
        if age <= last.0 {
            // The member pauses: what it evicts next leaves at the end of the pause.
            let pauses_already = self.points.len() >= 2 && self.points[self.points.len() - 2].0 == last.0;
            if pauses_already {
                self.points.pop();
            }
            if evictions > last.1 || pauses_already {
                self.points.push((last.0, evictions));
            }
            return;
        }
        self.points.push((age, evictions));
        if self.points.len() > POINTS {
            let mut number = 0;
            let newest = self.points.len();
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1 || number == newest
            });
        }
    }

    /// The age at the last point.
    pub fn age(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.0)
    }

    /// The evictions of the group at an age of the member, on the line between two points. Before
    /// the member's beginning, whose age a fork inherits, both go alike.
    pub fn evictions_at(&self, age: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= age);
        let Some(&(high, above)) = self.points.get(after) else {
            return self.points.last().map_or(0.0, |point| point.1);
        };
        let Some(&(low, below)) = after.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return (above - (high - age)).max(0.0);
        };
        below + (above - below) * (age - low) / (high - low)
    }
}

#[cfg(test)]
mod tests;

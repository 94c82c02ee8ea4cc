//! The last minutes of a figure, for a sparkline.

use std::{collections::VecDeque, time::Duration};

/// The most values that are kept: the columns of a wide screen.
const VALUES: usize = 240;

/// Values, the latest last.
#[derive(Clone, Debug, Default)]
pub struct History<T = u64>(VecDeque<T>);

impl<T> History<T> {
    /// Adds a value; the oldest goes.
    pub fn push(&mut self, value: T) {
        if self.0.len() == VALUES {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl History {
    /// The last `count` values, the latest last; zeroes stand where there were none yet.
    pub fn last(&self, count: usize) -> Vec<u64> {
        let missing = count.saturating_sub(self.0.len());
        let skipped = self.0.len().saturating_sub(count);
        std::iter::repeat_n(0, missing).chain(self.0.iter().skip(skipped).copied()).collect()
    }

    /// The highest value.
    pub fn highest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

/// The times between readings.
impl History<Duration> {
    /// How long ago the oldest of the last `count` readings was.
    pub fn span(&self, count: usize) -> Duration {
        self.0.iter().rev().take(count.saturating_sub(1)).sum()
    }
}

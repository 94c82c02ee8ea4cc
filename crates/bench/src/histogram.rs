//! A histogram of latencies, exact to 1/32 of their value.
//!
//! It stays hand-written: hdrhistogram has 16 or 128 steps in a power of two and reports the upper
//! end of a step, so figures would differ by up to 3 % from those of earlier measurements.

/// Counts of times from 32 ns on; each power of two has 32 steps. A percentile is the lower end of
/// its step.
#[derive(Clone, Debug)]
pub struct Histogram(Vec<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Histogram(vec![0; 64 * 32])
    }
}

impl Histogram {
    /// Counts a latency of `ns` nanoseconds; less than 32 counts as 32.
    pub fn add(&mut self, ns: u64) {
        let ns = ns.max(32);
        let power = ns.ilog2();
        let step = (ns >> (power - 5)) & 31;
        self.0[(power as u64 * 32 + step) as usize] += 1;
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }

    /// The time in nanoseconds that the given part (0 to 1) of the latencies does not exceed; 0
    /// when nothing was counted.
    pub fn percentile(&self, part: f64) -> u64 {
        let total: u64 = self.0.iter().sum();
        let wanted = (total as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                let (power, step) = (index as u64 / 32, index as u64 % 32);
                return (32 + step) << (power.max(5) - 5);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests;

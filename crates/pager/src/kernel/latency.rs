//! The durations of faults: counts by duration, eight steps to each power of two, without a lock.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Steps within a power of two.
const STEPS: usize = 8;

/// The shortest duration that is told apart: 2^6 = 64 ns.
const FIRST_POWER: u32 = 6;

/// Powers of two: up to 2^36 ns, a minute. Longer durations count as that.
const POWERS: usize = 30;

/// Buckets of a [`Latency`].
pub const BUCKETS: usize = STEPS * POWERS;

/// The counts. All-zero: none yet.
#[repr(C)]
pub struct Latency([AtomicU64; BUCKETS]);

/// Returns the bucket of a duration.
const fn bucket_of(nanoseconds: u64) -> usize {
    let least = 1 << FIRST_POWER;
    let duration = if nanoseconds < least { least } else { nanoseconds };
    let power = duration.ilog2();
    let step = (duration >> (power - STEPS.ilog2())) as usize % STEPS;
    let bucket = (power - FIRST_POWER) as usize * STEPS + step;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// Returns the longest duration, in nanoseconds, that is counted in a bucket (the last one takes
/// longer ones too).
pub const fn bucket_end_ns(bucket: usize) -> u64 {
    let (power, step) = (FIRST_POWER + (bucket / STEPS) as u32, (bucket % STEPS) as u64);
    ((STEPS as u64 + step + 1) << (power - STEPS.ilog2())) - 1
}

impl Latency {
    /// Counts a duration. Cost: an atomic addition.
    pub fn add(&self, nanoseconds: u64) {
        self.0[bucket_of(nanoseconds)].fetch_add(1, Relaxed);
    }

    /// Returns the count of each bucket.
    pub fn counts(&self) -> [u64; BUCKETS] {
        core::array::from_fn(|bucket| self.0[bucket].load(Relaxed))
    }
}

#[cfg(test)]
mod tests;

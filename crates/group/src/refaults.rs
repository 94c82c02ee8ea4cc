//! How far away pages were when they came back: counts by refault distance, from which the
//! supervisor makes the miss-ratio curve of a run.
//!
//! A distance is that of `folioswap_policy::reclaim::workingset`: the pages that were evicted or
//! activated while the page was away. Four buckets to each power of two are as exact as the
//! prediction that is made of them.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Buckets to a power of two.
const STEPS: u32 = 4;
/// All distances below 2^5 pages (128 KiB) are one bucket.
const FIRST_POWER: u32 = 5;
/// Distances from 2^29 pages (2 TiB) on are one bucket.
const LAST_POWER: u32 = 29;

/// Number of buckets.
pub const REFAULT_BUCKETS: usize = ((LAST_POWER - FIRST_POWER) * STEPS) as usize + 2;

/// Counts by distance, of one member, which alone writes them. All-zero: nothing has come back. The
/// counts wrap: only their differences from one look to the next mean something.
#[repr(C)]
pub struct RefaultDistances([AtomicU32; REFAULT_BUCKETS]);

/// The bucket of a distance in pages.
const fn bucket_of(distance: u64) -> usize {
    if distance < 1 << FIRST_POWER {
        return 0;
    }
    let power = distance.ilog2();
    if power >= LAST_POWER {
        return REFAULT_BUCKETS - 1;
    }
    let step = (distance >> (power - STEPS.ilog2())) % STEPS as u64;
    1 + ((power - FIRST_POWER) * STEPS) as usize + step as usize
}

/// The shortest distance of a bucket, in pages. `bucket` is at most [`REFAULT_BUCKETS`]: that of
/// [`REFAULT_BUCKETS`] itself is twice the last one's.
pub const fn refault_bucket_start(bucket: usize) -> u64 {
    if bucket == 0 {
        return 0;
    }
    if bucket == REFAULT_BUCKETS {
        return 2 << LAST_POWER;
    }
    let (power, step) = (FIRST_POWER + (bucket as u32 - 1) / STEPS, (bucket as u64 - 1) % STEPS as u64);
    (STEPS as u64 + step) << (power - STEPS.ilog2())
}

impl RefaultDistances {
    /// Counts a page that came back at this distance, in pages. Cost: one relaxed addition.
    pub fn add(&self, distance: u64) {
        self.0[bucket_of(distance)].fetch_add(1, Relaxed);
    }

    /// The counts, by bucket; they wrap.
    pub fn counts(&self) -> [u32; REFAULT_BUCKETS] {
        core::array::from_fn(|bucket| self.0[bucket].load(Relaxed))
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests;

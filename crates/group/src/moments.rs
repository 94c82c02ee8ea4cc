//! The moments of a member that took long: faults and batches of a millisecond or more, in a small
//! ring from which the supervisor makes the timeline of a run; and how long all faults took.
//!
//! A ring has one writer and needs no lock. The supervisor looks many times a second; moments that
//! the writer overwrote meanwhile are counted, not guessed.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Moments that a ring keeps.
const KEPT: usize = 32;

/// The shortest duration that is a moment, in nanoseconds.
pub const MOMENT_NS: u64 = 1_000_000;

/// Something that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When it began, in nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// How long it took, in microseconds; at most 71 minutes are told apart.
    pub took_us: u32,
    /// For a fault the thread that waited; for a batch the pages that it isolated.
    pub detail: u32,
}

/// The latest moments of one kind of one member. All-zero: there was none.
#[repr(C)]
pub struct Moments {
    /// Moments so far; the next one goes to this number modulo [`KEPT`].
    written: AtomicU64,
    starts: [AtomicU64; KEPT],
    rest: [AtomicU64; KEPT],
}

impl Moments {
    /// Adds a moment. Only one thread of one process may add. Cost: three stores.
    pub fn add(&self, moment: Moment) {
        let number = self.written.load(Relaxed);
        let place = number as usize % KEPT;
        self.starts[place].store(moment.start_ns, Relaxed);
        self.rest[place].store(u64::from(moment.took_us) << 32 | u64::from(moment.detail), Relaxed);
        self.written.store(number.wrapping_add(1), Release);
    }

    /// Calls `take` for each moment since number `seen`, and returns the number to give next time
    /// and how many moments were overwritten before they could be read.
    pub fn since(&self, seen: u64, mut take: impl FnMut(Moment)) -> (u64, u64) {
        let written = self.written.load(Acquire);
        // The entry that is being overwritten next is left out: a torn moment would be a lie.
        let oldest = written.saturating_sub(KEPT as u64 - 1);
        // Whatever a member writes, the loop is at most as long as the ring.
        let first = seen.max(oldest).min(written);
        for number in first..written {
            let place = number as usize % KEPT;
            let (start_ns, rest) = (self.starts[place].load(Relaxed), self.rest[place].load(Relaxed));
            take(Moment { start_ns, took_us: (rest >> 32) as u32, detail: rest as u32 });
        }
        (written, first.saturating_sub(seen))
    }

    fn clear(&self) {
        self.written.store(0, Relaxed);
    }
}

/// Counts of faults by the time that they took: two buckets to each power of two, from 1 µs to a
/// minute.
pub const LATENCY_BUCKETS: usize = 54;

/// How long the faults of one member took. The counts wrap, as those of
/// [`RefaultDistances`](crate::refaults::RefaultDistances).
#[repr(C)]
pub struct FaultLatency([AtomicU32; LATENCY_BUCKETS]);

/// The shortest duration of a bucket, in nanoseconds; that of the first is 0.
pub const fn latency_bucket_start_ns(bucket: usize) -> u64 {
    if bucket == 0 {
        return 0;
    }
    let power = 10 + (bucket as u32 - 1) / 2;
    let start = 1 << power;
    if (bucket - 1).is_multiple_of(2) { start } else { start + start / 2 }
}

impl FaultLatency {
    /// Counts a fault. Cost: one relaxed addition.
    pub fn add(&self, nanoseconds: u64) {
        let bucket = match nanoseconds.checked_ilog2() {
            Some(power) if power >= 10 => {
                1 + (power as usize - 10) * 2 + (nanoseconds >> (power - 1) & 1) as usize
            }
            _ => 0,
        };
        self.0[bucket.min(LATENCY_BUCKETS - 1)].fetch_add(1, Relaxed);
    }

    /// The counts, by bucket; they wrap.
    pub fn counts(&self) -> [u32; LATENCY_BUCKETS] {
        core::array::from_fn(|bucket| self.0[bucket].load(Relaxed))
    }
}

/// What one member tells of the course of a run, besides its figures.
#[repr(C)]
pub struct Course {
    /// How far away pages were when they came back.
    pub refaults: crate::refaults::RefaultDistances,
    /// How long faults took.
    pub latency: FaultLatency,
    /// Faults that took long. Written by the handler.
    pub faults: Moments,
    /// Batches that took long. Written by the evictor.
    pub batches: Moments,
}

impl Course {
    /// Empties it for the next member that gets the entry.
    pub(crate) fn clear(&self) {
        self.refaults.clear();
        self.latency.0.iter().for_each(|count| count.store(0, Relaxed));
        self.faults.clear();
        self.batches.clear();
    }
}

#[cfg(test)]
mod tests;

//! How long faults took: counts of the live members of a group, summed.

use folioswap_group::{
    group::Group,
    moments::{LATENCY_BUCKETS, latency_bucket_start_ns},
};

/// Faults by the time that they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency(pub [u64; LATENCY_BUCKETS]);

impl Default for Latency {
    fn default() -> Self {
        Latency([0; LATENCY_BUCKETS])
    }
}

impl Latency {
    /// Reads the counts. Cost: some fifty loads per member.
    pub(super) fn read(group: Group<'_>) -> Self {
        let mut read = Latency::default();
        for member in group.live_members() {
            let counts = member.course.latency.counts();
            read.0.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count.into()));
        }
        read
    }

    /// The faults since an earlier reading. Where a member has ended meanwhile, or writes what it
    /// likes, some are missing.
    pub fn since(&self, before: &Latency) -> Latency {
        Latency(std::array::from_fn(|bucket| self.0[bucket].saturating_sub(before.0[bucket])))
    }

    /// The longest time that this part of the faults took, in percent, in nanoseconds; `None` when
    /// there was none.
    pub fn below_ns(&self, percent: u64) -> Option<u64> {
        let all = self.0.iter().copied().fold(0, u64::saturating_add);
        let mut seen = 0_u64;
        let bucket = self.0.iter().position(|count| {
            seen = seen.saturating_add(*count);
            all > 0 && u128::from(seen) * 100 >= u128::from(all) * u128::from(percent)
        })?;
        Some(latency_bucket_start_ns(bucket + 1))
    }
}

#[cfg(test)]
mod tests;

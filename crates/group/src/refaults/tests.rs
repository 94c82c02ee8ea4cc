extern crate std;
use super::*;

#[test]
fn a_distance_is_in_the_bucket_that_begins_at_most_there() {
    let powers = (0..64).map(|power| 1_u64 << power);
    for distance in powers.flat_map(|power| [power - 1, power, power + power / 3]) {
        let bucket = bucket_of(distance);
        assert!(refault_bucket_start(bucket) <= distance, "{distance} in {bucket}");
        if bucket + 1 < REFAULT_BUCKETS {
            assert!(distance < refault_bucket_start(bucket + 1), "{distance} in {bucket}");
        }
    }
}

#[test]
fn buckets_are_at_most_a_quarter_wide() {
    for bucket in 1..REFAULT_BUCKETS - 1 {
        let (start, end) = (refault_bucket_start(bucket), refault_bucket_start(bucket + 1));
        assert!(start < end && (end - start) * 4 <= start, "{bucket}: {start} to {end}");
    }
}

#[test]
fn counts_are_those_that_were_added() {
    // SAFETY: all-zero is the valid empty state.
    let distances: RefaultDistances = unsafe { core::mem::zeroed() };
    [3, 31, 32, u64::MAX].into_iter().for_each(|distance| distances.add(distance));
    let counts = distances.counts();
    assert_eq!((counts[0], counts[1], counts[REFAULT_BUCKETS - 1]), (2, 1, 1));
    distances.clear();
    assert_eq!(distances.counts(), [0; REFAULT_BUCKETS]);
}

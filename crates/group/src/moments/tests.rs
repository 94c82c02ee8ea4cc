extern crate std;
use super::*;

fn moment(number: u64) -> Moment {
    Moment { start_ns: number * 1000, took_us: number as u32 + 7, detail: number as u32 }
}

fn empty() -> Course {
    // SAFETY: all-zero is the valid empty state.
    unsafe { core::mem::zeroed() }
}

#[test]
fn each_moment_is_read_once() {
    let course = empty();
    let mut seen = 0;
    for round in 0..40 {
        (round * 3..round * 3 + 3).for_each(|number| course.faults.add(moment(number)));
        let mut read = std::vec::Vec::new();
        let lost;
        (seen, lost) = course.faults.since(seen, |one| read.push(one));
        assert_eq!(lost, 0);
        assert_eq!(read, (round * 3..round * 3 + 3).map(moment).collect::<std::vec::Vec<_>>());
    }
}

#[test]
fn overwritten_moments_are_counted() {
    let course = empty();
    (0..100).for_each(|number| course.batches.add(moment(number)));
    let mut read = 0;
    let (seen, lost) = course.batches.since(0, |_| read += 1);
    assert_eq!((seen, lost + read), (100, 100));
    assert_eq!(read, KEPT as u64 - 1);
}

/// A member may write any number; the reader's loop stays short.
#[test]
fn a_wild_number_of_moments_is_bounded() {
    let course = empty();
    for wild in [u64::MAX, 1 << 40, 0] {
        course.faults.written.store(wild, Relaxed);
        let mut read = 0;
        let (seen, _) = course.faults.since(5, |_| read += 1);
        assert!(read <= KEPT && seen == wild, "{wild}: {read}");
    }
}

#[test]
fn a_duration_is_in_the_bucket_that_begins_at_most_there() {
    for nanoseconds in [0, 1, 1023, 1024, 1535, 1536, 2048, 1_000_000, 3 << 33, u64::MAX] {
        let course = empty();
        course.latency.add(nanoseconds);
        let bucket = course.latency.counts().iter().position(|&count| count == 1).expect("counted");
        assert!(latency_bucket_start_ns(bucket) <= nanoseconds);
        if bucket + 1 < LATENCY_BUCKETS {
            assert!(nanoseconds < latency_bucket_start_ns(bucket + 1), "{nanoseconds} in {bucket}");
        }
    }
}

use super::*;

#[test]
fn each_duration_is_counted_where_it_belongs() {
    let mut last = 63;
    for bucket in 0..BUCKETS {
        let end = bucket_end_ns(bucket);
        assert!(end > last, "bucket {bucket} ends at {end}");
        assert_eq!(bucket_of(end), bucket);
        assert_eq!(bucket_of(end + 1), (bucket + 1).min(BUCKETS - 1));
        assert!((end - last) * STEPS as u64 <= last + 1, "an eighth at most");
        last = end;
    }
    assert_eq!(bucket_of(0), 0);
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

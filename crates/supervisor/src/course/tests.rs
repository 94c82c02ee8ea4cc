use super::*;

#[test]
fn a_stretched_bucket_keeps_its_count() {
    for stretch in [0.001, 0.5, 1.0, 1.3, 7.0, 1e6] {
        for bucket in 0..REFAULT_BUCKETS {
            let mut distances = [0.0; REFAULT_BUCKETS];
            spread(&mut distances, bucket, stretch, 10.0);
            let sum: f64 = distances.iter().sum();
            assert!((sum - 10.0).abs() < 1e-6, "{bucket} times {stretch}: {sum}");
        }
    }
}

#[test]
fn twice_as_far_is_four_buckets_further() {
    let mut distances = [0.0; REFAULT_BUCKETS];
    spread(&mut distances, 20, 2.0, 1.0);
    assert!(distances[24] > 0.999, "{distances:?}");
}

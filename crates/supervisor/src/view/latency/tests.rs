use super::*;

#[test]
fn the_slowest_hundredth_is_the_end_of_its_bucket() {
    let mut latency = Latency::default();
    assert_eq!(latency.below_ns(99), None);
    (latency.0[10], latency.0[30]) = (98, 2);
    assert_eq!(latency.below_ns(98), Some(latency_bucket_start_ns(11)));
    assert_eq!(latency.below_ns(99), Some(latency_bucket_start_ns(31)));
    let before = latency;
    latency.0[10] += 1000;
    assert_eq!(latency.since(&before).below_ns(99), Some(latency_bucket_start_ns(11)));
    assert_eq!(before.since(&latency).below_ns(99), None);
}

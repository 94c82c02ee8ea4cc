use super::*;

#[test]
fn percentiles_are_right_to_a_thirty_second() {
    let mut histogram = Histogram::default();
    assert_eq!(histogram.percentile(0.5), 0);
    (1..=10_000).for_each(|ns| histogram.add(ns * 10));
    for (part, wanted) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
        let found = histogram.percentile(part) as f64;
        assert!((found / wanted - 1.0).abs() <= 1.0 / 32.0, "{part}: {found}");
    }
    let mut both = Histogram::default();
    both.add(5);
    both.merge(&histogram);
    assert_eq!(both.percentile(0.00001), 32);
}

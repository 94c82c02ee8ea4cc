use super::*;

#[test]
fn interval_of_known_values() {
    // t(0.95, 4 degrees) = 2.1318; deviation of 1..=5 = 1.5811; half of the interval = 2.1318 x
    // 1.5811 / sqrt(5) = 1.5074
    let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let (low, high) = summary.interval(0.90).unwrap();
    assert!((low - 1.4926).abs() < 1e-3 && (high - 4.5074).abs() < 1e-3, "{low} {high}");
    assert_eq!(Summary::of(&[2.0]).interval(0.9), None);
}

#[test]
fn the_median_is_the_middle_one() {
    assert_eq!(Summary::of(&[9.0, 1.0, 2.0]).median, 2.0);
    assert_eq!(Summary::of(&[9.0, 1.0, 2.0, 4.0]).median, 3.0);
}

#[test]
fn verdicts() {
    let pairs = |ratios: &[f64]| ratios.iter().map(|ratio| (100.0, 100.0 * ratio)).collect::<Vec<_>>();
    let verdict = |ratios: &[f64]| equivalence(&pairs(ratios), 0.05).unwrap().verdict;
    assert_eq!(verdict(&[1.0, 1.01, 0.99, 1.0]), Verdict::Equivalent);
    assert_eq!(verdict(&[1.2, 1.21, 1.19, 1.2]), Verdict::NoLoss);
    assert_eq!(verdict(&[0.8, 0.81, 0.79, 0.8]), Verdict::Loss);
    assert_eq!(verdict(&[0.5, 1.9, 0.7, 1.4]), Verdict::Undecided);
    assert!(equivalence(&[(1.0, 1.0)], 0.05).is_none());
}

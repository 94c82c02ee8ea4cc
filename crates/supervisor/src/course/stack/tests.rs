use super::*;

#[test]
fn what_left_later_and_is_away_is_counted() {
    let mut stack = Stack::default();
    stack.left(1000.0);
    let above = stack.above();
    assert!((stack.younger(&above, 0.0) - 1000.0).abs() < 1e-6);
    assert!((stack.younger(&above, 900.0) - 100.0).abs() < 1e-6);
    assert_eq!(stack.younger(&above, 2000.0), 0.0);
    // Those that left between 400 and 800 are back.
    stack.came(400.0, 800.0, 400.0);
    let above = stack.above();
    assert!((stack.younger(&above, 300.0) - 300.0).abs() < 40.0, "{}", stack.younger(&above, 300.0));
    assert!((stack.away() - 600.0).abs() < 1e-6);
}

#[test]
fn no_more_come_back_than_were_away() {
    let mut stack = Stack::default();
    stack.left(100.0);
    stack.came(0.0, 50.0, 1e9);
    stack.came(500.0, 900.0, 10.0);
    assert!((stack.away() - 50.0).abs() < 1e-6, "{}", stack.away());
}

#[test]
fn what_was_given_up_is_away_no_longer() {
    let mut stack = Stack::default();
    stack.left(1000.0);
    stack.settle(250.0);
    let above = stack.above();
    assert!((stack.younger(&above, 500.0) - 125.0).abs() < 1.0);
}

#[test]
fn long_runs_have_larger_cohorts_and_lose_nothing() {
    let mut stack = Stack::default();
    (0..3000).for_each(|_| stack.left(1001.0));
    assert!((stack.away() - 3_003_000.0).abs() < 1.0);
    assert!(stack.cohorts.len() <= COHORTS && stack.span > SPAN);
    let above = stack.above();
    assert!((stack.younger(&above, 2_000_000.0) - 1_003_000.0).abs() < 1.0);
}

use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_process_of_one_thread_waits_as_a_whole() {
    let times = Times::of(2 * SECOND, SECOND, SECOND);
    assert_eq!(times, Times { some: SECOND, full: SECOND, busy: 2 * SECOND });
    // A second thread ran all the time.
    let times = Times::of(2 * SECOND, SECOND, 2 * SECOND);
    assert_eq!(times, Times { some: SECOND, full: 0, busy: 2 * SECOND });
    // A third of its time another ran meanwhile.
    let times = Times::of(3 * SECOND, 2 * SECOND, 2 * SECOND);
    assert_eq!(times, Times { some: 2 * SECOND, full: SECOND, busy: 3 * SECOND });
    assert_eq!(Times::of(SECOND, u64::MAX, u64::MAX), Times { some: SECOND, full: 0, busy: SECOND });
    assert_eq!(Times::of(SECOND, 0, 0), Times::default());
}

/// The figures that the kernel's `calc_avgs` gives for one half of the time, and for none after it.
#[test]
fn averages_follow_the_kernels_formula() {
    let mut averages = Averages::default();
    let mut shown = Vec::new();
    for _ in 0..5 {
        averages.add(SECOND, 2 * SECOND, 0);
        shown.push(averages.pack().0[0]);
    }
    // 50 % * (1 - exp(-2 s * n / 10 s)), to the precision of 11 bits.
    for (step, shown) in shown.iter().enumerate() {
        let exact = 5000.0 * (1.0 - (-0.2 * (step as f64 + 1.0)).exp());
        assert!((f64::from(*shown) - exact).abs() < 15.0, "{step}: {shown} is not {exact}");
    }
    assert_eq!(averages.pack().1, 5_000_000, "microseconds");
    for _ in 0..1000 {
        averages.add(SECOND, 2 * SECOND, 0);
    }
    assert!(averages.pack().0.iter().all(|avg| (4900..=5000).contains(avg)), "{:?}", averages.pack());
    let before = averages.pack().0[0];
    averages.add(0, 2 * SECOND, 4);
    let after = f64::from(averages.pack().0[0]) / f64::from(before);
    assert!((after - (-1.0_f64).exp()).abs() < 0.01, "five periods without waiting: {after}");
}

use super::*;

#[test]
fn however_long_a_run_lasts_its_samples_are_bounded_and_in_order() {
    let mut record = Record::new(Instant::now());
    for _ in 0..SAMPLES_MAX * 3 {
        record.sample(Sample { at_ms: record.now_ms(), ..Sample::default() });
    }
    assert!(record.samples.len() < SAMPLES_MAX);
    assert!(record.interval_ms > 20);
    assert!(record.samples.is_sorted_by_key(|sample| sample.at_ms));
}

#[test]
fn a_moment_is_told_from_the_start_of_the_run() {
    let started = Instant::now() - std::time::Duration::from_secs(3);
    let mut record = Record::new(started);
    let moment = Moment { start_ns: monotonic_ns(), took_us: 1500, detail: 9 };
    record.slice(SliceKind::Fault, 1, moment);
    assert!(record.slices[0].at_us.abs_diff(3_000_000) < 200_000, "{:?}", record.slices);
}

#[test]
fn moments_beyond_the_most_are_counted() {
    let mut record = Record::new(Instant::now());
    for _ in 0..SLICES_MAX + 5 {
        record.swapoff(0, Instant::now());
    }
    record.lost(2);
    assert_eq!((record.slices.len(), record.not_kept), (SLICES_MAX, 7));
}

#[test]
fn a_life_ends_once() {
    let mut record = Record::new(Instant::now());
    let pid = std::process::id();
    record.began(pid);
    record.ended(pid);
    record.began(pid);
    assert!(record.lives[0].ended_ms.is_some() && record.lives[1].ended_ms.is_none(), "{:?}", record.lives);
}

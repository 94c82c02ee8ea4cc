use super::*;

#[test]
fn ages_are_moments_of_the_group() {
    let mut pace = Pace::new(500.0);
    pace.note(100.0, 700.0);
    pace.note(200.0, 750.0);
    assert_eq!(
        [0.0, 50.0, 100.0, 150.0, 200.0, 900.0].map(|age| pace.evictions_at(age)),
        [500.0, 600.0, 700.0, 725.0, 750.0, 750.0]
    );
}

#[test]
fn what_follows_a_pause_left_after_it() {
    let mut pace = Pace::new(0.0);
    pace.note(100.0, 100.0);
    for evictions in [1000.0, 500_000.0, 1_000_000.0] {
        pace.note(100.0, evictions);
    }
    pace.note(200.0, 1_000_100.0);
    assert_eq!([50.0, 100.0, 150.0].map(|age| pace.evictions_at(age)), [50.0, 1_000_000.0, 1_000_050.0]);
    assert_eq!(pace.points.len(), 4);
}

#[test]
fn what_left_before_a_fork_left_earlier() {
    let pace = Pace::new(500.0);
    assert_eq!((pace.evictions_at(-100.0), pace.evictions_at(-900.0)), (400.0, 0.0));
}

#[test]
fn neither_goes_back_and_points_stay_few() {
    let mut pace = Pace::new(0.0);
    for point in 0..10_000 {
        pace.note(f64::from(point), f64::from(point) * 2.0);
        pace.note(f64::from(point) / 2.0, 0.0);
    }
    assert!(pace.points.len() <= POINTS && pace.points.is_sorted());
    assert_eq!((pace.age(), pace.evictions_at(5000.0)), (9999.0, 10_000.0));
}

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Returns the sum of a second's figures and those of before.
fn after(looks: &Looks, major: u64, faults: u64, waited: Duration) -> Sample {
    Sample {
        major: looks.before.major + major,
        faults: looks.before.faults + faults,
        waited_ns: looks.before.waited_ns + waited.as_nanos() as u64,
    }
}

#[test]
fn only_waiting_for_what_had_left_is_thrashing() {
    let mut looks = Looks::default();
    let mut second = |major, faults, waited| {
        let now = after(&looks, major, faults, Duration::from_millis(waited));
        looks.look(now, SECOND)
    };
    assert_eq!(second(0, 0, 0), Finding::Idle);
    assert_eq!(second(9_000, 10_000, 499), Finding::Working, "it waits for less than half of the time");
    assert_eq!(second(5_000, 10_000, 900), Finding::Working, "first touches");
    assert_eq!(second(9_000, 10_000, 500), Finding::Thrashing(SECOND));
    assert_eq!(second(9_000, 10_000, 3_900), Finding::Thrashing(2 * SECOND), "four threads");
    assert_eq!(second(10, 10, 10), Finding::Working);
    assert_eq!(second(9_000, 10_000, 800), Finding::Thrashing(2 * SECOND), "one second of work weighs one");
}

#[test]
fn a_late_look_is_measured_by_the_time_that_it_took() {
    let mut looks = Looks::default();
    let now = after(&looks, 1_000, 1_000, 5 * SECOND);
    assert_eq!(looks.look(now, 16 * SECOND), Finding::Working);
    let now = after(&looks, 1_000, 1_000, 8 * SECOND);
    assert_eq!(looks.look(now, 16 * SECOND), Finding::Thrashing(16 * SECOND));
}

#[test]
fn the_notice_is_taken_once_and_not_where_it_is_unwanted() {
    let thrashing = Thrashing::default();
    thrashing.set_notices(Notices::Silent);
    assert!(!thrashing.takes_notice());
    thrashing.set_notices(Notices::Stderr);
    assert!(thrashing.takes_notice() && !thrashing.takes_notice());
    let text = notice(64 << 20, 160 << 20);
    assert!(
        text.contains("limit of 64.0 MiB") && text.contains("takes 160.0 MiB") && text.ends_with("order\n")
    );
    assert_eq!(text.lines().count(), 1);
}

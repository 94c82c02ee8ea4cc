use super::*;

const LOOK: Duration = Duration::from_millis(25);

fn complaint() -> Complaint {
    Complaint { pid: 1, reason: OutOfMemory::SwapFull, has: 0, needed: 0 }
}

/// A group that was looked at for so long and found so each time, while so many faults were served
/// between two looks, and at whose beginning a member complained.
fn after(time: Duration, fill: Fill, faults: u64) -> (Shortage, Instant) {
    let (mut shortage, start) = (Shortage::new(Instant::now()), Instant::now());
    shortage.report(complaint());
    let looks = time.as_millis() / LOOK.as_millis();
    (0..=looks as u32).for_each(|look| shortage.look(fill, faults * u64::from(look), start + LOOK * look));
    (shortage, start + time)
}

#[test]
fn a_group_that_stands_still_at_its_limit_is_believed_to_be_out_of_memory() {
    let (shortage, now) = after(STILL, Fill::Full, 0);
    assert_eq!(shortage.plausible(now), Some(complaint()));
    assert_eq!(shortage.plausible(now - LOOK), None, "it has not stood still for long enough");
}

#[test]
fn a_group_that_serves_faults_goes_on() {
    let (shortage, now) = after(10 * crawl(), Fill::Full, 1);
    assert_eq!(shortage.plausible(now), None);
}

fn crawl() -> Duration {
    Duration::from_nanos(Patience::SUPERVISOR.stored_ns)
}

#[test]
fn a_group_full_of_what_cannot_leave_may_only_crawl() {
    let patience = Duration::from_nanos(Patience::SUPERVISOR.unswappable_ns);
    let (shortage, now) = after(patience, Fill::FullOfUnswappable, 1);
    assert_eq!(shortage.plausible(now), Some(complaint()));
    let (shortage, now) = after(patience - LOOK, Fill::FullOfUnswappable, 1);
    assert_eq!(shortage.plausible(now), None);
}

#[test]
fn a_group_full_of_stored_pages_may_only_crawl() {
    let (shortage, now) = after(crawl(), Fill::FullOfStored, 1);
    assert_eq!(shortage.plausible(now), Some(complaint()));
    let (mut shortage, now) = after(crawl() - LOOK, Fill::FullOfStored, 1);
    assert_eq!(shortage.plausible(now), None);
    shortage.look(Fill::Full, 1000, now);
    shortage.look(Fill::FullOfStored, 1001, now + LOOK);
    assert_eq!(shortage.plausible(now + LOOK), None, "there was a break");
}

#[test]
fn memory_that_is_there_again_settles_a_report() {
    let (mut shortage, now) = after(10 * STILL, Fill::Full, 0);
    shortage.look(Fill::Below, 0, now);
    assert_eq!(shortage.plausible(now), None);
    shortage.look(Fill::Full, 0, now);
    shortage.look(Fill::Full, 0, now + STILL);
    assert_eq!(shortage.plausible(now + STILL), None, "nobody has complained since");
    shortage.report(complaint());
    assert_eq!(shortage.plausible(now + STILL), Some(complaint()));
}

#[test]
fn false_reports_do_not_hide_a_true_one() {
    let (mut shortage, now) = after(STILL, Fill::Full, 0);
    shortage.next_reading = Some(now + READ_AGAIN);
    assert_eq!(shortage.plausible(now), None, "the kernel was just asked");
    shortage.report(Complaint { pid: 2, ..complaint() });
    assert_eq!(shortage.plausible(now + READ_AGAIN), Some(complaint()));
}

#[test]
fn the_slack_is_a_small_part_of_every_limit() {
    for limit in [8 << 20, 64 << 20, 1 << 30, u64::MAX] {
        let slack = slack(limit);
        assert!(slack <= limit / 8 && slack >= limit / 256, "{slack} of {limit}");
    }
}

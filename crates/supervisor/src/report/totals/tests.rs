use super::*;
use crate::ipc::mapped::SegmentFile;

#[test]
fn counters_outlive_their_member_and_gauges_do_not() {
    let segment = SegmentFile::create().expect("memfd");
    let mut totals = Totals::new();
    let id = segment.mapped.assign(1).expect("free place");
    totals.began(&segment.mapped);
    let figures = &segment.mapped.members[id as usize].figures;
    figures.add(Counter::PagesOut, 5);
    figures.add_size(SizeCounter::SwapOut, 4, 2);
    figures.set(Gauge::OrigDataSize, 100);
    let mut clusters_used = [0; DEVICES_MAX];
    clusters_used[1] = 3;
    totals.sample(&segment.mapped, clusters_used);
    totals.sample(&segment.mapped, [0; DEVICES_MAX]);
    totals.ended(figures);
    segment.mapped.release(id);
    assert_eq!(totals.sums(&segment.mapped).counter(Counter::PagesOut), 5);
    assert_eq!(totals.sums(&segment.mapped).size(SizeCounter::SwapOut, 4), 2);
    assert_eq!(Levels::read(&segment.mapped).gauge(Gauge::OrigDataSize), 0);
    assert_eq!(totals.fullest.gauge(Gauge::OrigDataSize), 100);
    assert_eq!((totals.members, totals.members_peak, totals.clusters_peak[1]), (1, 1, 3));
}

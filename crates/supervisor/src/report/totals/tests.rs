use super::*;
use crate::ipc::group_memory::GroupMemory;

#[test]
fn counters_outlive_their_member_and_gauges_do_not() {
    let memory = GroupMemory::create().expect("memfd");
    let mut totals = Totals::new();
    let group = memory.group();
    let id = memory.writer().assign(group.segment, 1).expect("free place");
    totals.began(group);
    let figures = &group.segment.members[id as usize].figures;
    figures.add(Counter::PagesOut, 5);
    figures.add_size(SizeCounter::SwapOut, 4, 2);
    figures.set(Gauge::OrigDataSize, 100);
    let mut clusters_used = [0; DEVICES_MAX];
    clusters_used[1] = 3;
    totals.sample(group, clusters_used);
    totals.sample(group, [0; DEVICES_MAX]);
    totals.ended(figures);
    memory.writer().release(group.segment, id);
    assert_eq!(totals.sums(group).counter(Counter::PagesOut), 5);
    assert_eq!(totals.sums(group).size(SizeCounter::SwapOut, 4), 2);
    assert_eq!(Levels::read(group).gauge(Gauge::OrigDataSize), 0);
    assert_eq!(totals.fullest.gauge(Gauge::OrigDataSize), 100);
    assert_eq!((totals.members, totals.members_peak, totals.clusters_peak[1]), (1, 1, 3));
}

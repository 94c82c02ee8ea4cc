use super::*;

const CLUSTER: u64 = CLUSTER_PAGES;

#[test]
fn a_range_is_allowed_when_each_of_its_clusters_is_granted() {
    let rights = Rights::new(Access::Granted);
    assert!(!rights.allow(0, 1), "nothing at first");
    rights.grant([1, 2, 5].into_iter());
    assert!(
        rights.allow(CLUSTER, 1) && rights.allow(3 * CLUSTER - 1, 1) && rights.allow(5 * CLUSTER, CLUSTER)
    );
    assert!(rights.allow(2 * CLUSTER - 3, 6), "two neighbours");
    assert!(!rights.allow(CLUSTER - 1, 2), "begins before them");
    assert!(!rights.allow(3 * CLUSTER - 1, 2), "ends behind them");
    assert!(!rights.allow(CLUSTER, 5 * CLUSTER), "has others within");
    assert!(rights.allow(CLUSTER, 0) && !rights.allow(0, 0));
    assert!(!rights.allow(u64::MAX, 64) && !rights.allow(u64::MAX - 3, u64::MAX));
}

#[test]
fn what_is_withdrawn_is_allowed_no_more() {
    let rights = Rights::new(Access::Granted);
    rights.grant([1, 2].into_iter());
    rights.withdraw([2, 7, u32::MAX].into_iter());
    assert!(rights.allow(CLUSTER, 1) && !rights.allow(2 * CLUSTER, 1));
    rights.grant([2].into_iter());
    assert!(rights.allow(2 * CLUSTER, 1));
}

#[test]
fn who_may_reach_all_is_not_bounded() {
    let rights = Rights::new(Access::All);
    rights.withdraw([0].into_iter());
    assert!(rights.allow(0, 64) && rights.allow(u64::MAX, 1));
}

use super::*;

#[test]
fn a_process_may_hold_four_times_its_address_space() {
    assert_eq!(most(0), 0);
    assert_eq!(most(CLUSTER_BYTES / TIMES - 1), 0);
    assert_eq!(most(100 * CLUSTER_BYTES), 400);
    assert_eq!(most(u64::MAX), u32::MAX, "whoever maps everything");
}

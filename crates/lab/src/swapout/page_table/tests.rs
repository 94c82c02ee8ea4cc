use super::*;
use folioswap_slots::DeviceId;

fn entry(device: u32, offset: u64) -> SwapEntry {
    SwapEntry::new(DeviceId::new(device).unwrap(), offset).unwrap()
}

#[test]
fn a_run_ends_where_slots_are_not_consecutive() {
    let mut table = PageTable::new(64);
    table.set_swapped(0..16, entry(0, 16));
    table.set_swapped(16..32, entry(0, 32));
    table.set_swapped(32..40, entry(0, 56));
    table.set_swapped(40..48, entry(1, 64));
    table.set(48..56, PageState::Present);
    assert_eq!(table.swapped_run(0), Some(SwappedRun { entry: entry(0, 16), pages: 32 }));
    assert_eq!(table.swapped_run(5), Some(SwappedRun { entry: entry(0, 21), pages: 27 }));
    assert_eq!(table.swapped_run(32), Some(SwappedRun { entry: entry(0, 56), pages: 8 }));
    assert_eq!(table.swapped_run(40), Some(SwappedRun { entry: entry(1, 64), pages: 8 }));
    assert_eq!(table.swapped_run(48), None);
    assert_eq!(table.swapped_run(60), None);
}

#[test]
fn a_run_ends_with_a_table_of_the_processor() {
    let mut table = PageTable::new(1100);
    table.set_swapped(0..1100, entry(0, 1000));
    assert_eq!(table.swapped_run(0).map(|run| run.pages), Some(512));
    assert_eq!(table.swapped_run(500).map(|run| run.pages), Some(12));
    assert_eq!(table.swapped_run(1024).map(|run| run.pages), Some(76));
}

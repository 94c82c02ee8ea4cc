//! The words of the map.

use super::*;
use folioswap_slots::DeviceId;

#[test]
fn what_is_packed_is_unpacked() {
    let entry = SwapEntry::new(DeviceId::new(31).unwrap(), (1 << 51) - 1).unwrap();
    for item in [Item::Folio(0), Item::Folio(u32::MAX), Item::Swap(entry), Item::Poison] {
        for order in Order::all() {
            let word = pack(Found { item, order });
            assert_eq!(unpack(word), Some(Found { item, order }));
            assert!(!is_node(word));
        }
    }
    assert_eq!(unpack(0), None);
    assert!(!is_node(0));
    assert!(is_node(&0u64 as *const u64 as u64) && unpack(&0u64 as *const u64 as u64).is_none());
}

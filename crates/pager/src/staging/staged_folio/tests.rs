use super::*;
use folioswap_slots::DeviceId;

#[test]
fn each_page_of_a_folio_has_its_place() {
    for (order, offset, berth) in
        [(0, 77, 5), (3, 15, 5), (4, 31, 5), (5, 64, 5), (5, 79, 5), (5, 80, 6), (9, 512, 5), (9, 1023, 36)]
    {
        let folio = StagedFolio { first: BerthIndex::new(5), order: Order::new(order).unwrap() };
        assert_eq!(StagedFolio::of(folio.id()), folio);
        let entry = SwapEntry::new(DeviceId::new(0).unwrap(), offset).unwrap();
        assert_eq!(folio.berth_of(entry), BerthIndex::new(berth), "{order} {offset}");
    }
}

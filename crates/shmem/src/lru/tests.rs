//! The lists of reclaim.

use super::*;
use folioswap_slots::Order;

#[test]
fn a_folio_is_on_a_list_once_however_often_it_is_added() {
    let (folios, lru) = (Folios::new(512).unwrap(), Lru::new());
    for frame in [1, 2, 3, 2, 1, 3, 3] {
        folios.lock(frame);
        if !folios.of(frame).has(flag::LISTED) {
            folios.of(frame).begin(Order::ZERO, 0);
        }
        lru.add(&folios, frame);
        folios.unlock(frame);
    }
    assert_eq!(lru.folios(), 3);
    for frame in [1, 2, 3] {
        assert_eq!(lru.coldest(&folios, 4), Coldest::Folio(frame));
    }
    assert_eq!((lru.coldest(&folios, 4), lru.folios()), (Coldest::None, 0));
}

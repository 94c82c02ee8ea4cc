use super::*;

#[test]
fn every_length_gets_the_smallest_slot_that_holds_it() {
    for len in 1..=PAGE_SIZE {
        let class = ClassId::for_len(len);
        let need = len + HEADER_BYTES;
        assert!(class.slot_bytes() >= need, "{len}");
        if let Some(smaller) = ClassId::from_raw(class.raw() + 1) {
            assert!(smaller.slot_bytes() < need, "{len}");
        }
    }
}

#[test]
fn no_two_classes_hold_equally_many() {
    for class in ClassId::all() {
        if let Some(next) = ClassId::from_raw(class.raw() + 1) {
            assert!(next.slot_bytes() < class.slot_bytes() && next.per_span() > class.per_span());
        }
    }
}

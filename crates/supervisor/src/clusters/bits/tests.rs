use super::*;

#[test]
fn behaves_as_a_set() {
    let mut bits = Bits::default();
    assert_eq!(bits.first_absent(5), 5);
    for number in [0, 1, 2, 63, 64, 200] {
        assert!(bits.insert(number));
        assert!(!bits.insert(number));
    }
    assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 1, 2, 63, 64, 200]);
    assert_eq!((bits.first_absent(0), bits.first_absent(63), bits.first_absent(200)), (3, 65, 201));
    assert!(bits.remove(1) && !bits.remove(1) && !bits.remove(9999));
    assert!(!bits.contains(1) && bits.contains(200) && !bits.contains(9999));
    assert_eq!(bits.take_runs(), [(0, 1), (2, 1), (63, 2), (200, 1)]);
    assert!(bits.is_empty());
    (0..64).for_each(|number| assert!(bits.insert(number)));
    assert_eq!(bits.first_absent(0), 64);
}

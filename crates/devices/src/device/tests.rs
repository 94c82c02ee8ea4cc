use super::*;

#[test]
fn a_run_is_taken_as_the_order_that_holds_it() {
    let small = Orders::from_bits(0b10000);
    assert_eq!(small.bits(), 0b10001, "order 0 is always taken");
    let taken = |orders: Orders| [1, 2, 9, 16, 17, 512, 513].map(|pages| orders.take_run(pages));
    assert_eq!(taken(small), [true, false, true, true, false, false, false]);
    assert_eq!(taken(Orders::ALL), [true, true, true, true, true, true, false]);
    assert_eq!(taken(Orders::ONLY_ZERO), [true, false, false, false, false, false, false]);
    assert!(!Orders::ALL.take_run(0) && !Orders::ALL.take(10));
    assert_eq!(Orders::from_bits(u16::MAX), Orders::ALL);
}

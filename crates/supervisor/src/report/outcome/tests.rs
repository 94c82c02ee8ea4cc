use super::*;

#[test]
fn statuses_are_those_of_a_shell() {
    assert_eq!(Outcome::from_wait(3 << 8), Some(Outcome::Exited(3)));
    assert_eq!(Outcome::from_wait(9).map(Outcome::status), Some(137));
    assert_eq!(Outcome::from_wait(0x137f), None, "stopped");
}

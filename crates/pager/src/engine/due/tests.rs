use super::*;

#[test]
fn it_is_due_at_once_and_then_after_each_interval() {
    let mut due = Due::at_once();
    let times = [7, 8, 16, 17, 18, 40, 41];
    assert_eq!(times.map(|now| due.take(now, 10)), [true, false, false, true, false, true, false]);
}

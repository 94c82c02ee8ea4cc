use super::*;

#[test]
fn only_what_the_front_alone_got_is_passed_on() {
    let mut forwards = Forwards::default();
    let now = Instant::now();
    let signal = |signal, pid| Arrived { signal, code: 0, pid };
    forwards.arrived(signal(2, 0), now);
    forwards.asked(signal(2, 0), now);
    assert_eq!(forwards.due(), None, "the group got it");
    forwards.asked(signal(15, 7), now);
    forwards.arrived(signal(15, 7), now);
    assert_eq!(forwards.due(), None, "the group got it, in the other order");
    forwards.asked(signal(15, 7), now);
    forwards.arrived(signal(15, 8), now);
    assert!(forwards.take_due(now).is_empty());
    assert_eq!(forwards.take_due(now + PATIENCE), [15], "from somebody else");
}

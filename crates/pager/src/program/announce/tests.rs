use super::*;
use crate::evict::announced::{ANNOUNCED_NS, Announced};
use crate::test_memory;

#[test]
fn what_was_announced_and_did_not_come_is_forgotten() {
    let Some(engine) = test_memory::moving_engine() else { return };
    let member = engine.member();
    let mut announced = Announced::default();
    let headroom = engine.announce(5);
    announced.expire(member, 1);
    announced.expire(member, ANNOUNCED_NS);
    assert_eq!(member.announced_bytes.load(Relaxed), 5);
    let more = engine.announce(6);
    announced.expire(member, ANNOUNCED_NS + 1);
    announced.expire(member, 2 * ANNOUNCED_NS);
    assert_eq!(member.announced_bytes.load(Relaxed), 11);
    announced.expire(member, 2 * ANNOUNCED_NS + 1);
    assert_eq!(member.announced_bytes.load(Relaxed), 0);
    drop((headroom, more));
    assert_eq!(member.announced_bytes.load(Relaxed), 0, "what was forgotten is not taken away again");
}

#[test]
fn nobody_waits_for_an_engine_that_does_not_run() {
    let engine = test_memory::engine();
    assert!(matches!(engine.filling(1 << 40), Filling::AtOnce(None)));
    assert!(engine.make_room(1 << 40, Unevictable::Locked).is_none());
}

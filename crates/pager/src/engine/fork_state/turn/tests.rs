use super::*;

const FIRST: u32 = 4_194_303;

const SECOND: u32 = 17;

fn begun(thread: u32, window: Freeze) -> ForkTurn {
    let turn = ForkTurn { thread: AtomicU32::new(0), window: AtomicU32::new(0) };
    turn.begin(thread);
    turn.set_freeze(window);
    turn
}

#[test]
fn the_thread_is_back_before_the_end() {
    let turn = begun(FIRST, Freeze::Opened);
    assert!(!turn.is_back() && !turn.waits_for_end(FIRST));
    assert_eq!(turn.come_back(FIRST), Back::HandlerEnds);
    assert!(turn.is_back() && turn.waits_for_end(FIRST));
    assert_eq!(turn.thread(), FIRST);
    turn.end();
    assert!(!turn.is_back() && !turn.waits_for_end(FIRST));
    assert_eq!(turn.thread(), 0);
}

#[test]
fn without_a_window_the_thread_ends_it() {
    assert_eq!(begun(FIRST, Freeze::None).come_back(FIRST), Back::ToEnd);
}

#[test]
fn who_is_late_says_nothing_of_the_next_turn() {
    for next in [Freeze::None, Freeze::Opened] {
        let turn = begun(FIRST, Freeze::Opened);
        turn.end();
        assert_eq!(turn.come_back(FIRST), Back::Late, "nobody's turn");
        turn.begin(SECOND);
        assert_eq!(turn.come_back(FIRST), Back::Late);
        turn.set_freeze(next);
        assert_eq!(turn.come_back(FIRST), Back::Late);
        assert!(!turn.is_back(), "the second one is not back");
        assert_ne!(turn.come_back(SECOND), Back::Late);
        assert!(turn.is_back() && !turn.waits_for_end(FIRST));
    }
}

#[test]
fn who_waits_for_the_end_does_not_wait_for_the_next_one() {
    let turn = begun(FIRST, Freeze::Opened);
    turn.come_back(FIRST);
    turn.end();
    turn.begin(SECOND);
    assert!(!turn.waits_for_end(FIRST));
    turn.set_freeze(Freeze::Opened);
    turn.come_back(SECOND);
    assert!(!turn.waits_for_end(FIRST));
}

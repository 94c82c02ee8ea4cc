use super::*;

const FIRST: u32 = 4_194_303;

const SECOND: u32 = 17;

fn begun(thread: u32, window: Window) -> ForkTurn {
    let turn = ForkTurn { thread: AtomicU32::new(0), window: AtomicU32::new(0) };
    turn.begin(thread);
    turn.set_window(window);
    turn
}

#[test]
fn the_thread_is_back_before_the_end() {
    let turn = begun(FIRST, Window::Opened);
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
    assert_eq!(begun(FIRST, Window::None).come_back(FIRST), Back::ToEnd);
}

#[test]
fn who_is_late_says_nothing_of_the_next_turn() {
    for next in [Window::None, Window::Opened] {
        let turn = begun(FIRST, Window::Opened);
        turn.end();
        assert_eq!(turn.come_back(FIRST), Back::Late, "nobody's turn");
        turn.begin(SECOND);
        assert_eq!(turn.come_back(FIRST), Back::Late);
        turn.set_window(next);
        assert_eq!(turn.come_back(FIRST), Back::Late);
        assert!(!turn.is_back(), "the second one is not back");
        assert_ne!(turn.come_back(SECOND), Back::Late);
        assert!(turn.is_back() && !turn.waits_for_end(FIRST));
    }
}

#[test]
fn who_waits_for_the_end_does_not_wait_for_the_next_one() {
    let turn = begun(FIRST, Window::Opened);
    turn.come_back(FIRST);
    turn.end();
    turn.begin(SECOND);
    assert!(!turn.waits_for_end(FIRST));
    turn.set_window(Window::Opened);
    turn.come_back(SECOND);
    assert!(!turn.waits_for_end(FIRST));
}

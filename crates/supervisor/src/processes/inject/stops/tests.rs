use super::*;

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).expect("positive")
}

/// What waitpid(2) tells of a stop with this si_status.
fn stopped(status: i32) -> i32 {
    status << 8 | 0x7f
}

#[test]
fn only_stops_of_what_is_traced_are_handed_over() {
    let stops = Stops::default();
    let exec = stopped(libc::SIGTRAP | EVENT_EXEC << 8);
    assert!(!stops.hand_over(7, exec));
    stops.keep([pid(7)]);
    // Its end is everybody's.
    assert!(!stops.hand_over(7, 0));
    assert!(stops.hand_over(7, stopped(libc::SIGTERM)));
    assert!(stops.hand_over(7, exec));
    assert_eq!(stops.look(pid(7)), Look::Stopped(Stop::Signal(libc::SIGTERM)));
    assert_eq!(stops.look(pid(7)), Look::Stopped(Stop::Exec));
    // Nothing is left; and the number is no child of this process.
    assert_eq!(stops.look(pid(7)), Look::Ended);
    stops.forget([pid(7)]);
    assert!(!stops.hand_over(7, exec));
}

#[test]
fn stops_are_told_apart() {
    assert_eq!(meaning(libc::SIGTRAP), Stop::Step);
    assert_eq!(meaning(libc::SIGTRAP | EVENT_STOP << 8), Stop::Interrupted);
    assert_eq!(meaning(libc::SIGTSTP | EVENT_STOP << 8), Stop::Group);
    assert_eq!(meaning(libc::SIGSTOP), Stop::Signal(libc::SIGSTOP));
}

#[test]
fn a_stop_that_nobody_has_taken_is_noted_until_the_process_stops_again() {
    let stops = Stops::default();
    stops.keep([pid(7)]);
    assert!(stops.hand_over(7, stopped(libc::SIGTSTP | EVENT_STOP << 8)));
    stops.forget([pid(7)]);
    assert!(stops.take_stopped(|_| false).is_empty());
    assert_eq!(stops.take_stopped(|process| process == 7), [7]);
    assert!(stops.take_stopped(|_| true).is_empty());
}

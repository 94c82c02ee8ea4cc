use super::*;
use rustix::event::{PollFd, PollFlags, poll};

fn is_readable(timer: BorrowedFd<'_>, within: Duration) -> bool {
    let timeout = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::from_borrowed_fd(timer, PollFlags::IN)], Some(&timeout)) == Ok(1)
}

#[test]
fn it_ticks_again_and_again_until_it_is_given_up() {
    let mut ticks = Ticks::default();
    for _ in 0..2 {
        assert!(is_readable(ticks.descriptor().unwrap(), 10 * TICK));
        ticks.note();
        assert!(!is_readable(ticks.descriptor().unwrap(), Duration::ZERO));
    }
    assert!(ticks.give_up());
    assert!(ticks.descriptor().is_none() && !ticks.give_up());
}

//! Ctrl-C for commands that work step by step: between two steps they end, or take it back.

use std::{mem::MaybeUninit, time::Duration};

/// SIGINT and SIGTERM, blocked so that they can be waited for.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks the signals: from now on only [`Signals::one_came_within`] notices them.
    pub fn block() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call initialises the set; the numbers are valid; the mask is that of
        // this thread, the only one.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Signals(set.assume_init())
        }
    }

    /// Waits for one of them, or for so long.
    pub fn one_came_within(&self, time: Duration) -> bool {
        let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
        let time = libc::timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() };
        // SAFETY: the set is initialised, no details of the signal are wanted, and the time lives
        // through the call.
        unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const time) > 0 }
    }
}

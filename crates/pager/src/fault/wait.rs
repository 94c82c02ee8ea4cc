//! How the handler waits: for messages, for reads that it has begun, for the end of the control
//! connection or of the program, and for ticks.

use crate::fault::handler::{Handler, Holds};
use crate::kernel::sys;
use crate::kernel::ticks::TICK;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::BorrowedFd;

/// The longest wait while the handler looks after a child that nobody else looks after.
const SHORT_WAIT: Duration = Duration::from_micros(200);

impl Handler {
    /// Sleeps until there is something to do.
    pub(crate) fn wait(&mut self) {
        let engine = self.engine;
        // SAFETY: both descriptors stay open for the life of this thread.
        let (faults, control) = unsafe {
            (
                BorrowedFd::borrow_raw(engine.userfault().0),
                BorrowedFd::borrow_raw(engine.descriptors.control.load(Relaxed)),
            )
        };
        // A read ahead wakes nobody.
        let read = self.reads.descriptor().filter(|_| self.holds == Holds::UntilRead);
        if self.holds == Holds::UntilRead && read.is_none() {
            // The reads are forgotten, and the ring that would report their end is given up: the
            // faults that wait are looked at again.
            return;
        }
        let short = !engine.fork.is_thawed() || !self.raw_children.is_empty();
        // The threads of an embedder share its descriptors, so it may close them.
        let ticks = if short || engine.embedded.is_on() { None } else { self.ticks.descriptor() };
        let timeout = match ticks {
            Some(_) => None,
            None if short => Some(SHORT_WAIT),
            None => Some(TICK),
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // The evictor reads the messages of the control connection; the handler notices its end.
        let mut polled = [(); 5].map(|()| PollFd::from_borrowed_fd(faults, PollFlags::IN));
        polled[1] = PollFd::from_borrowed_fd(control, PollFlags::RDHUP);
        let mut count = 2;
        // SAFETY: as above.
        let program = engine.program_pidfd().map(|pidfd| unsafe { BorrowedFd::borrow_raw(pidfd) });
        for descriptor in [ticks, read, program].into_iter().flatten() {
            polled[count] = PollFd::from_borrowed_fd(descriptor, PollFlags::IN);
            count += 1;
        }
        let _ = rustix::event::poll(&mut polled[..count], timeout.as_ref());
        if program.is_some() && !polled[count - 1].revents().is_empty() {
            // The program has ended.
            sys::exit_group(0);
        }
        let has_ticked = ticks.is_some() && !polled[2].revents().is_empty();
        if polled[1].revents().intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR) {
            if engine.embedded.is_stopping() {
                return;
            }
            // The supervisor is gone, and nobody else could keep the limit and hold our memory's
            // descriptor.
            engine.kill_program();
        }
        if has_ticked {
            self.ticks.note();
        }
    }
}

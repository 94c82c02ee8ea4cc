//! The timer that wakes the handler now and then although nothing happens: it ticks all the time. A
//! timeout for each wait would cost a tenth of serving a fault, because the kernel starts and stops
//! a timer for it.

use core::mem::MaybeUninit;
use core::time::Duration;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// The time between two ticks.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// The timer of a thread whose descriptors no other thread closes.
#[derive(Default)]
pub(crate) enum Ticks {
    /// The timer was not started yet.
    #[default]
    Unknown,
    Timer(OwnedFd),
    /// There is no descriptor for a timer, or it was given up: each wait has its timeout.
    None,
}

impl Ticks {
    /// Returns a descriptor that becomes readable at each tick, or `None`: the wait needs a
    /// timeout.
    pub(crate) fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        if matches!(self, Ticks::Unknown) {
            *self = start().map_or(Ticks::None, Ticks::Timer);
        }
        match self {
            Ticks::Timer(timer) => Some((*timer).as_fd()),
            Ticks::Unknown | Ticks::None => None,
        }
    }

    /// Records a tick: the descriptor is not readable any more.
    pub(crate) fn note(&mut self) {
        if let Ticks::Timer(timer) = self {
            let mut ticks = [MaybeUninit::<u8>::uninit(); 8];
            let _ = rustix::io::read(&*timer, &mut ticks);
        }
    }

    /// Closes the descriptor for good. Returns whether there was one, so that a descriptor is free
    /// now.
    pub(crate) fn give_up(&mut self) -> bool {
        matches!(core::mem::replace(self, Ticks::None), Ticks::Timer(_))
    }
}

fn start() -> Option<OwnedFd> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
    let tick = Timespec::try_from(TICK).ok()?;
    let spec = Itimerspec { it_interval: tick, it_value: tick };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec).ok()?;
    Some(timer)
}

#[cfg(test)]
mod tests;

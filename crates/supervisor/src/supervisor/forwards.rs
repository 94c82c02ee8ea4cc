//! Signals that the front got: they are passed on to CMD, unless the whole process group got them.
//!
//! The supervisor is in the same process group, so a signal that reached it as well (same number,
//! same origin) reached CMD too. The kernel signals a group one process after the other, so the
//! supervisor gives its own copy a moment to arrive.

use crate::processes::signals::Arrived;
use std::time::{Duration, Instant};

/// How long the supervisor's own copy may be behind the front's message.
const PATIENCE: Duration = Duration::from_millis(15);
/// How long the front's message may be behind the supervisor's own copy.
const MEMORY: Duration = Duration::from_secs(2);

/// The signals that only one side has seen so far.
#[derive(Default)]
pub struct Forwards {
    own: Vec<(Arrived, Instant)>,
    asked: Vec<(Arrived, Instant)>,
}

impl Forwards {
    /// Notes a signal that the supervisor got itself.
    pub fn arrived(&mut self, signal: Arrived, now: Instant) {
        match self.asked.iter().position(|(asked, _)| *asked == signal) {
            Some(index) => drop(self.asked.remove(index)),
            None => self.own.push((signal, now)),
        }
    }

    /// Notes a signal that the front got.
    pub fn asked(&mut self, signal: Arrived, now: Instant) {
        self.own.retain(|(_, at)| now.duration_since(*at) < MEMORY);
        match self.own.iter().position(|(own, _)| *own == signal) {
            Some(index) => drop(self.own.remove(index)),
            None => self.asked.push((signal, now + PATIENCE)),
        }
    }

    /// When the next signal is to be passed on.
    pub fn due(&self) -> Option<Instant> {
        self.asked.iter().map(|(_, due)| *due).min()
    }

    /// Takes out the signals that only the front got and that are due, in their order.
    pub fn take_due(&mut self, now: Instant) -> Vec<i32> {
        let due = self.asked.iter().filter(|(_, due)| *due <= now).map(|(signal, _)| signal.signal).collect();
        self.asked.retain(|(_, due)| *due > now);
        due
    }
}

#[cfg(test)]
mod tests;

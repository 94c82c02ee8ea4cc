//! When the poll loop wakes: something arrives, or is due.

use super::{
    Supervisor, change::LimitChange, connection::Connection, pagers::Settling, swapoff::Swapoff,
    swapon::Swapon,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

impl Supervisor {
    /// Sleeps until something arrives or is due; returns the serials of connections whose process
    /// has ended.
    pub(super) fn wait(&self) -> Vec<u64> {
        self.wait_for(self.next_due().saturating_duration_since(Instant::now()))
    }

    /// [`Supervisor::wait`] for at most this time.
    pub(super) fn wait_for(&self, timeout: Duration) -> Vec<u64> {
        let serials: Vec<u64> = self.connections.iter().map(|connection| connection.serial).collect();
        let processes = self.connections.iter().map(|connection| &connection.process);
        let mut waiting: Vec<PollFd<'_>> =
            processes.map(|process| PollFd::new(process, PollFlags::IN)).collect();
        waiting.push(PollFd::new(&self.signals, PollFlags::IN));
        waiting.extend(self.settings.listeners.iter().map(|it| PollFd::new(it, PollFlags::IN)));
        waiting.extend(self.link.iter().map(|link| PollFd::new(link, PollFlags::IN)));
        waiting
            .extend(self.connections.iter().map(|connection| PollFd::new(&connection.socket, PollFlags::IN)));
        waiting.extend(self.orphans.unserved().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if poll(&mut waiting, Some(&timeout)).is_err() {
            // An error (EINTR) only makes the loop look earlier.
            return Vec::new();
        }
        let ended = waiting.iter().zip(serials).filter(|(process, _)| !process.revents().is_empty());
        ended.map(|(_, serial)| serial).collect()
    }

    /// When the poll loop has something to do, whether or not something arrives.
    pub(super) fn next_due(&self) -> Instant {
        let mut due = self.census.due();
        let mut consider = |at: Option<Instant>| due = at.map_or(due, |at| due.min(at));
        consider(self.forwards.due());
        consider(self.orphans.due());
        consider(self.silence_due());
        consider((!self.connections.is_empty()).then_some(self.next_sample));
        consider(self.settling.as_ref().filter(|_| !self.reported).map(Settling::due));
        consider((self.recording.is_some() && !self.connections.is_empty()).then_some(self.next_drain));
        consider(self.clusters.wants_punch().then_some(self.next_punch));
        consider(self.must_probe().then_some(self.next_probe));
        let measures = !self.connections.is_empty() && self.frozen.is_none();
        consider(measures.then(|| self.pressure.due()));
        consider(self.swapoff.as_ref().map(Swapoff::due));
        consider(self.swapon.as_ref().map(Swapon::due));
        consider(self.limit_change.as_ref().map(LimitChange::due));
        due
    }

    fn must_probe(&self) -> bool {
        !self.pending.is_empty()
            || !self.weights.is_empty()
            || !self.orphans.is_empty()
            || self.connections.iter().any(Connection::is_waiting)
    }
}

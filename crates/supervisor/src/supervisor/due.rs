//! When the poll loop wakes by itself.

use super::{
    Supervisor, change::LimitChange, connection::Connection, pagers::Settling, swapoff::Swapoff,
    swapon::Swapon,
};
use std::time::Instant;

impl Supervisor {
    /// When the poll loop has something to do, whether or not something arrives.
    pub(super) fn next_due(&self) -> Instant {
        let mut due = self.census.due();
        let mut consider = |at: Option<Instant>| due = at.map_or(due, |at| due.min(at));
        consider(self.forwards.due());
        consider(self.orphans.due());
        consider(self.silence_due());
        consider((!self.connections.is_empty()).then_some(self.next_sample));
        consider(self.settling.as_ref().filter(|_| !self.reported).and_then(Settling::due));
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
            || !self.orphans.is_empty()
            || self.connections.iter().any(Connection::is_waiting)
    }
}

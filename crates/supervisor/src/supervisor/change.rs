//! Changes of the group while it runs: another limit, other tiers, freeze and thaw.
//!
//! A lower limit is tried, not decreed. Members page out until the group is within it; if they do
//! not come so far, because memory is locked or swap is full, the old limit holds again and nothing
//! has happened. So a change never ends a group.
//!
//! A process of the group may not change it: the limit is there to hold for that process.

use super::{
    Supervisor,
    connection::{Connection, Kinship, Role},
    members::{After, sent},
    tiers::TiersBefore,
};
use crate::{ipc::wire, size::LIMIT_MIN};
use folioswap_group::{
    decisions::Progress,
    protocol::{Change, ChangeEnd, Kind, Message},
};
use rustix::thread::futex;
use std::{
    sync::atomic::Ordering::{Relaxed, Release},
    time::{Duration, Instant},
};

/// The time between two looks at the charge.
const LOOK: Duration = Duration::from_millis(5);
/// The old limit holds again when the group is not within the new one and its charge has not sunk
/// for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The least by which a charge that sinks must sink: what members write must not keep a change
/// open.
const PROGRESS: u64 = 1 << 20;

/// The change of the limit that is under way.
pub(super) struct LimitChange {
    /// The limit and the reserve that hold again if the change fails.
    before: (u64, u64),
    /// The masked devices that hold again then, if tiers were changed with the limit.
    tiers_before: Option<TiersBefore>,
    next: Instant,
    /// The least charge that was seen, and when it was last found to sink.
    least: u64,
    sank_at: Instant,
}

impl LimitChange {
    /// When the next look at the charge is due.
    pub(super) fn due(&self) -> Instant {
        self.next
    }
}

impl Supervisor {
    /// Makes the change that a command asks for, begins it, or refuses it.
    pub(super) fn begin_change(&mut self, index: usize, words: [u64; 3], now: Instant) -> After {
        let Some(change) = Change::unpack(words) else { return After::Close };
        let end = if self.may_change(&self.connections[index]) {
            match change {
                Change::Limit(bytes) => self.begin_limit(index, bytes, now),
                Change::Freeze => Some(self.freeze()),
                Change::Thaw => Some(self.thaw(now)),
                Change::Tiers(devices) => Some(self.set_tiers(devices)),
                Change::LimitInTiers { bytes, devices } => {
                    self.begin_limit_in_tiers(index, bytes, devices, now)
                }
                Change::Weight { process, weight } => Some(self.set_weight(process, weight)),
                Change::GroupWeight(weight) => {
                    self.settings.description.weight = weight;
                    Some(ChangeEnd::Done { charge: self.settings.memory.group().certain_charge_bytes() })
                }
            }
        } else {
            Some(ChangeEnd::NotPermitted)
        };
        match end {
            Some(end) => {
                let end = Message::new(Kind::ChangeEnd, end.pack());
                sent(wire::send(&self.connections[index].socket, &end, &[]))
            }
            None => After::Keep,
        }
    }

    /// Whether the other end is root, or the user whose group it is, and no process of the group.
    fn may_change(&self, connection: &Connection) -> bool {
        super::members::is_root_or_owner(connection.user) && connection.kinship == Kinship::Stranger
    }

    /// Sets another limit. `None`: the group is not within it yet.
    fn begin_limit(&mut self, index: usize, bytes: u64, now: Instant) -> Option<ChangeEnd> {
        let charge = self.settings.memory.group().certain_charge_bytes();
        if bytes < LIMIT_MIN {
            return Some(ChangeEnd::TooSmall { least: LIMIT_MIN });
        }
        if self.limit_change.is_some() {
            return Some(ChangeEnd::Busy);
        }
        let is_frozen = self.settings.memory.group().decisions.progress() == Progress::Frozen;
        // A group at its limit has a little more than that; a limit that is no lower asks for
        // nothing to leave.
        let is_lower = bytes < self.settings.bound();
        if is_frozen && is_lower && charge > bytes {
            return Some(ChangeEnd::Frozen { charge });
        }
        if self.unmanaged > bytes {
            return Some(ChangeEnd::NoRoom { charge: self.unmanaged });
        }
        let before = (self.settings.limit, self.settings.reserve);
        self.set_limit(bytes, 0);
        if charge <= bytes || !is_lower {
            return Some(ChangeEnd::Done { charge });
        }
        self.connections[index].role = Role::Changing;
        self.limit_change =
            Some(LimitChange { before, tiers_before: None, next: now + LOOK, least: charge, sank_at: now });
        None
    }

    /// Sets other tiers, since a lower limit may need them, and then another limit. `None`: the
    /// group is not within it yet.
    fn begin_limit_in_tiers(
        &mut self,
        index: usize,
        bytes: u64,
        devices: u32,
        now: Instant,
    ) -> Option<ChangeEnd> {
        let before = self.tiers_before();
        let tiers = self.set_tiers(devices);
        if !matches!(tiers, ChangeEnd::Done { .. }) {
            return Some(tiers);
        }
        let end = self.begin_limit(index, bytes, now);
        match (&end, &mut self.limit_change) {
            (None, Some(change)) => change.tiers_before = Some(before),
            (Some(ChangeEnd::Done { .. }), _) => {}
            _ => self.put_tiers_back(before),
        }
        end
    }

    /// Looks whether the group is within its new limit, if that is due.
    pub(super) fn tend_limit(&mut self, now: Instant) {
        let limit = self.settings.bound();
        let charge = self.settings.memory.group().certain_charge_bytes();
        let Some(change) = self.limit_change.as_mut().filter(|change| now >= change.next) else { return };
        change.next = now + LOOK;
        if charge.saturating_add(PROGRESS) <= change.least {
            (change.least, change.sank_at) = (charge, now);
        }
        let is_stuck = now.duration_since(change.sank_at) >= PATIENCE;
        if charge <= limit {
            self.end_limit(ChangeEnd::Done { charge });
        } else if is_stuck {
            self.give_up_limit();
        } else {
            self.wake_all();
        }
    }

    /// Lets the old limit hold again, because the group does not come within the new one, or the
    /// asking command is gone.
    pub(super) fn give_up_limit(&mut self) {
        let Some(change) = &self.limit_change else { return };
        let ((limit, reserve), charge) = (change.before, change.least);
        if let Some(before) = change.tiers_before {
            self.put_tiers_back(before);
        }
        self.set_limit(limit, reserve);
        self.excess_walks = 0;
        self.end_limit(ChangeEnd::NoRoom { charge });
    }

    fn end_limit(&mut self, end: ChangeEnd) {
        self.limit_change = None;
        let asking = self.connections.iter_mut().find(|connection| matches!(connection.role, Role::Changing));
        if let Some(connection) = asking {
            // The command closes the connection when it has read this.
            connection.role = Role::New;
            let _ = sent(wire::send(&connection.socket, &Message::new(Kind::ChangeEnd, end.pack()), &[]));
        }
    }

    fn set_limit(&mut self, limit: u64, reserve: u64) {
        (self.settings.limit, self.settings.reserve) = (limit, reserve);
        self.settings.memory.writer().set_limit_bytes(self.settings.bound());
        self.wake_all();
    }

    /// Wakes the members' evictors, and the threads that wait for memory: both look at the limit.
    fn wake_all(&self) {
        let sank = &self.settings.memory.group().segment.header.charge_sank;
        sank.fetch_add(1, Release);
        let _ = futex::wake(sank, futex::Flags::empty(), i32::MAX as u32);
        for member in self.settings.memory.group().live_members() {
            // A sleeping evictor reads the limit when it wakes, whatever woke it.
            member.wake.fetch_add(1, Relaxed);
            let _ = futex::wake(&member.wake, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

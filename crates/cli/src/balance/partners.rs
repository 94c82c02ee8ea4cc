//! The groups that take part, and what each needs, by how they looked at the last look and now.

use super::plan::{Need, Party};
use crate::operate::change::Address;
use folioswap_devices::PAGE_SIZE;
use folioswap_group::counters::Counter;
use folioswap_supervisor::{
    ipc::groups::{self, Group},
    size::LIMIT_MIN,
    view::{GroupSnapshot, State},
};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// A group that swaps so many bytes a second or more needs more.
const SWAPS: u64 = 1 << 20;
/// How long a group needs more after it was last seen to.
const MEMORY_OF_NEED: Duration = Duration::from_secs(3);
/// What a group that does not swap gets above its charge: this, and an eighth of the charge.
const ROOM: u64 = 16 << 20;
/// What a group gets above memory that cannot leave: this, and an eighth of it.
const ROOM_OF_UNMANAGED: u64 = 4 << 20;
/// How long a group whose change was refused is not asked again; twice as long after each further
/// refusal, up to 32 times as long.
const REST: Duration = Duration::from_secs(10);
const DOUBLINGS_MAX: u32 = 5;

/// What was seen of a group.
struct Seen {
    /// Bytes that it had swapped at the last look, in and out.
    swapped: u64,
    at: Instant,
    needs_more_until: Option<Instant>,
    rests_until: Option<Instant>,
    /// The limit at the last look.
    limit: u64,
    /// The refusals since a change was made.
    refusals: u32,
}

/// A group that can be asked for another limit.
pub struct Partner {
    pub name: String,
    /// The abstract name of its socket, which no other group has.
    pub socket: String,
    pub address: Address,
    /// Its limit in bytes.
    pub limit: u64,
    pub party: Party,
}

/// All that takes part at one moment.
pub struct Partners {
    /// Those that can be asked.
    pub able: Vec<Partner>,
    /// The bytes of those that are ending.
    pub ending: u64,
    /// The sockets and the limits of those that did not answer in time.
    pub silent: Vec<(String, u64)>,
}

/// What is known of the groups.
#[derive(Default)]
pub struct Known(HashMap<String, Seen>);

impl Known {
    /// Looks at the groups that take part, with the weight that `weight` gives them.
    pub fn look(&mut self, now: Instant, weight: impl Fn(&Group) -> Option<u32>) -> Partners {
        let (mut able, mut silent, mut ending, mut seen) = (Vec::new(), Vec::new(), 0_u64, Vec::new());
        for group in groups::running(None).unwrap_or_default() {
            let Some(weight) = weight(&group) else { continue };
            seen.push(group.socket.clone());
            let snapshot = GroupSnapshot::read(&group);
            if snapshot.state == State::Ending {
                ending = ending.saturating_add(snapshot.charge);
                continue;
            }
            able.push(self.partner(&group, snapshot, weight, now));
        }
        // A group that is stopped, or starved, does not answer in time and keeps its limit.
        self.0.retain(|socket, known| {
            let is_seen = seen.contains(socket);
            let is_silent = !is_seen && groups::has_socket(socket);
            if is_silent {
                silent.push((socket.clone(), known.limit));
            }
            is_seen || is_silent
        });
        Partners { able, ending, silent }
    }

    fn partner(&mut self, group: &Group, snapshot: GroupSnapshot, weight: u32, now: Instant) -> Partner {
        let pages = [Counter::PagesIn, Counter::PagesOut].map(|counter| snapshot.counters.get(counter));
        let swapped = pages.into_iter().fold(0, u64::saturating_add).saturating_mul(PAGE_SIZE as u64);
        let (charge, limit) = (snapshot.charge, snapshot.limit);
        let seen = self.0.entry(group.socket.clone()).or_insert_with(|| Seen {
            swapped,
            at: now,
            needs_more_until: None,
            rests_until: None,
            limit,
            refusals: 0,
        });
        let time = now.duration_since(seen.at).as_secs_f64();
        if swapped.saturating_sub(seen.swapped) as f64 > SWAPS as f64 * time {
            seen.needs_more_until = Some(now + MEMORY_OF_NEED);
        }
        (seen.swapped, seen.at, seen.limit) = (swapped, now, limit);
        let is_before = |until: Option<Instant>| until.is_some_and(|until| now < until);
        let party = if is_before(seen.rests_until) {
            Party { weight, least: limit, need: Need::Enough(limit) }
        } else {
            let unmanaged = snapshot.parts.unmanaged;
            // Nothing leaves a frozen group.
            let frozen = if snapshot.state == State::Frozen { charge } else { 0 };
            let least = unmanaged.saturating_add(unmanaged / 8).saturating_add(ROOM_OF_UNMANAGED);
            // A group has come within its limit: what it says beyond that is not believed.
            let least = least.max(frozen).min(limit).max(LIMIT_MIN);
            let enough = charge.saturating_add(charge / 8).saturating_add(ROOM);
            let need = if is_before(seen.needs_more_until) { Need::More } else { Need::Enough(enough) };
            Party { weight, least, need }
        };
        let (name, socket) = (snapshot.name, group.socket.clone());
        Partner { name, socket, address: group.into(), limit, party }
    }

    /// Notes that a group refused a change, so that this limit holds again: it rests. Returns
    /// whether that is news.
    pub fn refused(&mut self, socket: &str, limit: u64, now: Instant) -> bool {
        let Some(seen) = self.0.get_mut(socket) else { return false };
        seen.limit = limit;
        seen.rests_until = Some(now + REST * 2_u32.pow(seen.refusals.min(DOUBLINGS_MAX)));
        seen.refusals = seen.refusals.saturating_add(1);
        seen.refusals == 1
    }

    /// Notes that a group has made a change: this limit holds, also where it does not answer at the
    /// next look.
    pub fn changed(&mut self, socket: &str, limit: u64) {
        if let Some(seen) = self.0.get_mut(socket) {
            (seen.limit, seen.refusals) = (limit, 0);
        }
    }
}

//! A running group as it is at one moment: the one reader of both memories for all that look at
//! groups from outside (`ps`, `top`, `stats`, metrics).
//!
//! The memories are mapped for reading, and every word of the segment may be written by a hostile
//! member. So sums saturate, indices come from methods that bound them, and names that processes
//! chose are printable. A wrong word makes a figure wrong and nothing else.

mod figures;
pub(crate) mod json;
mod latency;
mod member;

pub use figures::Counters;
pub use latency::Latency;
pub use member::MemberView;

use crate::{
    ipc::groups::Group,
    report::{
        table::{self, Device},
        totals::Levels,
    },
};
use folioswap_group::{
    counters::{Counter, Gauge},
    decisions::{GroupState, Pressure, Progress},
};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its processes run.
    Running,
    /// Its processes are stopped until they are thawed.
    Frozen,
    /// Its supervisor is ending it.
    Ending,
}

impl State {
    /// The word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Frozen => "frozen",
            State::Ending => "ending",
        }
    }
}

/// The parts of the memory of a group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Anonymous memory of the programs.
    pub resident: u64,
    /// Their compressed stores.
    pub store: u64,
    /// Pages that wait uncompressed between program and store.
    pub staging: u64,
    /// Tables of the engines.
    pub tables: u64,
    /// Memory that no member counts: descendants without an agent, and folioswap's own processes.
    pub unmanaged: u64,
    /// Memory of devices of type `ram`.
    pub devices: u64,
}

/// A group at one moment.
#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    /// Its name.
    pub name: String,
    /// The process id of its supervisor.
    pub pid: u32,
    /// The user whose group it is.
    pub owner: u32,
    /// Its program with the arguments, as one line.
    pub command: String,
    /// Since when it runs, in seconds since 1970, as it says.
    pub started_unix: u64,
    /// Its weight among groups.
    pub weight: u32,
    /// What it is doing.
    pub state: State,
    /// `total` or `resident`.
    pub scope: &'static str,
    /// The limit in bytes.
    pub limit: u64,
    /// The bytes that count towards it.
    pub charge: u64,
    /// What it consists of.
    pub parts: Parts,
    /// Uncompressed bytes in the compressed stores.
    pub stored: u64,
    /// Bytes of its memory that are swapped out.
    pub swapped: u64,
    /// Its pressure stall information, as of at most 2 s ago.
    pub pressure: Pressure,
    /// Its processes with an agent, by process id.
    pub members: Vec<MemberView>,
    /// Its devices, in the order of use.
    pub devices: Vec<Device>,
    /// Counters of all members that it has and had.
    pub counters: Counters,
    /// Faults of its members by the time that they took.
    pub latency: Latency,
    /// Gauges, summed over its members.
    pub levels: Levels,
}

impl GroupSnapshot {
    /// Reads a group. Cost: some 150 loads per member, and a small file of `/proc` for each.
    pub fn read(group: &Group) -> Self {
        let memory = group.memory.group();
        let decisions = memory.decisions;
        let levels = Levels::read(memory);
        let state = match (decisions.state(), decisions.progress()) {
            (GroupState::Ending, _) => State::Ending,
            (GroupState::Running, Progress::Frozen) => State::Frozen,
            (GroupState::Running, Progress::GoesOn) => State::Running,
        };
        let mut members: Vec<MemberView> =
            memory.taken().map(|(seat, member)| MemberView::read(seat, member)).collect();
        members.sort_by_key(|member| member.pid);
        GroupSnapshot {
            name: group.description.name.clone(),
            pid: decisions.supervisor_pid(),
            owner: group.owner,
            command: group.description.command.clone(),
            started_unix: group.description.started_unix,
            weight: group.description.weight,
            state,
            scope: decisions.scope().name(),
            limit: decisions.limit_bytes(),
            charge: memory.charge_bytes(),
            parts: Parts {
                resident: levels.gauge(Gauge::Resident),
                store: levels.gauge(Gauge::MemUsedTotal),
                staging: levels.gauge(Gauge::Staging),
                tables: levels.gauge(Gauge::Metadata),
                unmanaged: decisions.unmanaged_bytes(),
                devices: decisions.device_bytes(),
            },
            stored: levels.gauge(Gauge::OrigDataSize),
            swapped: levels.gauge(Gauge::Swapped),
            pressure: decisions.pressure(),
            members,
            devices: table::devices(decisions, &levels, &group.names)
                .into_iter()
                .map(|(_, row)| row)
                .collect(),
            counters: Counters::read(memory),
            latency: Latency::read(memory),
            levels,
        }
    }

    /// Uncompressed bytes per byte of the compressed stores; `None` when nothing is stored.
    pub fn ratio(&self) -> Option<f64> {
        (self.parts.store > 0 && self.stored > 0).then(|| self.stored as f64 / self.parts.store as f64)
    }

    /// How long it has run.
    pub fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_secs(self.started_unix))
    }

    /// The processor time that its pager threads have used.
    pub fn pager_time(&self) -> Duration {
        Duration::from_nanos(self.counters.get(Counter::PagerNanoseconds))
    }

    /// The time that threads of its programs have waited for pages, added up.
    pub fn wait_time(&self) -> Duration {
        Duration::from_nanos(self.counters.get(Counter::FaultNanoseconds))
    }
}

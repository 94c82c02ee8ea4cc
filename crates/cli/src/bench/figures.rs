//! The counters of this very process while it runs, read from the memory of its group.

use folioswap_bench::faults::{Engine, Served};
use folioswap_group::counters::Counter;
use folioswap_group::protocol::GROUP_VARIABLE;
use folioswap_group::seat::Seat;
use folioswap_supervisor::ipc::{group_memory::GroupView, groups};
use std::io;
use std::time::Duration;

/// How long the group may take to answer; one whose supervisor is stopped never does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The figures of this process among those of the members of its group.
pub struct OwnFigures {
    memory: GroupView,
    member: usize,
}

/// Finds the figures of this process; `None` when it runs in no group.
///
/// # Errors
/// The group does not answer, or does not know this process.
pub fn own() -> io::Result<Option<OwnFigures>> {
    let Ok(name) = std::env::var(GROUP_VARIABLE) else { return Ok(None) };
    let memory = groups::query(&name, PATIENCE)?.memory;
    let own = std::process::id();
    let is_ours = |seat: &Seat| seat.is_live() && seat.pid() == own;
    let member = memory.group().decisions.seats_in_use().iter().position(is_ours);
    let member = member.ok_or_else(|| io::Error::other("this process is no member of it"))?;
    Ok(Some(OwnFigures { memory, member }))
}

impl Engine for OwnFigures {
    fn served(&self) -> Served {
        let figures = &self.memory.group().segment.members[self.member].figures;
        let faults = figures.faults_served().saturating_add(figures.counter(Counter::WriteProtectFaults));
        // Major faults are read last, so that no fault in `faults` is missing among them.
        Served { faults, from_store: figures.counter(Counter::MajorFaults) }
    }
}

//! What folioswap counts of this very process, while it runs: the group's segment, to read.

use folioswap_bench::faults::{Engine, Served};
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{GROUP_VARIABLE, Kind, Message};
use folioswap_supervisor::ipc::{mapped::Mapped, wire};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A group whose supervisor is stopped does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Our own place among the members of a group.
pub struct OwnFigures {
    segment: Mapped,
    member: usize,
}

/// Those of this process; `None` when it is no member of a group.
///
/// # Errors
/// The group does not answer, or does not know this process.
pub fn own() -> io::Result<Option<OwnFigures>> {
    let Ok(name) = std::env::var(GROUP_VARIABLE) else { return Ok(None) };
    let socket = wire::connect_to(&name)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    wire::send(&socket, &Message::new(Kind::Query, [0; 3]), &[])?;
    let answer = wire::receive(&socket)?.filter(|answer| answer.message.kind() == Some(Kind::Answer));
    // The first descriptor is the segment.
    let segment = answer.and_then(|answer| answer.descriptors.into_iter().next()).ok_or(Errno::PROTO)?;
    let segment = Mapped::read_only(segment)?;
    let own = std::process::id();
    let is_ours =
        |member: &folioswap_group::segment::Member| member.is_live() && member.pid.load(Relaxed) == own;
    let member = segment.members().iter().position(is_ours);
    let member = member.ok_or_else(|| io::Error::other("this process is no member of it"))?;
    Ok(Some(OwnFigures { segment, member }))
}

impl Engine for OwnFigures {
    fn served(&self) -> Served {
        let figures = &self.segment.members[self.member].figures;
        let faults = figures.faults_served() + figures.counter(Counter::WriteProtectFaults);
        // Read last: a fault that is among `faults` is not missing here.
        Served { faults, from_store: figures.counter(Counter::MajorFaults) }
    }
}

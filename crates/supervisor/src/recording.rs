//! `run --trace FILE`: the records of all members' rings go into one file, in the order of time.
//!
//! Each member has a ring of its own ([`folioswap_trace::Ring`]) and a number that no other member
//! ever gets. The rings are emptied every [`INTERVAL`]; the ring of a member also when it forks and
//! when it ends. The file is written in whole records, so it is readable at every moment, whichever
//! process is killed.

use crate::ipc::mapped::{Mapped, Others};
use folioswap_trace::{CPUS_MAX, Event, Header, RECORD_BYTES, Record, Ring, TICK_MAX, Taken};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    time::{ClockId, clock_gettime},
};
use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

/// The time between two looks at the rings.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// The length of a tick of the trace, in nanoseconds.
const TICK_NS: u32 = 1000;

/// The ring of one member.
pub struct MemberRing {
    fd: OwnedFd,
    ring: Mapped<Ring>,
    member: u32,
    last_tick: u64,
}

impl MemberRing {
    /// The most memory that a ring takes, in bytes.
    pub const BYTES: usize = Ring::<{ folioswap_trace::RING_RECORDS }>::BYTES;

    /// The descriptor that the member gets.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The summary of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recorded {
    /// The events in the file: allocations, frees and the like.
    pub events: u64,
    /// The members that were recorded.
    pub members: u32,
    /// The events that found a full ring, or that a killed member left half written.
    pub lost: u64,
    /// The members that got no ring.
    pub members_lost: u32,
    /// The error after which nothing more was written.
    pub error: Option<String>,
}

impl Recorded {
    /// A warning for the user when the file does not have everything.
    pub fn warning(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(error) = &self.error {
            parts.push(format!("it ends early: {error}"));
        }
        if self.lost > 0 {
            parts.push(format!("{} of {} events are missing", self.lost, self.lost + self.events));
        }
        if self.members_lost > 0 {
            parts.push(format!("{} processes are missing", self.members_lost));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The file of a trace, and the records on their way into it.
pub struct Recording {
    path: PathBuf,
    file: File,
    origin_ns: u64,
    cpus: u32,
    current: u32,
    batch: Vec<(u32, Record)>,
    bytes: Vec<u8>,
    recorded: Recorded,
}

impl Recording {
    /// Makes the file, or empties an existing one, and writes its header.
    ///
    /// # Errors
    /// The file cannot be made or written.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let cpus = configured_cpus();
        let mut file = File::create(&path)?;
        file.write_all(&Header { tick_ns: TICK_NS, cpus }.encode())?;
        Ok(Recording {
            path,
            file,
            origin_ns: now_ns(),
            cpus,
            current: 0,
            batch: Vec::new(),
            bytes: Vec::new(),
            recorded: Recorded::default(),
        })
    }

    /// The path of the file, as the user wrote it.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The descriptor of the file.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A number for a new member.
    pub fn number(&mut self) -> u32 {
        self.recorded.members += 1;
        self.recorded.members - 1
    }

    /// A ring for the member of this number; `None`, which is counted, when there is no memory or
    /// descriptor for it.
    pub fn ring(&mut self, member: u32) -> Option<MemberRing> {
        match Mapped::<Ring>::create(c"folioswap-trace", Others::Write) {
            Ok((fd, ring)) => {
                ring.initialise(self.origin_ns, TICK_NS, self.cpus);
                Some(MemberRing { fd, ring, member, last_tick: 0 })
            }
            Err(_) => {
                self.recorded.members_lost += 1;
                self.end(member);
                None
            }
        }
    }

    /// Moves the records of these rings into the file.
    pub fn drain<'a>(&mut self, rings: impl Iterator<Item = &'a mut MemberRing>) {
        // A record that arrives while the rings are read waits for the next time, so the file is
        // complete up to `until`.
        let until = self.tick();
        for ring in rings {
            let (batch, lost) = (&mut self.batch, &mut self.recorded.lost);
            let MemberRing { ring, member, last_tick, .. } = ring;
            ring.drain(|bytes| match Record::decode(bytes) {
                Ok(record) if record.tick > until => Taken::Not,
                record => {
                    take(batch, lost, *member, last_tick, record.ok());
                    Taken::Yes
                }
            });
        }
        self.flush();
    }

    /// Records a fork and returns the number of the child. No record of the parent can be on its
    /// way: it stands still until its child is welcomed.
    pub fn forked(&mut self, parent: &mut MemberRing) -> u32 {
        let (batch, lost) = (&mut self.batch, &mut self.recorded.lost);
        let MemberRing { ring, member, last_tick, .. } = parent;
        ring.drain(|bytes| {
            take(batch, lost, *member, last_tick, Record::decode(bytes).ok());
            Taken::Yes
        });
        let child = self.number();
        self.note(parent.member, parent.last_tick, Event::Fork { member: child });
        child
    }

    /// Records the end of a member, with the records that are left in its ring.
    pub fn ended(&mut self, mut ring: MemberRing) {
        {
            let (batch, lost) = (&mut self.batch, &mut self.recorded.lost);
            let MemberRing { ring, member, last_tick, .. } = &mut ring;
            ring.drain_dead(|bytes| take(batch, lost, *member, last_tick, Record::decode(bytes).ok()));
        }
        self.recorded.lost += ring.ring.lost();
        self.note(ring.member, ring.last_tick, Event::End { member: ring.member });
        self.flush();
    }

    /// Records the end of a child that was announced to [`forked`](Self::forked) and never became a
    /// member.
    pub fn end(&mut self, member: u32) {
        self.note(member, 0, Event::End { member });
    }

    /// The summary so far. `rings` are those of the members that live: they count their lost events
    /// themselves.
    pub fn recorded<'a>(&self, rings: impl Iterator<Item = &'a MemberRing>) -> Recorded {
        let mut recorded = self.recorded.clone();
        recorded.lost += rings.map(|ring| ring.ring.lost()).sum::<u64>();
        recorded
    }

    fn note(&mut self, member: u32, after: u64, event: Event) {
        let tick = self.tick().max(after);
        self.batch.push((member, Record { tick, event }));
    }

    fn tick(&self) -> u64 {
        ((now_ns() - self.origin_ns) / u64::from(TICK_NS)).min(TICK_MAX)
    }

    fn flush(&mut self) {
        // The sort is stable: records of one member stay in their order.
        self.batch.sort_by_key(|(_, record)| record.tick);
        for (member, record) in std::mem::take(&mut self.batch) {
            if member != self.current && !matches!(record.event, Event::End { .. }) {
                self.current = member;
                self.encode(&Record { tick: record.tick, event: Event::Member { member } });
            }
            self.encode(&record);
            self.recorded.events += 1;
        }
        if self.recorded.error.is_none()
            && let Err(error) = self.file.write_all(&self.bytes)
        {
            self.recorded.error = Some(error.to_string());
        }
        self.bytes.clear();
    }

    fn encode(&mut self, record: &Record) {
        match record.encode() {
            Ok(bytes) => self.bytes.extend::<[u8; RECORD_BYTES]>(bytes),
            Err(_) => self.recorded.lost += 1,
        }
    }
}

/// Takes over a record from the ring of a member. `None`, or an event that a member may not write,
/// counts as lost.
fn take(
    batch: &mut Vec<(u32, Record)>,
    lost: &mut u64,
    member: u32,
    last_tick: &mut u64,
    record: Option<Record>,
) {
    let of_slots =
        |event: &Event| !matches!(event, Event::Member { .. } | Event::End { .. } | Event::Fork { .. });
    match record.filter(|record| of_slots(&record.event)) {
        Some(record) => {
            // Two threads of the member may have read the clock in the other order.
            *last_tick = record.tick.max(*last_tick);
            batch.push((member, Record { tick: *last_tick, ..record }));
        }
        None => *lost += 1,
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The number of processors that this machine may have: all CPU numbers are below it.
fn configured_cpus() -> u32 {
    // SAFETY: asks for a number.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(configured).unwrap_or(1).clamp(1, CPUS_MAX)
}

#[cfg(test)]
mod tests;

//! `run --trace FILE`: what the members' rings hold goes into one file, in the order of time.
//!
//! Each member has a ring of its own ([`folioswap_trace::Ring`]) and a number of its own, which no other member ever gets. The rings are emptied every
//! [`INTERVAL`], a member's also when it forks and when it ends. Whole records are written at a time, so the file is readable at every moment, whoever
//! is killed.

use crate::ipc::mapped::Mapped;
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

/// Between two looks at the rings.
pub const INTERVAL: Duration = Duration::from_millis(10);

const TICK_NS: u32 = 1000;

/// A member's ring.
pub struct MemberRing {
    fd: OwnedFd,
    ring: Mapped<Ring>,
    member: u32,
    last_tick: u64,
}

impl MemberRing {
    /// What it takes at most.
    pub const BYTES: usize = Ring::<{ folioswap_trace::RING_RECORDS }>::BYTES;

    /// For the member.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What is said of a recording at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recorded {
    /// Allocations, frees and the like in the file.
    pub events: u64,
    /// Members that were recorded.
    pub members: u32,
    /// Events that found a full ring, or that a killed member left half written.
    pub lost: u64,
    /// Members that got no ring.
    pub members_lost: u32,
    /// Why nothing more was written, if so.
    pub error: Option<String>,
}

impl Recorded {
    /// What the user must know: the file does not have everything.
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

/// The file, and what is on its way into it.
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
    /// Makes the file, or empties it, and begins it.
    ///
    /// # Errors
    /// It cannot be made or written.
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

    /// The file, as the user named it.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A number for a new member.
    pub fn number(&mut self) -> u32 {
        self.recorded.members += 1;
        self.recorded.members - 1
    }

    /// A ring for the member of this number; `None` when there is no memory or descriptor for it, which is counted.
    pub fn ring(&mut self, member: u32) -> Option<MemberRing> {
        match Mapped::<Ring>::create(c"folioswap-trace") {
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

    /// Takes what the rings hold and writes it.
    pub fn drain<'a>(&mut self, rings: impl Iterator<Item = &'a mut MemberRing>) {
        // What comes while we look waits for the next time: what is written now is complete up to here.
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

    /// A member forks. Nothing of it can be on its way: it stands still until its child is welcomed. Returns the child's number.
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

    /// A member has ended.
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

    /// A child that was announced by [`forked`](Self::forked) never became a member.
    pub fn end(&mut self, member: u32) {
        self.note(member, 0, Event::End { member });
    }

    /// What was recorded so far; `rings` of those that still live.
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
        // Stable: a member's records stay in their order.
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

/// A record that came out of a ring; `None`: nothing that a member writes.
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
            // Two threads may have looked at the clock in the other order.
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

/// Processors that this machine may have: numbers of CPUs are below.
fn configured_cpus() -> u32 {
    // SAFETY: asks for a number.
    let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(configured).unwrap_or(1).clamp(1, CPUS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use folioswap_trace::{HEADER_BYTES, Moment};

    fn recording(name: &str) -> (Recording, PathBuf) {
        let path = std::env::temp_dir().join(format!("folioswap-recording-{}-{name}", std::process::id()));
        (Recording::create(path.clone()).expect("a file"), path)
    }

    fn events(path: &std::path::Path) -> Vec<Event> {
        let bytes = std::fs::read(path).expect("readable");
        std::fs::remove_file(path).expect("removed");
        Header::decode(&bytes).expect("a header");
        let (records, rest) = bytes[HEADER_BYTES..].as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty());
        records.iter().map(|record| Record::decode(record).expect("valid").event).collect()
    }

    fn push(ring: &MemberRing, ns: u64, entry: u64) -> Event {
        let event = Event::Alloc { cpu: 0, order: 0, entry };
        ring.ring.push(Moment { ns, cpu: 0 }, |_| event);
        event
    }

    #[test]
    fn members_are_merged_by_time_and_told_apart() {
        let (mut recording, path) = recording("merge");
        let [first, second] = [(); 2].map(|()| recording.number());
        let (mut a, mut b) = (recording.ring(first).unwrap(), recording.ring(second).unwrap());
        let start = recording.origin_ns;
        let (a1, b2) = (push(&a, start + 1000, 1), push(&b, start + 2000, 2));
        // Of two threads: the second record has the earlier time, and stays second.
        let (a4, a3) = (push(&a, start + 4000, 4), push(&a, start + 3000, 3));
        let later = push(&b, start + 3_600_000_000_000, 5);
        recording.drain([&mut a, &mut b].into_iter());
        let member = |member| Event::Member { member };
        let child = recording.forked(&mut b);
        assert_eq!(child, 2);
        recording.ended(b);
        recording.ended(a);
        let expected = [
            vec![a1, member(1), b2, member(0), a4, a3, member(1)],
            vec![later, Event::Fork { member: 2 }, Event::End { member: 1 }, Event::End { member: 0 }],
        ];
        let found = events(&path);
        assert_eq!(found, expected.concat());
        assert_eq!(
            recording.recorded([].into_iter()),
            Recorded { events: 8, members: 3, ..Recorded::default() }
        );
        assert_eq!(recording.recorded([].into_iter()).warning(), None);
    }

    #[test]
    fn what_a_full_ring_lost_is_said() {
        let (mut recording, path) = recording("full");
        let member = recording.number();
        let mut ring = recording.ring(member).unwrap();
        let start = recording.origin_ns;
        for entry in 1..=folioswap_trace::RING_RECORDS as u64 + 7 {
            push(&ring, start, entry);
        }
        recording.drain(std::iter::once(&mut ring));
        let after = push(&ring, start, 1);
        assert_eq!(recording.recorded(std::iter::once(&ring)).lost, 7);
        recording.ended(ring);
        let recorded = recording.recorded([].into_iter());
        assert_eq!(
            recorded.warning().as_deref(),
            Some(format!("7 of {} events are missing", folioswap_trace::RING_RECORDS + 9).as_str())
        );
        let found = events(&path);
        assert_eq!(found.len(), folioswap_trace::RING_RECORDS + 2);
        assert_eq!(found[folioswap_trace::RING_RECORDS], after);
    }

    #[test]
    fn a_member_says_nothing_of_other_members() {
        let (mut recording, path) = recording("foreign");
        let member = recording.number();
        let ring = recording.ring(member).unwrap();
        ring.ring.push(Moment { ns: 0, cpu: 0 }, |_| Event::End { member: 77 });
        recording.ended(ring);
        assert_eq!(recording.recorded([].into_iter()).lost, 1);
        assert_eq!(events(&path), [Event::End { member: 0 }]);
    }
}

//! Bounds on connections and on work, so that no process uses up the supervisor's descriptors or
//! its attention. Members need no bound here: each takes one entry of the segment, and entries are
//! bounded.

use super::{
    Supervisor,
    connection::{Connection, Kinship, Role},
    members::After,
    userfaults::{OWN_MAX, PENDING_MAX},
};
use crate::processes::proc;
use folioswap_group::protocol::RAW_CHILDREN_MAX;
use rustix::process::{Resource, getrlimit};
use std::{
    collections::HashMap,
    fmt,
    time::{Duration, Instant},
};

/// The most connections of one process that are not members. A process needs one, and a second
/// while the end of an earlier image's is on its way.
pub(super) const PER_PROCESS: usize = 8;
/// How long a connection may say nothing. An agent says hello right after it connected, and a
/// command asks.
pub(super) const SILENCE: Duration = Duration::from_secs(2);
/// How long a connection is taken for one that is about to speak: it goes last of all when there
/// are too many. Otherwise those who have spoken, and stay, would drive out everybody who comes.
const ARRIVAL: Duration = Duration::from_millis(100);
/// The connections that are accepted in one round of the poll loop: between two rounds each is
/// heard and judged, so a flood of connections waits in the socket's queue and not in our table.
pub(super) const ACCEPTED_PER_ROUND: usize = 64;
/// The messages that are handled of one connection in one round. A member sends one for each
/// cluster or child, and the others' wait meanwhile.
pub(super) const MESSAGES_PER_ROUND: usize = 64;
/// The messages that are handled of a process that has ended: more than the queue of a socket
/// holds, so all that the process sent itself are among them.
pub(super) const LAST_MESSAGES: usize = 1024;
/// The descriptors of a connection: its socket, and the pidfd of its process.
const DESCRIPTORS_EACH: u64 = 2;
/// The offences that are named one by one; whoever wants the user's attention could go on for ever.
const NAMED: usize = 32;

/// What a process did that no agent and no command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Offence {
    /// It sent something else in place of a userfaultfd.
    NoUserfault,
    /// It has more connections than it needs.
    Connections,
    /// It sent more userfaultfds than it has memories.
    OwnUserfaults,
    /// It sent more userfaultfds of children than it may serve.
    RawChildren,
    /// It announced more children than it can fork meanwhile.
    PendingForks,
}

impl fmt::Display for Offence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Offence::NoUserfault => write!(formatter, "sent something that is no userfaultfd"),
            Offence::Connections => {
                write!(formatter, "has more than {PER_PROCESS} connections without being a member")
            }
            Offence::OwnUserfaults => write!(formatter, "sent more than {OWN_MAX} userfaultfds of its own"),
            Offence::RawChildren => {
                write!(formatter, "sent more than {RAW_CHILDREN_MAX} userfaultfds of children that it serves")
            }
            Offence::PendingForks => {
                write!(formatter, "announced more than {PENDING_MAX} children that say nothing")
            }
        }
    }
}

/// The most connections that are not members: they take half of our descriptors, so that members
/// find the other half.
pub(super) fn others_max() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 2 / DESCRIPTORS_EACH).unwrap_or(usize::MAX)
}

impl Connection {
    /// When the connection is to be closed because it has said nothing; `None` once it has.
    fn silence_ends(&self) -> Option<Instant> {
        self.silent_since.map(|since| since + SILENCE)
    }

    /// In which order connections go when there are too many: the silent ones first; then those
    /// that want nothing, then those that wait for something of ours.
    fn importance(&self, now: Instant) -> u32 {
        match (&self.role, self.silent_since) {
            (Role::New, Some(since)) if now.duration_since(since) >= ARRIVAL => 0,
            (Role::New, None) => 1,
            (Role::Waiting { .. }, _) => 2,
            (Role::New, Some(_)) => 3,
            (Role::Swapoff | Role::Swapon | Role::Changing | Role::Member(_), _) => 4,
        }
    }
}

impl Supervisor {
    /// Names an offender, once for each offence, and closes the connection.
    pub(super) fn offends(&mut self, index: usize, offence: Offence) -> After {
        let pid = self.connections[index].pid;
        if self.offences.len() < NAMED && self.offences.insert((pid, offence)) {
            let name = proc::name(pid);
            self.say(&format!("folioswap: process {pid} ({name}) {offence}; its connection is closed\n"));
        }
        After::Close
    }

    /// When the next silent connection is to be closed.
    pub(super) fn silence_due(&self) -> Option<Instant> {
        self.connections.iter().filter_map(|connection| self.silence_ends(connection)).min()
    }

    /// [`Connection::silence_ends`], which waits for the thaw in a frozen group: its processes
    /// cannot speak.
    fn silence_ends(&self, connection: &Connection) -> Option<Instant> {
        let may_speak = self.frozen.is_none() || connection.kinship == Kinship::Stranger;
        connection.silence_ends().filter(|_| may_speak)
    }

    /// Closes the connections that have said nothing for too long, those that a process has too
    /// many, and those for which there are no descriptors. Members are left alone. Must be called
    /// after all messages that waited were read.
    pub(super) fn bound_connections(&mut self, now: Instant) {
        let silent = |connection: &&Connection| self.silence_ends(connection).is_some_and(|end| end <= now);
        let silent: Vec<u64> = self.connections.iter().filter(silent).map(|silent| silent.serial).collect();
        self.close(&silent, now);
        let surplus = self.surplus_of_processes();
        for serial in &surplus {
            if let Some(index) = self.index_of(*serial) {
                self.offends(index, Offence::Connections);
            }
        }
        self.close(&surplus, now);
        let surplus = self.surplus_of_group(now);
        self.close(&surplus, now);
    }

    /// The connections beyond those that a process may have, of each process the latest.
    fn surplus_of_processes(&self) -> Vec<u64> {
        let mut others: Vec<&Connection> = self.others().collect();
        if others.len() <= PER_PROCESS {
            return Vec::new();
        }
        others.sort_unstable_by_key(|connection| connection.serial);
        let mut of_process: HashMap<u32, usize> = HashMap::new();
        others.retain(|connection| {
            let count = of_process.entry(connection.pid).or_default();
            *count += 1;
            *count > PER_PROCESS
        });
        others.iter().map(|connection| connection.serial).collect()
    }

    /// The connections beyond [`others_max`]: the silent ones first, the oldest of them first.
    fn surplus_of_group(&self, now: Instant) -> Vec<u64> {
        let surplus = self.others().count().saturating_sub(self.others_max);
        if surplus == 0 {
            return Vec::new();
        }
        let mut others: Vec<&Connection> = self.others().collect();
        others.sort_unstable_by_key(|connection| (connection.importance(now), connection.serial));
        others.iter().take(surplus).map(|connection| connection.serial).collect()
    }

    /// The connections that are not members.
    fn others(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(|connection| !connection.is_member())
    }
}

//! The socket of the group: connections, and the messages of the control protocol.

use super::{
    Supervisor,
    bounds::{ACCEPTED_PER_ROUND, LAST_MESSAGES, MESSAGES_PER_ROUND},
    connection::{Announced, Connection, Kinship, PendingFork, Role},
};
use crate::{
    devices::networks::Access,
    ipc::wire,
    processes::{
        files,
        peer::{self, Peer},
        proc,
    },
    recording::Recording,
};
use folioswap_group::protocol::{ForkToken, Kind, Message, ProcFile, Refusal, hello, welcome};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    net::{SocketFlags, accept_with},
    process::Uid,
};
use std::time::{Duration, Instant};

/// How long a child whose parent is no member any more may wait for its parent's `Forked`, which
/// may still be in the queue.
const PARENTLESS_PATIENCE: Duration = Duration::from_millis(300);

/// The fate of a connection after a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    Close,
}

impl Supervisor {
    /// Accepts new connections, up to [`ACCEPTED_PER_ROUND`]; processes outside of the tree only of
    /// users who may look.
    pub(super) fn accept(&mut self, now: Instant) {
        let (listeners, mut empty) = (self.settings.listeners.len(), 0);
        for turn in 0..ACCEPTED_PER_ROUND {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            // Each has its turns, so that a flood at one does not keep the others waiting.
            let Ok(socket) = accept_with(&self.settings.listeners[turn % listeners], flags) else {
                empty += 1;
                if empty == listeners {
                    return;
                }
                continue;
            };
            empty = 0;
            let Ok(peer) = Peer::of(&socket) else { continue };
            let kinship = if proc::descends_from(peer.pid, std::process::id()) {
                Kinship::Descendant
            } else {
                Kinship::Stranger
            };
            // The look was at another process if this one has ended and its number was given away.
            if !peer::exists(&peer.process) || kinship == Kinship::Stranger && !is_root_or_owner(peer.user) {
                continue;
            }
            self.connections.push(Connection::new(socket, self.next_serial, peer, kinship, now));
            self.next_serial += 1;
        }
    }

    /// Reads and handles the messages that wait on all connections, up to [`MESSAGES_PER_ROUND`] of
    /// each.
    pub(super) fn receive_all(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.connections.len() {
            match self.receive(index, MESSAGES_PER_ROUND, now) {
                After::Keep => index += 1,
                After::Close => self.disconnect(index, now),
            }
        }
    }

    /// Reads and handles up to `most` messages that wait on a connection.
    fn receive(&mut self, index: usize, most: usize, now: Instant) -> After {
        for _ in 0..most {
            match wire::receive(&self.connections[index].socket) {
                Ok(Some(received)) => {
                    self.connections[index].silent_since = None;
                    if self.handle(index, &received.message, received.descriptors, now) == After::Close {
                        return After::Close;
                    }
                }
                Err(Errno::AGAIN) => return After::Keep,
                Ok(None) | Err(_) => return After::Close,
            }
        }
        After::Keep
    }

    /// Ends the connections of processes that have ended, after the messages that they sent.
    pub(super) fn end_dead(&mut self, dead: &[u64], now: Instant) {
        for serial in dead {
            if let Some(index) = self.index_of(*serial) {
                self.receive(index, LAST_MESSAGES, now);
            }
        }
        self.close(dead, now);
    }

    /// Closes connections.
    pub(super) fn close(&mut self, serials: &[u64], now: Instant) {
        for serial in serials {
            if let Some(index) = self.index_of(*serial) {
                self.disconnect(index, now);
            }
        }
    }

    /// The index of a connection that may have ended.
    pub(super) fn index_of(&self, serial: u64) -> Option<usize> {
        self.connections.iter().position(|connection| connection.serial == serial)
    }

    /// Handles one message. A message that does not fit the role of its sender closes the
    /// connection.
    fn handle(&mut self, index: usize, message: &Message, descriptors: Vec<OwnedFd>, now: Instant) -> After {
        let connection = &mut self.connections[index];
        let kinship = connection.kinship;
        let writer = self.settings.memory.writer();
        let Some(kind) = message.kind() else { return After::Close };
        match (kind, &connection.role, kinship) {
            (Kind::Query, Role::New, _) => self.answer(index),
            (Kind::Swapoff, Role::New, _) => self.begin_swapoff(index, message.words[0], now),
            (Kind::Hello, Role::New, Kinship::Descendant) => {
                connection.wanted_files = message.words[2];
                let token = ForkToken::of_message(message.words);
                if message.words[2] & hello::OF_PARENT != 0
                    && let Err(unproven) = self.speak_for_parent(index, now)
                {
                    if !token.is_none() {
                        self.name_unproven(unproven);
                    }
                    return After::Close;
                }
                let connection = &mut self.connections[index];
                match token {
                    ForkToken::NONE => self.welcome(index, None),
                    token => {
                        connection.role = Role::Waiting { token, parentless: None };
                        After::Keep
                    }
                }
            }
            (Kind::Hello, Role::New, Kinship::Stranger)
                if !ForkToken::of_message(message.words).is_none() =>
            {
                let pid = connection.pid;
                self.cannot_inherit(pid, "it is no descendant of this group's folioswap");
                After::Close
            }
            (Kind::Swapon, Role::New, _) => self.begin_swapon(index, descriptors, now),
            (Kind::Change, Role::New, _) => self.begin_change(index, message.words, now),
            (Kind::Exec, Role::New, Kinship::Descendant) => self.follow_exec(index, message.words[0]),
            (Kind::WantDevice, Role::Member(_), _) => self.give_device(index, message.words[0]),
            (Kind::Note, _, Kinship::Descendant) => self.note(index, message.words),
            (Kind::HoldUserfault, Role::Member(_), _) => self.hold_own(index, descriptors),
            (Kind::Forked, Role::Member(_), _) => self.announce_fork(index, message.words, descriptors),
            (Kind::RawForked, Role::Member(_), _) => self.hold_raw_child(index, descriptors),
            (Kind::WantClusters, Role::Member(_), _) => self.grant_clusters(index, message.words),
            (Kind::DropClusters, Role::Member(_), _) => {
                let dropped = message.clusters().iter().filter_map(|&it| self.clusters.on_device(it));
                self.networks.withdraw(&connection.links, dropped);
                self.clusters.drop_some(writer, &mut connection.clusters, message.clusters());
                After::Keep
            }
            (Kind::OutOfMemory, Role::Member(_), _) => self.cannot_go_on(index, message.words),
            _ => After::Close,
        }
    }

    /// Reports why a forked child is refused. The child ends itself, since without its pages it
    /// would read zeroes.
    pub(super) fn cannot_inherit(&mut self, pid: u32, why: &str) {
        self.say(&format!("folioswap: process {pid} ends, it cannot have what it inherited: {why}\n"));
    }

    /// Makes a member of a connection; `fork` is the part of a forked child that its parent
    /// announced.
    fn welcome(&mut self, index: usize, fork: Option<PendingFork>) -> After {
        let pid = self.connections[index].pid;
        let weight = self.weight_of_new(pid, fork.as_ref().map(|fork| fork.parent));
        let (group, writer) = (self.settings.memory.group(), self.settings.memory.writer());
        let Some(id) = writer.assign(group.segment, pid) else {
            if let Some(fork) = fork {
                self.take_back(&fork);
            }
            return refuse(&self.connections[index], Refusal::TooManyMembers);
        };
        let connection = &mut self.connections[index];
        connection.role = Role::Member(id);
        writer.set_weight(id, weight);
        self.cmd_was_member |= connection.pid == self.cmd;
        self.census.joined(connection.pid);
        self.totals.began(group);
        self.course.began(group, id, connection.pid);
        let mut flags = welcome::with_filters(self.filters);
        let mut descriptors = self.settings.memory.for_members().to_vec();
        // A member gets a link of its own to a network device. Without one it gets the device's
        // file, which fails each request.
        let new_link = |number| self.networks.new_link(number, Access::Granted);
        let links: Vec<_> = self.clusters.numbers().map(new_link).collect();
        connection.links.extend(links.iter().flatten().map(|(_, link)| *link));
        let shared = self.clusters.files().zip(&links);
        descriptors
            .extend(shared.map(|(file, link)| link.as_ref().map_or(file, |(socket, _)| socket).as_fd()));
        let devices = self.clusters.numbers().fold(0_u64, |mask, number| mask | 1 << number);
        if let Some(recording) = &mut self.recording {
            let inherited = fork.as_ref().and_then(|fork| fork.recorded);
            let member = inherited.unwrap_or_else(|| recording.number());
            connection.ring = recording.ring(member);
        }
        if let Some(ring) = &connection.ring {
            flags |= welcome::TRACE;
            descriptors.push(ring.fd());
        }
        if let Some(fork) = fork {
            connection.clusters = fork.clusters;
            let inherited = connection.clusters.iter().filter_map(|it| self.clusters.on_device(it));
            self.networks.grant(&connection.links, inherited);
            match fork.child {
                Announced::Userfault(userfault) => {
                    flags |= welcome::USERFAULT;
                    connection.userfaults.push(userfault);
                    descriptors.extend(connection.userfaults.iter().map(AsFd::as_fd));
                }
                // Others open it themselves, if they may.
                Announced::Gated(_) | Announced::Unseen(_) => {
                    if let Some(device) = &self.settings.userfault_device {
                        flags |= welcome::DEVICE;
                        descriptors.push(device.as_fd());
                    }
                }
            }
        }
        // Without them the process says itself why it cannot be managed.
        let wanted = ProcFile::of_mask(connection.wanted_files);
        let files = files::open(connection.pid, connection.pager_pid(), &connection.process, wanted)
            .unwrap_or_default();
        if !files.is_empty() {
            flags |= welcome::FILES;
            descriptors.extend(files.iter().map(AsFd::as_fd));
        }
        sent(wire::send(
            &connection.socket,
            &Message::new(Kind::Welcome, [u64::from(id), flags, devices]),
            &descriptors,
        ))
    }

    /// Answers a query with the memories of the group, for reading, its description, and the
    /// directories of the devices.
    fn answer(&self, index: usize) -> After {
        let mut descriptors = self.settings.memory.for_viewers().to_vec();
        // One of its own for each, since who has it may write to it.
        let Ok(text) = self.settings.description.to_text() else { return After::Close };
        descriptors.push(text.as_fd());
        let mut with_directory = 0_u64;
        for (number, device) in self.settings.devices.devices.iter().enumerate() {
            if let Some(directory) = &device.directory {
                with_directory |= 1 << number;
                descriptors.push(directory.as_fd());
            }
        }
        sent(wire::send(
            &self.connections[index].socket,
            &Message::new(Kind::Answer, [with_directory, 0, 0]),
            &descriptors,
        ))
    }

    /// Welcomes children whose parent's `Forked` has arrived, and refuses those whose parent ended
    /// without it.
    pub(super) fn resolve_waiting(&mut self, now: Instant) {
        let mut index = 0;
        while index < self.connections.len() {
            let Role::Waiting { token, parentless } = self.connections[index].role else {
                index += 1;
                continue;
            };
            let after = if let Some(fork) = self.pending.iter().position(|fork| fork.token == token) {
                let fork = self.pending.swap_remove(fork);
                self.welcome(index, Some(fork))
            } else {
                let parent =
                    proc::state_and_parent(self.connections[index].pid).map_or(0, |(_, parent)| parent);
                let parent_speaks =
                    self.connections.iter().any(|other| other.is_member() && other.pid == parent);
                let since = parentless.unwrap_or(now);
                let parentless = (!parent_speaks).then_some(since);
                self.connections[index].role = Role::Waiting { token, parentless };
                if !parent_speaks && now.duration_since(since) >= PARENTLESS_PATIENCE {
                    self.cannot_inherit(
                        self.connections[index].pid,
                        "its parent has ended without handing its swapped memory over",
                    );
                    refuse(&self.connections[index], Refusal::UnknownToken)
                } else {
                    After::Keep
                }
            };
            match after {
                After::Keep => index += 1,
                After::Close => self.disconnect(index, now),
            }
        }
    }

    /// Takes back everything of a connection that has ended: its process ended, executed another
    /// image, or was refused.
    fn disconnect(&mut self, index: usize, now: Instant) {
        let mut connection = self.connections.swap_remove(index);
        if let (Some(recording), Some(ring)) = (&mut self.recording, connection.ring.take()) {
            recording.ended(ring);
        }
        let (group, writer) = (self.settings.memory.group(), self.settings.memory.writer());
        if let Role::Member(id) = connection.role {
            self.totals.sample(group, self.clusters.used());
            self.course.ended(group, id);
            self.totals.ended(&group.segment.members[id as usize].figures);
            writer.retire(group.segment, id);
            self.networks.forget(&connection.links);
            self.clusters.drop_all(writer, &connection.clusters);
            self.orphans.server_left(connection.serial, connection.sender(), connection.userfaults);
            self.validate();
            self.census.left(connection.pid, now);
        }
        if matches!(connection.role, Role::Swapoff) {
            self.cancel_swapoff();
        }
        if matches!(connection.role, Role::Changing) {
            self.give_up_limit();
        }
    }
}

/// Whether this is root, or the user whose group it is.
pub(super) fn is_root_or_owner(user: Uid) -> bool {
    user.is_root() || user == rustix::process::geteuid()
}

/// Records the end of an announced child that never became a member.
pub(super) fn end_recorded(recording: &mut Option<Recording>, member: Option<u32>) {
    if let (Some(recording), Some(member)) = (recording, member) {
        recording.end(member);
    }
}

pub(super) fn sent(result: Result<(), Errno>) -> After {
    if result.is_ok() { After::Keep } else { After::Close }
}

fn refuse(connection: &Connection, why: Refusal) -> After {
    // The process is no member, whether it still reads this or not.
    let _ = wire::send(&connection.socket, &Message::new(Kind::Refused, [why as u64, 0, 0]), &[]);
    After::Close
}

//! One connection to the group's socket.

use super::pagers::Program;
use crate::{
    clusters::bits::Bits,
    devices::networks::MemberLink,
    processes::{orphans::Sender, peer::Peer, userfault::Userfault},
    recording::MemberRing,
};
use folioswap_group::protocol::ForkToken;
use rustix::{fd::OwnedFd, process::Uid};
use std::time::Instant;

/// The role of the process at the other end.
#[derive(Debug)]
pub enum Role {
    /// A process that has said nothing yet.
    New,
    /// A forked child whose parent's `Forked` has not arrived yet.
    Waiting {
        /// The token that the child named.
        token: ForkToken,
        /// The time since which its parent is no member any more, if so.
        parentless: Option<Instant>,
    },
    /// A member, with its id.
    Member(u32),
    /// A command that has asked for a swapoff and waits for its end.
    Swapoff,
    /// A command that has asked for a swapon and waits for its end.
    Swapon,
    /// A command that has asked for another limit and waits until the group is within it.
    Changing,
}

/// One connection.
pub struct Connection {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// A number that is unique for the life of the supervisor.
    pub serial: u64,
    /// The process that connected, or the program that this one speaks for.
    pub pid: u32,
    /// The effective user of that process when it connected.
    pub user: Uid,
    /// A pidfd of the process that connected, readable when that has ended: another process may
    /// hold a copy of the socket's other end.
    pub process: OwnedFd,
    /// The program that `pid` means, where the process that connected is its pager.
    pub program: Option<Program>,
    /// How the process is related to us; only a descendant may become a member.
    pub kinship: Kinship,
    /// The role of the process.
    pub role: Role,
    /// Whether its pager goes on.
    pub pager: Pager,
    /// Since when it has been connected without a word; `None` once it has said something.
    pub silent_since: Option<Instant>,
    /// The clusters of shared devices that it owns.
    pub clusters: Bits,
    /// The most address space that it had when it was last looked at, in bytes.
    pub address_space: u64,
    /// Duplicates of its userfaultfds.
    pub userfaults: Vec<Userfault>,
    /// The ring in which its allocations and frees arrive, with `--trace`.
    pub ring: Option<MemberRing>,
    /// The links by which it reaches network devices.
    pub links: Vec<MemberLink>,
    /// The files of `/proc` that it may not open itself, one bit each
    /// ([`ProcFile`](folioswap_group::protocol::ProcFile)).
    pub wanted_files: u64,
}

impl Connection {
    /// The connection of a process that has said nothing yet. `serial` was given to no other.
    pub fn new(socket: OwnedFd, serial: u64, peer: Peer, kinship: Kinship, now: Instant) -> Self {
        let Peer { pid, user, process } = peer;
        Connection {
            socket,
            serial,
            pid,
            user,
            process,
            program: None,
            kinship,
            role: Role::New,
            pager: Pager::GoesOn,
            silent_since: Some(now),
            clusters: Bits::default(),
            address_space: 0,
            userfaults: Vec::new(),
            ring: None,
            links: Vec::new(),
            wanted_files: 0,
        }
    }

    /// The process, as the sender of userfaultfds.
    pub fn sender(&self) -> Sender {
        Sender { pid: self.pid, user: self.user }
    }

    /// The number of the member's entry; `None` if the other end is no member.
    pub fn member(&self) -> Option<u32> {
        if let Role::Member(id) = self.role { Some(id) } else { None }
    }

    /// Whether the other end is a member.
    pub fn is_member(&self) -> bool {
        self.member().is_some()
    }

    /// Whether the other end is a child that waits for its parent's `Forked`.
    pub fn is_waiting(&self) -> bool {
        matches!(self.role, Role::Waiting { .. })
    }
}

/// Whether the pager of a member goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pager {
    /// Nothing else was said.
    GoesOn,
    /// The member has said that it cannot go on, and its process was ended for it.
    Failed,
}

/// How the process behind a connection is related to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// A descendant of the supervisor, which may become a member.
    Descendant,
    /// Another process, of a user who may look.
    Stranger,
}

/// A child that has been announced, as far as it is known.
#[derive(Debug)]
pub enum Announced {
    /// The kernel made it a userfaultfd, which it gets.
    Userfault(Userfault),
    /// The gate made it, and this is a pidfd of it.
    Gated(OwnedFd),
    /// The gate made it, or the C library unseen by the gate, at this time; no number of ours for
    /// it is known.
    Unseen(Instant),
}

/// A forked child that has not said hello.
pub struct PendingFork {
    /// The token that the child will name.
    pub token: ForkToken,
    /// The process that announced the child.
    pub parent: u32,
    /// The entry of that process, in which the child says why it cannot join.
    pub entry: u32,
    /// What tells whether the child is still there.
    pub child: Announced,
    /// The clusters of the child: all that its parent owned at the fork.
    pub clusters: Bits,
    /// Its number in the trace, with `--trace`.
    pub recorded: Option<u32>,
}

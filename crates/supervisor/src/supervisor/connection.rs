//! One connection to the group's socket.

use crate::{clusters::bits::Bits, devices::networks::MemberLink, recording::MemberRing};
use folioswap_group::protocol::ForkToken;
use rustix::fd::OwnedFd;
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
}

/// One connection.
pub struct Connection {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// A number that is unique for the life of the supervisor.
    pub serial: u64,
    /// The process that connected.
    pub pid: u32,
    /// A pidfd, readable when that process has ended: another process may hold a copy of the
    /// socket's other end.
    pub process: Option<OwnedFd>,
    /// How the process is related to us; only a descendant may become a member.
    pub kinship: Kinship,
    /// The role of the process.
    pub role: Role,
    /// The clusters of shared devices that it owns.
    pub clusters: Bits,
    /// Duplicates of its userfaultfds.
    pub userfaults: Vec<OwnedFd>,
    /// The ring in which its allocations and frees arrive, with `--trace`.
    pub ring: Option<MemberRing>,
    /// The links by which it reaches network devices.
    pub links: Vec<MemberLink>,
}

/// How the process behind a connection is related to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// A descendant of the supervisor, which may become a member.
    Descendant,
    /// Another process, of a user who may look.
    Stranger,
}

/// A forked child that has not said hello.
pub struct PendingFork {
    /// The token that the child will name.
    pub token: ForkToken,
    /// The userfaultfd of the child.
    pub userfault: OwnedFd,
    /// The clusters of the child: all that its parent owned at the fork.
    pub clusters: Bits,
    /// Its number in the trace, with `--trace`.
    pub recorded: Option<u32>,
}

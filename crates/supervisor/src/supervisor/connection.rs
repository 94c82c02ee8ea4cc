//! One connection to the group's socket.

use crate::{clusters::bits::Bits, devices::networks::MemberLink, recording::MemberRing};
use rustix::fd::OwnedFd;
use std::time::Instant;

/// What the other end is.
#[derive(Debug)]
pub enum Role {
    /// It has said nothing yet.
    New,
    /// A forked child whose parent's `Forked` has not arrived yet.
    Waiting {
        /// The token that it named.
        token: u64,
        /// Since when its parent is no member any more, if so.
        parentless: Option<Instant>,
    },
    /// A member, with its id.
    Member(u32),
    /// It has asked for a swapoff, and waits for its end.
    Swapoff,
    /// It has asked for a swapon, and waits for its end.
    Swapon,
}

/// One connection.
pub struct Connection {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// Unique for the life of the supervisor.
    pub serial: u64,
    /// The process that connected.
    pub pid: u32,
    /// Readable when that process has ended, should another one hold a copy of the socket's other end.
    pub process: Option<OwnedFd>,
    /// True for a process of our tree; others may only ask.
    pub place: Place,
    /// What it is.
    pub role: Role,
    /// Clusters of the file device that it owns.
    pub clusters: Bits,
    /// Duplicates of its userfaultfds.
    pub userfaults: Vec<OwnedFd>,
    /// Where its allocations and frees arrive, with `--trace`.
    pub ring: Option<MemberRing>,
    /// By which it reaches network devices.
    pub links: Vec<MemberLink>,
}

/// Where the process behind a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A descendant: may become a member.
    InTree,
    /// Another process of a user who may look.
    Outside,
}

/// A forked child that has not said hello.
pub struct PendingFork {
    /// What it will say.
    pub token: u64,
    /// Its userfaultfd.
    pub userfault: OwnedFd,
    /// What it owns: all that its parent owned at the fork.
    pub clusters: Bits,
    /// Its number in the trace, with `--trace`.
    pub recorded: Option<u32>,
}

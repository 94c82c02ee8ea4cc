//! The control protocol: fixed-size messages over a `SOCK_SEQPACKET` Unix socket with an abstract
//! name, which lies beside the agent too ([`SOCKET_SUFFIX`]).
//!
//! The environment variable [`GROUP_VARIABLE`] holds the name. A member's pager connects, a
//! process of its own (its descriptors live in a table that the program cannot reach), says
//! [`Kind::Hello`], and keeps the connection for life. Its end tells the supervisor that the
//! program has ended or has become another image by exec. The end of the supervisor's side tells
//! the member that `folioswap` is gone, whereupon the member ends itself.
//!
//! | from | message | words | descriptors |
//! |---|---|---|---|
//! | member | `Hello` | [`ForkToken`] (0, 0: none), mask of [`ProcFile`]s that it may not open and of [`hello`] | |
//! | supervisor | `Welcome` | member id, flags, device bits | see below |
//! | supervisor | `Refused` | [`Refusal`] | |
//! | member | `HoldUserfault` | | its userfaultfd, for the supervisor to hold |
//! | member | `Forked` | [`ForkToken`] | the child, whose `Hello` has the token |
//! | member | `RawForked` | | userfaultfd of a child that its parent serves |
//! | member | `WantClusters` | how many, device bits of the acceptable devices | |
//! | supervisor | `Clusters` | how many (0: none can be had now), then their numbers | |
//! | member | `DropClusters` | how many, then their numbers | |
//! | member | `OutOfMemory` | [`OutOfMemory`], bytes it has, bytes it would need | |
//! | member | `Note` | [`Note`], a value, for some a second one | |
//! | same user | `Query` | | |
//! | supervisor | `Answer` | device bits (see below) | decisions; segment, read-only; text; directories |
//! | same user | `Swapoff` | the number of the device that is to leave | |
//! | supervisor | `SwapoffEnd` | [`SwapoffEnd`], packed | |
//! | same user | `Swapon` | | text of the device; working directory |
//! | supervisor | `SwaponEnd` | 1: it is in use; 0: it is not | \[text that says why not\] |
//! | same user | `Change` | [`Change`], packed | |
//! | supervisor | `ChangeEnd` | [`ChangeEnd`], packed | |
//! | a member's program | `Exec` | its thread's number, which is about to execute a file that cannot preload the agent | |
//! | supervisor | `Followed` | 1: the thread is traced until its exec; 0: it is not | |
//! | a member's program | `ExecFailed` | | |
//! | member | `WantDevice` | the number of a device that was added | |
//! | supervisor | `Device` | 1: the device is attached; 0: it cannot be had | \[that device\] |
//!
//! Device bits are one bit for each device by its number. `Welcome` carries the decisions, the
//! segment, the descriptors of the devices in its bits by number, \[the ring for the member's
//! trace\], \[the userfaultfd of a forked child\], \[`/dev/userfaultfd`\], \[these files, in the
//! order of [`ProcFile::ALL`]\]. The decisions come first, because they tell the version of all
//! that follows. A forked child is announced by the userfaultfd that the kernel made it, else by
//! its number in the third word ([`Forks`](crate::decisions::Forks)). `RawForked` is about a child
//! that no agent prepared. The bits of `Answer` are the devices with a directory, which it carries
//! by number, `O_PATH`; its text describes the group. The text of `Swapon` is that of `--swap`;
//! its names mean something in the working directory that it carries. "Same user" is any process
//! of the user whose group it is; a `Change` is heard from processes outside of the tree alone.
//!
//! The program's thread sends `Exec` over a connection of its own, which its exec closes; after
//! `ExecFailed` it waits until the supervisor closes it, and is traced no more then.
//!
//! **Bounds.** A message that does not fit the role of its sender, or carries something else than
//! the table says, closes the connection. So does one more than a process may have: the supervisor
//! accepts 8 connections of a process that are not members, each of which must say something within
//! 2 s; 16 userfaultfds of a connection's own; [`RAW_CHILDREN_MAX`] of children that it serves; and
//! 64 children that have not said hello. `Note` is for members; a descendant that is none may say
//! only [`Note::NoUserfault`] and [`Note::Ends`].
//!
//! **What is believed.** `OutOfMemory` ends the group only if the supervisor finds by itself that
//! the memory is used up; a failed pager costs its own process. `Clusters` has fewer than were
//! wanted, or none, when the devices are full, or when the process holds more than its address
//! space could need.
//!
//! Requests are answered in order; a member has at most one unanswered request. The sender of a
//! swapoff keeps the connection until the swapoff has ended; if the connection ends before, the
//! device is in use again. So it is with a change of the limit: without its sender the old one
//! holds.

mod change;
mod fork_token;
mod proc_files;
mod reports;

pub use change::{Change, ChangeEnd};
pub use fork_token::ForkToken;
pub use proc_files::ProcFile;
pub use reports::{Ending, Invariant, Lost, Note, OutOfMemory};

use crate::devices::DEVICES_MAX;

/// Environment variable that names the group's socket (abstract, without the leading zero byte).
pub const GROUP_VARIABLE: &str = "FOLIOSWAP_GROUP";
/// What the path of the group's socket has behind that of the agent, for members that left the
/// network namespace of the abstract name. It is as secret as the agent's name.
pub const SOCKET_SUFFIX: &[u8] = b".group";
/// Most clusters that one message carries.
pub const CLUSTERS_PER_MESSAGE: usize = 24;
/// Most descriptors that one message carries: decisions, a segment, one for each device, a ring for
/// a trace, a userfaultfd, `/dev/userfaultfd`, the process's own files of `/proc`.
pub const DESCRIPTORS_MAX: usize = 5 + DEVICES_MAX + ProcFile::ALL.len();

/// Most children by bare clone(2) that one member serves at a time: `RawForked` more often closes
/// its connection.
pub const RAW_CHILDREN_MAX: usize = 64;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the table at the head of this module defines them")]
pub enum Kind {
    Hello = 1,
    Welcome = 2,
    Refused = 3,
    HoldUserfault = 4,
    Forked = 5,
    RawForked = 6,
    WantClusters = 7,
    Clusters = 8,
    DropClusters = 9,
    OutOfMemory = 10,
    Note = 11,
    Query = 12,
    Answer = 13,
    Swapoff = 14,
    SwapoffEnd = 15,
    Swapon = 16,
    SwaponEnd = 17,
    WantDevice = 18,
    Device = 19,
    Change = 20,
    ChangeEnd = 21,
    Exec = 22,
    Followed = 23,
    ExecFailed = 24,
}

/// Bits of the third word of `Hello` besides those of the files.
pub mod hello {
    /// The sender is the pager of its parent, whose memory it shares: the parent is to be the
    /// member.
    pub const OF_PARENT: u64 = 1 << 63;
}

/// Bits of the second word of `Welcome`.
pub mod welcome {
    /// The userfaultfd that the kernel made for this child at its fork follows these.
    pub const USERFAULT: u64 = 1;
    /// A memfd with a `folioswap_trace::Ring` of this member's own follows the devices.
    pub const TRACE: u64 = 2;
    /// The files of `/proc` that the process asked for come last.
    pub const FILES: u64 = 4;
    /// The device by which this process opens a userfaultfd, whatever user it is by now, follows
    /// these; it comes before the files.
    pub const DEVICE: u64 = 8;

    /// The bits that say how many filters of system calls (seccomp) the supervisor is under, and so
    /// whatever it has started. `count` is below 2^16; more are said as the most.
    pub const fn with_filters(count: u64) -> u64 {
        let most = u16::MAX as u64;
        (if count < most { count } else { most }) << 32
    }

    /// The number that [`with_filters`] put there.
    pub const fn filters(flags: u64) -> u32 {
        (flags >> 32) as u16 as u32
    }
}

/// The reason why the supervisor refuses a member, which then runs unmanaged and is counted so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Refusal {
    /// All entries are taken.
    TooManyMembers = 1,
    /// The fork token is not known (its parent ended before it could announce the fork).
    UnknownToken = 2,
}

/// The end of a swapoff. In all cases but [`SwapoffEnd::Done`] the device is in use as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapoffEnd {
    /// The device is off.
    Done {
        /// Pages that the device did not return; they are lost.
        lost: u64,
    },
    /// There is no such device, or it is off already.
    NoDevice,
    /// The sender is neither root nor the user whose group it is.
    NotPermitted,
    /// Another device is leaving at this moment.
    Busy,
    /// The device is each process's own compressed RAM.
    Store,
    /// No other device takes pages.
    NoOther,
    /// The other devices have too little space for the pages on this one.
    NoRoom {
        /// Bytes of its clusters.
        used: u64,
        /// Bytes that are free on the others.
        free: u64,
    },
    /// No page has left the device for a while.
    Stalled {
        /// Bytes of its clusters.
        left: u64,
        /// A process that has some of them; 0: none is known.
        process: u32,
    },
}

impl SwapoffEnd {
    /// Packs it into the words of a message.
    pub const fn pack(self) -> [u64; 3] {
        match self {
            SwapoffEnd::Done { lost } => [0, lost, 0],
            SwapoffEnd::NoDevice => [1, 0, 0],
            SwapoffEnd::NotPermitted => [2, 0, 0],
            SwapoffEnd::Busy => [3, 0, 0],
            SwapoffEnd::Store => [4, 0, 0],
            SwapoffEnd::NoOther => [5, 0, 0],
            SwapoffEnd::NoRoom { used, free } => [6, used, free],
            SwapoffEnd::Stalled { left, process } => [7, left, process as u64],
        }
    }

    /// The inverse of [`SwapoffEnd::pack`]; `None` for words that this version does not know.
    pub const fn unpack(words: [u64; 3]) -> Option<Self> {
        Some(match words {
            [0, lost, _] => SwapoffEnd::Done { lost },
            [1, ..] => SwapoffEnd::NoDevice,
            [2, ..] => SwapoffEnd::NotPermitted,
            [3, ..] => SwapoffEnd::Busy,
            [4, ..] => SwapoffEnd::Store,
            [5, ..] => SwapoffEnd::NoOther,
            [6, used, free] => SwapoffEnd::NoRoom { used, free },
            [7, left, process] => SwapoffEnd::Stalled { left, process: process as u32 },
            _ => return None,
        })
    }
}

/// One message. It is sent and received as a whole, far below the size of any socket buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Message {
    /// [`Kind`] as a number.
    pub kind: u32,
    /// Number of clusters that follow.
    pub cluster_count: u32,
    /// The words of the table.
    pub words: [u64; 3],
    /// Cluster numbers.
    pub clusters: [u32; CLUSTERS_PER_MESSAGE],
}

impl Message {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Message>();

    /// A message with up to three words.
    pub const fn new(kind: Kind, words: [u64; 3]) -> Self {
        Message { kind: kind as u32, cluster_count: 0, words, clusters: [0; CLUSTERS_PER_MESSAGE] }
    }

    /// The message with cluster numbers, as many as fit ([`CLUSTERS_PER_MESSAGE`]).
    #[must_use]
    pub fn with_clusters(mut self, clusters: &[u32]) -> Self {
        let count = clusters.len().min(CLUSTERS_PER_MESSAGE);
        self.clusters[..count].copy_from_slice(&clusters[..count]);
        self.cluster_count = count as u32;
        self
    }

    /// The cluster numbers of the message; a count out of range is clamped.
    pub fn clusters(&self) -> &[u32] {
        &self.clusters[..(self.cluster_count as usize).min(CLUSTERS_PER_MESSAGE)]
    }

    /// The message's kind; `None` for a number that this version does not know.
    pub const fn kind(&self) -> Option<Kind> {
        Some(match self.kind {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Refused,
            4 => Kind::HoldUserfault,
            5 => Kind::Forked,
            6 => Kind::RawForked,
            7 => Kind::WantClusters,
            8 => Kind::Clusters,
            9 => Kind::DropClusters,
            10 => Kind::OutOfMemory,
            11 => Kind::Note,
            12 => Kind::Query,
            13 => Kind::Answer,
            14 => Kind::Swapoff,
            15 => Kind::SwapoffEnd,
            16 => Kind::Swapon,
            17 => Kind::SwaponEnd,
            18 => Kind::WantDevice,
            19 => Kind::Device,
            20 => Kind::Change,
            21 => Kind::ChangeEnd,
            22 => Kind::Exec,
            23 => Kind::Followed,
            24 => Kind::ExecFailed,
            _ => return None,
        })
    }

    /// The bytes of the message, for sending.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        // SAFETY: repr(C) of u32, u32, [u64; 3], [u32; 24]: 8 + 24 + 96 bytes, no padding (checked
        // below).
        unsafe { &*(core::ptr::from_ref(self).cast()) }
    }

    /// The message in received bytes. Any bit pattern is a message; [`Message::kind`] says whether
    /// it is a known one.
    pub const fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        // SAFETY: every field is an integer and there is no padding; the read is unaligned.
        unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast()) }
    }
}

const _: () = assert!(size_of::<Message>() == 8 + 24 + 4 * CLUSTERS_PER_MESSAGE);

#[cfg(test)]
mod tests;

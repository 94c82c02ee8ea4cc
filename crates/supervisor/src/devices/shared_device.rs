//! A device whose clusters the members of a group share.

use rustix::fd::OwnedFd;

/// When the blocks of free clusters go back to the system (`discard` of swapon(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Never: they wait for their next use, and go with the file.
    Never,
    /// In bulk, a moment after they became free.
    Freed,
}

/// A shared device as it was prepared.
pub struct SharedDevice {
    /// The file, on disk or in memory; all its members get this descriptor.
    pub file: OwnedFd,
    /// What becomes of free clusters.
    pub discard: Discard,
    /// Its first clusters that are not for data: a header's.
    pub reserved: u32,
    /// Give all of it back to the system before it is used (`discard=once`).
    pub discard_at_start: bool,
}

impl SharedDevice {
    /// One without a header, which is new: nothing of it is to be given back at the start.
    pub fn new(file: OwnedFd, discard: Discard) -> Self {
        SharedDevice { file, discard, reserved: 0, discard_at_start: false }
    }
}

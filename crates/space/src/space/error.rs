//! Errors of single pages, and their meaning for the slot.

use core::fmt;
use folioswap_devices::{FileError, FileSlot};
use folioswap_slots::DeviceId;
use rustix::io::Errno;

/// The reason why a page could not be written. Its entry is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The page does not compress, and is not to be kept as it is.
    Incompressible,
    /// No run of slots is free here on the shared devices that the page could go to: ask for
    /// clusters, or write page by page.
    NoSlots,
    /// The store got no memory.
    NoMemory,
    /// The devices that the pages could go to do not take so many at once: write them apart.
    OrderNotTaken,
    /// The shared device failed. Slots that refused a page by themselves are bad now and are not
    /// handed out again.
    Device(WriteFailure),
}

/// A shared device did not take a run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The device.
    pub device: DeviceId,
    /// The first slot that is bad, by the group's numbers; the first of the run when none is (its
    /// disk is full, its server is away).
    pub slot: FileSlot,
    /// The error of the operation.
    pub errno: Errno,
}

/// The reason why a page could not be read back. The page must be poisoned, by name; nothing else
/// is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The stored bytes fail their checksum, or the location is not one.
    Corrupt,
    /// The shared device failed, also when asked again.
    File(FileError),
    /// There is no location: the entry was never written.
    Missing,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Corrupt => f.write_str("the stored bytes fail their checksum"),
            ReadError::File(error) => error.fmt(f),
            ReadError::Missing => f.write_str("the swap entry has no location"),
        }
    }
}

/// Returns the system's error of a device's operation.
pub(crate) fn errno_of(error: FileError) -> Errno {
    match error {
        FileError::Write { errno, .. } | FileError::Read { errno, .. } | FileError::Punch { errno, .. } => {
            errno
        }
        FileError::ShortWrite { .. } | FileError::EndOfFile { .. } => Errno::IO,
        FileError::BadBuffer { .. } | FileError::SlotRange { .. } | FileError::OrderNotTaken { .. } => {
            Errno::INVAL
        }
    }
}

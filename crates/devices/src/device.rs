//! The contract of a device that keeps pages in numbered slots: its abilities, their costs, and
//! three operations whose errors name the slot.
//!
//! A file, a block device and plain RAM keep this contract by themselves
//! ([`FileDevice`](crate::FileDevice)). The compressed store names pages by handle instead, because
//! an object's address depends on its length. Behind a table from slot to [`Place`](crate::Place),
//! which the swap space has anyway, it keeps the same contract. One suite runs over all of them
//! (`tests/device_conformance.rs`).

use core::num::NonZeroU32;

use crate::file::FileError;
use crate::location::FileSlot;

/// Whether a read waits for a medium (spec §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Synchrony {
    /// A read costs as little as copying, so reading ahead gains nothing.
    Synchronous,
    /// A read waits for a medium, and several reads at a time overlap.
    Asynchronous,
}

/// The folio orders that a device takes in one write, a bit each (order 0: one page; order 9: 2
/// MiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Orders(u16);

impl Orders {
    /// The largest order of a folio.
    pub const MAX_ORDER: u32 = 9;
    /// Every order, for devices whose slots are contiguous by construction.
    pub const ALL: Self = Self((1 << (Self::MAX_ORDER + 1)) - 1);
    /// Single pages only, as in the kernel's swap files (spec §2.6).
    pub const ONLY_ZERO: Self = Self(1);

    /// A set from a bit for each order. Order 0 is always taken; bits of orders that do not exist
    /// are ignored.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0 | Self::ONLY_ZERO.0)
    }

    /// A bit for each order.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether the device takes a folio of this order in one write.
    pub const fn take(self, order: u32) -> bool {
        order <= Self::MAX_ORDER && self.0 >> order & 1 == 1
    }

    /// Whether the device takes this many pages in one write. A number that is no power of two
    /// counts as the next larger order.
    pub const fn take_run(self, pages: usize) -> bool {
        pages > 0 && self.take(pages.next_power_of_two().trailing_zeros())
    }
}

/// A device's abilities and their costs. The costs are those of its kind of device, for choosing
/// between kinds; they are not measured on this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Characteristics {
    /// Whether a read waits for a medium.
    pub synchrony: Synchrony,
    /// Folio orders taken in one write.
    pub orders: Orders,
    /// Bytes to which a discard is rounded inwards; the parts at its ends that do not fill such a
    /// unit stay allocated. `None`: the device cannot discard.
    pub discard_bytes: Option<NonZeroU32>,
    /// Nanoseconds to read one page, as an order of magnitude.
    pub read_ns: u32,
    /// Pages in one operation beyond which a larger one hardly gains throughput.
    pub batch_pages: u32,
}

/// A device with numbered slots of a page each.
///
/// Operations run in the calling thread and have ended when they return. Several threads may use
/// one device at a time, each on slots that no other thread writes or discards meanwhile. No
/// operation allocates memory.
pub trait Device: Sync {
    /// The device's abilities and costs. They never change.
    fn characteristics(&self) -> Characteristics;

    /// Writes whole pages to consecutive slots. `pages` is aligned to 4096 bytes and a multiple of
    /// them long.
    ///
    /// # Errors
    /// [`FileError::OrderNotTaken`] when the device does not take so many pages at once: nothing is
    /// written, and the caller writes them separately. Any other error names the first slot whose
    /// contents are unknown; the slots before it are written.
    fn write(&self, slot: FileSlot, pages: &[u8]) -> Result<(), FileError>;

    /// Reads whole pages from consecutive slots, whether they were written together or not; part of
    /// a large folio can be read too. `pages` is aligned to 4096 bytes and a multiple of them long.
    ///
    /// # Errors
    /// The error names the first slot that was not read; the slots before it were read.
    fn read(&self, slot: FileSlot, pages: &mut [u8]) -> Result<(), FileError>;

    /// Says that the contents of these slots are no longer needed. Until they are written again, a
    /// read of them returns arbitrary bytes.
    ///
    /// # Errors
    /// [`FileError::Punch`], [`FileError::SlotRange`]. Only space is lost then.
    fn discard(&self, slot: FileSlot, slots: u64) -> Result<(), FileError>;
}

#[cfg(test)]
mod tests;

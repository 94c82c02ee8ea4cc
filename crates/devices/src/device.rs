//! The contract of a device that keeps pages in numbered slots: what it can do, what that costs, and three operations whose errors name
//! the slot.
//!
//! A file, a block device and plain RAM keep it by themselves ([`FileDevice`](crate::FileDevice)). The compressed store keeps pages by
//! handle instead, since where an object lies depends on its length; with a table from slot to [`Place`](crate::Place) before it, which
//! the swap space has anyway, it keeps the same contract. One suite runs over all of them (`tests/device_conformance.rs`).

use core::num::NonZeroU32;

use crate::file::FileError;
use crate::location::FileSlot;

/// How a read goes (spec §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Synchrony {
    /// It costs as little as copying: reading ahead gains nothing.
    Synchronous,
    /// It waits for a medium: several at a time overlap.
    Asynchronous,
}

/// The folio orders that a device takes in one write, a bit each (order 0: one page; order 9: 2 MiB).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Orders(u16);

impl Orders {
    /// The largest order of a folio.
    pub const MAX_ORDER: u32 = 9;
    /// Every order: what is contiguous by construction.
    pub const ALL: Self = Self((1 << (Self::MAX_ORDER + 1)) - 1);
    /// Single pages only, as the kernel's swap files (spec §2.6).
    pub const ONLY_ZERO: Self = Self(1);

    /// From a bit for each order. Order 0 is always taken, and bits of orders that do not exist are ignored.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & Self::ALL.0 | Self::ONLY_ZERO.0)
    }

    /// A bit for each order.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Is a folio of this order taken whole?
    pub const fn take(self, order: u32) -> bool {
        order <= Self::MAX_ORDER && self.0 >> order & 1 == 1
    }

    /// Is a run of so many pages taken whole? One that is no power of two counts as the next larger order.
    pub const fn take_run(self, pages: usize) -> bool {
        pages > 0 && self.take(pages.next_power_of_two().trailing_zeros())
    }
}

/// What a device can do, and what it costs. The costs are of the kind of device, for choosing between kinds; not of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Characteristics {
    /// How a read goes.
    pub synchrony: Synchrony,
    /// What it takes in one write.
    pub orders: Orders,
    /// Bytes that a discard is rounded to, inwards: what does not fill such a piece stays. `None`: it cannot discard.
    pub discard_bytes: Option<NonZeroU32>,
    /// Nanoseconds that reading one page takes, roughly.
    pub read_ns: u32,
    /// Pages in one operation beyond which larger ones hardly gain throughput.
    pub batch_pages: u32,
}

/// A device with numbered slots of a page each.
///
/// Operations are made in the calling thread and have ended when they return. Several threads may use one device at a time, each on
/// slots that nobody else writes or discards meanwhile. No operation allocates.
pub trait Device: Sync {
    /// What it can do.
    fn characteristics(&self) -> Characteristics;

    /// Writes whole pages to consecutive slots. `pages` is aligned to 4096 and whole pages long.
    ///
    /// # Errors
    /// [`FileError::OrderNotTaken`] when it does not take so many at once: nothing is written then, write them apart. Any other names
    /// the first slot of which nothing is known; those before it are written.
    fn write(&self, slot: FileSlot, pages: &[u8]) -> Result<(), FileError>;

    /// Reads whole pages from consecutive slots, whether they were written together or not: part of a large folio too. `pages` is
    /// aligned to 4096 and whole pages long.
    ///
    /// # Errors
    /// Names the first slot that was not read; those before it are.
    fn read(&self, slot: FileSlot, pages: &mut [u8]) -> Result<(), FileError>;

    /// These slots hold nothing that is wanted any more. What is read from them afterwards, before they are written again, is anything.
    ///
    /// # Errors
    /// [`FileError::Punch`], [`FileError::SlotRange`]; nothing else is lost.
    fn discard(&self, slot: FileSlot, slots: u64) -> Result<(), FileError>;
}

#[cfg(test)]
mod tests;

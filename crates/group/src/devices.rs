//! The table of the group's swap devices in its decisions: the devices, their order of use, and how
//! full they are.
//!
//! A device's number is its index in the table, in the order in which the devices were given. Each
//! device whose slots lie in clusters that the supervisor grants (`ram`, `file`) has a range of
//! cluster numbers of its own, so that a number says on which device it is. Between two ranges lies
//! one number that belongs to none, so that no run of consecutive slots is on two devices.

mod writer;

pub use writer::DeviceWriter;

use core::sync::atomic::{
    AtomicI32, AtomicU32,
    Ordering::{Acquire, Relaxed},
};

/// Most devices of a group, as many as a swap entry can name (spec §0).
pub const DEVICES_MAX: usize = 32;

/// Errors after which a device leaves the rotation: about as many as the kernel's RAID allows a
/// member before it is taken out (20 read errors an hour, `max_read_errors`). Reads that succeed
/// when repeated do not count.
pub const ERRORS_MAX: u32 = 16;

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceKind {
    /// Compressed RAM: a store in each member's own memory.
    Zram = 1,
    /// Plain RAM that all members share, in clusters.
    Ram = 2,
    /// A file that all members share, in clusters.
    File = 3,
    /// A block device that all members share, in clusters.
    Block = 4,
    /// An export of an NBD server, which the supervisor reaches for all members, in clusters.
    Nbd = 5,
}

impl DeviceKind {
    /// The name of the type, as in `--swap TYPE`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Zram => "zram",
            DeviceKind::Ram => "ram",
            DeviceKind::File => "file",
            DeviceKind::Block => "block",
            DeviceKind::Nbd => "nbd",
        }
    }

    /// Whether the device's contents take memory that the limit counts in scope total.
    pub const fn is_in_memory(self) -> bool {
        matches!(self, DeviceKind::Zram | DeviceKind::Ram)
    }

    const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => DeviceKind::Zram,
            2 => DeviceKind::Ram,
            3 => DeviceKind::File,
            4 => DeviceKind::Block,
            5 => DeviceKind::Nbd,
            _ => return None,
        })
    }
}

/// The way of a swap-in from a device (spec §5.5, §6 phase II).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceIo {
    /// Reading costs as little as copying: nothing is read ahead, and a page that came back keeps
    /// no copy.
    Synchronous = 0,
    /// Reading waits for a medium: neighbours are read ahead, and a page that came back unchanged
    /// keeps its copy.
    Asynchronous = 1,
    /// As [`Asynchronous`](Self::Asynchronous), but by way of the supervisor
    /// ([`crate::swap_link`]): an export of a server.
    Served = 2,
}

/// What stands on a device whose slots lie in clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceContents {
    /// Pages as they are: each member, and whoever has the device, can read them.
    Plain = 0,
    /// Pages that each member has encrypted under keys of its own.
    Encrypted = 1,
}

/// Whether a device is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceUsage {
    /// The device takes pages, as long as it has free clusters.
    InUse = 0,
    /// The device is being taken out of use (swapoff, spec §0): nothing more is written to it, and
    /// its pages move elsewhere.
    Leaving = 1,
    /// The device is out of use for good: it holds no pages, and every process that has it open
    /// closes it.
    Off = 2,
}

/// One device as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// The kind of the device.
    pub kind: DeviceKind,
    /// Devices of higher priority are used first; equals take turns. -1 when none was given.
    pub priority: i32,
    /// The way of a swap-in.
    pub io: DeviceIo,
    /// The first of the device's cluster numbers.
    pub first_cluster: u32,
    /// Number of its clusters; 0 for a device without clusters.
    pub clusters: u32,
    /// What stands in its slots.
    pub contents: DeviceContents,
}

/// A device's entry in the decisions. All-zero is no device. Members only read it; its owner writes
/// it by a [`DeviceWriter`].
#[repr(C)]
pub struct DeviceEntry {
    kind: AtomicU32,
    priority: AtomicI32,
    io: AtomicU32,
    first_cluster: AtomicU32,
    clusters: AtomicU32,
    clusters_used: AtomicU32,
    /// 1: no cluster can be granted now.
    full: AtomicU32,
    errors: AtomicU32,
    /// 1: the device failed too often.
    failed: AtomicU32,
    /// The folio orders that it does *not* take in one write, a bit each.
    orders_refused: AtomicU32,
    /// [`DeviceUsage`] as a number.
    usage: AtomicU32,
    /// [`DeviceContents`] as a number.
    contents: AtomicU32,
}

impl DeviceEntry {
    /// The device of this entry; `None` when there is none.
    pub fn description(&self) -> Option<DeviceDescription> {
        let kind = DeviceKind::from_number(self.kind.load(Acquire))?;
        let io = match self.io.load(Relaxed) {
            0 => DeviceIo::Synchronous,
            1 => DeviceIo::Asynchronous,
            _ => DeviceIo::Served,
        };
        Some(DeviceDescription {
            kind,
            priority: self.priority.load(Relaxed),
            io,
            first_cluster: self.first_cluster.load(Relaxed),
            clusters: self.clusters.load(Relaxed),
            contents: match self.contents.load(Relaxed) {
                0 => DeviceContents::Plain,
                _ => DeviceContents::Encrypted,
            },
        })
    }

    /// Clusters that have an owner.
    pub fn clusters_used(&self) -> u32 {
        self.clusters_used.load(Relaxed)
    }

    /// Whether no cluster can be granted now (the kernel's off-list bit); the first one freed sets
    /// it back.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed) != 0
    }

    /// Reads and writes that failed for good, as far as members have reported.
    pub fn errors(&self) -> u32 {
        self.errors.load(Relaxed)
    }

    /// Whether the device failed too often ([`ERRORS_MAX`]) and is no longer written to. Its pages
    /// are still read.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Relaxed) != 0
    }

    /// Whether the device is in use.
    pub fn usage(&self) -> DeviceUsage {
        match self.usage.load(Acquire) {
            0 => DeviceUsage::InUse,
            1 => DeviceUsage::Leaving,
            _ => DeviceUsage::Off,
        }
    }

    /// Whether the device may be written to: it is in use, and did not fail too often.
    pub fn takes_pages(&self) -> bool {
        !self.is_failed() && self.usage() == DeviceUsage::InUse
    }

    /// The folio orders that the device takes in one write, a bit each. All, unless
    /// [`DeviceWriter::take_orders`] said otherwise.
    pub fn orders(&self) -> u16 {
        !self.orders_refused.load(Relaxed) as u16
    }
}

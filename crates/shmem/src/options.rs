//! Set-up of a space.

use crate::devices::SwapDevice;

/// Limits and devices of a space. Sizes are in bytes.
#[derive(Debug)]
pub struct Options {
    /// Limit on memory in all: resident folios, compressed store, metadata. At least
    /// [`Options::LEAST_LIMIT`]. Devices in plain RAM do not count.
    pub limit: u64,
    /// The highest limit that [`ShmemSpace::set_limit`](crate::ShmemSpace::set_limit) may set
    /// later; less than `limit` means `limit`. It costs addresses only.
    pub limit_max: u64,
    /// Limit on the content of all objects together, resident or not (tmpfs `size=`); `None`: as
    /// much as finds a place.
    pub size: Option<u64>,
    /// Swap devices. Without any, content stays resident, and is limited by memory.
    pub devices: Vec<SwapDevice>,
}

impl Options {
    /// The least limit: 4 MiB.
    pub const LEAST_LIMIT: u64 = 4 << 20;

    /// A space with compressed RAM as its only device.
    pub fn within(limit: u64) -> Options {
        Options { limit, limit_max: limit, size: None, devices: vec![SwapDevice::store(1)] }
    }

    /// Adds a device.
    #[must_use]
    pub fn and(mut self, device: SwapDevice) -> Options {
        self.devices.push(device);
        self
    }
}

/// Folio sizes of an object's new pages (tmpfs `huge=`). As in the kernel from 6.14 on, a write or
/// an allocation gets the largest folios that lie naturally aligned within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePolicy {
    /// Single pages.
    #[default]
    Never,
    /// Large folios.
    Always,
    /// Large folios that do not reach beyond the object's size (in pages).
    WithinSize,
    /// Large folios once the object was [advised](crate::ShmemObject::advise) so, as with fadvise
    /// or madvise.
    Advise,
}

/// A program's advice on an object, which [`HugePolicy::Advise`] follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugeAdvice {
    /// Single pages, as after MADV_NOHUGEPAGE.
    #[default]
    NoHuge,
    /// Large folios, as after MADV_HUGEPAGE.
    Huge,
}

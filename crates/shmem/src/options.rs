//! How a space is set up.

use crate::devices::SwapDevice;

/// What a space may use. Sizes are in bytes.
#[derive(Debug)]
pub struct Options {
    /// Memory in all: resident folios, compressed store, metadata. At least [`Options::LEAST_LIMIT`]. Devices in plain RAM are beside it.
    pub limit: u64,
    /// The most content of all objects together, resident or not (tmpfs `size=`); `None`: as much as finds a place.
    pub size: Option<u64>,
    /// Where content goes that leaves. Without any it stays, and ends where memory does.
    pub devices: Vec<SwapDevice>,
}

impl Options {
    /// The least limit: 4 MiB.
    pub const LEAST_LIMIT: u64 = 4 << 20;

    /// Nothing but memory, compressed as it fills.
    pub fn within(limit: u64) -> Options {
        Options { limit, size: None, devices: vec![SwapDevice::store(1)] }
    }

    /// Another device.
    #[must_use]
    pub fn and(mut self, device: SwapDevice) -> Options {
        self.devices.push(device);
        self
    }
}

/// Which folios an object's new pages come in (tmpfs `huge=`). As in the kernel from 6.14 on, a write or an allocation gets the largest folios
/// that lie naturally aligned within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePolicy {
    /// Single pages.
    #[default]
    Never,
    /// Large folios.
    Always,
    /// Large folios that do not reach beyond the object's size (in pages).
    WithinSize,
    /// Large folios once the object was [advised](crate::ShmemObject::advise) to, as with fadvise or madvise.
    Advise,
}

//! How a space is set up.

use std::path::PathBuf;

/// What a space may use. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Memory in all: resident folios, compressed store, metadata. At least [`Options::LEAST_LIMIT`].
    pub limit: u64,
    /// The most content of all objects together, resident or not (tmpfs `size=`); `None`: as much as finds a place.
    pub size: Option<u64>,
    /// Behind the compressed store; `None`: what does not compress stays within the limit, and content ends where memory does.
    pub swap_file: Option<SwapFile>,
}

/// A file without a name that takes what is cold or does not compress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapFile {
    /// Where it is made; not in memory (tmpfs).
    pub directory: PathBuf,
    /// The most it may grow to; `None`: half of what the file system has free.
    pub max: Option<u64>,
}

impl Options {
    /// The least limit: 4 MiB.
    pub const LEAST_LIMIT: u64 = 4 << 20;

    /// Nothing but memory, compressed as it fills.
    pub const fn within(limit: u64) -> Options {
        Options { limit, size: None, swap_file: None }
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

//! Counts of pages and of devices that the threads of a process share.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Counts of pages and of devices.
#[repr(C)]
pub struct Counts {
    /// Pages swapped out now.
    pub(crate) swapped_pages: AtomicU64,
    /// Pages in the program's memory that keep their stored copy
    /// ([`folioswap_policy::page::PageState::Clean`]).
    pub(crate) clean_pages: AtomicU64,
    /// Devices that are short of space, as the evictor found them (`look_at_swap_space`).
    pub(crate) swap_full: AtomicU64,
    /// Devices whose pages, touched one by one, keep no copy there and go to the compressed store
    /// when they leave (`evict/tiers.rs`).
    pub(crate) refilled_from: AtomicU32,
    /// Stored copies that the evictor has found stale and freed.
    pub(crate) stale_copies: AtomicU32,
}

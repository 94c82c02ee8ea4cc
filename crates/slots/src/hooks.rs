//! Callbacks of the allocator. Every method has a default that does nothing.

use crate::alloc::AllocError;
use crate::entry::{DeviceId, FolioId, SwapEntry};

/// The group is over its swap limit, so the allocation is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChargeRefused;

/// Result of an attempt to reclaim one cached folio (spec §0, `__try_to_reclaim_swap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaimed {
    /// The folio left the swap cache; it had this many pages.
    Freed(u32),
    /// The folio, of this many pages, was found but stays.
    Kept(u32),
    /// No folio was found.
    Absent,
}

/// Whether the caller has carried a discard out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardOutcome {
    /// The range is discarded.
    Done,
    /// The cluster stays on the discard list until later.
    Deferred,
}

/// Callbacks of an allocation. None of them may allocate slots.
pub trait Hooks {
    /// Charges `slots` slots to the caller's group. Called once for each allocation, failed ones
    /// too, so that failures are counted (spec §2.7). No lock is held.
    ///
    /// # Errors
    /// [`ChargeRefused`] undoes a successful allocation; after a failed one it changes nothing.
    fn charge(&self, outcome: Result<SwapEntry, AllocError>, slots: u32) -> Result<(), ChargeRefused> {
        let _ = (outcome, slots);
        Ok(())
    }

    /// Tries to take the folio that is only cached at `entry` out of the swap cache (condition
    /// ANYWAY). The local lock of one logical CPU is held and no cluster lock, so
    /// [`cache_remove`](crate::Slots::cache_remove) and [`put`](crate::Slots::put) may be called.
    /// The folio may have changed since it was seen: try its lock, then check that it still covers
    /// `entry`.
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        let _ = (entry, folio);
        Reclaimed::Absent
    }

    /// Discards `slots` slots from `first` on. No lock is held, or the local lock with
    /// [`DiscardPlace::Inside`](crate::DiscardPlace).
    fn discard(&self, device: DeviceId, first: u64, slots: u32) -> DiscardOutcome {
        let _ = (device, first, slots);
        DiscardOutcome::Deferred
    }
}

/// The default hooks: no charging, no reclaim of cached folios, no discards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoHooks;

impl Hooks for NoHooks {}

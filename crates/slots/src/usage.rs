//! `inuse_pages` with its off-list bit: the counter that decides whether a device is on the available list (spec §0, Counting).
//!
//! Protocol: who makes the counter exactly `pages` takes the device off the available list, by a compare-exchange that sets the off-list bit (a
//! racing free makes it fail). Who frees and sees the bit puts the device back. Both do so under the available-list lock.

use crate::sync::{AtomicU64, Ordering};

/// The device is not on the available list.
const OFF_LIST: u64 = 1 << 62;

/// Slots in use, and whether the device is off the available list. Zeroed memory: nothing in use, on the list.
#[repr(transparent)]
pub(crate) struct Usage {
    inuse: AtomicU64,
}

/// What [`Usage::sub`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    OnList,
    OffList,
}

impl Usage {
    #[cfg(test)]
    #[allow(dead_code, reason = "for the models, which compile this file into a test of their own")]
    pub(crate) fn new() -> Self {
        Self { inuse: AtomicU64::new(0) }
    }

    /// Slots in use.
    #[inline]
    pub(crate) fn inuse(&self) -> u64 {
        self.inuse.load(Ordering::Relaxed) & !OFF_LIST
    }

    #[inline]
    pub(crate) fn listing(&self) -> Listing {
        if self.inuse.load(Ordering::Relaxed) & OFF_LIST != 0 { Listing::OffList } else { Listing::OnList }
    }

    /// Slots were taken. Returns the counter with its bit: equal to `pages` exactly when the caller must try
    /// [`mark_full`](Self::mark_full). Context: cluster lock held.
    #[inline]
    pub(crate) fn add(&self, slots: u64) -> u64 {
        self.inuse.fetch_add(slots, Ordering::AcqRel) + slots
    }

    /// Slots are clean and free. `Release`, so that swapoff sees 0 only after all cleaning. Context: cluster lock held.
    #[inline]
    pub(crate) fn sub(&self, slots: u64) -> Listing {
        let before = self.inuse.fetch_sub(slots, Ordering::AcqRel);
        debug_assert!(before & !OFF_LIST >= slots, "more slots freed than were in use");
        if before & OFF_LIST != 0 { Listing::OffList } else { Listing::OnList }
    }

    /// Sets the off-list bit if the device is still exactly full; says whether it did.
    /// Context: available-list lock held.
    #[inline]
    pub(crate) fn mark_full(&self, pages: u64) -> bool {
        self.inuse.compare_exchange(pages, pages | OFF_LIST, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Sets the off-list bit whatever the counter is (swapoff, and before swapon). Context: available-list lock held.
    pub(crate) fn mark_off_list(&self) {
        self.inuse.fetch_or(OFF_LIST, Ordering::AcqRel);
    }

    /// Clears the off-list bit unless the device is exactly full again; says whether the device belongs on the list now.
    /// Context: available-list lock held, and the bit is set.
    #[inline]
    pub(crate) fn mark_on_list(&self, pages: u64) -> bool {
        let before = self.inuse.fetch_and(!OFF_LIST, Ordering::AcqRel) & !OFF_LIST;
        !(before == pages && self.mark_full(pages))
    }

    /// Back to nothing in use, off the list. Context: swapoff's last step.
    pub(crate) fn reset(&self) {
        self.inuse.store(OFF_LIST, Ordering::Release);
    }
}

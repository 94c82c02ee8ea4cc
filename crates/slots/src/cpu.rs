//! State of a logical CPU (spec §2.5): for each order the next offset in the cluster that this CPU
//! drains, device references, counters.
//!
//! The local lock is held through a whole allocation, so it also stands for "an allocator is at
//! work on this CPU": swapoff takes every local lock once, to know that no allocator can still
//! write a hint.

use crate::entry::{DEVICES_MAX, DeviceId, SwapEntry};
use crate::lock::SpinLock;
use crate::order::{ORDERS, Order};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Zeroed memory has no hint, no reference and no count.
#[repr(C, align(128))]
pub(crate) struct CpuState {
    lock: SpinLock,
    /// Raw swap entry of the next slot to try; 0 = none.
    hints: [AtomicU64; ORDERS],
    /// References to devices taken on this CPU.
    users: [AtomicU32; DEVICES_MAX],
    allocated: [AtomicU64; ORDERS],
    fallback: [AtomicU64; ORDERS],
    hint_hits: AtomicU64,
    scanned: [AtomicU64; ORDERS],
}

impl CpuState {
    #[inline]
    pub(crate) fn local_lock(&self) -> &SpinLock {
        &self.lock
    }

    /// The hint of `order`, as a snapshot. For `validate`.
    pub(crate) fn peek_hint(&self, order: Order) -> Option<SwapEntry> {
        SwapEntry::from_raw(self.hints[order.index()].load(Ordering::Relaxed))
    }

    pub(crate) fn users(&self, device: DeviceId) -> &AtomicU32 {
        &self.users[device.index()]
    }

    pub(crate) fn allocated(&self, order: Order) -> u64 {
        self.allocated[order.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn fallback(&self, order: Order) -> u64 {
        self.fallback[order.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn hint_hits(&self) -> u64 {
        self.hint_hits.load(Ordering::Relaxed)
    }

    pub(crate) fn scanned(&self, order: Order) -> u64 {
        self.scanned[order.index()].load(Ordering::Relaxed)
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

/// The local lock, held.
pub(crate) struct CpuGuard<'a> {
    state: &'a CpuState,
}

/// Adds 1 without a read-modify-write, because only the holder of the local lock writes.
#[inline]
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl<'a> CpuGuard<'a> {
    /// Context: the caller has just taken the local lock.
    #[inline]
    pub(crate) fn new(state: &'a CpuState) -> Self {
        CpuGuard { state }
    }

    #[inline]
    pub(crate) fn hint(&self, order: Order) -> Option<SwapEntry> {
        self.state.peek_hint(order)
    }

    #[inline]
    pub(crate) fn set_hint(&self, order: Order, hint: Option<SwapEntry>) {
        self.state.hints[order.index()].store(hint.map_or(0, SwapEntry::to_raw), Ordering::Relaxed);
    }

    /// Clears every hint that names `device`.
    pub(crate) fn forget(&self, device: DeviceId) {
        for order in Order::all() {
            if self.hint(order).is_some_and(|hint| hint.device() == device) {
                self.set_hint(order, None);
            }
        }
    }

    #[inline]
    pub(crate) fn count_allocated(&self, order: Order) {
        bump(&self.state.allocated[order.index()]);
    }

    pub(crate) fn count_fallback(&self, order: Order) {
        bump(&self.state.fallback[order.index()]);
    }

    #[inline]
    pub(crate) fn count_hint_hit(&self) {
        bump(&self.state.hint_hits);
    }

    pub(crate) fn count_scan(&self, order: Order) {
        bump(&self.state.scanned[order.index()]);
    }
}

impl Drop for CpuGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.state.lock.unlock();
    }
}

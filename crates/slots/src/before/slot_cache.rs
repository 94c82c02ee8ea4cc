//! A cache of 64 order-0 slots per logical CPU (before spec §2).
//!
//! A cached slot looks used: its word says cached, without a count, by the folio
//! [`FolioId::SLOT_CACHE`], which cannot be reclaimed. The kernel had it so, and removed it for
//! that.

use crate::entry::{DeviceId, DeviceMask, FolioId, LogicalCpu, SwapEntry};
use crate::hooks::Hooks;
use crate::order::Order;
use crate::policy::{Policy, Rotation, SlotCache};
use crate::scan::Request;
use crate::slots::Slots;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::word::Word;

/// The word of a slot in a cache.
const SLOT_CACHED: Word = Word::only_cached(FolioId::SLOT_CACHE);
/// Slots per logical CPU, taken in one fill.
pub(crate) const SLOT_CACHE_SIZE: usize = 64;
/// Free slots per logical CPU above which the caches come into use.
const ACTIVATE: u64 = 5 * SLOT_CACHE_SIZE as u64;
/// Free slots per logical CPU below which the caches are drained and left alone.
const DEACTIVATE: u64 = 2 * SLOT_CACHE_SIZE as u64;

/// Whether the slot lies in a slot cache: it looks used, but has no owner.
#[inline]
pub(crate) fn is_slot_cached<P: Policy>(word: Word) -> bool {
    P::SLOT_CACHE == SlotCache::PerCpu && word == SLOT_CACHED
}

/// The slots of one logical CPU, under its local lock. Zeroed memory is empty.
#[repr(C)]
pub(crate) struct CachedSlots {
    /// Slots left.
    left: AtomicU32,
    /// Index of the next one to be handed out.
    next: AtomicU32,
    entries: [AtomicU64; SLOT_CACHE_SIZE],
}

impl CachedSlots {
    pub(crate) fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    fn first(&self) -> Option<SwapEntry> {
        if self.left() == 0 {
            return None;
        }
        SwapEntry::from_raw(self.entries[self.next.load(Ordering::Relaxed) as usize].load(Ordering::Relaxed))
    }

    fn pop(&self) {
        self.next.store(self.next.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.left.store(self.left() - 1, Ordering::Relaxed);
    }

    /// Context: the cache is empty; at most [`SLOT_CACHE_SIZE`] entries.
    fn fill(&self, entries: impl Iterator<Item = SwapEntry>) {
        let mut count = 0;
        for (cell, entry) in self.entries.iter().zip(entries) {
            cell.store(entry.to_raw(), Ordering::Relaxed);
            count += 1;
        }
        self.next.store(0, Ordering::Relaxed);
        self.left.store(count, Ordering::Relaxed);
    }

    /// Hands the slots of `devices` to `give`; the others stay.
    fn take_out(&self, devices: DeviceMask, mut give: impl FnMut(SwapEntry)) {
        let first = self.next.load(Ordering::Relaxed) as usize;
        let mut kept = 0;
        for index in first..first + self.left() as usize {
            let raw = self.entries[index].load(Ordering::Relaxed);
            let Some(entry) = SwapEntry::from_raw(raw) else { continue };
            if devices.contains(entry.device()) {
                give(entry);
            } else {
                self.entries[kept].store(raw, Ordering::Relaxed);
                kept += 1;
            }
        }
        self.next.store(0, Ordering::Relaxed);
        self.left.store(kept as u32, Ordering::Relaxed);
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Takes one slot out of this CPU's cache, which is filled first if it is empty. `None` if the
    /// caches are not in use, if no slot could be had, or if the next slot's device is not
    /// permitted: the slot is then allocated directly.
    pub(crate) fn alloc_from_slot_cache<H: Hooks>(
        &self,
        cpu: LogicalCpu,
        folio: FolioId,
        mask: DeviceMask,
        hooks: &H,
    ) -> Option<SwapEntry> {
        let cached = &self.variant_cpu(cpu).cached;
        if cached.left() == 0 && !self.slot_cache_in_use() {
            return None;
        }
        let local = self.lock_cpu(cpu);
        loop {
            if cached.left() == 0 {
                let mut request = Request::new(Order::ZERO, SLOT_CACHED, hooks, &local, cpu, DeviceMask::ALL);
                self.fill_slot_cache(cached, &mut request);
            }
            let entry = cached.first().filter(|entry| mask.contains(entry.device()))?;
            cached.pop();
            if self.hand_out(entry, folio) {
                local.count_allocated(Order::ZERO);
                return Some(entry);
            }
        }
    }

    /// Whether the caches are in use, which follows the free slots: in use above 5 x 64 per CPU,
    /// all drained and out of use below 2 x 64. Asked before each fill, because in between a cache
    /// takes no free slots.
    fn slot_cache_in_use(&self) -> bool {
        let active = &self.variant_shared().slot_cache_active;
        let free = self.free_slots();
        let cpus = u64::from(self.config().cpus);
        if active.load(Ordering::Relaxed) == 0 {
            if free <= ACTIVATE * cpus {
                return false;
            }
            active.store(1, Ordering::Relaxed);
        } else if free < DEACTIVATE * cpus {
            active.store(0, Ordering::Relaxed);
            self.drain_slot_caches(DeviceMask::ALL);
            return false;
        }
        true
    }

    /// Takes up to 64 slots of one device (with rotation per cluster: of any). Context: local lock
    /// held, cache empty.
    fn fill_slot_cache<H: Hooks>(&self, cached: &CachedSlots, request: &mut Request<'_, H>) {
        let mut device: Option<DeviceId> = None;
        let slots = core::iter::from_fn(|| {
            let entry = match (P::ROTATION, device) {
                (Rotation::PerAllocation, Some(device)) => self.alloc_on_device(device, request),
                _ => self.alloc_once(DeviceMask::ALL, request),
            }?;
            device = Some(entry.device());
            Some(entry)
        });
        cached.fill(slots.take(SLOT_CACHE_SIZE));
    }

    /// Gives the slot to the folio. It becomes free instead if its device is on its way off.
    fn hand_out(&self, entry: SwapEntry, folio: FolioId) -> bool {
        let cluster = self.lock_cluster(entry.device(), entry.cluster() as u32);
        let Some(words) = cluster.words() else { return false };
        let cell = &words[entry.slot_in_cluster() as usize];
        debug_assert_eq!(cell.load(Ordering::Relaxed), SLOT_CACHED.raw());
        let writable = cluster.device.is_writable();
        let word = if writable { Word::allocated(folio) } else { Word::FREE };
        cell.store(word.raw(), Ordering::Release);
        cluster.count_freed(u32::from(!writable));
        writable
    }

    /// Frees the cached slots of `devices` on every logical CPU. Context: no local lock and no
    /// cluster lock held.
    pub(crate) fn drain_slot_caches(&self, devices: DeviceMask) {
        for (cpu, _) in self.logical_cpus() {
            let _local = self.lock_cpu(cpu);
            self.variant_cpu(cpu).cached.take_out(devices, |entry| self.undo_alloc(entry, 1));
        }
    }

    /// Slots that lie in slot caches.
    pub(crate) fn count_slot_cached(&self) -> u64 {
        self.logical_cpus().map(|(cpu, _)| u64::from(self.variant_cpu(cpu).cached.left())).sum()
    }
}

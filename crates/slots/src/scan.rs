//! Scan of one cluster, from an offset to its end, without wrap-around (spec §0).

use crate::before::are_per_device;
use crate::cpu::CpuGuard;
use crate::device::DeviceFlags;
use crate::entry::{DeviceMask, LogicalCpu, SwapEntry};
use crate::guard::Isolated;
use crate::hooks::{Hooks, Reclaimed};
use crate::lock::Relax;
use crate::observe::Step;
use crate::order::{CLUSTER_SLOTS, Order};
use crate::policy::{HintScope, Policy};
use crate::slots::Slots;
use crate::sync::{AtomicU64, Ordering};
use crate::word::Word;
use crate::words::Words;

/// One allocation's request, and the failures on its way.
pub(crate) struct Request<'a, H: Hooks> {
    pub(crate) order: Order,
    /// The word that the slots get.
    pub(crate) word: Word,
    pub(crate) hooks: &'a H,
    pub(crate) cpu: &'a CpuGuard<'a>,
    /// The CPU whose local lock `cpu` is.
    pub(crate) logical: LogicalCpu,
    /// The permitted devices.
    pub(crate) mask: DeviceMask,
    /// A free cluster could not get a table, because the frame pool is empty.
    pub(crate) no_frame: bool,
    /// Full clusters gave slots back: an order-0 allocation may try again.
    pub(crate) reclaimed: bool,
}

impl<'a, H: Hooks> Request<'a, H> {
    #[inline]
    pub(crate) fn new(
        order: Order,
        word: Word,
        hooks: &'a H,
        cpu: &'a CpuGuard<'a>,
        logical: LogicalCpu,
        mask: DeviceMask,
    ) -> Self {
        Request { order, word, hooks, cpu, logical, mask, no_frame: false, reclaimed: false }
    }
}

/// Contents of a naturally aligned range.
enum RangeUse {
    Free,
    /// Some slots are only cached, none is otherwise used.
    OnlyCached,
    Used,
}

#[inline]
fn look(words: Words<'_>, first: u32, count: u32) -> RangeUse {
    let cells = &words[first as usize..(first + count) as usize];
    let front = Word::from_raw(cells[0].load(Ordering::Relaxed));
    if !front.is_free() && !front.is_only_cached() {
        return RangeUse::Used;
    }
    // One look without a branch per slot: most ranges are entirely free or entirely used.
    if cells.iter().fold(0, |all, cell| all | cell.load(Ordering::Relaxed)) == 0 {
        return RangeUse::Free;
    }
    look_closely(cells)
}

#[cold]
fn look_closely(cells: &[AtomicU64]) -> RangeUse {
    let mut range = RangeUse::Free;
    for word in cells {
        let word = Word::from_raw(word.load(Ordering::Relaxed));
        if word.is_only_cached() {
            range = RangeUse::OnlyCached;
        } else if !word.is_free() {
            return RangeUse::Used;
        }
    }
    range
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Scans `cluster` from slot `from` and takes the first range that fits. Consumes the guard, so
    /// that the scan ends with relocation, unlock and a new hint, successful or not. Context: local
    /// lock and cluster lock held.
    #[inline]
    pub(crate) fn scan_cluster<H: Hooks>(
        &self,
        cluster: Isolated<'_, PAYLOAD, P>,
        from: u32,
        request: &Request<'_, H>,
    ) -> Option<SwapEntry> {
        let found = self.find_range(&cluster, from, request);
        let taken = found.and_then(|slot| cluster.entry(slot));
        let mut next = None;
        if let Some(slot) = found {
            let after = slot + request.order.slots();
            if after < CLUSTER_SLOTS && cluster.cluster.used() < CLUSTER_SLOTS {
                next = cluster.entry(after);
            }
        }
        let (device, id) = (cluster.device, cluster.id);
        drop(cluster);
        if device.has(DeviceFlags::ROTATIONAL) {
            let raw = next.map_or(0, SwapEntry::to_raw);
            device.global_cluster.next[request.order.index()].store(raw, Ordering::Relaxed);
        } else if are_per_device::<P>() {
            self.set_device_hint(request.logical, id, request.order, next);
        } else if P::HINT_SCOPE == HintScope::Mask {
            self.set_mask_hint(request, next);
        } else {
            request.cpu.set_hint(request.order, next);
        }
        taken
    }

    /// The slot of the first range that fits, which is taken already.
    #[inline]
    fn find_range<H: Hooks>(
        &self,
        cluster: &Isolated<'_, PAYLOAD, P>,
        from: u32,
        request: &Request<'_, H>,
    ) -> Option<u32> {
        let step = request.order.slots();
        // No range can be free, and reclaim of what is only cached is not worth a scan (as the
        // kernel has it: slots that are only cached count as used).
        if cluster.cluster.used() + step > CLUSTER_SLOTS {
            return None;
        }
        let mut words = cluster.words()?;
        let mut reclaims_only_cached = None;
        let mut slot = from;
        debug_assert!(slot.is_multiple_of(step));
        while slot + step <= CLUSTER_SLOTS {
            let range = look(words, slot, step);
            P::Relax::step(Step::Look(if matches!(range, RangeUse::Used) { 1 } else { step }));
            match range {
                RangeUse::Free => return self.take_range(cluster, words, slot, request),
                RangeUse::OnlyCached => {
                    if *reclaims_only_cached.get_or_insert_with(|| self.vm_swap_full()) {
                        self.reclaim_range(cluster, slot, request);
                        if !cluster.is_usable(request.order) {
                            return None;
                        }
                        // The table may be another one if the cluster was empty in between: here,
                        // and for the rest of the scan.
                        words = cluster.words()?;
                        if let RangeUse::Free = look(words, slot, step) {
                            return self.take_range(cluster, words, slot, request);
                        }
                    }
                }
                RangeUse::Used => {}
            }
            slot += step;
        }
        None
    }

    /// Drops the lock and reclaims the folios that are only cached in the range. The first one kept
    /// ends it.
    #[cold]
    fn reclaim_range<H: Hooks>(
        &self,
        cluster: &Isolated<'_, PAYLOAD, P>,
        first: u32,
        request: &Request<'_, H>,
    ) {
        let end = first + request.order.slots();
        cluster.unlocked(|| {
            let mut slot = first;
            while slot < end {
                let Some(entry) = cluster.entry(slot) else { break };
                match self.reclaim_only_cached(entry, request.hooks) {
                    Some(Reclaimed::Kept(_)) => break,
                    Some(Reclaimed::Freed(pages)) => slot = folio_end(slot, pages),
                    Some(Reclaimed::Absent) | None => slot += 1,
                }
            }
        });
    }

    /// Takes a range whose slots are all free, unless the device lacks WRITEOK.
    #[inline]
    fn take_range<H: Hooks>(
        &self,
        cluster: &Isolated<'_, PAYLOAD, P>,
        words: Words<'_>,
        slot: u32,
        request: &Request<'_, H>,
    ) -> Option<u32> {
        if !cluster.device.is_writable() {
            return None;
        }
        if cluster.cluster.used() == 0 {
            debug_assert!(cluster.cluster.flag().list(Order::ZERO).is_none(), "an empty cluster is isolated");
            // The first allocation in an empty cluster fixes its order.
            cluster.cluster.set_order(request.order);
        }
        let count = request.order.slots();
        let word = request.word.raw();
        for cell in &words[slot as usize..(slot + count) as usize] {
            debug_assert_eq!(cell.load(Ordering::Relaxed), 0);
            cell.store(word, Ordering::Release);
        }
        cluster.count_taken(count);
        Some(slot)
    }
}

/// First slot behind the naturally aligned folio of `pages` pages that covers `slot`.
pub(crate) fn folio_end(slot: u32, pages: u32) -> u32 {
    (slot + 1).next_multiple_of(pages.max(1).next_power_of_two())
}

//! `folio_alloc_swap`: allocates, charges, and adds to the swap cache in one call (spec §2.5 to
//! §2.7).

use crate::available::AvailableList;
use crate::cpu::CpuGuard;
use crate::device::Device;
use crate::entry::{DEVICES_MAX, DeviceId, DeviceMask, FolioId, LogicalCpu, SwapEntry};
use crate::hooks::{Hooks, NoHooks};
use crate::lock::Relax;
use crate::observe::Step;
use crate::order::Order;
use crate::policy::{HintScope, NodePreference, Policy, Rotation, SlotCache};
use crate::scan::Request;
use crate::slots::Slots;
use crate::sync::Ordering;
use crate::usage::Listing;
use crate::word::Word;

/// Why no slots were allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocError {
    /// No permitted device has a free slot within reach: all are used, or the free ones wait for a
    /// discard that nobody runs.
    NoSpace,
    /// There are free slots but no run for this order: split the folio and try again with order 0.
    SplitAndRetry,
    /// A free cluster was at hand but the frame pool is empty: add frames and try again.
    NoFrame,
    /// No permitted device that is on accepts this order.
    InvalidOrder,
    /// [`Hooks::charge`] refused; the slots are free again.
    ChargeRefused,
}

impl core::fmt::Display for AllocError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            AllocError::NoSpace => "no swap space left",
            AllocError::SplitAndRetry => "no run of swap slots for this order: split and retry",
            AllocError::NoFrame => "no cluster frame left",
            AllocError::InvalidOrder => "no permitted swap device takes this order",
            AllocError::ChargeRefused => "swap limit of the group reached",
        })
    }
}

impl core::error::Error for AllocError {}

/// Rounds of an order-0 allocation. It starts over after pending discards ran, after full clusters
/// gave slots back, or because slots are free but their clusters were contended.
const ROUNDS_MAX: u32 = 2 * DEVICES_MAX as u32;
/// How often the walk of the available list starts over.
const RESTARTS_MAX: u32 = 4;

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Takes 2^`order` naturally aligned slots for `folio` on a device in `mask`. Their words
    /// become cached(folio) with count 1. Slot i of the folio is the returned entry + i.
    ///
    /// The caller holds the folio's lock. Cost: tens of nanoseconds while this CPU's cluster lasts.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is taken then.
    #[inline]
    pub fn alloc_folio(
        &self,
        cpu: LogicalCpu,
        order: Order,
        folio: FolioId,
        mask: DeviceMask,
    ) -> Result<SwapEntry, AllocError> {
        self.alloc_folio_with(cpu, order, folio, mask, &NoHooks)
    }

    /// As [`alloc_folio`](Self::alloc_folio), with the caller's [`Hooks`]: charging, reclaim of
    /// cached folios, discards.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is taken then.
    #[inline]
    pub fn alloc_folio_with<H: Hooks>(
        &self,
        cpu: LogicalCpu,
        order: Order,
        folio: FolioId,
        mask: DeviceMask,
        hooks: &H,
    ) -> Result<SwapEntry, AllocError> {
        let outcome = self.alloc_uncharged(cpu, order, folio, mask, hooks);
        let charged = hooks.charge(outcome, order.slots());
        if let (Ok(entry), Err(_)) = (outcome, charged) {
            self.undo_alloc(entry, order.slots());
            return Err(AllocError::ChargeRefused);
        }
        outcome
    }

    #[inline]
    fn alloc_uncharged<H: Hooks>(
        &self,
        cpu: LogicalCpu,
        order: Order,
        folio: FolioId,
        mask: DeviceMask,
        hooks: &H,
    ) -> Result<SwapEntry, AllocError> {
        P::Relax::step(Step::Allocate);
        if P::SLOT_CACHE == SlotCache::PerCpu
            && order == Order::ZERO
            && let Some(entry) = self.alloc_from_slot_cache(cpu, folio, mask, hooks)
        {
            return Ok(entry);
        }
        for round in 0..ROUNDS_MAX {
            let again = {
                let local = self.lock_cpu(cpu);
                let mut request = Request::new(order, Word::allocated(folio), hooks, &local, cpu, mask);
                if let Some(entry) = self.alloc_once(mask, &mut request) {
                    local.count_allocated(order);
                    return Ok(entry);
                }
                if request.no_frame {
                    local.count_fallback(order);
                    return Err(AllocError::NoFrame);
                }
                if order != Order::ZERO {
                    local.count_fallback(order);
                    return Err(self.failure(order, mask));
                }
                request.reclaimed
            };
            // Discards are synchronous, so they run here, where no local lock is held any more.
            if again || self.run_first_pending_discards(mask, hooks) {
                continue;
            }
            // Isolation skips contended clusters, so a failure with free slots may be spurious; the
            // caller could take it for the end of all space. Slots that wait for a discard come
            // into reach by no further round.
            if self.free_within_reach(mask) == 0 {
                break;
            }
            P::Relax::relax(round);
        }
        self.lock_cpu(cpu).count_fallback(order);
        Err(self.failure(order, mask))
    }

    /// Tries the CPU's own cluster, then walks the devices. Context: local lock held.
    #[inline]
    pub(crate) fn alloc_once<H: Hooks>(
        &self,
        mask: DeviceMask,
        request: &mut Request<'_, H>,
    ) -> Option<SwapEntry> {
        if P::ROTATION == Rotation::PerAllocation {
            return self.alloc_in_turn(mask, request).or_else(|| {
                let found = self.alloc_slow(mask, request);
                found.inspect(|entry| self.begin_turn(*entry, request))
            });
        }
        if let Some(entry) = self.alloc_fast(request.cpu, mask, request) {
            request.cpu.count_hint_hit();
            return Some(entry);
        }
        self.alloc_slow(mask, request)
    }

    #[cold]
    fn failure(&self, order: Order, mask: DeviceMask) -> AllocError {
        let (free, _) = self.free_and_total(mask);
        let permitted = |id: &DeviceId| mask.contains(*id) && self.device(*id).is_writable();
        let taken = |id: DeviceId| self.device(id).orders().contains(order);
        let mut devices = self.devices().iter().filter(permitted).peekable();
        if devices.peek().is_some() && !devices.any(taken) {
            return AllocError::InvalidOrder;
        }
        if order == Order::ZERO || free == 0 { AllocError::NoSpace } else { AllocError::SplitAndRetry }
    }

    /// Step 0: tries this CPU's cluster. The hint counts only if its device is permitted. A fast
    /// path that finds nothing leaves no hint to a dead end.
    #[inline]
    fn alloc_fast<H: Hooks>(
        &self,
        local: &CpuGuard<'_>,
        mask: DeviceMask,
        request: &Request<'_, H>,
    ) -> Option<SwapEntry> {
        if P::HINT_SCOPE != HintScope::Cpu {
            return self.alloc_at_scoped_hint(mask, request);
        }
        let hint = local.hint(request.order)?;
        if !mask.contains(hint.device()) {
            return None;
        }
        self.alloc_at_hint(hint, request)
    }

    /// Walks the available list in priority order. Each visited device is moved behind its equals
    /// *before* it is used. An order above 0 stops at the first device that fails. Order 0 goes on,
    /// and starts over if the device that was to come next left the list. Devices that are not
    /// permitted or do not accept the order are passed over.
    #[cold]
    fn alloc_slow<H: Hooks>(&self, mask: DeviceMask, request: &mut Request<'_, H>) -> Option<SwapEntry> {
        let order = request.order;
        let mut remaining = mask;
        let mut restarts = 0;
        let mut expected = None;
        loop {
            let id = {
                let _held = self.hold_available();
                let (available, key) = self.walked_by(request.logical);
                if let Some(next) = expected
                    && available.position(next).is_none()
                    && restarts < RESTARTS_MAX
                {
                    restarts += 1;
                    remaining = mask;
                }
                let id = available.first_in(remaining)?;
                remaining = remaining.without(id);
                expected = available.first_in(remaining);
                available.requeue(id, key);
                id
            };
            if !self.device(id).orders().contains(order) {
                continue;
            }
            let found = self.alloc_on_device(id, request);
            if found.is_some() || order != Order::ZERO {
                return found;
            }
        }
    }

    /// Takes a device off the available list after its last free slot was taken. Context: cluster
    /// lock held.
    #[cold]
    pub(crate) fn remove_full_from_available(&self, id: DeviceId, device: &Device) {
        let _held = self.hold_available();
        if device.usage().mark_full() {
            self.take_off_available(id);
        }
    }

    /// Puts a device back on the list after a free saw the off-list bit; only with WRITEOK.
    #[cold]
    pub(crate) fn add_to_available(&self, id: DeviceId, device: &Device) {
        let _held = self.hold_available();
        if device.is_writable()
            && device.usage().listing() == Listing::OffList
            && device.usage().mark_on_list()
        {
            self.header().available.insert(id, |id| self.device(id).priority());
            if P::NODE_PREFERENCE == NodePreference::On {
                self.insert_on_nodes(id);
            }
        }
    }

    /// Context: available-list lock held.
    pub(crate) fn take_off_available(&self, id: DeviceId) {
        self.header().available.remove(id);
        if P::NODE_PREFERENCE == NodePreference::On {
            self.remove_from_nodes(id);
        }
    }

    /// The list that `cpu` walks, and the key that it is sorted by.
    fn walked_by(&self, cpu: LogicalCpu) -> (&AvailableList, impl Fn(DeviceId) -> i32) {
        let (list, node) = match P::NODE_PREFERENCE {
            NodePreference::Off => (&self.header().available, None),
            NodePreference::On => {
                let (list, node) = self.node_list(cpu);
                (list, Some(node))
            }
        };
        (list, move |id| node.map_or_else(|| self.device(id).priority(), |node| self.node_key(node, id)))
    }

    /// Frees slots that were handed out a moment ago, because charging refused or a cached slot is
    /// drained. Their payload has not been written.
    #[cold]
    pub(crate) fn undo_alloc(&self, entry: SwapEntry, slots: u32) {
        let cluster = self.lock_cluster(entry.device(), entry.cluster() as u32);
        let Some(words) = cluster.words() else { return };
        let first = entry.slot_in_cluster() as usize;
        for word in &words[first..first + slots as usize] {
            word.store(0, Ordering::Release);
        }
        cluster.count_freed(slots);
    }
}

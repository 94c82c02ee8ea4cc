//! Rotation per 64 order-0 slots or per large allocation, with hints per device, logical CPU and
//! order (before spec §2.5).

use super::are_per_device;
use crate::entry::{DeviceId, DeviceMask, LogicalCpu, SwapEntry};
use crate::hooks::Hooks;
use crate::order::Order;
use crate::policy::{Policy, Rotation, SlotCache};
use crate::scan::Request;
use crate::slots::Slots;
use crate::sync::Ordering;

/// Order-0 slots that a device gives before the next device is used.
const TURN: u32 = 64;

const DEVICE_BITS: u32 = 8;

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Takes the place of the fast path: a device whose turn is not over goes on. With a slot cache
    /// the turn is one fill of it, and single allocations rotate each. Context: local lock held.
    pub(crate) fn alloc_in_turn<H: Hooks>(
        &self,
        mask: DeviceMask,
        request: &mut Request<'_, H>,
    ) -> Option<SwapEntry> {
        if !self.takes_turns(request.order) {
            return None;
        }
        let turn = &self.variant_cpu(request.logical).turn;
        let value = turn.load(Ordering::Relaxed);
        let left = value >> DEVICE_BITS;
        let device = DeviceId::new(value & ((1 << DEVICE_BITS) - 1)).filter(|id| mask.contains(*id))?;
        if left == 0 || !self.device(device).is_writable() {
            return None;
        }
        let found = self.alloc_on_device(device, request);
        let left = if found.is_some() { left - 1 } else { 0 };
        turn.store(left << DEVICE_BITS | device.index() as u32, Ordering::Relaxed);
        found
    }

    /// Begins a turn after the walk over devices found a slot. Context: local lock held.
    pub(crate) fn begin_turn<H: Hooks>(&self, entry: SwapEntry, request: &Request<'_, H>) {
        if self.takes_turns(request.order) {
            let value = (TURN - 1) << DEVICE_BITS | entry.device().index() as u32;
            self.variant_cpu(request.logical).turn.store(value, Ordering::Relaxed);
        }
    }

    fn takes_turns(&self, order: Order) -> bool {
        order == Order::ZERO && P::ROTATION == Rotation::PerAllocation && P::SLOT_CACHE == SlotCache::None
    }

    /// The hint of this CPU in `device`. Context: local lock held.
    pub(crate) fn device_hint(&self, cpu: LogicalCpu, device: DeviceId, order: Order) -> Option<SwapEntry> {
        let hints = &self.variant_cpu(cpu).hints[device.index()];
        SwapEntry::from_raw(hints[order.index()].load(Ordering::Relaxed))
    }

    /// Context: local lock held.
    pub(crate) fn set_device_hint(
        &self,
        cpu: LogicalCpu,
        device: DeviceId,
        order: Order,
        hint: Option<SwapEntry>,
    ) {
        let raw = hint.map_or(0, SwapEntry::to_raw);
        self.variant_cpu(cpu).hints[device.index()][order.index()].store(raw, Ordering::Relaxed);
    }

    /// Every hint per device. For `validate`.
    pub(crate) fn device_hints(&self) -> impl Iterator<Item = (Order, SwapEntry)> {
        let devices = if are_per_device::<P>() { DeviceMask::ALL } else { DeviceMask::NONE };
        self.logical_cpus().flat_map(move |(cpu, _)| {
            let orders = move |device| Order::all().map(move |order| (device, order));
            let hint = move |(device, order)| self.device_hint(cpu, device, order).map(|hint| (order, hint));
            devices.iter().flat_map(orders).filter_map(hint)
        })
    }

    /// Clears the hints of `device`. Context: local lock held.
    pub(crate) fn forget_device_hints(&self, cpu: LogicalCpu, device: DeviceId) {
        for order in Order::all() {
            self.set_device_hint(cpu, device, order, None);
        }
        let turn = &self.variant_cpu(cpu).turn;
        if turn.load(Ordering::Relaxed) & ((1 << DEVICE_BITS) - 1) == device.index() as u32 {
            turn.store(0, Ordering::Relaxed);
        }
    }
}

//! Other scopes of a logical CPU's hints than the kernel's one for all: per device, and per device
//! mask. They are proposals to one open question, no behaviour from before: groups with different
//! masks on one CPU overwrite each other's hint (`folioswap lab tiers`).

use super::state::VariantCpu;
use crate::entry::{DeviceId, DeviceMask, LogicalCpu, SwapEntry};
use crate::hooks::Hooks;
use crate::order::{ORDERS, Order};
use crate::policy::{HintScope, Policy, Rotation};
use crate::scan::Request;
use crate::slots::Slots;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::usage::Listing;

/// Masks whose hints a logical CPU keeps at a time.
const MASKS: usize = 4;

/// The hints of the groups with one mask. Zeroed memory belongs to no mask: bits of 0 permit no
/// device, so no allocation with them succeeds.
#[repr(C)]
struct OneMask {
    bits: AtomicU32,
    hints: [AtomicU64; ORDERS],
}

/// Hints by mask, on one logical CPU.
#[repr(C)]
pub(super) struct MaskHints {
    /// The place that the next new mask gets.
    next: AtomicU32,
    masks: [OneMask; MASKS],
}

impl MaskHints {
    fn of(&self, mask: DeviceMask) -> Option<&OneMask> {
        self.masks.iter().find(|one| one.bits.load(Ordering::Relaxed) == mask.bits())
    }

    fn of_or_new(&self, mask: DeviceMask) -> &OneMask {
        self.of(mask).unwrap_or_else(|| {
            let place = self.next.load(Ordering::Relaxed);
            self.next.store(place + 1, Ordering::Relaxed);
            let one = &self.masks[place as usize % MASKS];
            one.bits.store(mask.bits(), Ordering::Relaxed);
            one.hints.iter().for_each(|hint| hint.store(0, Ordering::Relaxed));
            one
        })
    }

    fn all(&self) -> impl Iterator<Item = (Order, &AtomicU64)> {
        self.masks.iter().flat_map(|one| Order::all().zip(&one.hints))
    }
}

/// Whether hints are kept per device.
pub(crate) const fn are_per_device<P: Policy>() -> bool {
    matches!(P::ROTATION, Rotation::PerAllocation) || matches!(P::HINT_SCOPE, HintScope::Device)
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    fn mask_hints(&self, cpu: LogicalCpu) -> &MaskHints {
        let state: &VariantCpu = self.variant_cpu(cpu);
        &state.masks
    }

    /// Step 0 with hints per device or per mask. Per device, only the devices of the highest
    /// priority that are permitted and have room are tried, as a walk of the available list would
    /// have it: a hint that another group left on a slower device is not for this one. Context:
    /// local lock held.
    pub(crate) fn alloc_at_scoped_hint<H: Hooks>(
        &self,
        mask: DeviceMask,
        request: &Request<'_, H>,
    ) -> Option<SwapEntry> {
        if P::HINT_SCOPE == HintScope::Mask {
            let hints = &self.mask_hints(request.logical).of(mask)?.hints;
            let hint = hints[request.order.index()].load(Ordering::Relaxed);
            return self.alloc_at_hint(SwapEntry::from_raw(hint)?, request);
        }
        let has_room = |id: &DeviceId| {
            let device = self.device(*id);
            device.usage().listing() == Listing::OnList && device.orders().contains(request.order)
        };
        let permitted = || self.devices().intersection(mask).iter().filter(has_room);
        let highest = permitted().map(|id| self.device(id).priority()).max()?;
        permitted().filter(|id| self.device(*id).priority() == highest).find_map(|id| {
            let hint = self.device_hint(request.logical, id, request.order)?;
            self.alloc_at_hint(hint, request)
        })
    }

    /// Context: local lock held.
    pub(crate) fn set_mask_hint<H: Hooks>(&self, request: &Request<'_, H>, hint: Option<SwapEntry>) {
        let hints = &self.mask_hints(request.logical).of_or_new(request.mask).hints;
        hints[request.order.index()].store(hint.map_or(0, SwapEntry::to_raw), Ordering::Relaxed);
    }

    /// Every hint per mask. For `validate`.
    pub(crate) fn all_mask_hints(&self) -> impl Iterator<Item = (Order, SwapEntry)> {
        let kept = P::HINT_SCOPE == HintScope::Mask;
        let cpus = self.logical_cpus().filter(move |_| kept);
        cpus.flat_map(|(cpu, _)| self.mask_hints(cpu).all())
            .filter_map(|(order, hint)| Some((order, SwapEntry::from_raw(hint.load(Ordering::Relaxed))?)))
    }

    /// Clears the hints per mask that name `device`. Context: local lock held.
    pub(crate) fn forget_mask_hints(&self, cpu: LogicalCpu, device: DeviceId) {
        for (_, hint) in self.mask_hints(cpu).all() {
            let named = SwapEntry::from_raw(hint.load(Ordering::Relaxed));
            if named.is_some_and(|named| named.device() == device) {
                hint.store(0, Ordering::Relaxed);
            }
        }
    }
}

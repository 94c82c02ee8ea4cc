//! State that only variants need: laid out behind everything else, and only for policies that ask
//! for it.

use super::hint_scope::MaskHints;
use super::nodes::NODES_MAX;
use crate::available::AvailableList;
use crate::counting::LockCounters;
use crate::cpu::CpuState;
use crate::entry::{DEVICES_MAX, LogicalCpu};
use crate::order::ORDERS;
use crate::policy::{HintScope, LockCounting, NodePreference, Policy, Rotation, SlotCache};
use crate::slots::Slots;
use crate::sync::{AtomicU32, AtomicU64};

use super::slot_cache::CachedSlots;

/// Whether the metadata of a policy has a part for variants.
pub(crate) const fn needs_state<P: Policy>() -> bool {
    matches!(P::SLOT_CACHE, SlotCache::PerCpu)
        || matches!(P::ROTATION, Rotation::PerAllocation)
        || !matches!(P::HINT_SCOPE, HintScope::Cpu)
        || matches!(P::NODE_PREFERENCE, NodePreference::On)
        || matches!(P::LOCK_COUNTING, LockCounting::On)
}

/// State that all logical CPUs share. Zeroed memory has inactive caches, empty lists and counters
/// at 0.
#[repr(C, align(128))]
pub(crate) struct VariantShared {
    /// 1 while slot caches are in use.
    pub(super) slot_cache_active: AtomicU32,
    /// Available list of each node, under the lock of the global one.
    pub(super) node_lists: [AvailableList; NODES_MAX],
    pub(crate) locks: LockCounters,
}

/// State of a logical CPU besides its [`CpuState`], under the same local lock. Zeroed memory has
/// nothing cached, no hint, node 0.
#[repr(C, align(128))]
pub(crate) struct VariantCpu {
    pub(super) cached: CachedSlots,
    /// Order-0 slots that the present device still gives before the next one is used; low 8 bits:
    /// number of the device.
    pub(super) turn: AtomicU32,
    pub(super) node: AtomicU32,
    /// Raw swap entries of the next slots to try; 0 = none.
    pub(super) hints: [[AtomicU64; ORDERS]; DEVICES_MAX],
    pub(super) masks: MaskHints,
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Context: the policy needs state.
    #[inline]
    pub(crate) fn variant_shared(&self) -> &VariantShared {
        assert!(needs_state::<P>(), "this policy has no state for variants");
        // SAFETY: the layout has this part for policies that need it; zeroed memory is a valid
        // state; all fields are atomic.
        unsafe { self.variant.cast::<VariantShared>().as_ref() }
    }

    /// Context: the policy needs state.
    #[inline]
    pub(crate) fn variant_cpu(&self, cpu: LogicalCpu) -> &VariantCpu {
        assert!(needs_state::<P>(), "this policy has no state for variants");
        let index = cpu.0 % self.config().cpus;
        // SAFETY: below the number of logical CPUs, whose parts lie behind the shared one; zeroed
        // memory is a valid state.
        unsafe {
            self.variant.add(size_of::<VariantShared>()).cast::<VariantCpu>().add(index as usize).as_ref()
        }
    }

    pub(crate) fn logical_cpus(&self) -> impl Iterator<Item = (LogicalCpu, &CpuState)> {
        (0..self.config().cpus).map(|index| (LogicalCpu(index), self.cpu(LogicalCpu(index))))
    }
}

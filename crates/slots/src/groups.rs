//! Groups: charging of swap slots within nested limits (spec §0 "a 2-byte group id per slot",
//! "`vm_swap_full`", "Batch free"; §2.7), and the devices that a group may use (spec §6, swap
//! tiers).
//!
//! Opt-in: an owner that has groups begins the payload of each slot with the group's id, two bytes.
//! [`ChargeTo`] writes it when the slots are taken. [`Uncharge`] reads it when they become free and
//! takes consecutive slots of one group off its account in one go.

use crate::alloc::AllocError;
use crate::cache::{InsertError, Inserted, Uniform};
use crate::entry::{DeviceId, DeviceMask, FolioId, SwapEntry};
use crate::hooks::{ChargeRefused, DiscardOutcome, Hooks, Reclaimed};
use crate::order::Order;
use crate::policy::Policy;
use crate::slots::Slots;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Largest number of groups at a time.
// Few under Miri, which checks all of them, field by field, whenever a reference to the table is
// made.
pub const GROUPS_MAX: usize = if cfg!(miri) { 16 } else { 1024 };

/// Names a group: 1 to [`GROUPS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId(u16);

impl GroupId {
    /// Bytes at the start of each slot's payload.
    pub const BYTES: usize = 2;

    /// The group `number`; `None` outside 1 to [`GROUPS_MAX`].
    pub const fn new(number: u16) -> Option<GroupId> {
        if number >= 1 && number as usize <= GROUPS_MAX { Some(GroupId(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Why a group was not made or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupError {
    /// There are [`GROUPS_MAX`] already.
    TooMany,
    /// There is no group with this id.
    NoSuchGroup,
    /// The group has slots, or groups below it.
    InUse,
}

impl core::fmt::Display for GroupError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            GroupError::TooMany => "too many groups",
            GroupError::NoSuchGroup => "no such group",
            GroupError::InUse => "the group has swap slots or groups below it",
        })
    }
}

impl core::error::Error for GroupError {}

const NONE: u32 = 0;
const LIVE: u32 = 1;
/// The group is being made or removed.
const CHANGING: u32 = 2;

#[repr(C)]
struct Group {
    state: AtomicU32,
    /// Number of the group above; 0 = none.
    parent: AtomicU16,
    children: AtomicU32,
    /// Slots charged, those of descendants included.
    used: AtomicU64,
    /// Largest number of slots, inverted, so that zeroed memory has no limit.
    limit_inverted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Devices that the group may not use, so that zeroed memory permits all.
    forbidden: AtomicU32,
}

/// A group's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupStats {
    /// Slots charged to the group and to the groups below it.
    pub used: u64,
    /// Largest number of slots; `None` is no limit.
    pub limit: Option<u64>,
    /// Allocations of this group or one below it that this limit refused (`memory.swap.events`:
    /// `max`).
    pub refused: u64,
    /// Allocations of this group itself that got no slots, for want of space or by a limit
    /// (`fail`).
    pub failed: u64,
}

/// All groups. Zeroed memory has none, and may be shared between processes. Every call is
/// lock-free; those that charge cost one atomic addition per level.
#[repr(C)]
pub struct Groups {
    groups: [Group; GROUPS_MAX],
}

impl Groups {
    fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize - 1]
    }

    fn parent(&self, id: GroupId) -> Option<GroupId> {
        GroupId::new(self.group(id).parent.load(Ordering::Acquire))
    }

    /// `id` and all groups above it.
    fn upwards(&self, id: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        core::iter::successors(Some(id), |id| self.parent(*id))
    }

    /// Makes a group below `parent` with at most `limit` slots. The caller keeps `parent` from
    /// removal meanwhile.
    ///
    /// # Errors
    /// [`GroupError::NoSuchGroup`] (the parent), [`GroupError::TooMany`].
    pub fn create(&self, parent: Option<GroupId>, limit: Option<u64>) -> Result<GroupId, GroupError> {
        if let Some(parent) = parent {
            self.group(parent).children.fetch_add(1, Ordering::AcqRel);
            if self.group(parent).state.load(Ordering::Acquire) != LIVE {
                self.group(parent).children.fetch_sub(1, Ordering::AcqRel);
                return Err(GroupError::NoSuchGroup);
            }
        }
        let (from, to) = (Ordering::AcqRel, Ordering::Relaxed);
        let free = self
            .groups
            .iter()
            .position(|group| group.state.compare_exchange(NONE, CHANGING, from, to).is_ok());
        let Some(id) = free.and_then(|index| GroupId::new(index as u16 + 1)) else {
            if let Some(parent) = parent {
                self.group(parent).children.fetch_sub(1, Ordering::AcqRel);
            }
            return Err(GroupError::TooMany);
        };
        let group = self.group(id);
        group.parent.store(parent.map_or(0, GroupId::get), Ordering::Release);
        group.refused.store(0, Ordering::Relaxed);
        group.failed.store(0, Ordering::Relaxed);
        group.forbidden.store(0, Ordering::Relaxed);
        self.set_limit(id, limit);
        group.state.store(LIVE, Ordering::Release);
        Ok(id)
    }

    /// Removes a group. The caller sees to it that it is charged no more.
    ///
    /// # Errors
    /// [`GroupError::InUse`], [`GroupError::NoSuchGroup`]; nothing is changed then.
    pub fn remove(&self, id: GroupId) -> Result<(), GroupError> {
        let group = self.group(id);
        if group.state.compare_exchange(LIVE, CHANGING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(GroupError::NoSuchGroup);
        }
        if group.used.load(Ordering::Acquire) != 0 || group.children.load(Ordering::Acquire) != 0 {
            group.state.store(LIVE, Ordering::Release);
            return Err(GroupError::InUse);
        }
        if let Some(parent) = self.parent(id) {
            self.group(parent).children.fetch_sub(1, Ordering::AcqRel);
        }
        group.state.store(NONE, Ordering::Release);
        Ok(())
    }

    /// Sets the largest number of slots of the group. Slots that it has above that stay.
    pub fn set_limit(&self, id: GroupId, limit: Option<u64>) {
        self.group(id).limit_inverted.store(!limit.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Sets the devices that the group may use from its next allocation on, at any time. Slots that
    /// it has on others stay there until they are freed.
    pub fn set_devices(&self, id: GroupId, permitted: DeviceMask) {
        let forbidden = DeviceMask::ALL.minus(permitted).bits();
        self.group(id).forbidden.store(forbidden, Ordering::Relaxed);
    }

    /// The devices that the group may use: those that it and every group above it permit, so that
    /// none has more than its parent. The mask of its next allocation. Cost: one load per level.
    pub fn devices(&self, id: GroupId) -> DeviceMask {
        let forbidden = |at: GroupId| self.group(at).forbidden.load(Ordering::Relaxed);
        let all = self.upwards(id).fold(0, |all, at| all | forbidden(at));
        DeviceMask::ALL.minus(DeviceMask::from_bits(all))
    }

    fn limit(&self, id: GroupId) -> u64 {
        !self.group(id).limit_inverted.load(Ordering::Relaxed)
    }

    /// The group's account.
    pub fn stats(&self, id: GroupId) -> GroupStats {
        let group = self.group(id);
        GroupStats {
            used: group.used.load(Ordering::Acquire),
            limit: Some(self.limit(id)).filter(|&limit| limit != u64::MAX),
            refused: group.refused.load(Ordering::Relaxed),
            failed: group.failed.load(Ordering::Relaxed),
        }
    }

    /// Charges slots to the group and to all above it, or to none. For a moment, others may see a
    /// charge that is then taken back.
    ///
    /// # Errors
    /// [`ChargeRefused`] if one of them has less than that left.
    pub fn charge(&self, id: GroupId, slots: u32) -> Result<(), ChargeRefused> {
        let slots = u64::from(slots);
        for at in self.upwards(id) {
            let before = self.group(at).used.fetch_add(slots, Ordering::AcqRel);
            if before.saturating_add(slots) > self.limit(at) {
                self.group(at).refused.fetch_add(1, Ordering::Relaxed);
                for charged in self.upwards(id) {
                    self.group(charged).used.fetch_sub(slots, Ordering::AcqRel);
                    if charged == at {
                        return Err(ChargeRefused);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes slots off the account of the group and of all above it.
    pub fn uncharge(&self, id: GroupId, slots: u32) {
        for at in self.upwards(id) {
            let before = self.group(at).used.fetch_sub(slots.into(), Ordering::AcqRel);
            debug_assert!(before >= u64::from(slots), "more is taken off than was charged");
        }
    }

    /// The group's `vm_swap_full` (spec §0): whether more than half of all slots is used, or half
    /// of the limit of this group or one above it.
    pub fn vm_swap_full<const PAYLOAD: usize, P: Policy>(
        &self,
        id: GroupId,
        slots: &Slots<PAYLOAD, P>,
    ) -> bool {
        let half_used = |at: GroupId| {
            let used = self.group(at).used.load(Ordering::Relaxed);
            used.saturating_mul(2) >= self.limit(at)
        };
        slots.vm_swap_full() || self.upwards(id).any(half_used)
    }
}

/// Hooks of an allocation that is charged to a group. All else goes to `inner`.
pub struct ChargeTo<'a, H, const PAYLOAD: usize, P: Policy> {
    /// The accounts.
    pub groups: &'a Groups,
    /// The group to charge.
    pub group: GroupId,
    /// The allocator whose slots are marked. Their payload has at least [`GroupId::BYTES`].
    pub slots: &'a Slots<PAYLOAD, P>,
    /// The hooks for everything but charging.
    pub inner: H,
}

impl<H: Hooks, const PAYLOAD: usize, P: Policy> Hooks for ChargeTo<'_, H, PAYLOAD, P> {
    fn charge(&self, outcome: Result<SwapEntry, AllocError>, slots: u32) -> Result<(), ChargeRefused> {
        const { assert!(PAYLOAD >= GroupId::BYTES) };
        let charged = match outcome {
            Ok(_) => self.groups.charge(self.group, slots),
            Err(_) => Err(ChargeRefused),
        };
        if charged.is_err() {
            self.groups.group(self.group).failed.fetch_add(1, Ordering::Relaxed);
        }
        let Ok(first) = outcome else { return self.inner.charge(outcome, slots) };
        charged?;
        if let Err(refused) = self.inner.charge(outcome, slots) {
            self.groups.uncharge(self.group, slots);
            return Err(refused);
        }
        for step in 0..u64::from(slots) {
            if let Some(payload) = first.checked_add(step).and_then(|entry| self.slots.payload(entry)) {
                // SAFETY: the slot has just been taken and is not published yet; its payload is
                // long enough.
                unsafe { payload.cast::<u16>().write_unaligned(self.group.0) };
            }
        }
        Ok(())
    }

    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        self.inner.reclaim(entry, folio)
    }

    fn discard(&self, device: DeviceId, first: u64, slots: u32) -> DiscardOutcome {
        self.inner.discard(device, first, slots)
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// As [`cache_insert`](Slots::cache_insert), for slots that were taken with [`ChargeTo`]: the
    /// slots of a folio of order above 0 must also belong to one group, because a folio in memory
    /// is charged to one. Cost: one load more per slot.
    ///
    /// # Errors
    /// [`InsertError`]; nothing is changed then.
    pub fn cache_insert_charged(
        &self,
        target: SwapEntry,
        order: Order,
        folio: FolioId,
    ) -> Result<Inserted, InsertError> {
        const { assert!(PAYLOAD >= GroupId::BYTES) };
        self.cache_insert_if(target, order, folio, |payload, slots| {
            let group = |slot: u32| {
                let at = payload.wrapping_add(slot as usize * PAYLOAD);
                // SAFETY: the payload of a slot of a table, under the cluster's lock; that the
                // slots are in use keeps their groups from changing.
                unsafe { at.cast::<u16>().read_unaligned() }
            };
            if (1..slots).all(|slot| group(slot) == group(0)) { Uniform::Yes } else { Uniform::No }
        })
    }
}

/// Takes slots that become free off their groups' accounts: consecutive ones of one group in one
/// go, the last of them on drop. For one call of [`Slots::put`] or [`Slots::cache_remove`].
pub struct Uncharge<'a> {
    groups: &'a Groups,
    run: Option<(GroupId, u32)>,
    next: Option<SwapEntry>,
    /// Number of changes to an account.
    runs: u32,
}

impl<'a> Uncharge<'a> {
    /// An account keeper that has seen no slot.
    pub const fn new(groups: &'a Groups) -> Self {
        Uncharge { groups, run: None, next: None, runs: 0 }
    }

    /// Takes one slot that becomes free off its group's account.
    ///
    /// # Safety
    /// `payload` is that of the slot, as passed to the `freed` of [`Slots::put`], and the slot was
    /// taken with [`ChargeTo`].
    pub unsafe fn freed(&mut self, entry: SwapEntry, payload: *const u8) {
        // SAFETY: the caller's contract.
        let Some(group) = GroupId::new(unsafe { payload.cast::<u16>().read_unaligned() }) else {
            debug_assert!(false, "a slot without a group");
            return;
        };
        self.run = match self.run {
            Some((running, slots)) if running == group && self.next == Some(entry) => {
                Some((group, slots + 1))
            }
            _ => {
                self.finish();
                Some((group, 1))
            }
        };
        self.next = entry.checked_add(1);
    }

    /// Takes the pending slots off their account; returns the number of accounts changed by this.
    pub fn finish(&mut self) -> u32 {
        if let Some((group, slots)) = self.run.take() {
            self.groups.uncharge(group, slots);
            self.runs += 1;
        }
        self.runs
    }
}

impl Drop for Uncharge<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

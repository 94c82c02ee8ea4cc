//! A cluster lock held, and a cluster isolated from its list.
//!
//! [`Locked`] unlocks on drop. [`Isolated`] relocates first: the pair *isolate, relocate* cannot be
//! broken, so no cluster can dangle off every list.

use crate::cluster::{Cluster, EmptyGoesTo, Flag, flag_after_attempt, flag_after_free, order_fits};
use crate::device::{Device, DeviceFlags};
use crate::entry::{DeviceId, SwapEntry};
use crate::frames::FrameContent;
use crate::lists::ListId;
use crate::lock::Relax;
use crate::observe::{LockName, Step};
use crate::order::{CLUSTER_SLOTS, Order};
use crate::policy::Policy;
use crate::slots::Slots;
use crate::sync::Ordering;
use crate::usage::Listing;
use crate::words::Words;
use core::ptr::NonNull;

/// The frame pool is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoFrameLeft;

/// A cluster whose lock is held.
pub(crate) struct Locked<'a, const PAYLOAD: usize, P: Policy> {
    pub(crate) slots: &'a Slots<PAYLOAD, P>,
    pub(crate) id: DeviceId,
    pub(crate) device: &'a Device,
    pub(crate) index: u32,
    pub(crate) cluster: &'a Cluster,
}

impl<const PAYLOAD: usize, P: Policy> Drop for Locked<'_, PAYLOAD, P> {
    #[inline]
    fn drop(&mut self) {
        P::Relax::before_unlock(name(self.id, self.index));
        self.cluster.lock.unlock();
    }
}

/// The lock of a cluster, as observers know it.
#[inline]
fn name(id: DeviceId, index: u32) -> LockName {
    LockName::Cluster { device: id.index() as u32, index }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Locks cluster `index`.
    #[inline]
    pub(crate) fn lock_cluster(&self, id: DeviceId, index: u32) -> Locked<'_, PAYLOAD, P> {
        let device = self.device(id);
        let cluster = self.cluster(device, index);
        self.lock(&cluster.lock, name(id, index));
        Locked { slots: self, id, device, index, cluster }
    }

    /// Takes the first cluster off `list` whose lock is not contended; for the free list, after
    /// those a cluster that was never used. `None` on a non-empty list means that all its members
    /// were contended.
    pub(crate) fn isolate(&self, id: DeviceId, list: ListId) -> Option<Isolated<'_, PAYLOAD, P>> {
        let device = self.device(id);
        let _held = self.hold_lists(id, device);
        let mut candidate = device.lists.first(list);
        while let Some(index) = candidate {
            let cluster = self.cluster(device, index);
            if self.try_lock(&cluster.lock, name(id, index)) {
                device.lists.unlink(list, index, |other| self.cluster(device, other));
                if list == ListId::DISCARD {
                    device.discards_running.fetch_add(1, Ordering::Relaxed);
                } else {
                    cluster.set_flag(Flag::None);
                }
                return Some(Isolated::new(Locked { slots: self, id, device, index, cluster }));
            }
            candidate = cluster.next.load(Ordering::Relaxed).checked_sub(1);
        }
        if list == ListId::FREE { self.isolate_never_used(id, device) } else { None }
    }

    /// Context: list lock held.
    fn isolate_never_used<'a>(
        &'a self,
        id: DeviceId,
        device: &'a Device,
    ) -> Option<Isolated<'a, PAYLOAD, P>> {
        let end = device.whole_clusters.load(Ordering::Relaxed);
        loop {
            let index = device.high_water.load(Ordering::Relaxed);
            if index >= end {
                return None;
            }
            let cluster = self.cluster(device, index);
            // Clusters with bad slots have been on a list since swapon.
            if !cluster.is_touched() {
                if !self.try_lock(&cluster.lock, name(id, index)) {
                    return None;
                }
                cluster.set_touched();
                device.high_water.store(index + 1, Ordering::Relaxed);
                return Some(Isolated::new(Locked { slots: self, id, device, index, cluster }));
            }
            device.high_water.store(index + 1, Ordering::Relaxed);
        }
    }
}

impl<'a, const PAYLOAD: usize, P: Policy> Locked<'a, PAYLOAD, P> {
    /// Slot words, if the cluster has a table.
    #[inline]
    pub(crate) fn words(&self) -> Option<Words<'a>> {
        NonNull::new(self.cluster.frame.load(Ordering::Relaxed)).map(Words::of)
    }

    /// Payload of the first slot; the others' follow, `PAYLOAD` bytes each. Null if the cluster has
    /// no table.
    #[inline]
    pub(crate) fn payload(&self) -> *mut u8 {
        match NonNull::new(self.cluster.frame.load(Ordering::Relaxed)) {
            Some(frame) => Slots::<PAYLOAD, P>::payload_in(frame, 0).as_ptr(),
            None => core::ptr::null_mut(),
        }
    }

    /// Overflow counts, if the cluster has the array.
    pub(crate) fn overflow(&self) -> Option<Words<'a>> {
        match self.cluster.overflow_number.load(Ordering::Relaxed) {
            0 => None,
            number => Some(Words::of(self.slots.pool().memory(number))),
        }
    }

    /// Entry of slot `slot`; `None` for the header slot.
    #[inline]
    pub(crate) fn entry(&self, slot: u32) -> Option<SwapEntry> {
        SwapEntry::new(self.id, u64::from(self.index) * u64::from(CLUSTER_SLOTS) + u64::from(slot))
    }

    /// Whether the cluster is *usable* for `order` (spec §0): the flag permits it, the table
    /// exists, the order fits. A usable cluster that is not isolated is never empty, because its
    /// table leaves with its last slot: the kernel's case of an empty cluster, which is scanned
    /// from its first slot and not from the hint, cannot arise.
    #[inline]
    pub(crate) fn is_usable(&self, order: Order) -> bool {
        let cluster = self.cluster;
        debug_assert!(!cluster.has_frame() || cluster.used() > 0, "the table leaves with the last slot");
        cluster.has_frame() && order_fits(cluster.flag(), cluster.used(), cluster.order(), order)
    }

    #[inline]
    pub(crate) fn empty_goes_to(&self) -> EmptyGoesTo {
        if self.device.has(DeviceFlags::DISCARD) && self.device.is_writable() {
            EmptyGoesTo::Discard
        } else {
            EmptyGoesTo::Free
        }
    }

    /// Moves the cluster to the tail of the list of `flag` and its order. Context: the cluster is
    /// not under discard.
    #[inline]
    pub(crate) fn move_to(&self, flag: Flag) {
        let lists = &self.device.lists;
        let order = self.cluster.order();
        let cluster_at = |index| self.slots.cluster(self.device, index);
        let _held = self.slots.hold_lists(self.id, self.device);
        if let Some(list) = self.cluster.flag().list(order) {
            lists.unlink(list, self.index, cluster_at);
        }
        self.cluster.set_flag(flag);
        if let Some(list) = flag.list(order) {
            lists.push_tail(list, self.index, cluster_at);
        }
    }

    /// Gives a table to the cluster, with a payload of zeroes.
    pub(crate) fn attach_frame(&self) -> Result<(), NoFrameLeft> {
        debug_assert!(!self.cluster.has_frame());
        P::Relax::step(Step::Table);
        let taken = self.slots.pool().take().ok_or(NoFrameLeft)?;
        if taken.content == FrameContent::Unchanged {
            let payload = Slots::<PAYLOAD, P>::payload_in(taken.memory, 0);
            // SAFETY: the payload part of a frame that nobody else has.
            unsafe { payload.write_bytes(0, CLUSTER_SLOTS as usize * PAYLOAD) };
        }
        self.cluster.frame_number.store(taken.number, Ordering::Relaxed);
        self.cluster.frame.store(taken.memory.as_ptr(), Ordering::Release);
        Ok(())
    }

    /// Gives the overflow array to the cluster, with counts of zero.
    pub(crate) fn attach_overflow(&self) -> Result<Words<'a>, NoFrameLeft> {
        let taken = self.slots.pool().take().ok_or(NoFrameLeft)?;
        if taken.content == FrameContent::Zeroed {
            // Only the first 4096 bytes serve as counts: the payload stays zero.
            self.slots.pool().remember_zeroed(taken.number);
        }
        self.cluster.overflow_number.store(taken.number, Ordering::Release);
        Ok(Words::of(taken.memory))
    }

    /// Gives the overflow array back. Context: all its counts are zero.
    pub(crate) fn detach_overflow(&self) {
        let number = self.cluster.overflow_number.swap(0, Ordering::AcqRel);
        if number != 0 {
            self.cluster.generation.fetch_add(1, Ordering::Release);
            self.slots.pool().give_back(number, FrameContent::Unchanged);
        }
    }

    fn detach_frame(&self) {
        self.detach_overflow();
        let number = self.cluster.frame_number.swap(0, Ordering::Relaxed);
        if number == 0 {
            return;
        }
        debug_assert!(self.words().is_some_and(|words| words.iter().all(|w| w.load(Ordering::Relaxed) == 0)));
        self.cluster.frame.store(core::ptr::null_mut(), Ordering::Relaxed);
        // Before the table can come into other hands: a lockless reader that sees a word written
        // there sees this as well.
        self.cluster.generation.fetch_add(1, Ordering::Release);
        self.slots.pool().give_back(number, FrameContent::Unchanged);
    }

    /// Empties the cluster's books: the table is freed, the order reset, the flag FREE or DISCARD.
    pub(crate) fn release_empty(&self, flag: Flag) {
        debug_assert_eq!(self.cluster.used(), 0);
        self.detach_frame();
        let list = self.cluster.flag().list(self.cluster.order());
        let lists = &self.device.lists;
        let cluster_at = |index| self.slots.cluster(self.device, index);
        let _held = self.slots.hold_lists(self.id, self.device);
        if let Some(list) = list {
            lists.unlink(list, self.index, cluster_at);
        }
        self.cluster.set_order(Order::ZERO);
        self.cluster.set_flag(flag);
        if let Some(list) = flag.list(Order::ZERO) {
            lists.push_tail(list, self.index, cluster_at);
        }
    }

    /// Accounts for `count` slots, whose words are written already.
    #[inline]
    pub(crate) fn count_taken(&self, count: u32) {
        P::Relax::step(Step::Take(count));
        let used = self.cluster.used() + count;
        self.cluster.set_used(used);
        self.device.usage().add(self.index, u64::from(count));
        if used == CLUSTER_SLOTS && self.device.usage().close_cluster() {
            self.slots.remove_full_from_available(self.id, self.device);
        }
    }

    /// Takes `count` slots, whose words are zero already, off the account and relocates the cluster
    /// (spec §0: slots freed).
    #[inline]
    pub(crate) fn count_freed(&self, count: u32) {
        if count == 0 {
            return;
        }
        P::Relax::step(Step::Free(count));
        let before = self.cluster.used();
        let used = before - count;
        self.cluster.set_used(used);
        let flag = flag_after_free(used, self.empty_goes_to());
        if used == 0 {
            self.release_empty(flag);
        } else if self.cluster.flag() != flag {
            self.move_to(flag);
        }
        let usage = self.device.usage();
        usage.sub(self.index, u64::from(count));
        if before == CLUSTER_SLOTS && usage.open_more(1) == Listing::OffList {
            self.slots.add_to_available(self.id, self.device);
        }
    }

    /// Runs `action` with the lock dropped. The lock is held again afterwards, even after a panic.
    pub(crate) fn unlocked<T>(&self, action: impl FnOnce() -> T) -> T {
        struct Relock<'a, const PAYLOAD: usize, P: Policy>(&'a Slots<PAYLOAD, P>, &'a Cluster, LockName);
        impl<const PAYLOAD: usize, P: Policy> Drop for Relock<'_, PAYLOAD, P> {
            fn drop(&mut self) {
                self.0.lock(&self.1.lock, self.2);
            }
        }
        let name = name(self.id, self.index);
        let _relock = Relock(self.slots, self.cluster, name);
        P::Relax::before_unlock(name);
        self.cluster.lock.unlock();
        action()
    }
}

/// The duty that the end of an [`Isolated`] fulfils.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Relocate as after an allocation attempt.
    Relocate,
    /// Relocate only if the cluster is still on no list (reclaim: frees have listed it already).
    RelocateUnlisted,
    /// A discard that has not run: put the cluster back on the discard list.
    Requeue,
}

/// A locked cluster that is relocated before its lock is dropped.
pub(crate) struct Isolated<'a, const PAYLOAD: usize, P: Policy> {
    locked: Locked<'a, PAYLOAD, P>,
    pub(crate) duty: Duty,
}

impl<'a, const PAYLOAD: usize, P: Policy> Isolated<'a, PAYLOAD, P> {
    /// Takes over a locked cluster, also one still on its list that a hint led to, because every
    /// scan ends with a relocation.
    #[inline]
    pub(crate) fn new(locked: Locked<'a, PAYLOAD, P>) -> Self {
        let duty = if locked.cluster.flag() == Flag::Discard { Duty::Requeue } else { Duty::Relocate };
        Isolated { locked, duty }
    }

    /// Puts an empty cluster that got no table back to FREE.
    pub(crate) fn put_back_free(self) {
        self.locked.release_empty(Flag::Free);
    }

    /// Ends a discard that ran: DISCARD -> FREE.
    pub(crate) fn discard_done(self) {
        self.locked.device.discards_running.fetch_sub(1, Ordering::Relaxed);
        self.locked.cluster.set_flag(Flag::None);
        self.locked.release_empty(Flag::Free);
    }
}

impl<'a, const PAYLOAD: usize, P: Policy> core::ops::Deref for Isolated<'a, PAYLOAD, P> {
    type Target = Locked<'a, PAYLOAD, P>;
    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.locked
    }
}

impl<const PAYLOAD: usize, P: Policy> Drop for Isolated<'_, PAYLOAD, P> {
    #[inline]
    fn drop(&mut self) {
        let locked = &self.locked;
        let flag = locked.cluster.flag();
        match self.duty {
            Duty::RelocateUnlisted if flag != Flag::None => {}
            Duty::Requeue => {
                if flag == Flag::Discard {
                    // The cluster is off-list with its flag: only push it back.
                    locked.device.discards_running.fetch_sub(1, Ordering::Relaxed);
                    locked.cluster.set_flag(Flag::None);
                    locked.move_to(Flag::Discard);
                }
            }
            _ => {
                let used = locked.cluster.used();
                let wanted = flag_after_attempt(flag, used, locked.empty_goes_to());
                match (wanted == flag, used) {
                    (true, _) => {}
                    (false, 0) => locked.release_empty(wanted),
                    (false, _) => locked.move_to(wanted),
                }
            }
        }
    }
}

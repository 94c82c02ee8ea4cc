//! swapoff, the part that concerns slots (spec §0, steps 1, 2, 3, 5, 6, 8 and 9).
//!
//! The other steps are the caller's: it knows how much memory there is (1:
//! [`Slots::swapoff_check`]), brings the pages back in with the help of [`Slots::swapoff_next`]
//! (4), and flushes its work items (7) between [`Slots::swapoff_begin`] and
//! [`Slots::swapoff_finish`].

use crate::before::are_per_device;
use crate::device::{Device, DeviceState};
use crate::entry::{DEVICES_MAX, DeviceId, DeviceMask, LogicalCpu, SwapEntry};
use crate::order::CLUSTER_SLOTS;
use crate::policy::{DefaultPriority, HintScope, Policy, SlotCache};
use crate::slots::Slots;
use crate::sync::{AtomicU32, Ordering};
use crate::word::SlotWord;

/// Why a step of swapoff was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapoffError {
    /// The device is not on.
    NoDevice,
    /// [`Slots::swapoff_begin`] has not been called, or has been called before.
    WrongStep,
    /// This many slots are still in use.
    Busy(u64),
    /// The slots in use find no place elsewhere.
    NoRoom {
        /// Slots in use on the device.
        inuse: u64,
        /// Pages that memory and other devices could take.
        room: u64,
    },
    /// A [`DeviceReference`] is still held, or a discard is under way: call again.
    Pinned,
}

impl core::fmt::Display for SwapoffError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SwapoffError::NoDevice => formatter.write_str("no such swap device"),
            SwapoffError::WrongStep => formatter.write_str("swapoff step out of order"),
            SwapoffError::NoRoom { inuse, room } => {
                write!(formatter, "{inuse} pages in use, but room for only {room}")
            }
            SwapoffError::Busy(slots) => write!(formatter, "{slots} swap slots still in use"),
            SwapoffError::Pinned => formatter.write_str("swap device still referenced"),
        }
    }
}

impl core::error::Error for SwapoffError {}

/// Keeps a device from going away (the kernel's `get_swap_device`). To be taken before a look at an
/// entry that no count protects.
pub struct DeviceReference<'a> {
    users: &'a AtomicU32,
    device: DeviceId,
}

impl DeviceReference<'_> {
    /// The device held.
    pub fn device(&self) -> DeviceId {
        self.device
    }
}

impl Drop for DeviceReference<'_> {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::Release);
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Takes a reference to a device; `None` if it is off or its reference is killed. `cpu` only
    /// picks the counter. Cost: one atomic addition.
    pub fn device_get(&self, cpu: LogicalCpu, device: DeviceId) -> Option<DeviceReference<'_>> {
        let users = self.cpu(cpu).users(device);
        users.fetch_add(1, Ordering::SeqCst);
        let reference = DeviceReference { users, device };
        // Either this load sees the kill, or the killer sees the addition.
        self.device(device).is_live().then_some(reference)
    }

    /// Step 1: checks whether the pages in use on a device would find a place, in `memory` pages of
    /// memory or in free slots of other devices. Changes nothing.
    ///
    /// # Errors
    /// [`SwapoffError::NoDevice`], [`SwapoffError::NoRoom`].
    pub fn swapoff_check(&self, id: DeviceId, memory: u64) -> Result<(), SwapoffError> {
        if !self.devices().contains(id) {
            return Err(SwapoffError::NoDevice);
        }
        let inuse = self.device(id).usage().inuse();
        let (free_elsewhere, _) = self.free_and_total(DeviceMask::ALL.without(id));
        let room = memory.saturating_add(free_elsewhere);
        if inuse > room { Err(SwapoffError::NoRoom { inuse, room }) } else { Ok(()) }
    }

    /// Steps 2 and 3: ends allocation from this device. Clears WRITEOK, takes the device off the
    /// available list for good, then locks and unlocks every cluster that ever came into use once,
    /// so that any allocator in progress has seen the flag.
    ///
    /// # Errors
    /// [`SwapoffError::NoDevice`], or [`SwapoffError::WrongStep`] if it has begun already.
    pub fn swapoff_begin(&self, id: DeviceId) -> Result<(), SwapoffError> {
        let _held = self.header().swap_lock.hold::<P::Relax>();
        let device = self.device(id);
        match device.state() {
            DeviceState::Off => return Err(SwapoffError::NoDevice),
            DeviceState::Draining | DeviceState::Dead => return Err(SwapoffError::WrongStep),
            DeviceState::Writable => {}
        }
        {
            let _available = self.hold_available();
            device.set_state(DeviceState::Draining);
            device.usage().mark_off_list();
            self.take_off_available(id);
        }
        self.pass_through_clusters(id, device);
        if P::SLOT_CACHE == SlotCache::PerCpu {
            self.drain_slot_caches(DeviceMask::only(id));
        }
        Ok(())
    }

    fn pass_through_clusters(&self, id: DeviceId, device: &Device) {
        // An allocator that takes a cluster from behind the mark later takes the list lock after
        // this and sees the flag.
        drop(self.hold_lists(id, device));
        for index in 0..device.clusters() {
            let cluster = self.cluster(device, index);
            if cluster.is_touched() {
                drop(cluster.lock.hold::<P::Relax>());
            }
        }
    }

    /// First slot in use at or behind offset `from`, with its state; `None` if there is none.
    /// Lockless. Cost: one load per slot of used clusters, one per unused cluster.
    pub fn swapoff_next(&self, device: DeviceId, from: u64) -> Option<(SwapEntry, SlotWord)> {
        let max = self.device(device).max();
        let mut offset = from.max(1);
        while offset < max {
            let index = (offset / u64::from(CLUSTER_SLOTS)) as u32;
            let end = (u64::from(index) + 1) * u64::from(CLUSTER_SLOTS);
            if !self.cluster(self.device(device), index).has_frame() {
                offset = end;
                continue;
            }
            let entry = SwapEntry::new(device, offset)?;
            match self.word(entry) {
                SlotWord::Free | SlotWord::Bad => offset += 1,
                word => return Some((entry, word)),
            }
        }
        None
    }

    /// Step 5: puts the device back into use after a failed step 4.
    ///
    /// # Errors
    /// [`SwapoffError::WrongStep`] if swapoff has not begun.
    pub fn swapoff_cancel(&self, id: DeviceId) -> Result<(), SwapoffError> {
        let _held = self.header().swap_lock.hold::<P::Relax>();
        let device = self.device(id);
        if !matches!(device.state(), DeviceState::Draining | DeviceState::Dead) {
            return Err(SwapoffError::WrongStep);
        }
        device.set_state(DeviceState::Writable);
        self.add_to_available(id, device);
        Ok(())
    }

    /// Steps 6, 8 and 9: kills the reference, waits until every allocator that was at work is
    /// through, clears every hint that names the device, and frees its clusters, frames and number.
    /// Cost: one lock per logical CPU, one look at each cluster.
    ///
    /// # Errors
    /// [`SwapoffError::Busy`] while slots are in use, [`SwapoffError::Pinned`] while references are
    /// held. The reference stays killed: call again, or [`swapoff_cancel`](Self::swapoff_cancel).
    pub fn swapoff_finish(&self, id: DeviceId) -> Result<(), SwapoffError> {
        let _held = self.header().swap_lock.hold::<P::Relax>();
        let device = self.device(id);
        match device.state() {
            DeviceState::Off => return Err(SwapoffError::NoDevice),
            DeviceState::Writable => return Err(SwapoffError::WrongStep),
            DeviceState::Draining | DeviceState::Dead => {}
        }
        let inuse = device.usage().inuse();
        if inuse != 0 {
            return Err(SwapoffError::Busy(inuse));
        }
        device.set_state(DeviceState::Dead);
        let pinned = self.cpus().any(|cpu| cpu.users(id).load(Ordering::SeqCst) != 0);
        if pinned || device.discards_running.load(Ordering::Acquire) != 0 {
            return Err(SwapoffError::Pinned);
        }
        for (cpu, _) in self.logical_cpus() {
            let local = self.lock_cpu(cpu);
            local.forget(id);
            if are_per_device::<P>() {
                self.forget_device_hints(cpu, id);
            }
            if P::HINT_SCOPE == HintScope::Mask {
                self.forget_mask_hints(cpu, id);
            }
        }
        self.header().devices_on.fetch_and(!(1 << id.index()), Ordering::AcqRel);
        let priority = device.priority();
        self.reset_device(device);
        if P::DEFAULT_PRIORITY == DefaultPriority::Descending && priority < 0 {
            self.move_up_defaults(priority);
        }
        Ok(())
    }

    /// Raises default priorities below `gone` by one (spec §4, the variant from before).
    fn move_up_defaults(&self, gone: i32) {
        let _available = self.hold_available();
        for index in 0..DEVICES_MAX as u32 {
            let Some(id) = DeviceId::new(index).filter(|id| self.devices().contains(*id)) else { continue };
            let device = self.device(id);
            if device.priority() < gone {
                device.set_priority(device.priority() + 1);
            }
        }
    }
}

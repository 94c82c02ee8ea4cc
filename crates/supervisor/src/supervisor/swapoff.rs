//! Takes a device of the group out of use while the group runs (swapoff, spec §0).
//!
//! The supervisor marks the device as leaving. Members move their pages away from it
//! (`folioswap_pager`, `swapoff.rs`) and let its clusters go; the device is off when no cluster of
//! it has an owner. The asking command keeps its connection until then. The device is in use again,
//! and nothing is lost, when the connection ends earlier, when no page moves for a while, or when
//! swap runs short without the device.

use super::{
    Supervisor,
    connection::Role,
    members::{After, is_root_or_owner, sent},
};
use crate::ipc::wire;
use folioswap_group::{
    counters::Counter,
    devices::{DeviceKind, DeviceUsage},
    protocol::{Kind, Message, SwapoffEnd},
    segment::CLUSTER_BYTES,
};
use folioswap_slots::DeviceMask;
use rustix::thread::futex;
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

/// The time between two looks at the progress.
const LOOK: Duration = Duration::from_millis(20);
/// A swapoff is given up after this time without a page that moved.
const PATIENCE: Duration = Duration::from_secs(30);

/// The swapoff that is under way.
pub(super) struct Swapoff {
    device: usize,
    next: Instant,
    /// The progress at the time `moved_at`: clusters left, and pages moved or lost.
    seen: (u32, u64),
    moved_at: Instant,
    /// The pages that earlier swapoffs lost.
    lost_before: u64,
    began: Instant,
}

impl Swapoff {
    /// When the next look at the progress is due.
    pub(super) fn due(&self) -> Instant {
        self.next
    }
}

impl Supervisor {
    /// Begins the swapoff that a command asks for, or refuses it.
    pub(super) fn begin_swapoff(&mut self, index: usize, number: u64, now: Instant) -> After {
        if let Err(why) = self.may_begin(index, number) {
            let refused = Message::new(Kind::SwapoffEnd, why.pack());
            let _ = wire::send(&self.connections[index].socket, &refused, &[]);
            return After::Close;
        }
        let device = number as usize;
        self.connections[index].role = Role::Swapoff;
        self.set_usage(device, DeviceUsage::Leaving);
        let lost_before = self.totals.sums(self.settings.memory.group()).counter(Counter::SwapoffLost);
        self.swapoff =
            Some(Swapoff { device, next: now, seen: (u32::MAX, 0), moved_at: now, lost_before, began: now });
        After::Keep
    }

    /// Whether the other end is root, or the user whose group it is.
    pub(super) fn may_command(&self, index: usize) -> bool {
        is_root_or_owner(self.connections[index].user)
    }

    fn may_begin(&self, index: usize, number: u64) -> Result<(), SwapoffEnd> {
        if !self.may_command(index) {
            return Err(SwapoffEnd::NotPermitted);
        }
        let decisions = self.settings.memory.group().decisions;
        let device = usize::try_from(number).map_err(|_| SwapoffEnd::NoDevice)?;
        let (description, entry) = decisions.devices().nth(device).ok_or(SwapoffEnd::NoDevice)?;
        if self.swapoff.is_some() {
            return Err(SwapoffEnd::Busy);
        }
        if entry.usage() != DeviceUsage::InUse {
            return Err(SwapoffEnd::NoDevice);
        }
        if description.kind == DeviceKind::Zram {
            return Err(SwapoffEnd::Store);
        }
        let masked = DeviceMask::from_bits(decisions.masked_devices());
        let numbered = DeviceMask::ALL.iter().enumerate().zip(decisions.devices());
        let others = numbered.filter(|((other, id), (_, entry))| {
            *other != device && entry.takes_pages() && !masked.contains(*id)
        });
        let kinds: Vec<DeviceKind> = others.map(|(_, (description, _))| description.kind).collect();
        // Compressed RAM may take any number of pages: its room cannot be known beforehand.
        if kinds.contains(&DeviceKind::Zram) {
            return Ok(());
        }
        // Without a device of its tiers nothing could leave the group any more.
        if kinds.is_empty() {
            return Err(SwapoffEnd::NoOther);
        }
        let used = u64::from(self.clusters.used()[device]);
        let free = self.clusters.free_beside(decisions, device);
        if used > free {
            let (used, free) = (used * CLUSTER_BYTES, free * CLUSTER_BYTES);
            return Err(SwapoffEnd::NoRoom { used, free });
        }
        Ok(())
    }

    /// Looks at the progress of the swapoff, if that is due: ends it when the device is empty, or
    /// gives it up.
    pub(super) fn tend_swapoff(&mut self, now: Instant) {
        let Some(swapoff) = self.swapoff.as_mut().filter(|swapoff| now >= swapoff.next) else { return };
        swapoff.next = now + LOOK;
        let device = swapoff.device;
        let sums = self.totals.sums(self.settings.memory.group());
        let (moved, lost) = (sums.counter(Counter::SwapoffPages), sums.counter(Counter::SwapoffLost));
        let left = self.clusters.used()[device];
        // Members wrote both sums.
        let done = moved.saturating_add(lost);
        if swapoff.seen != (left, done) {
            swapoff.seen = (left, done);
            swapoff.moved_at = now;
        }
        if left == 0 {
            let lost = lost.saturating_sub(swapoff.lost_before);
            self.clusters.remove(self.settings.memory.writer(), device);
            self.networks.remove(device);
            // Its file system can be unmounted from now on, because no descriptor of it is left.
            self.settings.devices.devices[device].directory = None;
            self.end_swapoff(DeviceUsage::Off, SwapoffEnd::Done { lost });
        } else if now.duration_since(swapoff.moved_at) >= PATIENCE {
            self.give_up_swapoff();
        } else if now.duration_since(swapoff.moved_at) >= LOOK {
            // A member may have slept when it was told, or may have been made since.
            self.wake_members();
        }
    }

    /// Puts the device into use again, because the asking command is gone.
    pub(super) fn cancel_swapoff(&mut self) {
        if let Some(swapoff) = self.swapoff.take() {
            self.set_usage(swapoff.device, DeviceUsage::InUse);
        }
    }

    /// Puts the device into use again, because no page moves, or because swap runs short without
    /// it.
    pub(super) fn give_up_swapoff(&mut self) {
        let Some(device) = self.swapoff.as_ref().map(|swapoff| swapoff.device) else { return };
        let left = u64::from(self.clusters.used()[device]) * CLUSTER_BYTES;
        let mut owners = self.connections.iter().filter(|c| self.clusters.has_some_of(&c.clusters, device));
        let process = owners.next().map_or(0, |connection| connection.pid);
        self.end_swapoff(DeviceUsage::InUse, SwapoffEnd::Stalled { left, process });
    }

    fn end_swapoff(&mut self, usage: DeviceUsage, end: SwapoffEnd) {
        let Some(swapoff) = self.swapoff.take() else { return };
        self.set_usage(swapoff.device, usage);
        self.course.record.iter_mut().for_each(|record| record.swapoff(swapoff.device as u32, swapoff.began));
        let asking = self.connections.iter_mut().find(|connection| matches!(connection.role, Role::Swapoff));
        if let Some(connection) = asking {
            // The command closes the connection when it has read this.
            connection.role = Role::New;
            let _ = sent(wire::send(&connection.socket, &Message::new(Kind::SwapoffEnd, end.pack()), &[]));
        }
    }

    fn set_usage(&self, device: usize, usage: DeviceUsage) {
        let writer = self.settings.memory.writer();
        writer.device(device).set_usage(usage);
        writer.devices_have_changed();
        self.wake_members();
    }

    /// Wakes the pager threads of all members, so that they look at the devices.
    pub(super) fn wake_members(&self) {
        for member in self.settings.memory.group().live_members() {
            member.wake.fetch_add(1, Relaxed);
            let _ = futex::wake(&member.wake, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

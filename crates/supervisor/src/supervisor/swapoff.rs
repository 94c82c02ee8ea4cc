//! A device of the group is taken out of use while the group runs (swapoff, spec §0).
//!
//! Members move what they have there (`folioswap_pager`, `swapoff.rs`), and let its clusters go; here the device is marked as leaving, and as off when nobody has
//! a cluster of it. Whoever asked for it keeps the connection until then. When that ends before, or nothing moves for a while, or swap runs short
//! without it, the device is in use again; nothing is lost by that.

use super::{
    Supervisor,
    connection::Role,
    members::{After, sent},
};
use crate::ipc::wire;
use folioswap_group::{
    counters::Counter,
    devices::{DeviceKind, DeviceUsage},
    protocol::{Kind, Message, OutOfMemory, SwapoffEnd},
    segment::CLUSTER_BYTES,
};
use rustix::{net::sockopt::socket_peercred, thread::futex};
use std::{
    sync::atomic::Ordering::{Relaxed, Release},
    time::{Duration, Instant},
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// After so long without a page that left it is believed that none will.
const PATIENCE: Duration = Duration::from_secs(30);

/// After a device that was leaving is in use again, members that lacked it have so long to use it.
const RELIEF: Duration = Duration::from_secs(1);

/// One that is under way.
pub(super) struct Swapoff {
    device: usize,
    next: Instant,
    /// What had happened when something happened last: clusters left, pages moved or lost.
    seen: (u32, u64),
    moved_at: Instant,
    /// Pages that were lost by swapoffs before.
    lost_before: u64,
}

impl Swapoff {
    /// When it is to be looked at.
    pub(super) fn due(&self) -> Instant {
        self.next
    }
}

impl Supervisor {
    /// Somebody asks for a device to be taken out of use.
    pub(super) fn begin_swapoff(&mut self, index: usize, number: u64, now: Instant) -> After {
        if let Err(why) = self.may_begin(index, number) {
            let refused = Message::new(Kind::SwapoffEnd, why.pack());
            let _ = wire::send(&self.connections[index].socket, &refused, &[]);
            return After::Close;
        }
        let device = number as usize;
        self.connections[index].role = Role::Swapoff;
        self.set_usage(device, DeviceUsage::Leaving);
        let lost_before = self.totals.sums(&self.settings.segment.mapped).counter(Counter::SwapoffLost);
        self.swapoff = Some(Swapoff { device, next: now, seen: (u32::MAX, 0), moved_at: now, lost_before });
        After::Keep
    }

    /// Is the other end root, or the user whose group it is?
    pub(super) fn may_command(&self, index: usize) -> bool {
        socket_peercred(&self.connections[index].socket).is_ok_and(|peer| {
            let user = peer.uid.as_raw();
            user == 0 || user == rustix::process::geteuid().as_raw()
        })
    }

    fn may_begin(&self, index: usize, number: u64) -> Result<(), SwapoffEnd> {
        if !self.may_command(index) {
            return Err(SwapoffEnd::NotPermitted);
        }
        let segment = &self.settings.segment.mapped;
        let device = usize::try_from(number).map_err(|_| SwapoffEnd::NoDevice)?;
        let (description, entry) = segment.devices().nth(device).ok_or(SwapoffEnd::NoDevice)?;
        if self.swapoff.is_some() {
            return Err(SwapoffEnd::Busy);
        }
        if entry.usage() != DeviceUsage::InUse {
            return Err(SwapoffEnd::NoDevice);
        }
        if description.kind == DeviceKind::Zram {
            return Err(SwapoffEnd::Store);
        }
        // Compressed RAM takes anything, as far as anybody can say beforehand.
        if segment.devices().any(|(other, _)| other.kind == DeviceKind::Zram) {
            return Ok(());
        }
        let others = segment.devices().enumerate().filter(|(other, _)| *other != device);
        if others.filter(|(_, (_, entry))| entry.takes_pages()).count() == 0 {
            return Err(SwapoffEnd::NoOther);
        }
        let used = u64::from(self.clusters.used()[device]);
        let free = self.clusters.free_beside(segment, device);
        if used > free {
            let (used, free) = (used * CLUSTER_BYTES, free * CLUSTER_BYTES);
            return Err(SwapoffEnd::NoRoom { used, free });
        }
        Ok(())
    }

    /// Looks whether it has ended, or does not go on.
    pub(super) fn tend_swapoff(&mut self, now: Instant) {
        let Some(swapoff) = self.swapoff.as_mut().filter(|swapoff| now >= swapoff.next) else { return };
        swapoff.next = now + LOOK;
        let device = swapoff.device;
        let sums = self.totals.sums(&self.settings.segment.mapped);
        let (moved, lost) = (sums.counter(Counter::SwapoffPages), sums.counter(Counter::SwapoffLost));
        let left = self.clusters.used()[device];
        if swapoff.seen != (left, moved + lost) {
            swapoff.seen = (left, moved + lost);
            swapoff.moved_at = now;
        }
        if left == 0 {
            let lost = lost.saturating_sub(swapoff.lost_before);
            self.clusters.remove(&self.settings.segment.mapped, device);
            self.networks.remove(device);
            self.end_swapoff(DeviceUsage::Off, SwapoffEnd::Done { lost });
        } else if now.duration_since(swapoff.moved_at) >= PATIENCE {
            self.give_up_swapoff();
        } else if now.duration_since(swapoff.moved_at) >= LOOK {
            // One that slept when it was told, or was made since.
            self.wake_members();
        }
    }

    /// Whoever wanted it is gone: the device is in use again.
    pub(super) fn cancel_swapoff(&mut self) {
        if let Some(swapoff) = self.swapoff.take() {
            self.set_usage(swapoff.device, DeviceUsage::InUse);
        }
    }

    /// Is what a member lacks what a device that leaves would have? Then it stays.
    pub(super) fn is_short_for_swapoff(&mut self, [reason, ..]: [u64; 3], now: Instant) -> bool {
        if reason != OutOfMemory::SwapFull as u64 {
            return false;
        }
        if self.swapoff.is_some() {
            self.given_back = Some(now);
            self.give_up_swapoff();
        }
        // The others may have said the same, not knowing yet.
        self.given_back.is_some_and(|at| now.duration_since(at) < RELIEF)
    }

    fn give_up_swapoff(&mut self) {
        let Some(device) = self.swapoff.as_ref().map(|swapoff| swapoff.device) else { return };
        let left = u64::from(self.clusters.used()[device]) * CLUSTER_BYTES;
        let mut owners = self.connections.iter().filter(|c| self.clusters.has_some_of(&c.clusters, device));
        let process = owners.next().map_or(0, |connection| connection.pid);
        self.end_swapoff(DeviceUsage::InUse, SwapoffEnd::Stalled { left, process });
    }

    fn end_swapoff(&mut self, usage: DeviceUsage, end: SwapoffEnd) {
        let Some(swapoff) = self.swapoff.take() else { return };
        self.set_usage(swapoff.device, usage);
        let asking = self.connections.iter_mut().find(|connection| matches!(connection.role, Role::Swapoff));
        if let Some(connection) = asking {
            // It closes the connection when it has read this.
            connection.role = Role::New;
            let _ = sent(wire::send(&connection.socket, &Message::new(Kind::SwapoffEnd, end.pack()), &[]));
        }
    }

    fn set_usage(&self, device: usize, usage: DeviceUsage) {
        let segment = &self.settings.segment.mapped;
        segment.devices[device].set_usage(usage);
        segment.header.devices_changed.fetch_add(1, Release);
        self.wake_members();
    }

    pub(super) fn wake_members(&self) {
        for member in self.settings.segment.mapped.live_members() {
            member.wake.fetch_add(1, Relaxed);
            let _ = futex::wake(&member.wake, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

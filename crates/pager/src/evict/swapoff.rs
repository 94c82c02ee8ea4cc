//! The evictor's part of a swapoff: which device is leaving, which pages are moved off it, and when
//! it is let go of.

use crate::engine::due::Due;
use crate::evict::evictor::Evictor;
use crate::evict::registration::Memory;
use crate::evict::tiers::RunBerths;
use crate::kernel::sys;
use crate::store::demote::RUN_PAGES;
use core::sync::atomic::Ordering::Release;
use folioswap_devices::{Orders, Page};
use folioswap_group::counters::Counter;
use folioswap_group::devices::DeviceUsage;
use folioswap_group::protocol::CLUSTERS_PER_MESSAGE;
use folioswap_policy::turns::Turns;
use folioswap_slots::{DeviceId, DeviceMask};
use folioswap_space::swapoff::Leaving;

#[cfg(test)]
mod tests;

/// The time between two steps that found nothing to do, or no room.
const PAUSE_NS: u64 = 20_000_000;

/// The time between two steps while memory is short: a step takes a millisecond or two.
const SHORT_NS: u64 = 10_000_000;

/// The pause after a server did not answer.
const AWAY_NS: u64 = 500_000_000;

/// This process's knowledge of devices that leave. A fork may lose it without harm.
pub(crate) struct Swapoff {
    /// `Decisions::devices_changed` at the last look.
    seen: Option<u32>,
    leaving: DeviceMask,
    /// The offset of the entry that is looked at next.
    hand: u64,
    due: Due,
}

impl Swapoff {
    /// Nothing leaves, as far as is known.
    pub(crate) const fn new() -> Self {
        Swapoff { seen: None, leaving: DeviceMask::NONE, hand: 0, due: Due::at_once() }
    }
}

impl Evictor {
    /// Looks which devices leave, closes those that are off, opens those that were added, and
    /// follows the tiers of the group. The caller holds the gate.
    pub(crate) fn follow_devices(&mut self) {
        let engine = self.engine;
        let changed = engine.decisions().devices_changed();
        if self.tiers.swapoff.seen == Some(changed) {
            return;
        }
        let (mut leaving, mut off) = (DeviceMask::NONE, DeviceMask::NONE);
        for (id, (_, entry)) in DeviceMask::ALL.iter().zip(engine.decisions().devices()) {
            match entry.usage() {
                DeviceUsage::InUse => {}
                DeviceUsage::Leaving => leaving = leaving.with(id),
                DeviceUsage::Off => off = off.with(id),
            }
        }
        let off = off.intersection(engine.space.shared_devices().mask());
        if !off.is_empty() {
            // Nobody wants the reads that the handler still has under way there; the device is
            // looked at again if the handler does not make way.
            let Some(_outside) = engine.have_handler_outside() else { return };
            engine.counts.stale_copies.fetch_add(1, Release);
            off.iter().for_each(|id| engine.space.shared_devices().close(id));
        }
        self.open_added();
        let devices = engine.decisions().devices().map(|(device, _)| device);
        self.tiers.turns = Turns::new(devices).among(engine.permitted());
        self.note_devices_below_store();
        self.tiers.swapoff = Swapoff { seen: Some(changed), leaving, ..Swapoff::new() };
    }

    /// Asks for the devices that this process does not have. It does not use a device that it
    /// cannot get for want of a descriptor.
    fn open_added(&mut self) {
        let engine = self.engine;
        if engine.embedded.is_on() {
            return;
        }
        let known = engine.space.shared_devices().mask();
        let mut added = DeviceMask::NONE;
        for (id, (device, entry)) in DeviceMask::ALL.iter().zip(engine.decisions().devices()) {
            if device.clusters == 0 || known.contains(id) || entry.usage() == DeviceUsage::Off {
                continue;
            }
            if let Some(descriptor) = engine.device(id) {
                engine.space.shared_devices().set_orders(id, Orders::from_bits(entry.orders()));
                engine.space.shared_devices().set(id, device, descriptor);
                added = added.with(id);
            }
        }
        if !added.is_empty() {
            self.tiers.run_berths = RunBerths::new();
        }
    }

    /// Moves some of the pages on devices that leave. The caller holds the gate. Returns how many
    /// pages went. While memory is short no page goes where it would take some, and eviction has
    /// most of the time.
    pub(crate) fn move_off_leaving(&mut self, memory: Memory) -> u64 {
        let leaving = self.tiers.swapoff.leaving;
        let rest_ns = if memory == Memory::Short { SHORT_NS } else { 0 };
        if leaving.is_empty() || !self.tiers.swapoff.due.take(sys::now_ns(), rest_ns) {
            return 0;
        }
        let engine = self.engine;
        let from = self.tiers.swapoff.hand;
        let (mut pages, next) = engine.space.stored_on(leaving, from, RUN_PAGES);
        if pages.is_empty() {
            self.tiers.swapoff.hand = next.unwrap_or(0);
            if next.is_none() {
                leaving.iter().for_each(|id| self.let_go_of(id));
                self.tiers.swapoff.due.take(sys::now_ns(), PAUSE_NS);
            }
            return 0;
        }
        let Some(run) = engine.run_room() else {
            self.tiers.swapoff.due.take(sys::now_ns(), PAUSE_NS);
            return 0;
        };
        let run = &mut run[..pages.len()];
        let answers = engine.space.read_leaving(&mut pages, run);
        self.store_leaving(&mut pages, run, memory);
        let settled = match engine.have_handler_outside() {
            Some(_outside) => {
                let settled = engine.space.settle_leaving(&pages);
                engine.counts.stale_copies.fetch_add(1, Release);
                settled
            }
            None => {
                engine.space.give_up_leaving(&pages);
                Default::default()
            }
        };
        engine.figures().add(Counter::SwapoffPages, settled.moved);
        engine.figures().add(Counter::SwapoffLost, settled.lost);
        if settled.moved + settled.lost == pages.len() as u64 {
            self.tiers.swapoff.hand = next.unwrap_or(0);
        } else {
            // These pages are looked at again.
            self.tiers.swapoff.due.take(sys::now_ns(), if answers { PAUSE_NS } else { AWAY_NS });
        }
        settled.moved + settled.lost
    }

    /// How long the evictor may sleep, as far as devices that leave are concerned, in nanoseconds.
    pub(crate) fn leaving_rest_ns(&self) -> u64 {
        if self.tiers.swapoff.leaving.is_empty() { u64::MAX } else { PAUSE_NS }
    }

    /// Stores these pages elsewhere, as far as there is room: on other devices by their priority,
    /// or in the compressed store.
    fn store_leaving(&mut self, pages: &mut Leaving, run: &[Page], memory: Memory) {
        let engine = self.engine;
        let available = self.available();
        let available = if memory == Memory::Short { self.on_disk(available) } else { available };
        let stored = self.write_to_first(available, |_, devices, pieces| {
            engine.store_leaving_on(pages, run, devices, pieces)
        });
        let has_store = !available.minus(engine.space.shared_devices().mask()).is_empty();
        if stored.is_some() || !has_store {
            return;
        }
        for (index, page) in run.iter().enumerate() {
            if engine.space.store_leaving_in_store(pages, index, &mut self.scratch, page).is_err() {
                return;
            }
        }
    }

    /// Lets go of a device on which nothing of this process is any more, unless the handler has
    /// just put something there: its clusters go back.
    fn let_go_of(&mut self, id: DeviceId) {
        let engine = self.engine;
        let Some(_outside) = engine.have_handler_outside() else { return };
        let mut numbers = [0; CLUSTERS_PER_MESSAGE];
        loop {
            let count = engine.space.file_space().take_all(id, &mut numbers);
            if count == 0 {
                return;
            }
            self.drop_clusters(&numbers[..count]);
        }
    }
}

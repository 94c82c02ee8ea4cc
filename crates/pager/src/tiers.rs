//! Where what leaves the program goes: to the devices by their priority, in turn among equals, each as long as it has room; and what
//! of the compressed store goes on to a file when nothing else is left to give.

use crate::evictor::Evictor;
use crate::futex::{self, Sharing};
use crate::link;
use crate::sys;
use crate::write_back::{Stuck, Tier};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_core::space::Incompressible;
use folioswap_core::turns::Choice;
use folioswap_group::devices::{DeviceDescription, DeviceEntry};
use folioswap_group::protocol::{CLUSTERS_PER_MESSAGE, Kind, Message};
use folioswap_group::segment::Scope;
use folioswap_slots::{DeviceId, DeviceMask};

/// Clusters asked for at a time: 32 MiB.
const CLUSTERS_WANTED: u64 = 16;
/// Between two requests for devices that are full.
const ASK_FULL_NS: u64 = 100_000_000;
/// Pages that a round of demotion moves.
const DEMOTED_AT_ONCE: u64 = 512;

/// Bytes of the store that are looked after at a time, and between two such times.
const COMPACTED_AT_ONCE: u64 = 1 << 20;
const COMPACT_NS: u64 = 10_000_000;
/// Free room inside the store that is not worth moving objects for: an eighth of what is stored, and this.
const LOOSE_BYTES: u64 = 1 << 20;

impl Evictor {
    /// Keeps the compressed store tight: what frees have left sparse is moved together, a little at a time, and the memory of
    /// what is emptied goes back. Under the gate.
    pub(crate) fn compact(&mut self) {
        let now = sys::now_ns();
        if now < self.compact_next_ns {
            return;
        }
        self.compact_next_ns = now + COMPACT_NS;
        let space = &self.engine.space;
        let stat = space.mm_stat();
        if stat.mem_used_total > stat.compr_data_size + stat.compr_data_size / 8 + LOOSE_BYTES {
            space.compact(COMPACTED_AT_ONCE);
        }
    }

    /// Writes the oldest folio back, to the device whose turn it is.
    pub(crate) fn write_back(&mut self) -> Result<u64, ()> {
        let result = self.write_back_in_turn();
        self.devices_full = result.is_err();
        result
    }

    fn write_back_in_turn(&mut self) -> Result<u64, ()> {
        let engine = self.engine;
        let mut available = self.available();
        loop {
            // What relatives share is stored by each of them: compressed it would take more than the page that they share.
            let shared = self.turns.shared(available);
            let next = match shared {
                devices if self.desperate && !devices.is_empty() => Some(Choice::Shared(devices)),
                _ => self.turns.next(available),
            };
            let tier = match next {
                Some(Choice::Shared(devices)) => Tier::Shared(devices),
                _ if !self.turns.has_store() => return Err(()),
                // Its own turn, or nothing else has room: then it takes more than its share.
                _ => Tier::Store(match shared {
                    DeviceMask::NONE => Incompressible::Keep,
                    devices => Incompressible::To(devices),
                }),
            };
            let devices = match tier {
                Tier::Shared(devices) | Tier::Store(Incompressible::To(devices)) => devices,
                _ => DeviceMask::NONE,
            };
            let mut result = engine.write_back_oldest(&mut self.scratch, tier);
            if result == Err(Stuck::WantClusters) {
                if self.want_clusters(devices) {
                    continue;
                }
                if matches!(tier, Tier::Shared(_)) {
                    result = engine.write_back_oldest(&mut self.scratch, Tier::SharedSplit(devices));
                }
            }
            match result {
                Ok(pages) => {
                    self.turns.used(pages);
                    return Ok(pages);
                }
                Err(_) if devices.is_empty() => return Err(()),
                Err(_) => available = devices.iter().fold(available, DeviceMask::without),
            }
        }
    }

    /// Nothing of the program is left to take: pages of the compressed store go on to a file. Returns how many.
    pub(crate) fn demote(&mut self) -> u64 {
        let engine = self.engine;
        if engine.segment().scope() == Scope::Resident {
            return 0;
        }
        self.let_pass();
        let _gate = engine.gate.lock();
        let mut pages = 0;
        let mut available = self.available_on_disk();
        loop {
            let devices = self.turns.shared(available);
            if devices.is_empty() {
                break;
            }
            let demoted = engine.demote(self.demote_hand, DEMOTED_AT_ONCE, &mut self.run, devices);
            self.demote_hand = demoted.hand;
            pages += demoted.pages;
            if !demoted.wants_clusters || pages > 0 {
                break;
            }
            if !self.want_clusters(devices) {
                available = devices.iter().fold(available, DeviceMask::without);
            }
        }
        if pages > 0 {
            engine.space.trim();
            futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
        }
        pages
    }

    /// The devices that take something now: those that have room for the group, within their share of the limit, and those on
    /// which this process has a slot free.
    fn available(&self) -> DeviceMask {
        let own = self.engine.space.file_space().with_free_slots();
        let memory_is_full = self.memory_is_full();
        self.devices_that(|number, device, entry| {
            own.contains(number) || has_room(device, entry, memory_is_full)
        })
    }

    /// Those of them that take no memory.
    fn available_on_disk(&self) -> DeviceMask {
        let available = self.available();
        self.devices_that(|number, device, _| available.contains(number) && !device.kind.is_in_memory())
    }

    fn devices_that(&self, wanted: impl Fn(DeviceId, DeviceDescription, &DeviceEntry) -> bool) -> DeviceMask {
        let numbered = DeviceMask::ALL.iter().zip(self.engine.segment().devices());
        numbered
            .filter(|(number, (device, entry))| wanted(*number, *device, entry))
            .fold(DeviceMask::NONE, |mask, (number, _)| mask.with(number))
    }

    /// In scope total what devices keep in memory is part of the limit: beyond half of it, what is evicted goes elsewhere.
    fn memory_is_full(&self) -> bool {
        let segment = self.engine.segment();
        if segment.scope() == Scope::Resident {
            return false;
        }
        self.engine.stored_by_group() > segment.header.limit_bytes.load(Relaxed) / 2
    }

    /// Asks the supervisor for room on one of these shared devices. True: there is some. Those that are known to be full are
    /// asked for now and then: a cluster that another process shared may be this one's alone by now, a disk may have room
    /// again.
    fn want_clusters(&mut self, devices: DeviceMask) -> bool {
        let engine = self.engine;
        let memory_is_full = self.memory_is_full();
        let with_room = self.devices_that(|number, device, entry| {
            devices.contains(number) && has_room(device, entry, memory_is_full)
        });
        let mut wanted = with_room;
        if with_room.is_empty() {
            let now = sys::now_ns();
            if devices.is_empty() || now < self.ask_full_next_ns {
                return false;
            }
            self.ask_full_next_ns = now + ASK_FULL_NS;
            wanted = self.devices_that(|number, device, _| {
                devices.contains(number) && !(device.kind.is_in_memory() && memory_is_full)
            });
        }
        // What takes memory is charged when it is granted.
        let takes_memory =
            self.devices_that(|number, device, _| wanted.contains(number) && device.kind.is_in_memory());
        let count = if takes_memory.is_empty() { CLUSTERS_WANTED } else { 1 };
        let control = engine.descriptors.control.load(Relaxed);
        let bits = wanted.iter().fold(0, |bits, device| bits | 1 << device.index());
        let request = Message::new(Kind::WantClusters, [count.min(CLUSTERS_PER_MESSAGE as u64), bits, 0]);
        let answer = link::send(control, &request, None).and_then(|()| link::receive(control));
        match answer {
            Ok((message, _)) if message.kind() == Some(Kind::Clusters) => {
                let space = &engine.space;
                let on = |&number: &u32| Some((number, space.shared_devices().of_cluster(number)?));
                let added = space.file_space().add(message.clusters().iter().filter_map(on));
                // The answer proves that the supervisor knows of every fork we told it: its owner counts can be trusted.
                let owners = &engine.segment().cluster_owners;
                space.file_space().unshare(|number| {
                    owners.get(number as usize).is_some_and(|count| count.load(Relaxed) == 1)
                });
                added > 0
            }
            _ => sys::kill_self(),
        }
    }
}

/// Can the supervisor grant a cluster of it (or, of the store, is it within its share)?
fn has_room(device: DeviceDescription, entry: &DeviceEntry, memory_is_full: bool) -> bool {
    !(entry.is_full() || device.kind.is_in_memory() && memory_is_full)
}

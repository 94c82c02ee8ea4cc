//! Where pages go that leave the program: to the devices by their priority, in turn among equals,
//! each as long as it has room; and which pages of the compressed store go on to a file when the
//! store is larger than its share, or when nothing else is left to give.

use crate::engine::due::Due;
use crate::engine::{Engine, link};
use crate::evict::evictor::Evictor;
use crate::evict::store_share::share_of_others;
use crate::evict::swapoff::Swapoff;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::store::demote::Demotion;
use crate::store::demote::{Below, DemotionUnits, RUN_PAGES};
use crate::store::write_back::{RUN_BERTHS, Stuck, Tier, WrittenBack};
use crate::units::PIECE_PAGES;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::{Counter, SizeCounter};
use folioswap_group::decisions::Scope;
use folioswap_group::devices::DEVICES_MAX;
use folioswap_group::devices::{DeviceDescription, DeviceEntry};
use folioswap_group::protocol::{CLUSTERS_PER_MESSAGE, Ending, Kind, Message};
use folioswap_policy::reclaim::store_share::StoreShare;
use folioswap_policy::turns::{Choice, Turns};
use folioswap_slots::{DeviceId, DeviceMask, Order};

/// How long a device that refused a write is left alone; twice as long each time that it refuses
/// the next write, too.
const REST_NS: u64 = 100_000_000;

const REST_MAX_NS: u64 = 3_200_000_000;

/// Clusters asked for at a time: 32 MiB.
const CLUSTERS_WANTED: u64 = 16;

const _: () = assert!(CLUSTERS_WANTED as usize <= CLUSTERS_PER_MESSAGE);

/// The time between two requests for devices that are full.
const ASK_FULL_NS: u64 = 100_000_000;

/// The pages that a step of demotion moves, as many as a batch evicts: about a millisecond. In
/// small pieces they are fewer, each a write of its own.
pub(crate) const DEMOTED_AT_ONCE: u64 = 128;

const DEMOTED_IN_PIECES: u64 = 16;

/// The pages that make up for the fruitless round of the clock after which they are demoted: it
/// passes all present pages.
const DEMOTED_FOR_A_ROUND: u64 = 512;

/// Steps of demotion after which it has certainly come round a few times.
const DEMOTION_STEPS: u32 = 64;

/// The time between two looks for empty clusters.
const CLUSTERS_NS: u64 = 200_000_000;

/// Bytes of the store that are compacted at a time, and the time between two such steps.
const COMPACTED_AT_ONCE: u64 = 1 << 20;

const COMPACT_NS: u64 = 10_000_000;

/// Free memory inside the store for which objects are not moved: an eighth of the stored bytes, and
/// this.
const LOOSE_BYTES: u64 = 1 << 20;

/// How many berths are written together: fewer where the devices have no long runs of slots any
/// more, so that these are not looked for in vain each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunBerths {
    now: usize,
    /// Runs in sequence that found their slots since the length was changed.
    found: u32,
}

/// So many runs in sequence that found their slots justify the search for longer ones.
const RUNS_FOUND: u32 = 16;

impl RunBerths {
    /// The longest runs.
    pub(crate) const fn new() -> Self {
        RunBerths { now: RUN_BERTHS, found: 0 }
    }

    fn folios(self) -> usize {
        self.now
    }

    fn note(&mut self, back: WrittenBack) {
        if back.was_cut {
            *self = RunBerths { now: (back.folios as usize).clamp(1, RUN_BERTHS), found: 0 };
        } else if self.found < RUNS_FOUND {
            self.found += 1;
        } else {
            *self = RunBerths { now: (2 * self.now).min(RUN_BERTHS), found: 0 };
        }
    }
}

/// No device takes the oldest berth of staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DevicesFull;

/// Which devices the evictor writes to next, and how each has answered.
pub(crate) struct Tiers {
    pub(crate) turns: Turns,
    pub(crate) run_berths: RunBerths,
    pub(crate) ask_full_due: Due,
    /// No device took the last berth.
    pub(crate) devices_full: bool,
    /// The time until which a device that failed is not written to, by number.
    pub(crate) rests_until_ns: [u64; DEVICES_MAX],
    /// How long it rested last.
    pub(crate) rest_ns: [u64; DEVICES_MAX],
    pub(crate) demotion: Demotion,
    pub(crate) swapoff: Swapoff,
    pub(crate) store_share: StoreShare,
    pub(crate) share_due: Due,
    pub(crate) clusters_due: Due,
    /// Pages that had been written to files at the last look at empty clusters.
    pub(crate) file_pages_seen: u64,
}

impl Tiers {
    /// For the devices that `engine` may use.
    pub(crate) fn new(engine: &Engine) -> Self {
        let devices = engine.decisions().devices().map(|(device, _)| device);
        Tiers {
            turns: Turns::new(devices).among(engine.permitted()),
            run_berths: RunBerths::new(),
            ask_full_due: Due::at_once(),
            devices_full: false,
            rests_until_ns: [0; DEVICES_MAX],
            rest_ns: [0; DEVICES_MAX],
            demotion: Demotion::new(),
            swapoff: Swapoff::new(),
            store_share: share_of_others(engine),
            share_due: Due::at_once(),
            clusters_due: Due::at_once(),
            file_pages_seen: 0,
        }
    }
}

impl Evictor {
    /// Keeps the compressed store tight: objects that frees have left sparse are moved together, a
    /// little at a time, and the memory that becomes empty goes back. The caller holds the gate.
    pub(crate) fn compact(&mut self) {
        if !self.upkeep.compact_due.take(sys::now_ns(), COMPACT_NS) {
            return;
        }
        let space = &self.engine.space;
        let stat = space.mm_stat();
        if stat.mem_used_total > stat.compr_data_size + stat.compr_data_size / 8 + LOOSE_BYTES {
            space.compact(COMPACTED_AT_ONCE);
        }
    }

    /// Whether write-back goes to the store now, as long as it takes pages, whatever its turn.
    pub(crate) fn writes_to_store_alone(&self) -> bool {
        let available = self.available();
        !self.shortage.desperate
            && !self.shortage.stuck
            && self.tiers.turns.store_is_first(available)
            && !self.passes_store_by(available)
    }

    /// Whether pages go to a device below the store although the store comes first: it has no share
    /// of this process's memory.
    fn passes_store_by(&self, available: DeviceMask) -> bool {
        self.tiers.store_share.is_none()
            && self.tiers.turns.store_is_first(available)
            && !self.below_store(available).is_empty()
    }

    /// Writes up to `most` of the oldest berths back, to the device whose turn it is.
    ///
    /// # Errors
    /// [`DevicesFull`]; nothing was written.
    pub(crate) fn write_back(&mut self, most: usize) -> Result<WrittenBack, DevicesFull> {
        let engine = self.engine;
        let most = most.min(self.tiers.run_berths.folios());
        let mut available = self.available();
        loop {
            // Each relative stores a shared page for itself: compressed, the copies would take more
            // than the page that they share.
            let shared = self.tiers.turns.shared(available);
            let next = match shared {
                devices if self.shortage.desperate && !devices.is_empty() => Some(Choice::Shared(devices)),
                _ if self.passes_store_by(available) => {
                    Some(Choice::Shared(self.tiers.turns.shared(self.below_store(available))))
                }
                _ => self.tiers.turns.next(available),
            };
            let tier = match next {
                Some(Choice::Shared(devices)) => Tier::Shared(devices),
                _ if !self.tiers.turns.has_store() => return Err(DevicesFull),
                // It is the store's own turn, or nothing else has room: then it takes more than its
                // share.
                _ => Tier::Store(shared),
            };
            let (Tier::Shared(devices) | Tier::Store(devices)) = tier;
            let written = self.whole_or_in_pieces(devices, PIECE_PAGES, |evictor, pieces| {
                engine.write_back_oldest(&mut evictor.scratch, tier, pieces, most)
            });
            match written {
                Ok(back) => {
                    self.tiers.turns.used(back.pages);
                    self.tiers.run_berths.note(back);
                    return Ok(back);
                }
                Err(Stuck::Failed(device)) => {
                    self.let_rest(device);
                    available = available.minus(DeviceMask::only(device));
                }
                Err(_) if devices.is_empty() => return Err(DevicesFull),
                Err(_) => available = available.minus(devices),
            }
        }
    }

    /// Writes `pages` or fewer to these shared devices: whole, with more clusters if there is no
    /// room for that; and in pieces, where there are none, or where a device does not take so much
    /// at once.
    fn whole_or_in_pieces<T>(
        &mut self,
        devices: DeviceMask,
        pages: usize,
        mut write: impl FnMut(&mut Self, DemotionUnits) -> Result<T, Stuck>,
    ) -> Result<T, Stuck> {
        let large = self.engine.space.shared_devices().taking(devices, pages);
        loop {
            match write(self, DemotionUnits::Whole) {
                Err(Stuck::WantClusters) if self.want_clusters(large) => {}
                Err(Stuck::Split | Stuck::WantClusters) => break,
                result => return result,
            }
        }
        let (waiting, order) = self.engine.to_write();
        loop {
            match write(self, DemotionUnits::Any) {
                Err(Stuck::WantClusters) if large != devices && self.want_clusters(devices) => {}
                result => {
                    // A folio that another device takes whole has not fallen back; demoted pages
                    // are a run of single pages by now.
                    let is_split = result.is_ok() || self.engine.to_write().0 < waiting;
                    if is_split && pages == PIECE_PAGES && order != Order::ZERO {
                        self.engine.figures().add_size(SizeCounter::SwapOutFallback, order.index(), 1);
                    }
                    return result;
                }
            }
        }
    }

    /// Writes a run of pages that are stored elsewhere to the first of these shared devices, by
    /// priority, that takes it. `None`: no device takes it.
    pub(crate) fn write_to_first<T>(
        &mut self,
        mut available: DeviceMask,
        mut write: impl FnMut(&mut Self, DeviceMask, DemotionUnits) -> Result<T, Stuck>,
    ) -> Option<T> {
        loop {
            let devices = self.tiers.turns.shared(available);
            if devices.is_empty() {
                return None;
            }
            match self
                .whole_or_in_pieces(devices, RUN_PAGES, |evictor, pieces| write(evictor, devices, pieces))
            {
                Ok(written) => return Some(written),
                Err(Stuck::Failed(device)) => {
                    self.let_rest(device);
                    available = available.without(device);
                }
                Err(_) => available = available.minus(devices),
            }
        }
    }

    /// Leaves a device that failed alone for a moment: it may be back then, or be taken out of the
    /// rotation.
    fn let_rest(&mut self, device: DeviceId) {
        let (now, index) = (sys::now_ns(), device.index());
        // A device that was written to for longer than it rested has recovered.
        let is_again = now < self.tiers.rests_until_ns[index] + self.tiers.rest_ns[index].max(REST_NS);
        self.tiers.rest_ns[index] =
            if is_again { (self.tiers.rest_ns[index] * 2).clamp(REST_NS, REST_MAX_NS) } else { REST_NS };
        self.tiers.rests_until_ns[index] = now + self.tiers.rest_ns[index];
    }

    /// Demotes pages of the compressed store to a file, because nothing of the program is left to
    /// take. Returns how many.
    pub(crate) fn demote(&mut self) -> u64 {
        let engine = self.engine;
        if engine.decisions().scope() == Scope::Resident || self.on_disk(self.available()).is_empty() {
            return 0;
        }
        let mut pages = 0;
        // Old pages may lie anywhere: the steps go round until something is found, or until there
        // is certainly nothing.
        for _ in 0..DEMOTION_STEPS {
            // While the program maps and touches new memory, the look at its mappings comes first.
            let in_haste = engine.mappings.scan_wanted.load(Relaxed) != 0
                || sys::now_ns() < self.survey.growing_until_ns;
            let enough = if in_haste { 1 } else { DEMOTED_FOR_A_ROUND };
            if pages >= enough || engine.space.ages().total() == 0 {
                break;
            }
            self.let_pass();
            let _gate = engine.locks.gate.lock();
            pages += self.demote_to(DeviceMask::ALL, DEMOTED_AT_ONCE);
        }
        pages
    }

    /// Demotes about `most` of the oldest pages to those of these devices that are on a disk, by
    /// priority. The caller holds the gate.
    pub(crate) fn demote_to(&mut self, devices: DeviceMask, most: u64) -> u64 {
        let engine = self.engine;
        let available = self.on_disk(self.available()).intersection(devices);
        let demoted = self.write_to_first(available, |evictor, devices, pieces| {
            let most = if pieces == DemotionUnits::Whole { most } else { DEMOTED_IN_PIECES };
            let demoted = engine.demote(&mut evictor.tiers.demotion, most, Below { devices, pieces });
            match demoted.stopped {
                Some(why) if demoted.pages == 0 => Err(why.into()),
                _ => Ok(demoted.pages),
            }
        });
        let pages = demoted.unwrap_or(0);
        if pages > 0 {
            engine.space.trim();
            futex::post(&engine.segment().header.charge_sank, Sharing::Shared);
        }
        pages
    }

    /// Gives empty clusters back to the group, but for some that will be wanted soon. The caller
    /// holds the gate.
    pub(crate) fn give_back_clusters(&mut self) {
        if !self.tiers.clusters_due.take(sys::now_ns(), CLUSTERS_NS) {
            return;
        }
        let on_disk = self.on_disk(DeviceMask::ALL);
        let in_memory = DeviceMask::ALL.minus(on_disk);
        let space = self.engine.space.file_space();
        if space.has_empty_shared() {
            // A relative that shared the cluster may have ended.
            let _ = self.exchange_clusters(0, DeviceMask::NONE);
        }
        let written = self.engine.figures().counter(Counter::FilePagesOut);
        let is_busy = core::mem::replace(&mut self.tiers.file_pages_seen, written) != written;
        // A cluster in memory counts to the limit as long as it is held.
        let kept = (space.clusters_used(on_disk) / 4).max(if is_busy { CLUSTERS_WANTED as usize } else { 0 });
        for (devices, kept) in [(on_disk, kept), (in_memory, 1)] {
            let mut numbers = [0; CLUSTERS_PER_MESSAGE];
            let count = space.take_empty(devices, kept, &mut numbers);
            if count > 0 {
                self.drop_clusters(&numbers[..count]);
            }
        }
    }

    /// Tells the supervisor that these clusters are no longer this process's.
    pub(crate) fn drop_clusters(&self, numbers: &[u32]) {
        let message = Message::new(Kind::DropClusters, [numbers.len() as u64, 0, 0]).with_clusters(numbers);
        let _ = link::send(self.engine.descriptors.control.load(Relaxed), &message, None);
    }

    /// The devices that take pages now: those that have room for the group, within their share of
    /// the limit, and those on which this process has a slot free.
    pub(crate) fn available(&self) -> DeviceMask {
        let own = self.engine.space.file_space().with_free_slots();
        let (memory_is_full, now) = (self.memory_is_full(), sys::now_ns());
        self.devices_that(|number, device, entry| {
            entry.takes_pages()
                && self.tiers.rests_until_ns[number.index()] <= now
                && (own.contains(number) || has_room(device, entry, memory_is_full))
        })
    }

    /// The devices among these that take no memory.
    pub(crate) fn on_disk(&self, devices: DeviceMask) -> DeviceMask {
        self.devices_that(|number, device, _| devices.contains(number) && !device.kind.is_in_memory())
    }

    fn devices_that(&self, wanted: impl Fn(DeviceId, DeviceDescription, &DeviceEntry) -> bool) -> DeviceMask {
        // A device that was just added is not open here yet.
        let open = self.engine.space.shared_devices().mask();
        let is_open = |id, device: &DeviceDescription| device.clusters == 0 || open.contains(id);
        let permitted = self.engine.permitted_devices().filter(|(id, device, _)| is_open(*id, device));
        permitted
            .filter(|(number, device, entry)| wanted(*number, *device, entry))
            .fold(DeviceMask::NONE, |mask, (number, ..)| mask.with(number))
    }

    /// In scope total the memory of devices is part of the limit: beyond half of it, evicted pages
    /// go elsewhere.
    fn memory_is_full(&self) -> bool {
        self.engine.decisions().scope() == Scope::Total && self.engine.store_exceeds(2)
    }

    /// Asks the supervisor for room on one of these shared devices. True: there is some. Devices
    /// that are known to be full are asked for now and then: a cluster that another process shared
    /// may be this one's alone by now, and a disk may have room again.
    fn want_clusters(&mut self, devices: DeviceMask) -> bool {
        let memory_is_full = self.memory_is_full();
        let with_room = self.devices_that(|number, device, entry| {
            devices.contains(number) && has_room(device, entry, memory_is_full)
        });
        let mut wanted = with_room;
        if with_room.is_empty() {
            if devices.is_empty() || !self.tiers.ask_full_due.take(sys::now_ns(), ASK_FULL_NS) {
                return false;
            }
            wanted = self.devices_that(|number, device, entry| {
                devices.contains(number)
                    && entry.takes_pages()
                    && !(device.kind.is_in_memory() && memory_is_full)
            });
        }
        // A cluster in memory is charged when it is granted.
        let takes_memory =
            self.devices_that(|number, device, _| wanted.contains(number) && device.kind.is_in_memory());
        let count = if takes_memory.is_empty() { CLUSTERS_WANTED } else { 1 };
        let some_came = self.exchange_clusters(count, wanted) > 0;
        if some_came {
            self.tiers.run_berths = RunBerths::new();
        }
        some_came
    }

    /// Asks the supervisor for clusters of these devices, and learns which shared ones are this
    /// process's alone by now. Returns how many came.
    fn exchange_clusters(&self, count: u64, devices: DeviceMask) -> usize {
        let engine = self.engine;
        let control = engine.descriptors.control.load(Relaxed);
        let request = Message::new(Kind::WantClusters, [count, u64::from(devices.bits()), 0]);
        let answer = link::send(control, &request, None).and_then(|()| link::receive(control));
        match answer {
            Ok((message, _)) if message.kind() == Some(Kind::Clusters) => {
                let space = &engine.space;
                let on = |&number: &u32| Some((number, space.shared_devices().of_cluster(number)?));
                let added = space.file_space().add(message.clusters().iter().filter_map(on));
                // The answer proves that the supervisor knows of every fork that it was told of:
                // its owner counts can be trusted.
                let decisions = engine.decisions();
                space.file_space().unshare(|number| decisions.owners_of(number) == 1);
                added
            }
            _ => engine.end(Ending::NoClusters, None),
        }
    }
}

/// Whether the supervisor can grant a cluster of the device (or, for the store, whether it is
/// within its share).
fn has_room(device: DeviceDescription, entry: &DeviceEntry, memory_is_full: bool) -> bool {
    entry.takes_pages() && !(entry.is_full() || device.kind.is_in_memory() && memory_is_full)
}

#[cfg(test)]
mod tests;

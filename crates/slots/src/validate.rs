//! Every invariant, checked in one walk. For tests and for `doctor`.

use crate::before::is_slot_cached;
use crate::cluster::{Cluster, Flag};
use crate::device::{Device, DeviceFlags};
use crate::entry::{DeviceId, SwapEntry};
use crate::frames::SECTION_FRAMES;
use crate::lists::ListId;
use crate::order::{CLUSTER_SLOTS, Order};
use crate::policy::{NodePreference, Policy, SlotCache};
use crate::slots::Slots;
use crate::sync::Ordering;
use crate::usage::Listing;
use crate::word::{COUNT_OVERFLOWED, Word, WordKind};
use crate::words::Words;
use core::ptr::NonNull;

/// Figures that a successful [`Slots::validate`] counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Devices that are on.
    pub devices: u32,
    /// Clusters on some list or under discard.
    pub clusters: u32,
    /// Slots in use.
    pub inuse: u64,
    /// Slots that a folio in the swap cache stands for.
    pub cached: u64,
    /// Slots that are only cached, those in slot caches among them.
    pub only_cached: u64,
    /// Slots that lie in slot caches.
    pub slot_cached: u64,
    /// Bad slots, headers and tails included.
    pub bad: u64,
    /// Frames that clusters have.
    pub frames_used: u32,
}

/// An invariant that does not hold. The fields name the place and the figures that should be equal.
#[expect(missing_docs, reason = "fields are named as in the rest of the crate; the variants are documented")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A lock is held: some operation is in flight.
    LockHeld,
    /// A cluster's flag does not name the list it was found on.
    FlagNotList { device: DeviceId, cluster: u32 },
    /// Links of a list do not agree with each other or with the list's length.
    BrokenList { device: DeviceId, cluster: u32 },
    /// Clusters came into use that are on no list.
    Unreachable { device: DeviceId, expected: u32, found: u32 },
    /// The used count is not the number of words that are not free.
    UsedCount { device: DeviceId, cluster: u32, stated: u32, counted: u32 },
    /// A cluster's list contradicts its used count or its table.
    ListContradictsUse { device: DeviceId, cluster: u32 },
    /// A cluster of order n holds something before its order allows it.
    OrderRule { device: DeviceId, cluster: u32 },
    /// A word that no transition produces.
    InvalidWord { device: DeviceId, cluster: u32, slot: u32 },
    /// Overflow array and words disagree.
    Overflow { device: DeviceId, cluster: u32 },
    /// A frame has no owner, or two.
    Frames { used: u32, free: u32, total: u32 },
    /// The count of clusters with a free slot is wrong.
    OpenClusters { device: DeviceId, stated: u64, counted: u64 },
    /// `inuse_pages` is not the sum over the clusters.
    Inuse { device: DeviceId, stated: u64, counted: u64 },
    /// `pages` is not the size without bad slots.
    Pages { device: DeviceId, stated: u64, counted: u64 },
    /// The available list contradicts the off-list bit, the flag or the priorities.
    Available { device: DeviceId },
    /// The slots in slot caches are not those whose words say so.
    SlotCaches { stated: u64, counted: u64 },
    /// A hint that no scan leaves.
    Hint { entry: SwapEntry },
}

impl core::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{self:?}")
    }
}

impl core::error::Error for Violation {}

#[derive(Default)]
struct Tally {
    report: Report,
    bad: u64,
    inuse: u64,
    /// Clusters without a free slot.
    closed: u32,
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Checks every invariant: flag and list, used counts, reachability, order rules, overflow
    /// counts, frames, `inuse_pages`, available list, hints.
    ///
    /// The caller makes sure that no other operation is in flight. Cost: a look at every cluster
    /// and every word of used ones.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn validate(&self) -> Result<Report, Violation> {
        let header = self.header();
        if header.swap_lock.is_locked()
            || header.available.lock.is_locked()
            || self.cpus().any(|cpu| cpu.is_locked())
        {
            return Err(Violation::LockHeld);
        }
        let mut report = Report::default();
        for id in self.devices().iter() {
            let mut tally = Tally { report, ..Tally::default() };
            self.validate_device(id, &mut tally)?;
            report = tally.report;
            report.devices += 1;
            report.inuse += tally.inuse;
            report.bad += tally.bad;
        }
        if P::SLOT_CACHE == SlotCache::PerCpu && report.slot_cached != self.count_slot_cached() {
            let (stated, counted) = (self.count_slot_cached(), report.slot_cached);
            return Err(Violation::SlotCaches { stated, counted });
        }
        self.validate_available()?;
        self.validate_hints()?;
        let (free, total) = (self.pool().count_free(), self.frames_total());
        if free != self.frames_free() || report.frames_used + free != total {
            return Err(Violation::Frames { used: report.frames_used, free, total });
        }
        Ok(report)
    }

    fn validate_device(&self, id: DeviceId, tally: &mut Tally) -> Result<(), Violation> {
        let device = self.device(id);
        if device.lists.lock.is_locked() || device.global_cluster.lock.is_locked() {
            return Err(Violation::LockHeld);
        }
        let mut listed = device.discards_running.load(Ordering::Relaxed);
        for list in ListId::all() {
            listed += self.validate_list(id, device, list)?;
        }
        let mut touched = 0;
        for index in 0..device.clusters_reserved.load(Ordering::Relaxed) {
            let cluster = self.cluster(device, index);
            if cluster.is_touched() {
                touched += 1;
                self.validate_cluster(id, index, cluster, tally)?;
            } else if cluster.flag() != Flag::None || cluster.has_frame() || cluster.used() != 0 {
                return Err(Violation::ListContradictsUse { device: id, cluster: index });
            }
        }
        if listed != touched {
            return Err(Violation::Unreachable { device: id, expected: touched, found: listed });
        }
        tally.report.clusters += listed;
        let open = u64::from(device.clusters()) - u64::from(tally.closed);
        if device.usage().open_clusters() != open {
            let stated = device.usage().open_clusters();
            return Err(Violation::OpenClusters { device: id, stated, counted: open });
        }
        let stated = device.usage().inuse();
        if stated != tally.inuse {
            return Err(Violation::Inuse { device: id, stated, counted: tally.inuse });
        }
        let tail = u64::from(device.clusters()) * u64::from(CLUSTER_SLOTS) - device.max();
        let counted = device.max() + tail - tally.bad;
        if device.pages() != counted {
            return Err(Violation::Pages { device: id, stated: device.pages(), counted });
        }
        Ok(())
    }

    fn validate_list(&self, id: DeviceId, device: &Device, list: ListId) -> Result<u32, Violation> {
        let length = device.lists.length(list);
        let mut previous = None;
        let mut current = device.lists.first(list);
        let mut walked = 0;
        while let Some(index) = current {
            let cluster = self.cluster(device, index);
            if walked == length || cluster.prev.load(Ordering::Relaxed).checked_sub(1) != previous {
                return Err(Violation::BrokenList { device: id, cluster: index });
            }
            if cluster.flag().list(cluster.order()) != Some(list) {
                return Err(Violation::FlagNotList { device: id, cluster: index });
            }
            walked += 1;
            previous = Some(index);
            current = cluster.next.load(Ordering::Relaxed).checked_sub(1);
        }
        if walked != length || device.lists.last(list) != previous {
            return Err(Violation::BrokenList { device: id, cluster: previous.unwrap_or(0) });
        }
        Ok(walked)
    }

    fn validate_cluster(
        &self,
        id: DeviceId,
        index: u32,
        cluster: &Cluster,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        if cluster.lock.is_locked() {
            return Err(Violation::LockHeld);
        }
        let contradiction = Violation::ListContradictsUse { device: id, cluster: index };
        let used = cluster.used();
        tally.closed += u32::from(used == CLUSTER_SLOTS);
        let fits = match cluster.flag() {
            Flag::None => false,
            Flag::Free | Flag::Discard => used == 0 && !cluster.has_frame(),
            Flag::Nonfull | Flag::Frag => used > 0 && used < CLUSTER_SLOTS && cluster.has_frame(),
            Flag::Full => used == CLUSTER_SLOTS && cluster.has_frame(),
        };
        if !fits {
            return Err(contradiction);
        }
        let number = cluster.frame_number.load(Ordering::Relaxed);
        let overflow = cluster.overflow_number.load(Ordering::Relaxed);
        for owned in [number, overflow].into_iter().filter(|number| *number != 0) {
            tally.report.frames_used += 1;
            if self.pool().is_free(owned) {
                let (used, free) = (tally.report.frames_used, self.frames_free());
                return Err(Violation::Frames { used, free, total: self.frames_total() });
            }
        }
        let Some(frame) = NonNull::new(cluster.frame.load(Ordering::Relaxed)) else {
            let clean = number == 0 && overflow == 0 && cluster.overflowed() == 0;
            return if clean { Ok(()) } else { Err(contradiction) };
        };
        debug_assert!(number.div_ceil(SECTION_FRAMES) <= self.config().frame_chunks_max);
        if self.pool().memory(number) != frame {
            return Err(contradiction);
        }
        self.validate_words(id, index, cluster, frame, tally)
    }

    fn validate_words(
        &self,
        id: DeviceId,
        index: u32,
        cluster: &Cluster,
        frame: NonNull<u8>,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        let overflow_number = cluster.overflow_number.load(Ordering::Relaxed);
        let overflow = (overflow_number != 0).then(|| Words::of(self.pool().memory(overflow_number)));
        let (mut used, mut bad, mut overflowed) = (0, 0, 0);
        for (slot, cell) in Words::of(frame).iter().enumerate() {
            let word = Word::from_raw(cell.load(Ordering::Relaxed));
            let invalid = Violation::InvalidWord { device: id, cluster: index, slot: slot as u32 };
            match word.kind() {
                WordKind::Free => continue,
                WordKind::Bad if word != Word::BAD => return Err(invalid),
                WordKind::Bad => bad += 1,
                WordKind::Shadow if word.count() == 0 => return Err(invalid),
                WordKind::Shadow => {}
                WordKind::Cached => {
                    tally.report.cached += 1;
                    tally.report.only_cached += u64::from(word.is_only_cached());
                    tally.report.slot_cached += u64::from(is_slot_cached::<P>(word));
                }
            }
            used += 1;
            let count = overflow.map_or(0, |counts| counts[slot].load(Ordering::Relaxed));
            let spills = word.kind() != WordKind::Bad && word.count() == COUNT_OVERFLOWED;
            overflowed += u32::from(spills);
            if spills != (count >= u64::from(COUNT_OVERFLOWED)) || (!spills && count != 0) {
                return Err(Violation::Overflow { device: id, cluster: index });
            }
        }
        if used != cluster.used() {
            return Err(Violation::UsedCount {
                device: id,
                cluster: index,
                stated: cluster.used(),
                counted: used,
            });
        }
        if overflowed != cluster.overflowed() || (overflow.is_some() != (overflowed > 0)) {
            return Err(Violation::Overflow { device: id, cluster: index });
        }
        if bad > 0 && cluster.order() != Order::ZERO {
            return Err(Violation::OrderRule { device: id, cluster: index });
        }
        tally.inuse += u64::from(used - bad);
        tally.bad += u64::from(bad);
        Ok(())
    }

    fn validate_available(&self) -> Result<(), Violation> {
        let available = &self.header().available;
        for id in self.devices().iter() {
            let device = self.device(id);
            let listed = available.position(id).is_some();
            let bit = device.usage().listing() == Listing::OnList;
            let full = device.usage().inuse() == device.pages();
            let sound = listed == bit && (!listed || (device.is_writable() && !full));
            if !sound || (!listed && device.is_writable() && !full) {
                return Err(Violation::Available { device: id });
            }
        }
        for position in 1..available.length() {
            let (Some(before), Some(after)) = (available.get(position - 1), available.get(position)) else {
                continue;
            };
            if self.device(before).priority() < self.device(after).priority()
                || !self.devices().contains(after)
            {
                return Err(Violation::Available { device: after });
            }
        }
        if P::NODE_PREFERENCE == NodePreference::On
            && let Some(device) = self.misplaced_on_nodes(available)
        {
            return Err(Violation::Available { device });
        }
        Ok(())
    }

    fn validate_hints(&self) -> Result<(), Violation> {
        let orders = |cpu| Order::all().map(move |order| (cpu, order));
        let hints =
            self.cpus().flat_map(orders).filter_map(|(cpu, order)| Some((order, cpu.peek_hint(order)?)));
        for (order, entry) in hints.chain(self.device_hints()).chain(self.all_mask_hints()) {
            let device = self.device(entry.device());
            // Behind the last slot of a partial last cluster a scan leaves the device's end, which
            // the fast path refuses.
            let sound = self.devices().contains(entry.device())
                && entry.offset() <= device.max()
                && entry.offset().is_multiple_of(u64::from(order.slots()))
                && !device.has(DeviceFlags::ROTATIONAL);
            if !sound {
                return Err(Violation::Hint { entry });
            }
        }
        Ok(())
    }
}

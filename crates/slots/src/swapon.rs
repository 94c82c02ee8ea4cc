//! swapon and growth of a device.

use crate::before::Node;
use crate::cluster::Flag;
use crate::device::{Device, DeviceFlags, DeviceInfo, DeviceState};
use crate::entry::{DEVICES_MAX, DeviceId};
use crate::guard::NoFrameLeft;
use crate::order::{CLUSTER_SLOTS, OrderMask};
use crate::policy::{DefaultPriority, Policy};
use crate::slots::Slots;
use crate::sync::Ordering;
use crate::word::Word;
use crate::words::Words;
use core::num::NonZeroU64;

const CLUSTER: u64 = CLUSTER_SLOTS as u64;

/// A device to be switched on.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSpec<'a> {
    /// Size in pages, header slot included; at least 2.
    pub pages: u64,
    /// Size in pages that the device may [`grow`](Slots::grow) to, at least `pages`. Metadata is
    /// reserved for it.
    pub pages_max: u64,
    /// 0 to 32767; `None` for the default, which is below all given priorities (spec §4.2).
    pub priority: Option<i16>,
    /// Properties.
    pub flags: DeviceFlags,
    /// Orders that may be allocated.
    pub orders: OrderMask,
    /// Node that the device is near to. Only [`NodePreference::On`](crate::NodePreference) uses it.
    pub node: Option<Node>,
    /// The caller's name for the storage behind the device, say a hash of file system and inode. A
    /// second device of the same name is refused.
    pub identity: Option<NonZeroU64>,
    /// Offsets of bad slots, each at least 1 and below `pages`, strictly ascending. Each cluster
    /// with a bad slot takes a frame at swapon.
    pub bad: &'a [u64],
}

impl DeviceSpec<'_> {
    /// A device of `pages` pages that cannot grow, accepts every order, and has default priority,
    /// no properties and no bad slots.
    pub const fn new(pages: u64) -> Self {
        DeviceSpec {
            pages,
            pages_max: pages,
            priority: None,
            flags: DeviceFlags::NONE,
            orders: OrderMask::ALL,
            node: None,
            identity: None,
            bad: &[],
        }
    }
}

/// Why a device could not be switched on or grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwaponError {
    /// 32 devices are on.
    TooManyDevices,
    /// The configuration has no cluster left.
    NoClusters,
    /// The device with this [identity](DeviceSpec::identity) is on already.
    AlreadyOn(DeviceId),
    /// The size is below 2 pages, above `pages_max`, or smaller than before.
    InvalidSize,
    /// A given priority is negative.
    InvalidPriority,
    /// Bad slots are not ascending or not inside the device.
    InvalidBadSlots,
    /// Clusters with bad slots (the header's and a partial last one among them) need a frame each.
    NoFrame,
    /// The device is off or on its way off.
    NoDevice,
}

impl core::fmt::Display for SwaponError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let SwaponError::AlreadyOn(id) = self {
            return write!(formatter, "in use already as swap device {}", id.index());
        }
        formatter.write_str(match self {
            SwaponError::AlreadyOn(_) => "in use already as a swap device",
            SwaponError::TooManyDevices => "32 swap devices are on already",
            SwaponError::NoClusters => "no cluster metadata left for a device of this size",
            SwaponError::InvalidSize => "invalid size of a swap device",
            SwaponError::InvalidPriority => "swap priority must be 0 to 32767",
            SwaponError::InvalidBadSlots => "bad slots not ascending inside the device",
            SwaponError::NoFrame => "no cluster frame left for the clusters with bad slots",
            SwaponError::NoDevice => "no such swap device",
        })
    }
}

impl core::error::Error for SwaponError {}

impl From<NoFrameLeft> for SwaponError {
    fn from(NoFrameLeft: NoFrameLeft) -> Self {
        SwaponError::NoFrame
    }
}

impl<const PAYLOAD: usize, P: Policy> Slots<PAYLOAD, P> {
    /// Switches a device on and puts it on the available list. Takes one frame for the header's
    /// cluster, one for a partial last cluster, and one for each further cluster with a bad slot.
    /// Cost: these clusters; all others wait behind the high-water mark untouched.
    ///
    /// # Errors
    /// [`SwaponError`]; nothing is on then.
    pub fn swapon(&self, spec: DeviceSpec<'_>) -> Result<DeviceId, SwaponError> {
        let limit = u64::from(u32::MAX - 1) * CLUSTER;
        if spec.pages < 2 || spec.pages_max < spec.pages || spec.pages_max > limit {
            return Err(SwaponError::InvalidSize);
        }
        if spec.priority.is_some_and(|priority| priority < 0) {
            return Err(SwaponError::InvalidPriority);
        }
        if !bad_slots_are_valid(spec.bad, spec.pages) {
            return Err(SwaponError::InvalidBadSlots);
        }
        let _held = self.header().swap_lock.hold::<P::Relax>();
        let same = |id: &DeviceId| spec.identity.is_some() && self.device(*id).identity() == spec.identity;
        if let Some(id) = self.devices().iter().find(same) {
            return Err(SwaponError::AlreadyOn(id));
        }
        let taken = |index: &u32| DeviceId::new(*index).is_some_and(|id| !self.devices().contains(id));
        let id = (0..DEVICES_MAX as u32).find(taken).and_then(DeviceId::new);
        let id = id.ok_or(SwaponError::TooManyDevices)?;
        let reserve = spec.pages_max.div_ceil(CLUSTER) as u32;
        let first = self.find_clusters(reserve).ok_or(SwaponError::NoClusters)?;
        let device = self.device(id);
        device.first_cluster.store(first, Ordering::Relaxed);
        device.clusters_reserved.store(reserve, Ordering::Relaxed);
        device.describe(&spec, self.priority_for(spec.priority));
        device.usage().reset(spec.pages.div_ceil(CLUSTER));
        device.high_water.store(0, Ordering::Relaxed);
        device.whole_clusters.store((spec.pages / CLUSTER) as u32, Ordering::Relaxed);
        device.set_max(spec.pages);
        if let Err(error) = self.mark_bad_at_swapon(id, spec) {
            self.reset_device(device);
            return Err(error);
        }
        device.set_pages(spec.pages - 1 - spec.bad.len() as u64);
        device.set_state(DeviceState::Writable);
        self.header().devices_on.fetch_or(1 << id.index(), Ordering::Release);
        self.add_to_available(id, device);
        Ok(id)
    }

    /// Makes a device larger. Its partial last cluster gets its missing slots, and new whole
    /// clusters wait behind the high-water mark.
    ///
    /// # Errors
    /// [`SwaponError::InvalidSize`] above the size reserved at swapon or below the present one;
    /// [`SwaponError::NoFrame`] if a new partial last cluster got no frame; nothing is changed
    /// then.
    pub fn grow(&self, id: DeviceId, new_pages: u64) -> Result<(), SwaponError> {
        let _held = self.header().swap_lock.hold::<P::Relax>();
        let device = self.device(id);
        if device.state() != DeviceState::Writable {
            return Err(SwaponError::NoDevice);
        }
        let old_pages = device.max();
        let reserved = u64::from(device.clusters_reserved.load(Ordering::Relaxed)) * CLUSTER;
        if new_pages < old_pages || new_pages > reserved {
            return Err(SwaponError::InvalidSize);
        }
        let old_last = (old_pages / CLUSTER) as u32;
        let new_last = (new_pages / CLUSTER) as u32;
        let mut opened = 0..0;
        if !old_pages.is_multiple_of(CLUSTER) {
            let end = if new_last > old_last { CLUSTER } else { new_pages % CLUSTER };
            opened = (old_pages % CLUSTER) as u32..end as u32;
        }
        if new_last > old_last || opened.is_empty() {
            let tail = (new_pages % CLUSTER) as u32;
            if tail != 0 && new_pages > old_pages {
                self.mark_bad(id, new_last, tail..CLUSTER_SLOTS)?;
            }
        }
        device.set_pages(device.pages() + new_pages - old_pages);
        device.set_max(new_pages);
        device.usage().open_more(new_pages.div_ceil(CLUSTER) - old_pages.div_ceil(CLUSTER));
        if !opened.is_empty() {
            self.unmark_bad(id, old_last, opened);
        }
        {
            let _lists = self.hold_lists(id, device);
            device.whole_clusters.store(new_last, Ordering::Relaxed);
        }
        self.add_to_available(id, device);
        Ok(())
    }

    /// Size, use and priority of a device; `None` if it is off.
    pub fn device_info(&self, id: DeviceId) -> Option<DeviceInfo> {
        self.devices().contains(id).then(|| self.device(id).info())
    }

    fn priority_for(&self, given: Option<i16>) -> i32 {
        if let Some(given) = given {
            return i32::from(given);
        }
        match P::DEFAULT_PRIORITY {
            DefaultPriority::Equal => -1,
            DefaultPriority::Descending => {
                let lowest = self.devices().iter().map(|id| self.device(id).priority()).min();
                lowest.unwrap_or(-1).min(-1) - 1
            }
        }
    }

    /// First fit among the reservations of the devices that are on. Context: swap lock held.
    fn find_clusters(&self, count: u32) -> Option<u32> {
        let reservation = |id: DeviceId| {
            let device = self.device(id);
            let first = device.first_cluster.load(Ordering::Relaxed);
            (first, first + device.clusters_reserved.load(Ordering::Relaxed))
        };
        let mut candidate = 0u32;
        for _ in 0..=DEVICES_MAX {
            let end = candidate.checked_add(count).filter(|end| *end <= self.config().clusters_max)?;
            let overlap = self
                .devices()
                .iter()
                .map(reservation)
                .find(|(first, last)| *first < end && candidate < *last);
            match overlap {
                Some((_, last)) => candidate = last,
                None => return Some(candidate),
            }
        }
        None
    }

    fn mark_bad_at_swapon(&self, id: DeviceId, spec: DeviceSpec<'_>) -> Result<(), SwaponError> {
        self.mark_bad(id, 0, 0..1)?;
        let tail = (spec.pages % CLUSTER) as u32;
        if tail != 0 {
            self.mark_bad(id, (spec.pages / CLUSTER) as u32, tail..CLUSTER_SLOTS)?;
        }
        for offset in spec.bad {
            let slot = (offset % CLUSTER) as u32;
            self.mark_bad(id, (offset / CLUSTER) as u32, slot..slot + 1)?;
        }
        Ok(())
    }

    /// Marks free slots of a cluster as bad. The cluster thereby comes into use, with order 0, and
    /// never becomes empty again.
    fn mark_bad(&self, id: DeviceId, index: u32, slots: core::ops::Range<u32>) -> Result<(), SwaponError> {
        let cluster = self.lock_cluster(id, index);
        if !cluster.cluster.has_frame() {
            cluster.attach_frame()?;
            cluster.cluster.set_touched();
        }
        let Some(words) = cluster.words() else { return Err(SwaponError::NoFrame) };
        for slot in slots.clone() {
            debug_assert!(Word::from_raw(words[slot as usize].load(Ordering::Relaxed)).is_free());
            words[slot as usize].store(Word::BAD.raw(), Ordering::Release);
        }
        cluster.cluster.set_used(cluster.cluster.used() + slots.len() as u32);
        let flag = if cluster.cluster.used() == CLUSTER_SLOTS { Flag::Full } else { Flag::Nonfull };
        if flag == Flag::Full {
            let last = cluster.device.usage().close_cluster();
            debug_assert!(!last, "the device is on the available list");
        }
        if cluster.cluster.flag() != flag {
            cluster.move_to(flag);
        }
        Ok(())
    }

    /// Frees the slots past the old end. They were never in use, so only the cluster's own count
    /// changes.
    fn unmark_bad(&self, id: DeviceId, index: u32, slots: core::ops::Range<u32>) {
        let cluster = self.lock_cluster(id, index);
        let Some(words) = cluster.words() else { return };
        for slot in slots.clone() {
            words[slot as usize].store(Word::FREE.raw(), Ordering::Release);
        }
        let before = cluster.cluster.used();
        let used = before - slots.len() as u32;
        cluster.cluster.set_used(used);
        if before == CLUSTER_SLOTS {
            // `grow` puts the device back on the list afterwards.
            cluster.device.usage().open_more(1);
        }
        if used == 0 {
            cluster.release_empty(Flag::Free);
        } else if cluster.cluster.flag() != Flag::Nonfull {
            cluster.move_to(Flag::Nonfull);
        }
    }

    /// Resets the device to its state before swapon. Context: swap lock held, device not on.
    pub(crate) fn reset_device(&self, device: &Device) {
        for index in 0..device.clusters_reserved.load(Ordering::Relaxed) {
            let cluster = self.cluster(device, index);
            if !cluster.is_touched() {
                continue;
            }
            cluster.lock.lock::<P::Relax>();
            let frame = cluster.frame_number.swap(0, Ordering::Relaxed);
            if frame != 0 {
                // Only bad slots are left in it.
                let words = Words::of(self.pool().memory(frame));
                words.iter().for_each(|word| word.store(0, Ordering::Release));
                cluster.frame.store(core::ptr::null_mut(), Ordering::Relaxed);
                cluster.generation.fetch_add(1, Ordering::Release);
                self.pool().give_back(frame, crate::frames::FrameContent::Unchanged);
            }
            cluster.reset();
            cluster.lock.unlock();
        }
        device.lists.reset();
        device.usage().reset(0);
        device.set_pages(0);
        device.set_max(0);
        device.high_water.store(0, Ordering::Relaxed);
        device.whole_clusters.store(0, Ordering::Relaxed);
        device.clusters_reserved.store(0, Ordering::Relaxed);
        for next in &device.global_cluster.next {
            next.store(0, Ordering::Relaxed);
        }
        device.set_state(DeviceState::Off);
    }
}

fn bad_slots_are_valid(bad: &[u64], pages: u64) -> bool {
    bad.first().is_none_or(|first| *first > 0)
        && bad.last().is_none_or(|last| *last < pages)
        && bad.windows(2).all(|pair| pair[0] < pair[1])
        && (bad.len() as u64) < pages - 1
}

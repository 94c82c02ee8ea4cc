//! Taking a device out of use (spec §0, swapoff; §2.7, the swap list): every page on it is read
//! back into folios.
//!
//! | Step | Afterwards |
//! |---|---|
//! | [`Devices::take_off`]: no thread chooses it now, and those that had are done | no entry joins it |
//! | swap in, by the swap list, entries on it; give their stored copies up | no map names it |
//! | give up entries of the swap cache alone, and clean copies, by all slots | no slot names it |
//! | repeat until a walk of all slots finds none: other threads go on meanwhile | it is empty |
//! | its clusters and its file go | |
//!
//! [`Devices::take_off`]: crate::devices::Devices::take_off
//!
//! A thread that reads a page of it has the page's entry in the swap cache and holds the folio. So
//! the walk of the slots finds the entry, and waits for the folio: no thread reads from a device
//! that is gone.

use crate::error::ShmemError;
use crate::folio::flag;
use crate::frames::PAGE;
use crate::map::Look;
use crate::object::{Hold, ObjectOf, ShmemObject};
use crate::space::ShmemSpace;
use crate::swap::RUN;
use crate::sync::{Relaxed, SeqCst, lock, sleep};
use crate::variant::Variant;
use crate::word::Item;
use folioswap_slots::{DeviceId, DeviceMask, SlotWord, SwapEntry};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Result of a swapoff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwapoffReport {
    /// Pages of folios that came back, or whose stored copies were given up.
    pub pages: u64,
    /// Pages that could not be read back. An access to them is an I/O error from now on, until they
    /// are overwritten as a whole or freed.
    pub lost: u64,
}

/// Why a device is still in use. All is as before, except for the pages read back already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapoffError {
    /// No device has this name, or it is off already (EINVAL).
    #[error("{} is not a swap device in use here", .0.display())]
    NoDevice(PathBuf),
    /// The pages on it find no room in memory or on other devices (ENOMEM).
    #[error(
        "{inuse} pages are on the device, and there is room for only {room}: free some contents and try again"
    )]
    NoRoom {
        /// Pages on it.
        inuse: u64,
        /// Pages that memory and the other devices could take.
        room: u64,
    },
    /// The other devices take no pages: their tiers are not among those that do (EBUSY).
    #[error(
        "no other device of these tiers takes pages: change the tiers first (`folioswap set --swap-tiers`)"
    )]
    LastOfTiers,
    /// The caller asked for its end (EINTR).
    #[error("interrupted; the device is in use again")]
    Interrupted,
}

/// Rounds that bring nothing back before the lack of room is believed.
const ROUNDS: u32 = 50;
/// Pause between two rounds: a folio that swapoff looks for is held.
const PAUSE: Duration = Duration::from_millis(1);

impl ShmemSpace {
    /// Takes a device out of use (swapoff): reads every page on it back into folios, which leave
    /// for other devices as room is needed, and closes it. Other threads may do anything meanwhile.
    /// `go_on` is asked now and then; as soon as it says false, the device is put into use again.
    /// Pages of zeroes or of one repeated word are on no device, and stay as they are. Cost:
    /// reading the pages on the device, and a look at every slot in use.
    ///
    /// # Errors
    /// [`SwapoffError`]; the device is in use then as before.
    pub fn swapoff(
        self: &Arc<Self>,
        device: &Path,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<SwapoffReport, SwapoffError> {
        let _alone = lock(&self.swapoffs);
        let no_device = || SwapoffError::NoDevice(device.to_owned());
        let devices = self.swap.devices();
        let id = devices.named(device).filter(|&id| devices.on().contains(id)).ok_or_else(no_device)?;
        self.check_room(id)?;
        devices.take_off(id);
        let done = self.unuse(id, &mut go_on);
        match done {
            Ok(_) => devices.remove(id, self.swap.space().file_space(), self.swap.space().shared_devices()),
            Err(_) => devices.put_on(id),
        }
        if devices.store() == Some(id) {
            self.swap.space().trim();
        }
        done
    }

    /// Checks that the pages on a device would find room elsewhere. Compressed RAM counts as
    /// unlimited, because its capacity cannot be known beforehand.
    fn check_room(&self, id: DeviceId) -> Result<(), SwapoffError> {
        let (devices, space) = (self.swap.devices(), self.swap.space());
        let inuse = if devices.store() == Some(id) {
            space.mm_stat().objects
        } else {
            space.file_space().used_on(DeviceMask::only(id))
        };
        let others = devices.writable().without(id);
        if others.is_empty() && devices.on().len() > 1 {
            return Err(SwapoffError::LastOfTiers);
        }
        let Some(elsewhere) = devices.room(others, space.file_space()) else {
            return Ok(());
        };
        let resident = self.frames.used_pages();
        let memory = (self.limit().saturating_sub(self.metadata()) / PAGE as u64).saturating_sub(resident);
        let room = memory.saturating_add(elsewhere);
        if inuse > room { Err(SwapoffError::NoRoom { inuse, room }) } else { Ok(()) }
    }

    /// Empties a device that is off.
    pub(crate) fn unuse(
        self: &Arc<Self>,
        id: DeviceId,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<SwapoffReport, SwapoffError> {
        let mut report = SwapoffReport::default();
        let (mut fruitless, mut before) = (0, report);
        loop {
            for inner in self.swap_list.objects() {
                let object = ShmemObject::visit(self, inner);
                match object.unuse(id, &mut report, go_on) {
                    // Other threads may have taken the room that was free just then.
                    Err(SwapoffError::NoRoom { .. }) if fruitless < ROUNDS || report != before => {}
                    done => done?,
                }
                if object.inner.swapped.load(SeqCst) == 0 {
                    self.swap_list.prune(&object.inner);
                }
            }
            if self.unuse_slots(id, &mut report, go_on)? == 0 {
                return Ok(report);
            }
            fruitless = if report == before { fruitless + 1 } else { 0 };
            before = report;
            sleep(PAUSE);
        }
    }

    /// Gives up entries that are in no map: folios only in the swap cache, and clean copies.
    /// Returns the number of slots found on the device.
    fn unuse_slots(
        &self,
        id: DeviceId,
        report: &mut SwapoffReport,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<u64, SwapoffError> {
        let space = self.swap.space();
        let (mut from, mut found) = (0, 0);
        while let Some((entry, word)) = space.slots().swapoff_next(space.device(), from) {
            from = entry.offset() + 1;
            if !self.swap.is_on(entry, id) {
                continue;
            }
            if !go_on() {
                return Err(SwapoffError::Interrupted);
            }
            found += 1;
            if let SlotWord::Cached { folio, .. } = word {
                report.pages += self.unuse_cached(entry, folio.0);
            }
        }
        Ok(found)
    }

    /// Empties one slot. Its folio was `frame` when it was looked up: a folio only in the swap
    /// cache is dropped, and a clean one gives its stored copy up. Returns the folio's pages.
    fn unuse_cached(&self, entry: SwapEntry, frame: u32) -> u64 {
        self.folios.lock(frame);
        let folio = self.folios.of(frame);
        let belongs = folio.entry().is_some() && folio.entry() == entry.round_down(folio.order());
        if belongs && folio.object.load(Relaxed) == 0 {
            // A thread that wants it reads it again, or the next round does.
            return self.drop_cached(frame);
        }
        let pages = if belongs && folio.has(flag::CLEAN) { folio.order().slots().into() } else { 0 };
        if belongs {
            self.give_copy_up(frame);
        }
        self.folios.unlock(frame);
        pages
    }
}

impl<V: Variant> ObjectOf<V> {
    /// Swaps in the pages of this object that are on the device, and gives the stored copies up.
    pub(crate) fn unuse(
        &self,
        id: DeviceId,
        report: &mut SwapoffReport,
        go_on: &mut impl FnMut() -> bool,
    ) -> Result<(), SwapoffError> {
        let mut index = 0;
        while let Some((first, found)) = self.inner.map.next(index, Look::Swapped) {
            let (pages, Item::Swap(entry)) = (u64::from(found.order.slots()), found.item) else { break };
            let is_on =
                |page: &u64| entry.checked_add(*page).is_some_and(|entry| self.space.swap.is_on(entry, id));
            let Some(page) = (index.max(first) - first..pages).find(is_on) else {
                index = first + pages;
                continue;
            };
            if !go_on() {
                return Err(SwapoffError::Interrupted);
            }
            let at = first + page;
            // The pages behind it in swap are most likely wanted too.
            match self.existing(at, Hold::Exclusive, RUN as u64) {
                Ok(Some(held)) => {
                    index = held.index + u64::from(held.order.slots());
                    self.space.give_copy_up(held.frame);
                    report.pages += u64::from(held.order.slots());
                }
                // The page was cut off meanwhile, or is lost.
                Ok(None) => index = at + 1,
                Err(ShmemError::Io { .. }) => {
                    report.lost += 1;
                    index = at + 1;
                }
                Err(_) => {
                    let inuse = self.space.swap.space().file_space().used_on(DeviceMask::only(id));
                    return Err(SwapoffError::NoRoom { inuse, room: 0 });
                }
            }
        }
        Ok(())
    }
}

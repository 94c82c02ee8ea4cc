//! From staging to the devices: the write-back of a folio, after which it leaves the swap cache.

use crate::demote::Pieces;
use crate::engine::Engine;
use crate::folio::StagedFolio;
use crate::isolate::{Pages, page_index};
use crate::staging::{FOLIO, FOLIO_PAGES, Folio};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_core::page::{PageState, PageWord};
use folioswap_core::page_table::{Block, PAGE};
use folioswap_core::space::WriteError;
use folioswap_devices::{IncompressiblePolicy, Page, Scratch};
use folioswap_group::counters::Counter;
use folioswap_group::devices::DeviceKind;
use folioswap_group::protocol::{Kind, Note};
use folioswap_slots::{DeviceId, DeviceMask, SwapEntry};

/// Where a folio is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// To the compressed store; what does not compress together to one of these shared devices. If there is none, it is stored as
    /// it is.
    Store(DeviceMask),
    /// To one of these shared devices, as it is.
    Shared(DeviceMask),
}

/// Why a folio could not be written back whole. What could not be written still waits in staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The shared devices that it may go to have no granted room: ask for clusters.
    WantClusters,
    /// None of them takes so many pages at once: write them apart.
    Split,
    /// The device does not take it.
    NoRoom,
    /// This device failed; the others may take it.
    Failed(DeviceId),
}

impl From<WriteError> for Stuck {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NoSlots => Stuck::WantClusters,
            WriteError::OrderNotTaken => Stuck::Split,
            WriteError::Device(failure) => Stuck::Failed(failure.device),
            WriteError::Incompressible | WriteError::NoMemory => Stuck::NoRoom,
        }
    }
}

impl Engine {
    /// Writes the oldest folio of staging back; says how many of its pages were still there. Evictor only, under the gate. `Ok`
    /// also when nothing waits.
    ///
    /// # Errors
    /// [`Stuck`]: what is not written yet stays the oldest; nothing is lost.
    pub(crate) fn write_back_oldest(
        &self,
        scratch: &mut Scratch,
        tier: Tier,
        pieces: Pieces,
    ) -> Result<u64, Stuck> {
        let _takers_wait = self.write_back_lock.lock();
        // SAFETY: the ring is used by the evictor, which we are, with the lock held.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(place) = staging.oldest() else { return Ok(0) };
        self.shares.take(staging.written());
        let staged = staging.address(place);
        let folio = staging.folio_mut(place);
        let block = self.table.block(folio.address);
        let base = page_index(folio.address);
        let (mut stored, mut stuck) = (0, None);
        let mut refused = [None; FOLIO_PAGES];
        for (page, refused) in refused.iter_mut().enumerate() {
            let Some(entry) = folio.entries[page] else { continue };
            let is_stored = self.is_stored(place, folio.clean, page);
            if !is_stored && is_leaving(block, base + page, entry) {
                // SAFETY: the place belongs to this folio until it is popped; a page taken back meanwhile leaves its contents here.
                let bytes = unsafe { &*((staged + page * PAGE) as *const Page) };
                match self.write_to_store(scratch, entry, bytes, tier) {
                    Ok(()) => {}
                    Err(WriteError::Incompressible) => {
                        *refused = Some(entry);
                        continue;
                    }
                    Err(error) => {
                        stuck = Some(error.into());
                        break;
                    }
                }
            }
            stored |= self.end_page(block, folio, page);
        }
        let (Tier::Store(devices) | Tier::Shared(devices)) = tier;
        let together = match pieces {
            Pieces::Whole => FOLIO_PAGES,
            Pieces::Any => 1,
        };
        for first in (0..FOLIO_PAGES).step_by(together) {
            let wanted = &refused[first..first + together];
            let (Some(start), Some(end)) =
                (wanted.iter().position(Option::is_some), wanted.iter().rposition(Option::is_some))
            else {
                continue;
            };
            let (first, wanted) = (first + start, &wanted[start..=end]);
            // SAFETY: as above; a hole reads as zeroes, and its entry is `None`.
            let pages = unsafe {
                core::slice::from_raw_parts((staged + first * PAGE) as *const u8, wanted.len() * PAGE)
            };
            if let Err(error) = self.space.write_run(wanted, pages, devices) {
                self.tell_of_failure(error);
                stuck = Some(error.into());
                break;
            }
            self.count_shared(wanted.iter().copied().flatten());
            for (page, _) in (first..).zip(wanted).filter(|(_, entry)| entry.is_some()) {
                stored |= self.end_page(block, folio, page);
            }
        }
        self.account(folio, stored, self.shares.stored(place));
        match stuck {
            Some(stuck) => Err(stuck),
            None => {
                self.shares.forget(place);
                staging.pop();
                Ok(u64::from(stored.count_ones()))
            }
        }
    }

    /// A page to the compressed store, if that is where it is to go.
    ///
    /// # Errors
    /// [`WriteError::Incompressible`] for what is to go elsewhere.
    fn write_to_store(
        &self,
        scratch: &mut Scratch,
        entry: SwapEntry,
        page: &Page,
        tier: Tier,
    ) -> Result<(), WriteError> {
        let policy = match tier {
            Tier::Shared(_) => return Err(WriteError::Incompressible),
            Tier::Store(DeviceMask::NONE) => IncompressiblePolicy::Keep,
            Tier::Store(_) => IncompressiblePolicy::Refuse,
        };
        self.space.write(scratch, entry, page, policy)
    }

    /// A device that refused a write is named by the supervisor, which takes it out of the rotation when that happens too often.
    pub(crate) fn tell_of_failure(&self, error: WriteError) {
        let WriteError::Device(failure) = error else { return };
        self.figures().add(Counter::WriteErrors, 1);
        let words = [Note::WriteFailed as u64, failure.slot.raw(), failure.errno.raw_os_error() as u64];
        crate::link::tell(self.descriptors.control.load(Relaxed), Kind::Note, words, None);
    }

    /// These pages went to shared devices.
    fn count_shared(&self, entries: impl IntoIterator<Item = SwapEntry>) {
        let on_file = entries.into_iter().filter(|entry| self.space.is_on_file(*entry));
        self.figures().add(Counter::FilePagesOut, on_file.count() as u64);
    }

    /// The location of `entry` is set (or its page is not wanted any more): out of the swap cache with it, and on to
    /// `Stored`, unless somebody took the page meanwhile; then the entry is ours to free. True if it is stored.
    fn finish(&self, block: Option<&Block>, index: usize, entry: SwapEntry) -> bool {
        self.space.leave_cache(entry, 1, self.workingset.shadow());
        if let Some(block) = block {
            loop {
                let word = block.word(index);
                match word.state() {
                    PageState::Leaving(found) if found == entry => {
                        if let Some(stored) = word.written()
                            && block.replace(index, word, stored).is_ok()
                        {
                            return true;
                        }
                    }
                    // The fault handler is copying from our staging place, and never waits for us.
                    PageState::Returning(found) if found == entry => rustix::thread::sched_yield(),
                    _ => break,
                }
            }
        }
        self.space.put(entry, 1);
        false
    }

    /// The reader of events needs this page out of staging now (its mapping moves, or a child needs it): writes it back
    /// in the evictor's stead. Under the move lock and the write-back lock. False if no device takes it.
    pub(crate) fn write_back_page(
        &self,
        scratch: &mut Scratch,
        block: &Block,
        index: usize,
        word: PageWord,
        entry: SwapEntry,
    ) -> bool {
        // SAFETY: under the write-back lock the evictor is outside of its sections.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(place) = self.staging_place(entry) else { return false };
        let page = index % FOLIO_PAGES;
        let folio = staging.folio_mut(place);
        if folio.entries[page] != Some(entry) {
            return false;
        }
        let is_clean = folio.clean >> page & 1 != 0;
        let is_stored = self.is_stored(place, folio.clean, page);
        if !is_stored && !self.write_staged(scratch, entry, staging.address(place) + page * PAGE) {
            return false;
        }
        self.space.leave_cache(entry, 1, self.workingset.shadow());
        self.workingset.evicted(1);
        staging.folio_mut(place).entries[page] = None;
        if let Some(stored) = word.written() {
            block.set(index, stored);
        }
        self.figures().add(if is_clean { Counter::StolenClean } else { Counter::PagesOut }, 1);
        true
    }

    /// Writes a page in staging to wherever there is room. False: nowhere. As [`Engine::write_back_page`].
    fn write_staged(&self, scratch: &mut Scratch, entry: SwapEntry, staged: usize) -> bool {
        // SAFETY: the page is in staging: its word says Leaving, and the evictor cannot pop it now.
        let bytes = unsafe { &*(staged as *const Page) };
        // The reader of events cannot ask for clusters. Where it finds no slot the store takes the page, be it a device or not.
        let anywhere = self.space.shared_devices().mask();
        let mut store = |policy| self.space.write(scratch, entry, bytes, policy);
        let refused = if self.has_store() {
            store(IncompressiblePolicy::Refuse)
        } else {
            Err(WriteError::Incompressible)
        };
        let slot = |_| {
            let written = self.space.write_run(&[Some(entry)], bytes, anywhere);
            written.inspect_err(|error| self.tell_of_failure(*error))
        };
        refused.or_else(slot).or_else(|_| store(IncompressiblePolicy::Keep)).is_ok()
    }

    /// The page of the folio, if there is one, is out of staging. Its bit, if it is stored now.
    fn end_page(&self, block: Option<&Block>, folio: &mut Folio, page: usize) -> Pages {
        let Some(entry) = folio.entries[page].take() else { return 0 };
        Pages::from(self.finish(block, page_index(folio.address) + page, entry)) << page
    }

    /// These pages of the folio are stored now, some of them by who waited for memory.
    fn account(&self, folio: &Folio, stored: Pages, helped: Pages) {
        let clean = stored & folio.clean;
        self.figures().add(Counter::StolenBackground, u64::from((stored & !helped).count_ones()));
        self.figures().add(Counter::StolenDirect, u64::from((stored & helped).count_ones()));
        self.figures().add(Counter::PagesOut, u64::from((stored & !clean).count_ones()));
        self.figures().add(Counter::StolenClean, u64::from(clean.count_ones()));
        self.workingset.evicted(u64::from(stored.count_ones()));
        self.around.displaced(folio.address / FOLIO, stored);
    }

    /// The folio that came into staging last, of clean pages only, does not wait for its turn; says how many of them left.
    pub(crate) fn let_newest_go(&self) -> u64 {
        let _takers_wait = self.write_back_lock.lock();
        // SAFETY: the ring is used by the evictor, which we are, with the lock held.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(place) = staging.newest() else { return 0 };
        let folio = staging.folio_mut(place);
        let block = self.table.block(folio.address);
        let mut stored = 0;
        for page in 0..FOLIO_PAGES {
            let is_clean = folio.clean >> page & 1 != 0;
            debug_assert!(folio.entries[page].is_none() || is_clean, "it would be lost");
            stored |= self.end_page(block, folio, page);
        }
        self.account(folio, stored, 0);
        staging.take_back();
        staging.empty(self.userfault(), place);
        u64::from(stored.count_ones())
    }

    /// Is the compressed store one of the devices that we may use?
    pub(crate) fn has_store(&self) -> bool {
        let mut permitted = self.permitted_devices();
        permitted.any(|(_, device, _)| device.kind == DeviceKind::Zram)
    }

    /// Where in staging the page of a cached entry is.
    pub(crate) fn staging_place(&self, entry: SwapEntry) -> Option<u32> {
        match self.space.slots().word(entry) {
            folioswap_slots::SlotWord::Cached { folio, .. } => Some(StagedFolio::of(folio).place_of(entry)),
            _ => None,
        }
    }
}

pub(crate) fn is_leaving(block: Option<&Block>, index: usize, entry: SwapEntry) -> bool {
    // A page that is being copied back counts too: the copy may yet fail.
    block.is_some_and(|block| {
        matches!(block.word(index).state(), PageState::Leaving(found) | PageState::Returning(found) if found == entry)
    })
}

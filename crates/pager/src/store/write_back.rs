//! From staging to the devices: the write-back of a berth, after which its pages leave the swap
//! cache.

use crate::engine::Engine;
use crate::staging::ring::{Berth, BerthIndex};
use crate::staging::staged_folio::StagedFolio;
use crate::store::demote::DemotionUnits;
use crate::store::write_run::{Looked, WriteRun};
use crate::units::{PAGE, PIECE_PAGES, PageInBlock, Pages};
use folioswap_devices::{IncompressiblePolicy, Page, Scratch};
use folioswap_group::counters::Counter;
use folioswap_group::devices::{DeviceKind, DeviceUsage};
use folioswap_group::protocol::{Kind, Note};
use folioswap_nbd::link::PART_PAGES_MAX;
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::page_table::Block;
use folioswap_slots::{DeviceId, DeviceMask, SwapEntry};
use folioswap_space::space::{PARTS_MAX, WriteError, WrittenRun};

#[cfg(test)]
mod lost_tests;

#[cfg(test)]
mod tests;

/// Where the pages of a berth go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// To the compressed store; incompressible pages go together to one of these shared devices.
    /// Without such a device they are stored uncompressed.
    Store(DeviceMask),
    /// To one of these shared devices, uncompressed.
    Shared(DeviceMask),
}

/// Why a berth could not be written back entirely. The pages that could not be written still wait
/// in staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// The shared devices that it may go to have no granted space: ask for clusters.
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

/// The most berths written to a shared device together: as much as a batch brings in, 512 KiB.
pub(crate) const RUN_BERTHS: usize = PARTS_MAX;

const _: () = assert!(PIECE_PAGES <= PART_PAGES_MAX);

/// The outcome of a write-back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenBack {
    /// Pages that are stored now.
    pub(crate) pages: u64,
    /// Berths that left staging.
    pub(crate) folios: u64,
    /// No run of slots was free for all berths that were to be written together.
    pub(crate) was_cut: bool,
}

impl Engine {
    /// Writes up to `most` (1 to [`RUN_BERTHS`]) of the oldest berths of staging back; their pages
    /// for a shared device go there in one write. The caller is the evictor and holds the gate.
    /// `Ok` also when nothing waits. While a device writes, no lock is held but the gate: pages may
    /// be taken back, and the reader of events may write one elsewhere.
    ///
    /// # Errors
    /// [`Stuck`]: pages that are not written yet stay the oldest; nothing is lost.
    pub(crate) fn write_back_oldest(
        &self,
        scratch: &mut Scratch,
        tier: Tier,
        pieces: DemotionUnits,
        most: usize,
    ) -> Result<WrittenBack, Stuck> {
        let mut run = WriteRun::new();
        let mut stuck = None;
        let most = if pieces == DemotionUnits::Any { 1 } else { most };
        while run.folios < most && stuck.is_none() {
            let (before, result) = (run.folios, self.look_at(scratch, tier, &mut run));
            stuck = result.err();
            // Compressible berths go one at a time, so that a thread that waits for the lock does
            // not wait long.
            let all_refused = run.looked()[before..].iter().all(|folio| folio.stored == 0 && folio.count > 0);
            if run.folios == before || matches!(tier, Tier::Store(_)) && !all_refused {
                break;
            }
        }
        let (Tier::Store(devices) | Tier::Shared(devices)) = tier;
        let (mut was_cut, mut written) = (false, None);
        while run.pages > 0 && pieces == DemotionUnits::Whole {
            match self.write_run(&run, devices) {
                Ok(done) => {
                    written = Some(done);
                    break;
                }
                // Slots for fewer of them may be free.
                Err(WriteError::NoSlots | WriteError::OrderNotTaken) if run.folios > 1 => {
                    was_cut = true;
                    for _ in 0..run.folios / 2 {
                        run.pop().into_iter().for_each(|folio| self.leave_for_later(folio));
                    }
                    stuck = None;
                }
                Err(error) => {
                    self.tell_of_failure(error);
                    while run.folios > 1 {
                        run.pop().into_iter().for_each(|folio| self.leave_for_later(folio));
                    }
                    stuck = Some(error.into());
                    break;
                }
            }
        }
        let singly = run.pages > 0 && pieces == DemotionUnits::Any;
        let mut back = self.settle_run(&run, written, stuck.is_none() && !singly);
        if singly {
            stuck = stuck.or(self.write_singly(&run, devices, &mut back).err());
        }
        back.was_cut = was_cut;
        stuck.map_or(Ok(back), Err)
    }

    /// Looks at the next berth: its pages for the store are stored now, and the others join the
    /// run. When no further berth waits, none joins.
    fn look_at(&self, scratch: &mut Scratch, tier: Tier, run: &mut WriteRun) -> Result<(), Stuck> {
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: the evictor, which we are, may use the ring with this lock held.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(berth) = staging.waiting_berths().nth(run.folios) else { return Ok(()) };
        self.shares.take(staging.written() + run.folios as u64);
        let staged = staging.address(berth);
        let folio = staging.berth_mut(berth);
        let block = self.table.block(folio.piece);
        let base = folio.piece.index();
        let (mut stored, mut stuck) = (0, None);
        let mut refused = [None; PIECE_PAGES];
        for (page, refused) in refused.iter_mut().enumerate() {
            let Some(entry) = folio.entries[page] else { continue };
            let is_stored = self.is_stored(berth, folio.clean, page);
            if !is_stored && is_leaving(block, base.plus(page), entry) {
                // SAFETY: the berth belongs to these pages until it is popped; a page taken back
                // meanwhile leaves its contents here.
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
        run.push(berth, &refused, stored);
        stuck.map_or(Ok(()), Err)
    }

    /// Accounts for a berth that was looked at, and is not written now after all.
    fn leave_for_later(&self, looked: Looked) {
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: the evictor, which we are, may use the ring with this lock held.
        let folio = unsafe { &*self.staging.get() }.berth(looked.berth);
        self.account(folio, looked.stored, self.shares.stored(looked.berth));
    }

    /// Writes a run to one of `devices`.
    fn write_run(&self, run: &WriteRun, devices: DeviceMask) -> Result<WrittenRun, WriteError> {
        let mut parts = [&[][..]; RUN_BERTHS];
        let count = self.parts(run, &mut parts);
        self.space.write_parts(&parts[..count], devices)
    }

    /// The memory in which the pages of a run lie.
    fn parts(&self, run: &WriteRun, parts: &mut [&[u8]; RUN_BERTHS]) -> usize {
        let mut count = 0;
        for looked in run.looked().iter().filter(|looked| looked.count > 0) {
            // SAFETY: only the evictor, which we are, changes the ring's base.
            let staged = unsafe { &*self.staging.get() }.address(looked.berth);
            // SAFETY: the berth belongs to these pages until it is popped, which only we do, and no
            // thread writes there; a page taken back meanwhile leaves its contents, a hole reads as
            // zeroes, and its entry is `None`.
            parts[count] = unsafe {
                let first = (staged + looked.first * PAGE) as *const u8;
                core::slice::from_raw_parts(first, looked.count * PAGE)
            };
            count += 1;
        }
        count
    }

    /// Marks the pages of the run that were `written` as stored, as far as they still wait. `pop`:
    /// its berths leave staging.
    fn settle_run(&self, run: &WriteRun, written: Option<WrittenRun>, pop: bool) -> WrittenBack {
        let mut parts = [&[][..]; RUN_BERTHS];
        let count = self.parts(run, &mut parts);
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: the evictor, which we are, may use the ring with this lock held.
        let staging = unsafe { &mut *self.staging.get() };
        let (is_written, mut entries, mut at) = (written.is_some(), run.entries, 0);
        for looked in run.looked() {
            let folio = staging.berth(looked.berth);
            for page in looked.first..looked.first + looked.count {
                // The reader of events may have written it elsewhere meanwhile.
                entries[at] = entries[at].filter(|_| folio.entries[page] == entries[at]);
                at += 1;
            }
        }
        if let Some(written) = written {
            self.space.settle(written, &entries[..run.pages], &parts[..count]);
            self.count_shared(entries[..run.pages].iter().copied().flatten());
        }
        let (mut back, mut at) = (WrittenBack::default(), 0);
        for looked in run.looked() {
            let folio = staging.berth_mut(looked.berth);
            let block = self.table.block(folio.piece);
            let mut stored = looked.stored;
            for page in looked.first..looked.first + looked.count {
                if is_written && entries[at].is_some() {
                    stored |= self.end_page(block, folio, page);
                }
                at += 1;
            }
            self.account(folio, stored, self.shares.stored(looked.berth));
            back.pages += u64::from(stored.count_ones());
            if pop {
                self.shares.forget(looked.berth);
                staging.pop();
                back.folios += 1;
            }
        }
        back
    }

    /// Writes the pages of a berth one by one, because no run of slots is free for them. The berth
    /// leaves staging when all have gone.
    fn write_singly(&self, run: &WriteRun, devices: DeviceMask, back: &mut WrittenBack) -> Result<(), Stuck> {
        let Some(&Looked { berth, first, count, .. }) = run.looked().first() else { return Ok(()) };
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: as in `settle_run`.
        let staging = unsafe { &mut *self.staging.get() };
        let staged = staging.address(berth);
        let folio = staging.berth_mut(berth);
        let block = self.table.block(folio.piece);
        let (mut stored, mut result) = (0, Ok(()));
        for (page, entry) in (first..first + count).zip(run.entries) {
            let Some(entry) = entry.filter(|_| folio.entries[page] == entry) else { continue };
            // SAFETY: as in `parts`.
            let bytes = unsafe { &*((staged + page * PAGE) as *const Page) };
            if let Err(error) = self.space.write_run(&[Some(entry)], bytes, devices) {
                self.tell_of_failure(error);
                result = Err(error.into());
                break;
            }
            self.count_shared([entry]);
            stored |= self.end_page(block, folio, page);
        }
        self.account(folio, stored, self.shares.stored(berth));
        back.pages += u64::from(stored.count_ones());
        if result.is_ok() {
            self.shares.forget(berth);
            staging.pop();
            back.folios += 1;
        }
        result
    }

    /// Writes a page to the compressed store, if it is to go there.
    ///
    /// # Errors
    /// [`WriteError::Incompressible`] for a page that is to go elsewhere.
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

    /// Names a device that refused a write to the supervisor, which takes it out of the rotation
    /// when that happens too often.
    pub(crate) fn tell_of_failure(&self, error: WriteError) {
        let WriteError::Device(failure) = error else { return };
        self.figures().add(Counter::WriteErrors, 1);
        let words = [Note::WriteFailed as u64, failure.slot.raw(), failure.errno.raw_os_error() as u64];
        self.tell(Kind::Note, words, None);
    }

    /// Counts the pages that went to shared devices.
    fn count_shared(&self, entries: impl IntoIterator<Item = SwapEntry>) {
        let on_file = entries.into_iter().filter(|entry| self.space.is_on_file(*entry));
        self.figures().add(Counter::FilePagesOut, on_file.count() as u64);
    }

    /// Ends the write-back of a page whose location is set, or that is not wanted any more: it
    /// leaves the swap cache, and its word becomes `Stored`. If another thread took the page
    /// meanwhile, the entry is ours to free. Returns whether it is stored.
    fn finish(&self, block: Option<&Block>, index: PageInBlock, entry: SwapEntry) -> bool {
        self.space.leave_cache(entry, 1, self.workingset.shadow());
        self.say_stored(block, index, entry)
    }

    /// The second half of [`Engine::finish`].
    fn say_stored(&self, block: Option<&Block>, index: PageInBlock, entry: SwapEntry) -> bool {
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
                    // The fault handler copies from our berth, and never waits for us.
                    PageState::Returning(found) if found == entry => rustix::thread::sched_yield(),
                    _ => break,
                }
            }
        }
        self.space.put(entry, 1);
        false
    }

    /// Writes back one page in the evictor's stead, because the reader of events needs it out of
    /// staging now: its mapping moves, or a child needs it. The caller holds the move lock and the
    /// write-back lock. False if no device takes it.
    pub(crate) fn write_back_page(
        &self,
        scratch: &mut Scratch,
        block: &Block,
        index: PageInBlock,
        word: PageWord,
        entry: SwapEntry,
    ) -> bool {
        // SAFETY: under the write-back lock the evictor is outside of its sections.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(berth) = self.staging_berth(entry) else { return false };
        let page = index.in_piece();
        let folio = staging.berth_mut(berth);
        if folio.entries[page] != Some(entry) {
            return false;
        }
        let is_clean = folio.clean >> page & 1 != 0;
        let is_stored = self.is_stored(berth, folio.clean, page);
        if !is_stored && !self.write_staged(scratch, entry, staging.address(berth) + page * PAGE) {
            return false;
        }
        self.space.leave_cache(entry, 1, self.workingset.shadow());
        self.workingset.evicted(1);
        staging.berth_mut(berth).entries[page] = None;
        if let Some(stored) = word.written() {
            block.set(index, stored);
        }
        self.figures().add(if is_clean { Counter::StolenClean } else { Counter::PagesOut }, 1);
        true
    }

    /// Writes a page in staging to any device with space. False if there is none. The locks are
    /// those of [`Engine::write_back_page`].
    fn write_staged(&self, scratch: &mut Scratch, entry: SwapEntry, staged: usize) -> bool {
        // SAFETY: the page is in staging: its word says Leaving, and the evictor cannot pop it now.
        let bytes = unsafe { &*(staged as *const Page) };
        // The reader of events cannot ask for clusters. Where it finds no slot, the store takes the
        // page, whether the store is a permitted device or not. It cannot wait for a server either,
        // because the program's mappings wait for it.
        let anywhere = || {
            let used = self.permitted_devices().filter(|(_, _, device)| device.usage() == DeviceUsage::InUse);
            let used = used.fold(DeviceMask::NONE, |mask, (id, ..)| mask.with(id));
            self.space.shared_devices().local().intersection(used)
        };
        let mut store = |policy| self.space.write(scratch, entry, bytes, policy);
        let refused = if self.has_store() {
            store(IncompressiblePolicy::Refuse)
        } else {
            Err(WriteError::Incompressible)
        };
        let slot = |_| {
            let written = self.space.write_run(&[Some(entry)], bytes, anywhere());
            written.inspect_err(|error| self.tell_of_failure(*error))
        };
        refused.or_else(slot).or_else(|_| store(IncompressiblePolicy::Keep)).is_ok()
    }

    /// Takes the page, if there is one, out of its berth. Returns its bit if it is stored now.
    fn end_page(&self, block: Option<&Block>, folio: &mut Berth, page: usize) -> Pages {
        let Some(entry) = folio.entries[page].take() else { return 0 };
        Pages::from(self.finish(block, folio.piece.index().plus(page), entry)) << page
    }

    /// Counts these pages of the berth as stored; `helped` are those that a thread that waited for
    /// memory has stored.
    fn account(&self, folio: &Berth, stored: Pages, helped: Pages) {
        let clean = stored & folio.clean;
        self.figures().add(Counter::StolenBackground, u64::from((stored & !helped).count_ones()));
        self.figures().add(Counter::StolenDirect, u64::from((stored & helped).count_ones()));
        self.figures().add(Counter::PagesOut, u64::from((stored & !clean).count_ones()));
        self.figures().add(Counter::StolenClean, u64::from(clean.count_ones()));
        self.workingset.evicted(u64::from(stored.count_ones()));
        self.around.displaced(folio.piece.number(), stored);
    }

    /// Lets the pages of the berth that came into staging last leave without waiting for their
    /// turn, because all of them are clean. Returns how many of them left.
    pub(crate) fn let_newest_go(&self) -> u64 {
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: the evictor, which we are, may use the ring with this lock held.
        let staging = unsafe { &mut *self.staging.get() };
        let Some(berth) = staging.newest() else { return 0 };
        let folio = staging.berth_mut(berth);
        let block = self.table.block(folio.piece);
        let mut stored = 0;
        for page in 0..PIECE_PAGES {
            let is_clean = folio.clean >> page & 1 != 0;
            debug_assert!(folio.entries[page].is_none() || is_clean, "it would be lost");
            stored |= self.end_page(block, folio, page);
        }
        self.account(folio, stored, 0);
        staging.take_back();
        staging.empty(self.userfault(), berth);
        u64::from(stored.count_ones())
    }

    /// Whether the compressed store is one of the devices that this process may use.
    pub(crate) fn has_store(&self) -> bool {
        let mut permitted = self.permitted_devices();
        permitted.any(|(_, device, _)| device.kind == DeviceKind::Zram)
    }

    /// The berth in staging that holds the page of a cached entry.
    pub(crate) fn staging_berth(&self, entry: SwapEntry) -> Option<BerthIndex> {
        match self.space.slots().word(entry) {
            folioswap_slots::SlotWord::Cached { folio, .. } => Some(StagedFolio::of(folio).berth_of(entry)),
            _ => None,
        }
    }
}

pub(crate) fn is_leaving(block: Option<&Block>, index: PageInBlock, entry: SwapEntry) -> bool {
    // A page that is being copied back counts too, because the copy may yet fail.
    block.is_some_and(|block| {
        matches!(block.word(index).state(), PageState::Leaving(found) | PageState::Returning(found) if found == entry)
    })
}

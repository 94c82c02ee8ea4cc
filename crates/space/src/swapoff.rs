//! Swapoff (spec §0): a shared device is taken out of use, and the pages stored there go
//! elsewhere. Locations change; entries and page words do not.
//!
//! | Step | At work meanwhile |
//! |---|---|
//! | [`Space::stored_on`]: entries whose bytes are there | all threads |
//! | [`Space::read_leaving`]: their pages are read and checked | all threads |
//! | [`Space::store_leaving_on`]: they get new locations, not yet named | all threads |
//! | [`Space::settle_leaving`]: the locations are exchanged | no reader of runs of slots |
//!
//! An entry that was freed or got another location between the first step and the last keeps that,
//! and its new location is given up: location and check word are compared under the location's
//! lock. The caller is the only one that allocates entries, so that none of them is another page's
//! by then.

use crate::relocation::DEMOTED_MAX;
use crate::space::{Exchange, LastCipher, ReadError, Space, WriteError, errno_of};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::{
    Checksum, FileSlot, IncompressiblePolicy, KeyNumber, Location, Owner, Page, PageMemory, Place, Scratch,
    Stored,
};
use folioswap_policy::memory::Memory;
use folioswap_slots::{DeviceMask, SwapEntry};
use rustix::io::Errno;

/// Pages that are moved together, at most.
pub const LEAVING_MAX: usize = DEMOTED_MAX;
/// Entries that are looked at in one step: about a millisecond.
const LOOKED_AT: usize = 32 << 10;

/// The progress of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The page was not read.
    Unread,
    /// Its bytes are there.
    Read(Checksum),
    /// Its device does not give the page, and never will.
    Lost,
    /// The page is stored elsewhere, in a location that no entry names yet.
    Stored(Place),
}

/// A page on a device that leaves.
#[derive(Clone, Copy, Debug)]
struct LeavingPage {
    entry: SwapEntry,
    location: Location,
    check: u32,
    slot: FileSlot,
    key: KeyNumber,
    fate: Fate,
}

/// Pages on their way from a device that leaves.
pub struct Leaving {
    pages: [Option<LeavingPage>; LEAVING_MAX],
    count: usize,
}

impl Leaving {
    /// Returns the number of pages.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether this page was read, and has no other location yet.
    pub fn is_read(&self, index: usize) -> bool {
        self.page(index).is_some_and(|page| matches!(page.fate, Fate::Read(_)))
    }

    fn page(&self, index: usize) -> Option<LeavingPage> {
        self.pages.get(index).copied().flatten()
    }

    fn set_fate(&mut self, index: usize, fate: Fate) {
        if let Some(Some(page)) = self.pages.get_mut(index) {
            page.fate = fate;
        }
    }

    /// Returns the pages from `first` on whose slots follow each other.
    fn run_from(&self, first: usize) -> Range<usize> {
        let slot = |index: usize| self.page(index).map(|page| page.slot.raw());
        let follows = |&index: &usize| slot(index) == slot(first).map(|own| own + (index - first) as u64);
        first..first + 1 + (first + 1..self.count).take_while(follows).count()
    }
}

/// The result of [`Space::settle_leaving`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Pages whose bytes are elsewhere now.
    pub moved: u64,
    /// Pages that are lost: a thread that touches one finds nothing stored.
    pub lost: u64,
}

/// Whether this error says that the device may give the page later. A server that is another one by
/// now never will.
fn may_pass(error: ReadError) -> bool {
    let ReadError::File(error) = error else { return false };
    matches!(errno_of(error), Errno::HOSTDOWN | Errno::TIMEDOUT | Errno::CONNRESET)
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Returns up to `most` entries in use whose bytes are on one of `devices`, from offset `from`
    /// on; and the offset from which to go on, `None` at the end. Cost: some nanoseconds for each
    /// entry in use, of which some thousands are looked at.
    pub fn stored_on(&self, devices: DeviceMask, from: u64, most: usize) -> (Leaving, Option<u64>) {
        let mut leaving = Leaving { pages: [None; LEAVING_MAX], count: 0 };
        let mut from = from;
        for _ in 0..LOOKED_AT {
            if leaving.count == most.min(LEAVING_MAX) {
                break;
            }
            let Some((entry, _)) = self.slots().swapoff_next(self.device(), from) else {
                return (leaving, None);
            };
            from = entry.offset() + 1;
            let Some(beside) = self.beside(entry) else { continue };
            let (location, check) = (beside.location.get(), beside.check.load(Relaxed));
            let Some(Place::File { slot, key, .. }) = Place::unpack(location, check) else { continue };
            if self.shared_devices().of_slot(slot).is_some_and(|device| devices.contains(device)) {
                leaving.pages[leaving.count] =
                    Some(LeavingPage { entry, location, check, slot, key, fate: Fate::Unread });
                leaving.count += 1;
            }
        }
        (leaving, Some(from))
    }

    /// Reads the pages into `pages` (page aligned, as many as there are), those together whose
    /// slots follow each other, and checks each.
    ///
    /// Returns false if a server does not answer; then nothing more was asked of it, and pages that
    /// were not read stay where they are.
    pub fn read_leaving(&self, leaving: &mut Leaving, pages: &mut [Page]) -> bool {
        let (mut first, mut last) = (0, LastCipher::default());
        while first < leaving.count {
            let run = leaving.run_from(first);
            first = run.end;
            let slot = leaving.page(run.start).map(|page| page.slot);
            let open = slot.and_then(|slot| self.shared_devices().open(slot));
            let read = open.map(|(device, within)| {
                device.read(within, pages[run.clone()].as_flattened_mut()).map_err(ReadError::File)
            });
            if let Some(Err(error)) = read
                && may_pass(error)
            {
                return false;
            }
            for index in run {
                let Some(LeavingPage { check, slot, key, .. }) = leaving.page(index) else { continue };
                let (checksum, page) = (Checksum::from_raw(check), &mut pages[index]);
                let is_good = matches!(read, Some(Ok(()))) && {
                    self.decrypt(&mut last, slot, key, page);
                    Checksum::of(page) == checksum
                };
                let fate = match if is_good { Ok(()) } else { self.read_slot(slot, key, checksum, page) } {
                    Ok(()) => Fate::Read(checksum),
                    Err(error) if may_pass(error) => return false,
                    Err(_) => Fate::Lost,
                };
                leaving.set_fate(index, fate);
            }
        }
        true
    }

    /// Writes the pages of a range that were read to consecutive slots of one of `devices`, in one
    /// go; `pages` are those of the range.
    ///
    /// # Errors
    /// [`WriteError`]: none of them has another location then.
    pub fn store_leaving_on(
        &self,
        leaving: &mut Leaving,
        range: Range<usize>,
        pages: &[Page],
        devices: DeviceMask,
    ) -> Result<(), WriteError> {
        let first = self.take_slots(range.len(), devices)?;
        let key = self.write_pages(first, pages)?;
        for (at, index) in range.enumerate() {
            let Some(slot) = FileSlot::new(first.raw() + at as u64) else { continue };
            match leaving.page(index).map(|page| page.fate) {
                Some(Fate::Read(checksum)) => {
                    leaving.set_fate(index, Fate::Stored(Place::File { slot, key, checksum }));
                }
                _ => self.free_slot(slot, key),
            }
        }
        Ok(())
    }

    /// Stores a page that was read in the compressed store, even if it does not compress.
    ///
    /// # Errors
    /// [`WriteError::NoMemory`].
    pub fn store_leaving_in_store(
        &self,
        leaving: &mut Leaving,
        index: usize,
        scratch: &mut Scratch,
        page: &Page,
    ) -> Result<(), WriteError> {
        let Some(LeavingPage { entry, fate: Fate::Read(_), .. }) = leaving.page(index) else {
            return Ok(());
        };
        let owner = Owner::new(entry.to_raw() & ((1 << Owner::BITS) - 1)).ok_or(WriteError::NoMemory)?;
        let place = match self.zram.store_with(scratch, page, owner, IncompressiblePolicy::Keep) {
            Ok(Stored::Zero) => Place::Zero,
            Ok(Stored::SameFilled { pattern }) => Place::SameFilled { pattern },
            Ok(Stored::Object { handle, len, codec, checksum }) => {
                Place::Zram { handle, len, codec, checksum }
            }
            Ok(Stored::Incompressible) | Err(_) => return Err(WriteError::NoMemory),
        };
        leaving.set_fate(index, Fate::Stored(place));
        Ok(())
    }

    /// Exchanges the locations of pages that have another one, and removes those of the lost ones;
    /// the slots that they had are free. An entry that changed meanwhile stays as it is, and its
    /// new location is given up. No thread may be reading runs of slots.
    pub fn settle_leaving(&self, leaving: &Leaving) -> Settled {
        let mut settled = Settled::default();
        for page in leaving.pages[..leaving.count].iter().flatten() {
            match page.fate {
                Fate::Stored(place) if self.exchange_location(page, place) == Exchange::Done => {
                    settled.moved += 1
                }
                Fate::Stored(place) => self.give_up_location(place),
                Fate::Lost if self.exchange_location(page, Place::None) == Exchange::Done => {
                    settled.lost += 1
                }
                Fate::Lost | Fate::Unread | Fate::Read(_) => {}
            }
        }
        settled
    }

    /// Gives up all new locations: nothing is exchanged after all.
    pub fn give_up_leaving(&self, leaving: &Leaving) {
        for page in leaving.pages[..leaving.count].iter().flatten() {
            if let Fate::Stored(place) = page.fate {
                self.give_up_location(place);
            }
        }
    }

    fn exchange_location(&self, page: &LeavingPage, place: Place) -> Exchange {
        let Some(beside) = self.beside(page.entry) else { return Exchange::Refused };
        let Some(location) = beside.location.try_lock() else { return Exchange::Refused };
        if location != page.location || beside.check.load(Relaxed) != page.check {
            beside.location.unlock_with(location);
            return Exchange::Refused;
        }
        let (new, check) = place.pack();
        beside.check.store(check, Relaxed);
        if matches!(place, Place::Zram { .. }) {
            self.aged_in(beside);
        }
        beside.location.unlock_with(new);
        self.free_slot(page.slot, page.key);
        Exchange::Done
    }

    fn give_up_location(&self, place: Place) {
        match place {
            Place::Zram { handle, len, .. } => {
                // SAFETY: the object is ours: no location names it.
                let freed = unsafe { self.zram.free(handle, len) };
                debug_assert!(freed.is_ok());
            }
            Place::Zero | Place::SameFilled { .. } => self.zram.forget_same_filled(),
            Place::File { slot, key, .. } => self.free_slot(slot, key),
            Place::None => {}
        }
    }
}

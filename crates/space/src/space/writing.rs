//! Writing runs of pages to slots of shared devices, and the treatment of slots that a device
//! refuses.

use super::error::errno_of;
use super::{Space, WriteError, WriteFailure};
use folioswap_devices::{Checksum, FileSlot, Page, PageMemory, Place};
use folioswap_nbd::link::{PART_PAGES_MAX, Silence};
use folioswap_policy::memory::Memory;
use folioswap_policy::units::PAGE;
use folioswap_slots::{DeviceMask, SwapEntry};
use rustix::io::Errno;

/// Bad slots that are looked for in a run that a device refused: a device that refuses so many will
/// refuse the others.
const BAD_SLOTS_FOUND: usize = 3;

fn slots_from(first: FileSlot, count: usize) -> impl Iterator<Item = FileSlot> {
    (0..count as u64).filter_map(move |index| FileSlot::new(first.raw() + index))
}

/// Parts that are written together, at most.
pub const PARTS_MAX: usize = folioswap_devices::file::PARTS_MAX;

fn page_count(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len() / PAGE).sum()
}

/// Pages that are on a device, and that no entry names yet.
#[derive(Debug)]
#[must_use = "its slots are nobody's"]
pub struct WrittenRun {
    first: FileSlot,
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Takes `count` consecutive slots on one of `devices`.
    ///
    /// # Errors
    /// [`WriteError::OrderNotTaken`], [`WriteError::NoSlots`].
    pub(crate) fn take_slots(&self, count: usize, devices: DeviceMask) -> Result<FileSlot, WriteError> {
        let taking = self.shared.taking(devices, count);
        if taking.is_empty() && !devices.is_empty() {
            return Err(WriteError::OrderNotTaken);
        }
        self.file_space.allocate(count as u32, taking).ok_or(WriteError::NoSlots)
    }

    /// Writes to slots that were taken together; `parts` are the pages one after the other.
    ///
    /// # Errors
    /// [`WriteError::NoSlots`], [`WriteError::Device`]; the slots are free again then, but for bad
    /// ones.
    pub(crate) fn write_slots(&self, first: FileSlot, parts: &[&[u8]]) -> Result<(), WriteError> {
        let Some((device, within)) = self.shared.open(first) else {
            self.free_slots(first, page_count(parts));
            return Err(WriteError::NoSlots);
        };
        device.write_parts(within, parts).or_else(|error| self.write_again(first, parts, errno_of(error)))
    }

    /// As [`write_slots`](Self::write_slots), for pages that lie together, at most [`PARTS_MAX`]
    /// parts of [`PART_PAGES_MAX`].
    pub(crate) fn write_pages(&self, first: FileSlot, pages: &[Page]) -> Result<(), WriteError> {
        let mut parts = [&[][..]; PARTS_MAX];
        let chunks = pages.as_flattened().chunks(PART_PAGES_MAX * PAGE);
        let count = parts.iter_mut().zip(chunks).map(|(part, chunk)| *part = chunk).count();
        self.write_slots(first, &parts[..count])
    }

    /// Writes a run that the device refused page by page, to learn which slots are bad. If none is,
    /// the run is written now.
    fn write_again(&self, first: FileSlot, parts: &[&[u8]], errno: Errno) -> Result<(), WriteError> {
        let count = page_count(parts);
        if let Some(silence) = self.shared.silence(first, errno) {
            return Err(self.unanswered(first, count, silence, errno));
        }
        // A full device is not the slots' fault; nor would the next page find space.
        let is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        let mut bad = [None; BAD_SLOTS_FOUND];
        let mut found = 0;
        let pages = parts.iter().flat_map(|part| part.chunks_exact(PAGE));
        for (slot, page) in slots_from(first, count).zip(pages) {
            if is_full || found == BAD_SLOTS_FOUND {
                break;
            }
            let written = self.shared.open(slot).map(|(device, within)| device.write(within, page));
            if !matches!(written, Some(Ok(()))) {
                bad[found] = Some(slot);
                found += 1;
            }
        }
        if found == 0 && !is_full {
            return Ok(());
        }
        for slot in slots_from(first, count) {
            if bad.contains(&Some(slot)) {
                self.file_space.set_bad(slot);
            } else {
                self.file_space.free(slot);
            }
        }
        let device = self.shared.of_slot(first).ok_or(WriteError::NoSlots)?;
        Err(WriteError::Device(WriteFailure { device, slot: bad[0].unwrap_or(first), errno }))
    }

    /// Gives up the slots of a run that a server did not take, which is no fault of its slots: they
    /// are free again, unless the server may still write them.
    fn unanswered(&self, first: FileSlot, pages: usize, silence: Silence, errno: Errno) -> WriteError {
        for slot in slots_from(first, pages) {
            match silence {
                Silence::NotAsked => self.file_space.free(slot),
                // Any later write there could be overwritten at any time.
                Silence::MayBeDone => self.file_space.set_bad(slot),
            }
        }
        let failure = |device| WriteError::Device(WriteFailure { device, slot: first, errno });
        self.shared.of_slot(first).map_or(WriteError::NoSlots, failure)
    }

    /// Writes consecutive pages to consecutive slots of one of `devices` in one go, and sets the
    /// location of each entry (`None`: the page is not wanted; its slot is given back). `pages` is
    /// page aligned.
    ///
    /// # Errors
    /// [`WriteError::NoSlots`] when no run of slots is free: ask for a cluster;
    /// [`WriteError::OrderNotTaken`]; [`WriteError::Device`]. No entry has a location then.
    pub fn write_run(
        &self,
        entries: &[Option<SwapEntry>],
        pages: &[u8],
        devices: DeviceMask,
    ) -> Result<(), WriteError> {
        debug_assert_eq!(entries.len() * PAGE, pages.len());
        let written = self.write_parts(&[pages], devices)?;
        self.settle(written, entries, &[pages]);
        Ok(())
    }

    /// Writes pages to consecutive slots of one of `devices` in one go. `parts` are the pages one
    /// after the other, each page aligned, at most [`PARTS_MAX`] of at most [`PART_PAGES_MAX`]
    /// pages where a device may be on the network.
    ///
    /// [`Space::settle`] must follow: it decides about the slots. No lock is needed meanwhile, but
    /// the bytes must stay.
    ///
    /// # Errors
    /// As [`Space::write_run`]; nothing needs to be settled then.
    pub fn write_parts(&self, parts: &[&[u8]], devices: DeviceMask) -> Result<WrittenRun, WriteError> {
        let first = self.take_slots(page_count(parts), devices)?;
        self.write_slots(first, parts)?;
        Ok(WrittenRun { first })
    }

    /// Sets the locations of these entries, whose pages were written as `parts`, which have not
    /// changed since. `None`: the page is not wanted (any more); its slot is given back.
    pub fn settle(&self, written: WrittenRun, entries: &[Option<SwapEntry>], parts: &[&[u8]]) {
        debug_assert_eq!(entries.len(), page_count(parts));
        let pages = parts.iter().flat_map(|part| part.chunks_exact(PAGE));
        for ((slot, entry), page) in slots_from(written.first, entries.len()).zip(entries).zip(pages) {
            let placed = match entry {
                Some(entry) => self.set_location(*entry, Place::File { slot, checksum: Checksum::of(page) }),
                None => false,
            };
            if !placed {
                self.file_space.free(slot);
            }
        }
    }

    fn free_slots(&self, first: FileSlot, count: usize) {
        slots_from(first, count).for_each(|slot| self.file_space.free(slot));
    }
}

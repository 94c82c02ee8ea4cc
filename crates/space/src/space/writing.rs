//! Writing runs of pages to slots of shared devices, and the treatment of slots that a device
//! refuses.

use super::error::errno_of;
use super::{Space, WriteError, WriteFailure};
use crate::bounce::BOUNCE_PAGES;
use crate::open_device::OpenDevice;
use folioswap_devices::{Checksum, FileError, FileSlot, KeyNumber, Page, PageCipher, PageMemory, Place};
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
    key: KeyNumber,
}

/// The way of pages to a device: as they are, or under a key.
struct Seal {
    key: KeyNumber,
    /// `None`: the pages are not encrypted, and `key` is none.
    cipher: Option<PageCipher>,
}

impl Seal {
    const PLAIN: Seal = Seal { key: KeyNumber::NONE, cipher: None };
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

    /// Writes to slots that were taken together; `parts` are the pages one after the other. Returns
    /// the key under which they are, which is held once for each.
    ///
    /// # Errors
    /// [`WriteError::NoSlots`], [`WriteError::Device`]; the slots are free again then, but for bad
    /// ones, and no key is held.
    pub(crate) fn write_slots(&self, first: FileSlot, parts: &[&[u8]]) -> Result<KeyNumber, WriteError> {
        let count = page_count(parts);
        let Some((device, within)) = self.shared.open(first) else {
            self.free_slots(first, count);
            return Err(WriteError::NoSlots);
        };
        let seal = match self.shared.is_encrypted(first).then(|| self.keys.take(count as u32)) {
            None => Seal::PLAIN,
            Some(Ok((key, cipher))) => Seal { key, cipher: Some(cipher) },
            Some(Err(errno)) => {
                self.free_slots(first, count);
                let device = self.shared.of_slot(first).ok_or(WriteError::NoSlots)?;
                return Err(WriteError::Device(WriteFailure { device, slot: first, errno }));
            }
        };
        let written = self
            .write_sealed(device, (first, within), parts, &seal)
            .or_else(|error| self.write_again(first, parts, &seal, errno_of(error)));
        match written {
            Ok(()) => Ok(seal.key),
            Err(error) => {
                self.keys.put(seal.key, count as u32);
                Err(error)
            }
        }
    }

    /// Writes pages to slots from `first` on, which is `within` on its device.
    fn write_sealed(
        &self,
        device: OpenDevice<'_>,
        (first, within): (FileSlot, FileSlot),
        parts: &[&[u8]],
        seal: &Seal,
    ) -> Result<(), FileError> {
        let Some(cipher) = &seal.cipher else { return device.write_parts(within, parts) };
        let device = device.taking_run(within, page_count(parts))?;
        let mut buffer = self.bounce.take();
        let buffer = buffer.pages();
        let mut pages = parts.iter().flat_map(|part| part.as_chunks::<PAGE>().0).enumerate().peekable();
        while let Some(&(done, _)) = pages.peek() {
            let mut count = 0;
            for ((index, page), to) in pages.by_ref().take(BOUNCE_PAGES).zip(buffer.iter_mut()) {
                if let Some(slot) = FileSlot::new(first.raw() + index as u64) {
                    cipher.encrypt(slot, page, to);
                }
                count += 1;
            }
            let at = FileSlot::new(within.raw() + done as u64).unwrap_or(within);
            device.write(at, buffer[..count].as_flattened())?;
        }
        Ok(())
    }

    /// As [`write_slots`](Self::write_slots), for pages that lie together, at most [`PARTS_MAX`]
    /// parts of [`PART_PAGES_MAX`].
    pub(crate) fn write_pages(&self, first: FileSlot, pages: &[Page]) -> Result<KeyNumber, WriteError> {
        let mut parts = [&[][..]; PARTS_MAX];
        let chunks = pages.as_flattened().chunks(PART_PAGES_MAX * PAGE);
        let count = parts.iter_mut().zip(chunks).map(|(part, chunk)| *part = chunk).count();
        self.write_slots(first, &parts[..count])
    }

    /// Writes a run that the device refused page by page, to learn which slots are bad. If none is,
    /// the run is written now.
    fn write_again(
        &self,
        first: FileSlot,
        parts: &[&[u8]],
        seal: &Seal,
        errno: Errno,
    ) -> Result<(), WriteError> {
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
            let open = self.shared.open(slot);
            let written =
                open.map(|(device, within)| self.write_sealed(device, (slot, within), &[page], seal));
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
        let key = self.write_slots(first, parts)?;
        Ok(WrittenRun { first, key })
    }

    /// Sets the locations of these entries, whose pages were written as `parts`, which have not
    /// changed since. `None`: the page is not wanted (any more); its slot is given back.
    pub fn settle(&self, written: WrittenRun, entries: &[Option<SwapEntry>], parts: &[&[u8]]) {
        debug_assert_eq!(entries.len(), page_count(parts));
        let WrittenRun { first, key } = written;
        let pages = parts.iter().flat_map(|part| part.chunks_exact(PAGE));
        for ((slot, entry), page) in slots_from(first, entries.len()).zip(entries).zip(pages) {
            let placed = entry.is_some_and(|entry| {
                self.set_location(entry, Place::File { slot, key, checksum: Checksum::of(page) })
            });
            if !placed {
                self.free_slot(slot, key);
            }
        }
    }

    fn free_slots(&self, first: FileSlot, count: usize) {
        slots_from(first, count).for_each(|slot| self.file_space.free(slot));
    }
}

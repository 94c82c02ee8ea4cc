//! Writing runs of pages to slots of shared devices, and what becomes of slots that a device refuses.

use super::error::errno_of;
use super::{Space, WriteError, WriteFailure};
use crate::page_table::{Memory, PAGE};
use crate::shared_devices::Silence;
use folioswap_devices::{Checksum, FileSlot, PageMemory, Place};
use folioswap_slots::{DeviceMask, SwapEntry};
use rustix::io::Errno;

/// Bad slots that are looked for in a run that a device refused: one that refuses so many will refuse the others.
const BAD_SLOTS_FOUND: usize = 3;

fn slots_from(first: FileSlot, count: usize) -> impl Iterator<Item = FileSlot> {
    (0..count as u64).filter_map(move |index| FileSlot::new(first.raw() + index))
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Takes so many consecutive slots on one of `devices`.
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

    /// Writes to slots that were taken together.
    ///
    /// # Errors
    /// [`WriteError::NoSlots`], [`WriteError::Device`]; the slots are free again then, but for bad ones.
    pub(crate) fn write_slots(&self, first: FileSlot, pages: &[u8]) -> Result<(), WriteError> {
        let Some((device, within)) = self.shared.open(first) else {
            slots_from(first, pages.len() / PAGE).for_each(|slot| self.file_space.free(slot));
            return Err(WriteError::NoSlots);
        };
        device.write(within, pages).or_else(|error| self.write_again(first, pages, errno_of(error)))
    }

    /// The device refused the run: page by page, to learn which slots are bad. Where none is, the run is written now.
    fn write_again(&self, first: FileSlot, pages: &[u8], errno: Errno) -> Result<(), WriteError> {
        if let Some(silence) = self.shared.silence(first, errno) {
            return Err(self.unanswered(first, pages.len() / PAGE, silence, errno));
        }
        // Not the slots' fault; nor would the next page find room.
        let is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        let mut bad = [None; BAD_SLOTS_FOUND];
        let mut found = 0;
        for (slot, page) in slots_from(first, pages.len() / PAGE).zip(pages.chunks_exact(PAGE)) {
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
        for slot in slots_from(first, pages.len() / PAGE) {
            if bad.contains(&Some(slot)) {
                self.file_space.mark_bad(slot);
            } else {
                self.file_space.free(slot);
            }
        }
        let device = self.shared.of_slot(first).ok_or(WriteError::NoSlots)?;
        Err(WriteError::Device(WriteFailure { device, slot: bad[0].unwrap_or(first), errno }))
    }

    /// A server did not take the run, which is no fault of its slots: they are free again, unless it may write them still.
    fn unanswered(&self, first: FileSlot, pages: usize, silence: Silence, errno: Errno) -> WriteError {
        for slot in slots_from(first, pages) {
            match silence {
                Silence::NotAsked => self.file_space.free(slot),
                // Whatever else is written there could be overwritten at any time.
                Silence::MayBeDone => self.file_space.mark_bad(slot),
            }
        }
        let failure = |device| WriteError::Device(WriteFailure { device, slot: first, errno });
        self.shared.of_slot(first).map_or(WriteError::NoSlots, failure)
    }

    /// Writes consecutive pages to consecutive slots of one of `devices` in one go, and sets the location of each entry
    /// (`None`: the page is not wanted; its slot is given back). `pages` is page aligned.
    ///
    /// # Errors
    /// [`WriteError::NoSlots`] when no run of slots is free: ask for a cluster; [`WriteError::OrderNotTaken`];
    /// [`WriteError::Device`]. No entry has a location then.
    pub fn write_run(
        &self,
        entries: &[Option<SwapEntry>],
        pages: &[u8],
        devices: DeviceMask,
    ) -> Result<(), WriteError> {
        debug_assert_eq!(entries.len() * PAGE, pages.len());
        let first = self.take_slots(entries.len(), devices)?;
        self.write_slots(first, pages)?;
        for (index, (entry, page)) in entries.iter().zip(pages.chunks_exact(PAGE)).enumerate() {
            let Some(slot) = FileSlot::new(first.raw() + index as u64) else { continue };
            let placed = match entry {
                Some(entry) => self.set_place(*entry, Place::File { slot, checksum: Checksum::of(page) }),
                None => false,
            };
            if !placed {
                self.file_space.free(slot);
            }
        }
        Ok(())
    }
}

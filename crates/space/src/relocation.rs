//! Moving stored bytes: from the compressed store to a shared device (demotion), and within the
//! compressed RAM device (compaction; recompression has a module of its own).
//!
//! Locations change, entries and page words do not: a thread that reads meanwhile finds the one
//! location or the other, under the location's lock.

use crate::space::{Beside, Exchange, PARTS_MAX, Space, WriteError};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{Checksum, CompactReport, FileSlot, Location, Page, PageMemory, Place, Verdict};
use folioswap_nbd::link::PART_PAGES_MAX;
use folioswap_policy::memory::Memory;
use folioswap_slots::{DeviceMask, SwapEntry};

/// Pages that are demoted together, at most.
pub const DEMOTED_MAX: usize = PARTS_MAX * PART_PAGES_MAX;

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Empties sparse spans of the compressed RAM device into fuller ones, moving about
    /// `budget_bytes` of stored bytes at most, and gives the memory of the emptied ones back to the
    /// system. Locations change, entries do not. Nothing may be frozen by a fork (see
    /// [`Movers`](crate::space::Movers)). Cost: about 1 µs for each object moved.
    pub fn compact(&self, budget_bytes: u64) -> CompactReport {
        let report = self.zram.compact(budget_bytes, |moved| {
            let entry = SwapEntry::from_raw(moved.owner.raw());
            // The entry may be freed by now, and its words another cluster's: only the one location
            // that names the old object is exchanged, and no other word of the engine names it.
            let relocated = entry
                .and_then(|entry| self.beside(entry))
                .is_some_and(|beside| beside.location.relocate_object(moved.old, moved.new));
            if relocated { Verdict::Moved } else { Verdict::Kept }
        });
        if report.spans_freed > 0 {
            self.trim();
        }
        report
    }

    /// Moves the bytes of these entries (at most [`DEMOTED_MAX`]) from the compressed store to
    /// consecutive slots of one of `devices`; returns how many were moved.
    ///
    /// An entry that was freed, or is being read or freed just now, is passed over; so is one that
    /// cannot be read, which then counts as stored just now. None may become another page's
    /// meanwhile: the caller is the only one that allocates entries, or holds a count of each
    /// ([`Space::duplicate`]). `pages` is page aligned, `decoder` the calling thread's.
    ///
    /// # Errors
    /// [`WriteError`]; every location is as before.
    pub fn demote_run(
        &self,
        entries: &[Option<SwapEntry>],
        decoder: &mut Decoder,
        pages: &mut [Page],
        devices: DeviceMask,
    ) -> Result<u64, WriteError> {
        let mut olds = [Location::NONE; DEMOTED_MAX];
        let first = self.take_slots(entries.len(), devices)?;
        for (index, (entry, page)) in entries.iter().zip(pages.iter_mut()).enumerate() {
            let Some(beside) = entry.and_then(|entry| self.beside(entry)) else { continue };
            let Some(location) = beside.location.try_lock() else { continue };
            let check = beside.check.load(Relaxed);
            if matches!(Place::unpack(location, check), Some(Place::Zram { .. })) {
                if self.read_place(location, check, decoder, page).is_ok() {
                    olds[index] = location;
                } else {
                    // The page stays for ever: as the oldest it would hide all others from the
                    // thread that moves the oldest.
                    self.rejuvenate(beside);
                }
            }
            beside.location.unlock_with(location);
        }
        let key = self.write_pages(first, pages)?;
        let mut moved = 0;
        for (index, (entry, page)) in entries.iter().zip(pages.iter()).enumerate() {
            let Some(slot) = FileSlot::new(first.raw() + index as u64) else { continue };
            let beside = entry.and_then(|entry| self.beside(entry)).filter(|_| olds[index] != Location::NONE);
            let new = Place::File { slot, key, checksum: Checksum::of(page) };
            let exchange =
                beside.map_or(Exchange::Refused, |beside| self.replace_zram(beside, olds[index], new));
            match exchange {
                Exchange::Done => moved += 1,
                Exchange::Refused => self.free_slot(slot, key),
            }
        }
        Ok(moved)
    }

    fn replace_zram(&self, beside: &Beside, old: Location, new: Place) -> Exchange {
        let Some(location) = beside.location.try_lock() else { return Exchange::Refused };
        let place = Place::unpack(location, beside.check.load(Relaxed));
        let (true, Some(Place::Zram { handle, len, .. })) = (location == old, place) else {
            beside.location.unlock_with(location);
            return Exchange::Refused;
        };
        let (new, check) = new.pack();
        beside.check.store(check, Relaxed);
        self.aged_out(beside);
        beside.location.unlock_with(new);
        // SAFETY: the location that named the object was locked by us and names the file slot now.
        let freed = unsafe { self.zram.free(handle, len) };
        debug_assert!(freed.is_ok());
        Exchange::Done
    }
}

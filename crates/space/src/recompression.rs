//! Recompression: what has been idle in the compressed RAM device is stored once more with zstd, if that is worth it. The location
//! changes; entry, page word and age do not: whoever reads meanwhile finds the one object or the other, under the location's lock.
//!
//! Nobody waits for the compressor: the page is read under the lock, compressed under none, and the exchange happens under the lock
//! again, if the location and its check word still are what they were.

use crate::space::Space;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::{Decoder, Encoder};
use folioswap_devices::{
    Checksum, Codec, Handle, Location, Owner, Page, PageMemory, Place, Recompressed, StoredLen,
};
use folioswap_policy::memory::Memory;
use folioswap_slots::SwapEntry;

/// Working memory of the thread that recompresses: 164 KiB, of which a third stays untouched. All-zero memory is a valid one.
#[repr(C, align(4096))]
pub struct Room {
    page: Page,
    /// What the new object gives.
    again: Page,
    encoder: Encoder,
    decoder: Decoder,
}

impl Room {
    /// Fresh working memory.
    pub const fn new() -> Self {
        Room { page: [0; 4096], again: [0; 4096], encoder: Encoder::new(), decoder: Decoder::new() }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

/// What became of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompression {
    /// It is stored with zstd now.
    Done {
        /// Bytes that its object takes less, at least 1.
        saved: u16,
    },
    /// zstd gains too little: it stays as it is, and is not asked for again.
    Settled,
    /// There was nothing to do: it is not in the compressed RAM device, was tried before, or is being read or freed just now.
    Passed,
}

/// The store got no memory for the new object; everything is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The object that was read.
#[derive(Clone, Copy)]
struct Seen {
    location: Location,
    handle: Handle,
    len: StoredLen,
    checksum: Checksum,
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Is an entry's page in the compressed RAM device and was not tried yet? A hint: it may change at any moment.
    pub fn may_recompress(&self, entry: SwapEntry) -> bool {
        let place = self
            .beside(entry)
            .and_then(|beside| Place::unpack(beside.location.get(), beside.check.load(Relaxed)));
        matches!(place, Some(Place::Zram { codec: Codec::Lz4, .. }))
    }

    /// Stores the page of this entry with zstd if its slot in the store becomes smaller by at least an eighth. The caller is the only
    /// one that allocates entries, so this cannot have become another page's, and nothing may be frozen by a fork (see
    /// [`Movers`](crate::space::Movers)). About 28 µs for a page that is tried; others who want it wait 2 µs at most.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn recompress(&self, entry: SwapEntry, room: &mut Room) -> Result<Recompression, NoRoom> {
        let Room { page, again, encoder, decoder } = room;
        let Some(owner) = Owner::new(entry.to_raw() & ((1 << Owner::BITS) - 1)) else {
            return Ok(Recompression::Passed);
        };
        let Some(seen) = self.read_to_recompress(entry, decoder, page) else {
            return Ok(Recompression::Passed);
        };
        Ok(match self.zram.recompress(encoder, page, seen.len, owner).map_err(|_| NoRoom)? {
            Recompressed::NotWorth => {
                let settled = Place::Zram {
                    handle: seen.handle,
                    len: seen.len,
                    codec: Codec::Lz4Settled,
                    checksum: seen.checksum,
                };
                if self.exchange(entry, seen, settled) {
                    Recompression::Settled
                } else {
                    Recompression::Passed
                }
            }
            Recompressed::Object { handle, len, checksum } => {
                let place = Place::Zram { handle, len, codec: Codec::Zstd, checksum };
                // The old object is the only good copy: it goes when the new one has proven to be one.
                // SAFETY: the new object is ours alone; nobody else knows it.
                let read = unsafe { self.zram.load(handle, len, Codec::Zstd, checksum, decoder, again) };
                let exchanged = read.is_ok() && again == page && self.exchange(entry, seen, place);
                let dropped = if exchanged { (seen.handle, seen.len) } else { (handle, len) };
                // SAFETY: no location names this one of the two: the old one's was exchanged under its lock, or the new one was
                // never made known.
                let freed = unsafe { self.zram.free(dropped.0, dropped.1) };
                debug_assert!(freed.is_ok());
                if exchanged {
                    Recompression::Done { saved: (seen.len.bytes() - len.bytes()) as u16 }
                } else {
                    Recompression::Passed
                }
            }
        })
    }

    /// Reads what is to be tried. `None`: there is nothing to do.
    fn read_to_recompress(&self, entry: SwapEntry, decoder: &mut Decoder, page: &mut Page) -> Option<Seen> {
        let beside = self.beside(entry)?;
        let location = beside.location.try_lock()?;
        let check = beside.check.load(Relaxed);
        let seen = match Place::unpack(location, check) {
            Some(Place::Zram { handle, len, codec: Codec::Lz4, checksum }) => {
                // What is damaged is left to who reads it.
                let read = self.read_place(location, check, decoder, page);
                read.is_ok().then_some(Seen { location, handle, len, checksum })
            }
            _ => None,
        };
        beside.location.unlock_with(location);
        seen
    }

    /// Sets an entry's place, if it still is the one that was seen; true if it was.
    fn exchange(&self, entry: SwapEntry, seen: Seen, place: Place) -> bool {
        let Some(beside) = self.beside(entry) else { return false };
        let Some(location) = beside.location.try_lock() else { return false };
        let is_same = location == seen.location && beside.check.load(Relaxed) == seen.checksum.raw();
        if !is_same {
            beside.location.unlock_with(location);
            return false;
        }
        let (new, check) = place.pack();
        beside.check.store(check, Relaxed);
        beside.location.unlock_with(new);
        true
    }
}

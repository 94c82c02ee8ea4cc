//! Recompression: a page that has been idle in the compressed RAM device is stored once more with
//! zstd, if that is worth it.
//!
//! The location changes; entry, page word and age do not: a thread that reads meanwhile finds the
//! one object or the other, under the location's lock. No thread waits for the compressor: the page
//! is read under the lock, compressed under none, and exchanged under the lock again, if the
//! location and its check word are still the same.

use crate::space::{Exchange, NoMemory, Space};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::{Decoder, Encoder};
use folioswap_devices::{
    Checksum, Codec, Handle, Location, Owner, Page, PageMemory, Place, Recompressed, StoredLen,
};
use folioswap_policy::memory::Memory;
use folioswap_slots::SwapEntry;

/// Working memory of the thread that recompresses: 164 KiB, of which a third stays untouched.
/// All-zero memory is valid.
#[repr(C, align(4096))]
pub struct Workspace {
    page: Page,
    /// The page that the new object gives.
    again: Page,
    encoder: Encoder,
    decoder: Decoder,
}

impl Workspace {
    /// Creates fresh working memory.
    pub const fn new() -> Self {
        Workspace { page: [0; 4096], again: [0; 4096], encoder: Encoder::new(), decoder: Decoder::new() }
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

/// The result for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompression {
    /// The page is stored with zstd now.
    Done {
        /// Bytes that its object takes less, at least 1.
        saved: u16,
    },
    /// zstd gains too little: the page stays as it is, and is not tried again.
    Settled,
    /// There was nothing to do: the page is not in the compressed RAM device, was tried before, or
    /// is being read or freed just now.
    Passed,
}

#[derive(Clone, Copy)]
struct Seen {
    location: Location,
    handle: Handle,
    len: StoredLen,
    checksum: Checksum,
}

impl<M: Memory + PageMemory> Space<'_, M> {
    /// Whether an entry's page is in the compressed RAM device and was not tried yet. A hint: it
    /// may change at any moment.
    pub fn may_recompress(&self, entry: SwapEntry) -> bool {
        let place = self
            .beside(entry)
            .and_then(|beside| Place::unpack(beside.location.get(), beside.check.load(Relaxed)));
        matches!(place, Some(Place::Zram { codec: Codec::Lz4, .. }))
    }

    /// Stores the page of this entry with zstd if its object in the store becomes smaller by at
    /// least an eighth.
    ///
    /// The caller is the only one that allocates entries, so this cannot have become another
    /// page's, and nothing may be frozen by a fork (see [`Movers`](crate::space::Movers)). Cost:
    /// about 28 µs for a page that is tried; other threads that want it wait 2 µs at most.
    ///
    /// # Errors
    /// [`NoMemory`]: the store got none for the new object; everything is as before.
    pub fn recompress(&self, entry: SwapEntry, workspace: &mut Workspace) -> Result<Recompression, NoMemory> {
        let Workspace { page, again, encoder, decoder } = workspace;
        let Some(owner) = Owner::new(entry.to_raw() & ((1 << Owner::BITS) - 1)) else {
            return Ok(Recompression::Passed);
        };
        let Some(seen) = self.read_to_recompress(entry, decoder, page) else {
            return Ok(Recompression::Passed);
        };
        Ok(match self.zram.recompress(encoder, page, seen.len, owner).map_err(|_| NoMemory)? {
            Recompressed::NotWorth => {
                let settled = Place::Zram {
                    handle: seen.handle,
                    len: seen.len,
                    codec: Codec::Lz4Settled,
                    checksum: seen.checksum,
                };
                match self.exchange(entry, seen, settled) {
                    Exchange::Done => Recompression::Settled,
                    Exchange::Refused => Recompression::Passed,
                }
            }
            Recompressed::Object { handle, len, checksum } => {
                let place = Place::Zram { handle, len, codec: Codec::Zstd, checksum };
                // The old object is the only good copy: it goes when the new one has proven to be
                // one.
                // SAFETY: the new object is ours alone; no other thread knows it.
                let read = unsafe { self.zram.load(handle, len, Codec::Zstd, checksum, decoder, again) };
                let exchanged =
                    read.is_ok() && again == page && self.exchange(entry, seen, place) == Exchange::Done;
                let dropped = if exchanged { (seen.handle, seen.len) } else { (handle, len) };
                // SAFETY: no location names this one of the two: the old one's was exchanged under
                // its lock, or the new one was never made known.
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

    /// Reads the page that is to be tried. Returns `None` when there is nothing to do.
    fn read_to_recompress(&self, entry: SwapEntry, decoder: &mut Decoder, page: &mut Page) -> Option<Seen> {
        let beside = self.beside(entry)?;
        let location = beside.location.try_lock()?;
        let check = beside.check.load(Relaxed);
        let seen = match Place::unpack(location, check) {
            Some(Place::Zram { handle, len, codec: Codec::Lz4, checksum }) => {
                // A damaged page is left to the thread that reads it.
                let read = self.read_place(location, check, decoder, page);
                read.is_ok().then_some(Seen { location, handle, len, checksum })
            }
            _ => None,
        };
        beside.location.unlock_with(location);
        seen
    }

    /// Exchanges an entry's location, if it still is the one that was seen.
    fn exchange(&self, entry: SwapEntry, seen: Seen, place: Place) -> Exchange {
        let Some(beside) = self.beside(entry) else { return Exchange::Refused };
        let Some(location) = beside.location.try_lock() else { return Exchange::Refused };
        let is_same = location == seen.location && beside.check.load(Relaxed) == seen.checksum.raw();
        if !is_same {
            beside.location.unlock_with(location);
            return Exchange::Refused;
        }
        let (new, check) = place.pack();
        beside.check.store(check, Relaxed);
        beside.location.unlock_with(new);
        Exchange::Done
    }
}

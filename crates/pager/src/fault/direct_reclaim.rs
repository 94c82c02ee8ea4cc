//! The handler's part of direct reclaim: it compresses folios that the evictor offered.

use crate::fault::handler::Handler;
use crate::store::write_back::is_leaving;
use crate::units::{PAGE, PIECE_PAGES, page_index};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::{IncompressiblePolicy, Page};

impl Handler {
    /// Compresses a folio of what the evictor is about to write back. False: there was none, or nothing of it to be stored. Cost: some 4 µs
    /// a page, 16 pages.
    pub(crate) fn reclaim_directly(&mut self) -> bool {
        let engine = self.engine;
        let Some(number) = engine.shares.help() else { return false };
        // SAFETY: the ring is installed, or nothing were offered; the evictor changes nothing of a folio that it waits for.
        let staging = unsafe { &*engine.staging.get() };
        let place = staging.berth_of(number);
        let (folio, staged) = (staging.berth(place), staging.address(place));
        let (block, base) = (engine.table.block(folio.address), page_index(folio.address));
        let before = engine.shares.stored(place);
        let mut stored = before;
        for page in 0..PIECE_PAGES {
            let Some(entry) = folio.entries[page] else { continue };
            if engine.is_stored(place, folio.clean, page) || !is_leaving(block, base + page, entry) {
                continue;
            }
            // SAFETY: the place belongs to this folio until it is popped, which waits for us.
            let bytes = unsafe { &*((staged + page * PAGE) as *const Page) };
            // What is refused is the evictor's to place.
            if engine.space.write(&mut self.scratch, entry, bytes, IncompressiblePolicy::Refuse).is_ok() {
                stored |= 1 << page;
            }
        }
        engine.shares.stored[place as usize].store(stored, Relaxed);
        engine.shares.helped_out();
        stored != before
    }
}

#[cfg(test)]
mod tests;

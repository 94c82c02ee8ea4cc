//! Berths of staging of which every page is gone: given up, or taken back by its program.
//!
//! Such a page keeps its slot until the turn of its berth comes, and a clean one its stored copy
//! too. Where nothing is short no turn comes, and what a program has freed would stay in the store
//! for as long as the program is content: half a megabyte was seen there. Where no device takes a
//! page no turn comes either, just when memory is short. (The kernel frees the pages of a swap
//! cache with the mapping: `free_swap_and_cache`.) Berths go in their order, so those behind a page
//! that still waits stay.

use crate::engine::Engine;
use crate::evict::evictor::Evictor;
use crate::evict::registration::Memory;
use crate::staging::ring::HUGE_PAGE_BERTHS;
use crate::store::demote::DemotionUnits;
use crate::store::write_back::{Tier, is_leaving};
use folioswap_slots::DeviceMask;

/// The most berths that go in one pass, so that a fork does not wait long: 2 MiB.
const BERTHS_IN_A_PASS: u64 = HUGE_PAGE_BERTHS;

impl Evictor {
    /// Lets the oldest berths go of which no page waits any more; returns how many. Their memory
    /// goes to the system at once where there is time, and else with that of others. The caller
    /// holds the gate, with no plan on offer. Cost: a look at one berth where that still has a
    /// page.
    ///
    /// They teach the inactive list nothing: what was given up was not waited for.
    pub(crate) fn let_gone_go(&mut self, memory: Memory) -> u64 {
        let engine = self.engine;
        let before = self.staging().written();
        while self.staging().written() - before < BERTHS_IN_A_PASS && engine.oldest_is_gone() {
            // No page is left that a device would have to take.
            let nowhere = Tier::Shared(DeviceMask::NONE);
            let gone = engine.write_back_oldest(&mut self.scratch, nowhere, DemotionUnits::Whole, 1);
            if gone.is_err() {
                break;
            }
        }
        let gone = self.staging().written() - before;
        if gone > 0 {
            let least = match memory {
                Memory::Ample => 1,
                Memory::Short => self.staging().recycled_together(self.inactive_length()),
            };
            self.give_back_berths(least);
        }
        gone
    }
}

impl Engine {
    /// Whether no page of the oldest berth of staging waits any more. False where no berth is. The
    /// caller is the evictor and holds the gate; a page that is gone does not come back to its
    /// berth.
    fn oldest_is_gone(&self) -> bool {
        let _takers_wait = self.locks.write_back.lock();
        // SAFETY: the evictor, which we are, may use the ring with this lock held.
        let staging = unsafe { &*self.staging.get() };
        let Some(berth) = staging.oldest() else { return false };
        let folio = staging.berth(berth);
        let block = self.table.block(folio.piece);
        let waits = |(page, entry): (usize, &Option<_>)| {
            entry.is_some_and(|entry| is_leaving(block, folio.piece.index().plus(page), entry))
        };
        !folio.entries.iter().enumerate().any(waits)
    }
}

#[cfg(test)]
mod tests;

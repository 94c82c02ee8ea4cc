//! Direct reclaim: a handler whose fault has to wait for memory does a part of the work that it
//! waits for.
//!
//! The evictor offers the berths that the batch will write back; the handler compresses them into
//! the store, the youngest first, on the CPU of the thread that waits, and records which of their
//! pages are stored. When the evictor comes to such a berth, only the bookkeeping is left. A page
//! that is touched meanwhile goes back to the program as ever; its stored copy is freed with its
//! entry.
//!
//! Only the store is written so, because it alone needs a processor; and only where nothing has to
//! be decided between evictor and store: where devices take turns, and in a fork's snapshot,
//! nothing is offered.

use crate::evict::evictor::Evictor;

impl Evictor {
    /// Does one batch's work with `folios` berths of staging, from the oldest on, offered to a
    /// handler that waits for memory.
    pub(crate) fn with_help<T>(&mut self, folios: u64, work: impl FnOnce(&mut Self) -> T) -> T {
        let staging = self.staging();
        let (oldest, waiting) = (staging.written(), staging.waiting());
        if self.writes_to_store_alone() {
            self.engine.shares.offer(oldest, folios.min(waiting));
        }
        let result = work(self);
        self.engine.shares.withdraw();
        result
    }

    /// Offers the next of the oldest `folios` berths that wait, when more is due in the midst of
    /// that work than was offered (a huge page is 32 berths).
    pub(crate) fn offer_more(&mut self, folios: u64) {
        let staging = self.staging();
        let (written, folios) = (staging.written(), folios.min(staging.waiting()));
        if self.writes_to_store_alone() {
            self.engine.shares.offer_up_to(written, written + folios);
        }
    }
}

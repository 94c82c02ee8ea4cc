//! Direct reclaim: a handler whose fault has to wait for memory does a part of what it waits for.
//!
//! The evictor offers the folios that the batch will write back; the handler compresses them from the youngest on, on the CPU of the
//! thread that waits, into the store, and says which pages of them are stored. The evictor, when it comes to such a folio, has only
//! the bookkeeping left. What of it is touched meanwhile goes back to the program as ever; its stored copy is freed with its entry.
//!
//! Only into the store: it alone needs a processor. Only with nothing between evictor and store to be decided: where devices take turns,
//! and in a fork's snapshot, nothing is offered.

use crate::evict::evictor::Evictor;

impl Evictor {
    /// Runs one batch's work with `folios` folios of staging, from the oldest on, offered to whoever waits for memory.
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

    /// In the midst of that work, as more is due than was offered (a huge page is 32 folios): offers the next of the oldest `folios` that wait.
    pub(crate) fn offer_more(&mut self, folios: u64) {
        let staging = self.staging();
        let (written, folios) = (staging.written(), folios.min(staging.waiting()));
        if self.writes_to_store_alone() {
            self.engine.shares.offer_up_to(written, written + folios);
        }
    }
}

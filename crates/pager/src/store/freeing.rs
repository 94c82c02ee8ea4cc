//! Batched free (spec §3.2): entries that are given up one after the other, and have consecutive
//! slots, are freed together, under one lock of their cluster instead of one lock for each.

use crate::engine::Engine;
use folioswap_slots::SwapEntry;

/// The most entries freed under one lock, so that another thread waits about 15 µs for the same
/// cluster.
const TOGETHER: u32 = 64;

/// Entries that nothing refers to any more, because their pages are in the program or gone. They
/// are freed as soon as an entry comes that does not continue them, and on drop.
pub(crate) struct Freeing<'e> {
    engine: &'e Engine,
    first: Option<SwapEntry>,
    slots: u32,
}

#[cfg(test)]
std::thread_local! {
    /// How often this thread has freed entries here, and how many.
    pub(crate) static FREED: core::cell::Cell<(u32, u32)> = const { core::cell::Cell::new((0, 0)) };
}

impl<'e> Freeing<'e> {
    pub(crate) fn new(engine: &'e Engine) -> Self {
        Freeing { engine, first: None, slots: 0 }
    }

    /// Gives up one reference to this entry, now or when this is dropped.
    pub(crate) fn put(&mut self, entry: SwapEntry) {
        let next = self.first.and_then(|first| first.checked_add(u64::from(self.slots)));
        if self.slots == TOGETHER || next != Some(entry) {
            self.flush();
            self.first = Some(entry);
        }
        self.slots += 1;
    }

    fn flush(&mut self) {
        if let Some(first) = self.first.take() {
            #[cfg(test)]
            FREED.set((FREED.get().0 + 1, FREED.get().1 + self.slots));
            self.engine.space.put(first, core::mem::take(&mut self.slots));
        }
    }
}

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;

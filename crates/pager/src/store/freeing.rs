//! Batched free (spec §3.2): entries that are given up one after the other, and lie so, are freed together, with one lock of their
//! cluster instead of one for each.

use crate::engine::Engine;
use folioswap_slots::SwapEntry;

/// Most that are freed under one lock, so that who comes for the same cluster waits some 15 µs.
const TOGETHER: u32 = 64;

/// Entries whose pages are in the program or gone, and which nothing refers to any more: freed as soon as one comes that does not
/// continue them, and at the end.
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

    /// One holder of this entry less, now or when this is dropped.
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

//! A task's page table, and the runs of entries that one free can take (spec §3.2).

use folioswap_slots::{CLUSTER_SLOTS, SwapEntry};
use std::ops::Range;

/// The state of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageState {
    /// Never touched, or given back.
    #[default]
    None,
    /// In memory.
    Present,
    /// Swapped out.
    Swapped(SwapEntry),
}

/// Consecutive pages whose swap entries are consecutive slots of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwappedRun {
    /// The entry of the first page.
    pub entry: SwapEntry,
    /// Number of pages, at most those of one table of the processor: 512.
    pub pages: u32,
}

/// A page table of one level.
#[derive(Debug, Clone)]
pub struct PageTable {
    states: Vec<PageState>,
}

impl PageTable {
    /// Makes a table of `pages` pages, none of which was touched.
    pub fn new(pages: u32) -> PageTable {
        PageTable { states: vec![PageState::None; pages as usize] }
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        self.states.len() as u32
    }

    /// The state of one page.
    ///
    /// # Panics
    /// The page lies behind the last one.
    pub fn state(&self, page: u32) -> PageState {
        self.states[page as usize]
    }

    /// Sets the state of every page of a range.
    ///
    /// # Panics
    /// The range ends behind the last page.
    pub fn set(&mut self, pages: Range<u32>, state: PageState) {
        self.states[pages.start as usize..pages.end as usize].fill(state);
    }

    /// Sets page i of a range to be swapped out to slot `entry` + i.
    ///
    /// # Panics
    /// The range ends behind the last page, or the device has no such slots.
    pub fn set_swapped(&mut self, pages: Range<u32>, entry: SwapEntry) {
        for (step, state) in self.states[pages.start as usize..pages.end as usize].iter_mut().enumerate() {
            let entry = entry.checked_add(step as u64).expect("slots that were allocated");
            *state = PageState::Swapped(entry);
        }
    }

    /// The run of swap entries that begins at `page`; `None` if that page is not swapped out. The
    /// run ends at the latest where a page table of the processor would, so that one lock of such a
    /// table is enough to find it.
    ///
    /// # Panics
    /// The page lies behind the last one.
    pub fn swapped_run(&self, page: u32) -> Option<SwappedRun> {
        let PageState::Swapped(entry) = self.state(page) else { return None };
        let end = self.pages().min((page / CLUSTER_SLOTS + 1) * CLUSTER_SLOTS);
        let follows = |step: u32| matches!(self.state(page + step), PageState::Swapped(next) if Some(next) == entry.checked_add(u64::from(step)));
        let pages = (1..end - page).take_while(|step| follows(*step)).count() as u32 + 1;
        Some(SwappedRun { entry, pages })
    }
}

#[cfg(test)]
mod tests;

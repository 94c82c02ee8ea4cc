//! What a task's page table says, and how many entries in a row one free can take (spec §3.2).

use folioswap_slots::{CLUSTER_SLOTS, SwapEntry};
use std::ops::Range;

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
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
pub struct Run {
    /// Of the first page.
    pub entry: SwapEntry,
    /// Pages, at most those of one table of the processor's: 512.
    pub pages: u32,
}

/// A page table of one level.
#[derive(Debug, Clone)]
pub struct PageTable {
    places: Vec<Place>,
}

impl PageTable {
    /// For `pages` pages, nothing of which was touched.
    pub fn new(pages: u32) -> PageTable {
        PageTable { places: vec![Place::None; pages as usize] }
    }

    /// Pages.
    pub fn pages(&self) -> u32 {
        self.places.len() as u32
    }

    /// Of one page.
    ///
    /// # Panics
    /// Behind the last page.
    pub fn place(&self, page: u32) -> Place {
        self.places[page as usize]
    }

    /// Every page of a range is now there.
    ///
    /// # Panics
    /// Behind the last page.
    pub fn set(&mut self, pages: Range<u32>, place: Place) {
        self.places[pages.start as usize..pages.end as usize].fill(place);
    }

    /// Page i of a range is now in slot `entry` + i.
    ///
    /// # Panics
    /// Behind the last page, or where the device has no such slots.
    pub fn set_swapped(&mut self, pages: Range<u32>, entry: SwapEntry) {
        for (step, place) in self.places[pages.start as usize..pages.end as usize].iter_mut().enumerate() {
            let entry = entry.checked_add(step as u64).expect("slots that were allocated");
            *place = Place::Swapped(entry);
        }
    }

    /// The run of swap entries that begins at `page`; `None` if that is not swapped out. It ends at the latest where a page table of the
    /// processor's would, so that it can be found under one lock of such a table.
    ///
    /// # Panics
    /// Behind the last page.
    pub fn swapped_run(&self, page: u32) -> Option<Run> {
        let Place::Swapped(entry) = self.place(page) else { return None };
        let end = self.pages().min((page / CLUSTER_SLOTS + 1) * CLUSTER_SLOTS);
        let follows = |step: u32| matches!(self.place(page + step), Place::Swapped(next) if Some(next) == entry.checked_add(u64::from(step)));
        let pages = (1..end - page).take_while(|step| follows(*step)).count() as u32 + 1;
        Some(Run { entry, pages })
    }
}

#[cfg(test)]
mod tests;

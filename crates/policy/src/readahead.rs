//! The number of pages around a fault out of order that are read ahead from a slow device, decided
//! as the kernel decides it for each mapping (`vm.page-cluster`; Linux 4.15 on,
//! `swap_vma_readahead`).
//!
//! Pages that are read ahead are only kept; a fault that finds one of them is a *hit*. The next
//! window follows from the hits of the last one: two pages more than there were hits, as a power of
//! two of at least four. Without a hit it is one page, or two where the fault lies beside the last
//! one. It is never larger than `vm.page-cluster` allows, and never less than half of the one
//! before. An area that was never looked at begins as if it had had hits.
//!
//! Where the last fault lies beside, the window begins at the page and goes on in that direction.
//! Elsewhere it is the aligned range of memory around the page, where the kernel's begins half a
//! window below it: pages that left together as a folio are such a range, and their slots follow
//! each other as the pages do, so that one request reads all of it. (The kernel's other way, by
//! slots, aligns too: `swap_cluster_readahead`.)
//!
//! The engine knows no mappings, so each area of 32 MiB of addresses has a window of its own.
//! Faults that go on from page to page bring their pages into the program by themselves
//! (`history.rs`); each counts as a hit, since it says that neighbours are wanted here.

use core::ops::Range;

/// Pages of an area, as a power of two: 32 MiB.
const AREA_ORDER: u32 = 13;
/// Areas that are remembered. Two areas that are a multiple of this many apart replace each other.
const AREAS: usize = 64;
/// Hits that an area is taken to have had at first.
const HITS_AT_FIRST: u8 = 4;
/// Most hits that are counted; more are of no consequence.
const HITS_MAX: u8 = 63;

#[derive(Clone, Copy, Debug)]
struct Area {
    /// The page number, less the bits within the area.
    number: usize,
    /// The page of the last fault.
    last: usize,
    /// Pages of the last window.
    window: u8,
    /// Hits since the last window.
    hits: u8,
}

impl Area {
    const fn new(number: usize) -> Self {
        Area { number, last: 0, window: 0, hits: HITS_AT_FIRST }
    }
}

/// The windows of one process. Advisory; for one thread.
#[derive(Debug)]
pub struct SwapinReadahead {
    areas: [Area; AREAS],
}

impl SwapinReadahead {
    /// Creates the state in which nothing is known yet.
    pub const fn new() -> Self {
        SwapinReadahead { areas: [Area::new(usize::MAX); AREAS] }
    }

    /// Returns the pages to read for a fault on page `page` (address by page size), which found
    /// nothing that was read ahead and goes on from no other fault. The page itself is among them.
    ///
    /// The window is at most `most` pages (a power of two, 1 to 32): those ahead of the page where
    /// the last fault lies beside it, else the aligned ones around it. It may reach beyond the
    /// mapping.
    pub fn missed(&mut self, page: usize, most: usize) -> Range<usize> {
        if most <= 1 {
            return page..page + 1;
        }
        let area = self.area(page);
        let (is_next, is_before) = (page == area.last.wrapping_add(1), page + 1 == area.last);
        let wanted = match area.hits {
            0 if is_next || is_before => 2,
            0 => 1,
            hits => (usize::from(hits) + 2).next_power_of_two().max(4),
        };
        let window = wanted.min(most).max(usize::from(area.window) / 2).min(most);
        (area.last, area.window, area.hits) = (page, window as u8, 0);
        let first = match window {
            _ if is_next => page,
            window if is_before => page.saturating_sub(window - 1),
            window => page & !(window - 1),
        };
        first..first + window
    }

    /// Records that a fault on this page found it read ahead.
    pub fn hit(&mut self, page: usize) {
        let area = self.area(page);
        area.last = page;
        area.hits = area.hits.saturating_add(1).min(HITS_MAX);
    }

    /// Records that a fault on this page went on where the last one had ended.
    pub fn in_order(&mut self, page: usize) {
        self.hit(page);
    }

    fn area(&mut self, page: usize) -> &mut Area {
        let number = page >> AREA_ORDER;
        let area = &mut self.areas[number % AREAS];
        if area.number != number {
            *area = Area::new(number);
        }
        area
    }
}

impl Default for SwapinReadahead {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;

//! How many pages around a fault out of order are read ahead from a slow device, as the kernel decides it for each mapping
//! (`vm.page-cluster`; Linux 4.15 on, `swap_vma_readahead`).
//!
//! What is read ahead is only kept; a fault that finds a page of it is a *hit*. The next window follows from the hits of the last one: two
//! pages more than there were hits, as a power of two of at least four. Without a hit it is one page, or two where the fault lies beside the
//! last one. It is never larger than `vm.page-cluster` allows, and never less than half of the one before. What was never looked at begins as
//! if there had been hits.
//!
//! Where the last fault lies beside, the window begins there and goes on in that direction. Else it is the aligned piece of memory around the
//! page, where the kernel's begins half a window below it: what left together as a folio is such a piece, and its slots follow each other as
//! its pages do, so that one request reads all of it. (The kernel's other way, by slots, aligns too: `swap_cluster_readahead`.)
//!
//! We know no mappings: each 32 MiB of addresses have a window of their own. And faults that go on from page to page bring their pages into the
//! program by themselves (`history.rs`); each counts as a hit, since it says that neighbours are wanted here.

use core::ops::Range;

/// Pages of a region, as a power of two: 32 MiB.
const REGION_ORDER: u32 = 13;
/// Regions that are remembered; two that are so many apart take each other's place.
const REGIONS: usize = 64;
/// Hits that a region is taken to have had at first.
const HITS_AT_FIRST: u8 = 4;
/// More hits are of no consequence, and are not counted.
const HITS_MAX: u8 = 63;

#[derive(Clone, Copy, Debug)]
struct Region {
    /// Page number, less the bits within the region.
    number: usize,
    /// The page of the last fault.
    last: usize,
    /// Pages of the last window.
    window: u8,
    /// Hits since.
    hits: u8,
}

impl Region {
    const fn new(number: usize) -> Self {
        Region { number, last: 0, window: 0, hits: HITS_AT_FIRST }
    }
}

/// The windows of one process. Advisory; for one thread.
#[derive(Debug)]
pub struct SwapinReadahead {
    regions: [Region; REGIONS],
}

impl SwapinReadahead {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        SwapinReadahead { regions: [Region::new(usize::MAX); REGIONS] }
    }

    /// A fault on page `page` (address by page size) found nothing that was read ahead, and goes on from none. Returns the pages to read,
    /// its own among them: at most `most` (a power of two, 1 to 32), those ahead of it where the last fault lies beside it, else the aligned ones
    /// around it. They may reach beyond the mapping.
    pub fn missed(&mut self, page: usize, most: usize) -> Range<usize> {
        if most <= 1 {
            return page..page + 1;
        }
        let region = self.region(page);
        let (is_next, is_before) = (page == region.last.wrapping_add(1), page + 1 == region.last);
        let wanted = match region.hits {
            0 if is_next || is_before => 2,
            0 => 1,
            hits => (usize::from(hits) + 2).next_power_of_two().max(4),
        };
        let window = wanted.min(most).max(usize::from(region.window) / 2).min(most);
        (region.last, region.window, region.hits) = (page, window as u8, 0);
        let first = match window {
            _ if is_next => page,
            window if is_before => page.saturating_sub(window - 1),
            window => page & !(window - 1),
        };
        first..first + window
    }

    /// A fault on this page found it read ahead.
    pub fn hit(&mut self, page: usize) {
        let region = self.region(page);
        region.last = page;
        region.hits = region.hits.saturating_add(1).min(HITS_MAX);
    }

    /// A fault on this page went on where the last one had ended.
    pub fn in_order(&mut self, page: usize) {
        self.hit(page);
    }

    fn region(&mut self, page: usize) -> &mut Region {
        let number = page >> REGION_ORDER;
        let region = &mut self.regions[number % REGIONS];
        if region.number != number {
            *region = Region::new(number);
        }
        region
    }
}

impl Default for SwapinReadahead {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;

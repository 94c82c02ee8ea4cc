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
mod tests {
    use super::*;
    use std::collections::HashMap;

    const FAR: usize = 1000;

    /// Windows of faults that find nothing, far from each other, after `hits` hits each.
    fn windows(readahead: &mut SwapinReadahead, most: usize, hits: &[u8]) -> Vec<usize> {
        let mut fault = |(step, &hits): (usize, &u8)| {
            (0..hits).for_each(|hit| readahead.hit(3 * step * FAR + FAR + usize::from(hit)));
            readahead.missed(3 * step * FAR, most).len()
        };
        hits.iter().enumerate().map(|(step, hits)| fault((step % 2, hits))).collect()
    }

    #[test]
    fn without_hits_the_window_halves_down_to_the_page_alone() {
        assert_eq!(windows(&mut SwapinReadahead::new(), 8, &[0; 6]), [8, 4, 2, 1, 1, 1]);
        assert_eq!(windows(&mut SwapinReadahead::new(), 32, &[0; 5]), [8, 4, 2, 1, 1]);
        assert_eq!(windows(&mut SwapinReadahead::new(), 2, &[0; 3]), [2, 1, 1]);
    }

    #[test]
    fn hits_let_it_grow_to_its_bound() {
        let mut readahead = SwapinReadahead::new();
        windows(&mut readahead, 32, &[0; 4]);
        assert_eq!(windows(&mut readahead, 32, &[1, 2, 3, 7, 40, 0, 0]), [4, 4, 8, 16, 32, 16, 8]);
        assert_eq!(windows(&mut readahead, 4, &[63, 63]), [4, 4]);
    }

    #[test]
    fn nothing_is_read_ahead_where_it_is_off() {
        let mut readahead = SwapinReadahead::new();
        assert_eq!(readahead.missed(7, 1), 7..8);
        assert_eq!(readahead.missed(8, 1), 8..9);
    }

    #[test]
    fn the_window_lies_ahead_of_a_walk_and_around_anything_else() {
        let mut readahead = SwapinReadahead::new();
        assert_eq!(readahead.missed(5003, 8), 5000..5008);
        readahead.missed(5000, 8);
        assert_eq!(windows(&mut readahead, 8, &[7]), [8]);
        readahead.hit(5000);
        assert_eq!(readahead.missed(5001, 8), 5001..5005);
        assert_eq!(readahead.missed(5000, 8), 4999..5001, "without a hit half of the one before");
        windows(&mut readahead, 8, &[0; 4]);
        assert_eq!(readahead.missed(100, 8), 100..101);
        assert_eq!(readahead.missed(101, 8), 101..103, "beside the last fault");
        readahead.hit(102);
        assert_eq!(readahead.missed(103, 8), 103..107);
        readahead.in_order(104);
        assert_eq!(readahead.missed(7, 8), 4..8);
        readahead.missed(0, 8);
        assert_eq!(readahead.missed(0, 8).start, 0, "nothing lies before the first page");
    }

    #[test]
    fn each_region_has_a_window_of_its_own_until_another_takes_its_place() {
        let region = |number: usize| number << REGION_ORDER;
        let mut readahead = SwapinReadahead::new();
        (0..4).for_each(|step| _ = readahead.missed(region(1) + step * FAR, 8));
        assert_eq!(readahead.missed(region(2), 8).len(), 8);
        assert_eq!(readahead.missed(region(1) + 6 * FAR, 8).len(), 1);
        readahead.missed(region(1 + REGIONS), 8);
        assert_eq!(readahead.missed(region(1), 8).len(), 8);
    }

    /// The rule, as plainly as it can be said, over random faults and hits.
    #[test]
    fn as_a_plain_oracle_has_it() {
        // Last page, window and hits of each region.
        let mut oracle: HashMap<usize, (usize, usize, usize)> = HashMap::new();
        let mut readahead = SwapinReadahead::new();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let mut page = 1 << 20;
        let mut sizes = [0u32; 33];
        for _ in 0..200_000 {
            page = match random(4) {
                0 => page + 1,
                1 => page - 1,
                2 => page + random(40) as usize,
                _ => (1 << 20) + random(8 << REGION_ORDER) as usize,
            };
            let known = oracle.entry(page >> REGION_ORDER).or_insert((0, 0, 4));
            if random(5) > 0 {
                readahead.hit(page);
                *known = (page, known.1, known.2 + 1);
                continue;
            }
            let most = 1usize << random(6);
            let found = readahead.missed(page, most);
            if most == 1 {
                assert_eq!(found, page..page + 1);
                continue;
            }
            let beside = page.abs_diff(known.0) == 1;
            let mut size = if known.2 > 0 { 4 } else { 1 + usize::from(beside) };
            while known.2 > 0 && size < known.2 + 2 {
                size *= 2;
            }
            size = size.min(most);
            if size < known.1 / 2 {
                size = known.1 / 2;
            }
            size = size.min(most);
            let first = if page == known.0 + 1 {
                page
            } else if page + 1 == known.0 {
                page + 1 - size
            } else {
                page / size * size
            };
            assert_eq!(found, first..first + size, "{known:?}");
            assert!(found.contains(&page));
            sizes[size] += 1;
            *known = (page, size, 0);
        }
        assert!([1, 2, 4, 8, 16].iter().all(|&size| sizes[size] > 100), "{sizes:?}");
    }
}

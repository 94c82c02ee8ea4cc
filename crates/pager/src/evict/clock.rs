//! The clock: where its hand stands, the present pages that it looks at next, how fast pages age.

use crate::engine::Engine;
use crate::evict::cold::ColdRanges;
use crate::evict::workingset::InactiveSize;
use crate::kernel::pagemap;
use folioswap_policy::reclaim::aging::Aging;

/// Present regions that are listed at a time.
pub(crate) const REGIONS: usize = 64;

/// The source of the list of present pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionsOf {
    /// The clock's hand.
    Clock,
    /// Ranges that the program advised to be cold.
    Cold,
}

/// The clock of the evictor.
pub(crate) struct Clock {
    /// The address up to which pages have been listed.
    pub(crate) hand: usize,
    /// Present pages, listed ahead of the hand: `region_next..region_count` are still to be looked
    /// at.
    pub(crate) regions: [pagemap::Region; REGIONS],
    pub(crate) region_next: usize,
    pub(crate) region_count: usize,
    pub(crate) regions_of: RegionsOf,
    /// Ranges that the program advised to be cold, as far as they were not looked at since.
    pub(crate) cold: ColdRanges,
    /// How often the hand has come round.
    pub(crate) wraps: u64,
    pub(crate) aging: Aging,
    pub(crate) inactive: InactiveSize,
}

impl Clock {
    pub(crate) fn new(engine: &Engine) -> Self {
        Clock {
            hand: 0,
            regions: [pagemap::EMPTY; REGIONS],
            region_next: 0,
            region_count: 0,
            regions_of: RegionsOf::Clock,
            cold: ColdRanges::NONE,
            wraps: 0,
            aging: Aging::default(),
            inactive: InactiveSize::new(engine),
        }
    }

    /// Drops the list before a sleep, because it will be old. Advised ranges that the clock has not
    /// looked at wait for the next round: a hand that goes on there would find the pages of a loop
    /// just before they are needed (GNU sort: 311 000 pages in instead of 194 000).
    pub(crate) fn forget_regions(&mut self) {
        if self.regions_of == RegionsOf::Cold && self.region_next < self.region_count {
            self.cold.go_on_from(self.regions[self.region_next].start as usize);
        }
        (self.region_next, self.region_count) = (0, 0);
    }
}

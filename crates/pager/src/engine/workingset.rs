//! Refaults: the time that a page was away when it comes back
//! (`folioswap_policy::reclaim::workingset`).

use crate::engine::Engine;
use folioswap_group::counters::Counter;
use folioswap_policy::reclaim::workingset::{Refault, Refaults};
use folioswap_slots::SwapEntry;

impl Engine {
    /// The verdict on the page of this entry, which comes back from a device. To be asked before
    /// the entry is given up. Cost: some loads.
    pub(crate) fn refault(&self, entry: SwapEntry) -> Refault {
        let distance = self.workingset.distance(self.space.shadow(entry));
        if let Some(distance) = distance {
            self.distances.add(distance);
            self.member().course.refaults.add(distance);
        }
        self.workingset.refault(distance)
    }

    /// Records the pages that came back from a device with one swap-in.
    pub(crate) fn note_refaults(&self, refaults: Refaults) {
        if refaults.pages == 0 {
            return;
        }
        self.workingset.came_back(refaults);
        self.figures().add(Counter::WorkingsetRefault, refaults.pages);
        self.figures().add(Counter::WorkingsetActivate, refaults.activated);
    }

    /// Records that this many pages were touched in staging, and went back.
    pub(crate) fn note_activated(&self, pages: u64) {
        if pages > 0 {
            self.workingset.activated(pages);
            self.figures().add(Counter::Activated, pages);
        }
    }
}

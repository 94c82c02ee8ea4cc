//! The working set: each page that comes back is asked how long it was away, and the inactive list
//! is made as long as the answers require (`folioswap_policy::reclaim::workingset`,
//! `folioswap_policy::reclaim::inactive`; kernel: `mm/workingset.c`).

use crate::engine::Engine;
use crate::evict::evictor::Evictor;
use crate::units::{PAGE, PIECE};
use folioswap_group::counters::Gauge;
use folioswap_policy::reclaim::inactive::{Bounds, InactiveList};

/// The evictor's part of the working set.
pub(crate) struct InactiveSize {
    list: InactiveList,
    /// Refaults that a longer list would have spared, as seen at the last batch.
    spared_seen: u64,
}

impl InactiveSize {
    pub(crate) fn new(engine: &Engine) -> Self {
        InactiveSize { list: InactiveList::default(), spared_seen: engine.workingset.spared() }
    }
}

impl Evictor {
    /// Measures the active list: the resident pages, without staging and the engine's own.
    pub(crate) fn measure_active(&self) {
        let engine = self.engine;
        let staged = self.staging().held_bytes() + engine.own_bytes();
        engine.workingset.set_active(self.survey.size.anonymous.saturating_sub(staged) / PAGE as u64);
    }

    /// The inactive lists of all members together begin with a sixteenth of the limit, which is
    /// half of the berths of one; and they leave a quarter of the berths free, where a huge page
    /// finds room.
    fn inactive_bounds(&self) -> Bounds {
        let live = self.engine.group().live_members().count().max(1) as u64;
        let places = self.staging().berth_count() / live;
        Bounds { least: places / 2, most: places * 3 / 4 }
    }

    /// Berths that may wait for their write-back now.
    pub(crate) fn inactive_length(&self) -> u64 {
        self.clock.inactive.list.length(self.inactive_bounds())
    }

    /// Adapts the length of the inactive list after so many berths have left it, with so many pages
    /// that were written back.
    pub(crate) fn size_inactive_list(&mut self, berths: u64, pages: u64) {
        let (engine, bounds) = (self.engine, self.inactive_bounds());
        let spared = engine.workingset.spared();
        let new = spared - self.clock.inactive.spared_seen;
        self.clock.inactive.spared_seen = spared;
        self.clock.inactive.list.note(bounds, berths, pages, new);
        let list = &self.clock.inactive.list;
        engine.workingset.set_room(list.room(bounds));
        engine.figures().set(Gauge::Inactive, list.length(bounds) * PIECE as u64);
    }
}

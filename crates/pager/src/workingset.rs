//! The working set: what comes back is asked how long it was away, and the inactive list is made as long as that says
//! (`folioswap_policy::reclaim::workingset`, `folioswap_policy::reclaim::inactive`; kernel: `mm/workingset.c`).

use crate::batch::Batch;
use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::handler::Handler;
use crate::staging::FOLIO;
use folioswap_group::counters::{Counter, Gauge};
use folioswap_policy::page::{Heat, PageState};
use folioswap_policy::page_table::PAGE;
use folioswap_policy::reclaim::inactive::{Bounds, InactiveList};
use folioswap_policy::reclaim::workingset::{Refault, Refaults};
use folioswap_slots::SwapEntry;

/// The evictor's part.
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

impl Engine {
    /// What it says that the page of this entry comes back from a device. To be asked before the entry is given up. Cost: some loads.
    pub(crate) fn refault(&self, entry: SwapEntry) -> Refault {
        let distance = self.workingset.distance(self.space.shadow(entry));
        if let Some(distance) = distance {
            self.distances.add(distance);
        }
        self.workingset.refault(distance)
    }

    /// These came back from a device with one swap-in.
    pub(crate) fn note_refaults(&self, refaults: Refaults) {
        if refaults.pages == 0 {
            return;
        }
        self.workingset.came_back(refaults);
        self.figures().add(Counter::WorkingsetRefault, refaults.pages);
        self.figures().add(Counter::WorkingsetActivate, refaults.activated);
    }

    /// So many pages were touched in staging, and went back.
    pub(crate) fn note_activated(&self, pages: u64) {
        if pages > 0 {
            self.workingset.activated(pages);
            self.figures().add(Counter::Activated, pages);
        }
    }
}

impl Handler {
    /// How warm a page is that comes back; `heat` is what the way of its return says. What was away for longer than the working set's
    /// size is as cold as what was never touched before: the next touch, in staging, may prove it hot. (What comes back in order, as a
    /// scan does, stays cold however soon that is: a loop over a little more than fits would make all of it hot, and nothing is gained.)
    pub(crate) fn heat_of(&mut self, from: PageState, heat: Heat) -> Heat {
        match from {
            // What waited in staging was wanted soon after.
            PageState::Leaving(_) => Heat::Hot,
            PageState::Stored(entry) => {
                let refault = self.engine.refault(entry);
                self.refaults.add(refault);
                if refault == Refault::Far { Heat::Cold } else { heat }
            }
            _ => heat,
        }
    }
}

impl Evictor {
    /// What is resident, without what waits in staging and the engine's own.
    pub(crate) fn measure_active(&self) {
        let engine = self.engine;
        let staged = self.staging().held_bytes() + engine.own_bytes();
        engine.workingset.set_active(self.size.anonymous.saturating_sub(staged) / PAGE as u64);
    }

    /// The inactive lists of all members together begin with a sixteenth of the limit, which is half of the places of one; and leave a
    /// quarter of them free, where a huge page finds room.
    fn inactive_bounds(&self) -> Bounds {
        let live = self.engine.segment().live_members().count().max(1) as u64;
        let places = self.staging().places() / live;
        Bounds { least: places / 2, most: places * 3 / 4 }
    }

    /// Folios that may wait for their write-back now.
    pub(crate) fn inactive_length(&self) -> u64 {
        self.inactive.list.length(self.inactive_bounds())
    }

    /// The batch has written back: is the inactive list as long as it should be?
    pub(crate) fn size_inactive_list(&mut self, batch: &Batch) {
        let (engine, bounds) = (self.engine, self.inactive_bounds());
        let spared = engine.workingset.spared();
        let new = spared - self.inactive.spared_seen;
        self.inactive.spared_seen = spared;
        self.inactive.list.note(bounds, batch.folios, batch.written, new);
        let list = &self.inactive.list;
        engine.workingset.set_room(list.room(bounds));
        engine.figures().set(Gauge::Inactive, list.length(bounds) * FOLIO as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;
    use crate::candidates::Candidates;
    use crate::demote::Pieces;
    use crate::handler::{Fault, Turn};
    use crate::isolate::page_index;
    use crate::test_memory::{clean_piece, fill, map, moving_engine, word_at};
    use crate::uffd::Access;
    use crate::write_back::Tier;
    use folioswap_devices::Scratch;
    use folioswap_policy::page::PageWord;
    use folioswap_policy::reclaim::workingset::age_of;
    use folioswap_slots::DeviceMask;

    const PAGES: u64 = 16;

    /// An engine, its handler, and a piece of the program that waits in staging.
    fn staged() -> Option<(&'static Engine, Handler, usize)> {
        let engine = moving_engine()?;
        let handler = Handler::new(engine, Buffers::of(engine)?);
        let start = map(2 * FOLIO).next_multiple_of(FOLIO);
        // Nobody serves a first touch here.
        fill(start);
        engine.register_pieces(start, start + FOLIO);
        engine.table.block_or_insert(start, engine.arena)?;
        assert_eq!(engine.isolate(start, Candidates::ALL_DIRTY).moved.count_ones() as u64, PAGES);
        Some((engine, handler, start))
    }

    fn write_back(engine: &Engine) {
        engine.write_back_oldest(&mut Scratch::new(), Tier::Store(DeviceMask::NONE), Pieces::Any, 1).unwrap();
    }

    fn word(engine: &Engine, address: usize) -> PageWord {
        engine.table.block(address).unwrap().word(page_index(address))
    }

    fn age(engine: &Engine) -> u64 {
        age_of(engine.workingset.shadow()).unwrap()
    }

    fn counted(engine: &Engine) -> [u64; 3] {
        [Counter::WorkingsetRefault, Counter::WorkingsetActivate, Counter::Activated]
            .map(|counter| engine.figures().counter(counter))
    }

    fn touch(handler: &mut Handler, address: usize) {
        handler.serve(Fault { address, access: Access::Write, thread: 0, turn: Turn::First, since_ns: 0 });
    }

    #[test]
    fn what_is_written_back_keeps_its_age_and_is_asked_for_it_when_it_comes_back() {
        for (active, activated) in [(PAGES, 1), (PAGES - 1, 0)] {
            let Some((engine, mut handler, start)) = staged() else { return };
            engine.workingset.evicted(100);
            write_back(engine);
            let address = start + 3 * PAGE;
            let shadow = engine.space.shadow(word(engine, address).entry().unwrap());
            assert_eq!((age_of(shadow), age(engine)), (Some(100), 100 + PAGES));
            assert!(engine.validate().is_ok());
            engine.workingset.set_active(active);
            touch(&mut handler, address);
            assert_eq!(word_at(address), 10);
            assert_eq!(counted(engine), [1, activated, 0]);
            assert_eq!(age(engine), 100 + PAGES + activated);
        }
    }

    #[test]
    fn what_is_touched_in_staging_is_no_refault_and_ages_what_is_away() {
        let Some((engine, mut handler, start)) = staged() else { return };
        engine.workingset.set_active(1000);
        touch(&mut handler, start);
        assert_eq!(word(engine, start), PageWord::PRESENT_HOT);
        // All of its folio goes back with it.
        assert_eq!((counted(engine), age(engine)), ([0, 0, PAGES], PAGES));
        write_back(engine);
        assert_eq!(age(engine), PAGES, "nothing of it has left");
    }

    #[test]
    fn a_copy_that_was_kept_gets_a_new_age_when_its_page_leaves_again() {
        let Some(engine) = moving_engine() else { return };
        let (start, entries) = clean_piece(engine);
        engine.workingset.evicted(77);
        assert_eq!(engine.isolate(start, Candidates::ALL_CLEAN).moved, u16::MAX);
        write_back(engine);
        assert!(entries.iter().all(|&entry| age_of(engine.space.shadow(entry)) == Some(77)));
        assert_eq!(engine.validate(), Ok(PAGES));
    }
}

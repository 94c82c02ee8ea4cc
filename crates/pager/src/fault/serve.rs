//! Serving one fault: find the page, bring it back with what should come along (`readahead.rs`), account for it.

use crate::engine::Engine;
use crate::fault::claim::{claim, unclaim};
use crate::fault::handler::{Fault, Handler, Interruptions};
use crate::fault::read_around::Found;
use crate::fault::readahead::Readahead;
use crate::fault::reading::Purpose;
use crate::kernel::sys;
use crate::kernel::uffd::Access;
use crate::store::freeing::Freeing;
use crate::units::{PAGE, PIECE, PIECE_ORDER, PIECE_PAGES, Pages, page_index};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::{FileError, FileSlot, Page};
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{Kind, Lost, Note};
use folioswap_policy::history::Window;
use folioswap_policy::page::{Heat, PageState, PageWord};
use folioswap_policy::page_table::Block;
use folioswap_policy::reclaim::store_share::Source;
use folioswap_slots::SwapEntry;
use folioswap_space::space::{Movers, ReadError};
use rustix::io::Errno;

/// What a fault takes until the handler has it, and until its thread runs again.
const ROUND_TRIP_NS: u64 = 10_000;

/// What is to be done after pages of a piece came back, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The fault is resolved.
    Done,
    /// Look at the page's word again: somebody was faster, or an event waited, which is read now.
    LookAgain,
    /// The kernel had no memory for so many pages at once: fewer, then.
    Fewer,
}

/// What came back of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brought {
    pub(crate) next: Next,
    /// Pages that were away, of those that should come.
    pub(crate) away: usize,
    /// Those that came.
    pub(crate) copied: usize,
    /// Some were read from a device, now or ahead.
    pub(crate) is_read: bool,
}

impl Brought {
    const AGAIN: Brought = Brought { next: Next::LookAgain, away: 0, copied: 0, is_read: false };
}

/// The pages of a piece that the handler has claimed: where each comes from.
type Claimed = [Option<PageState>; PIECE_PAGES];

impl Engine {
    /// Why the page of this entry cannot be had.
    pub(crate) fn why_lost(&self, entry: SwapEntry, why: ReadError) -> Lost {
        let slot = self.space.file_slot(entry).map(FileSlot::raw);
        match (why, slot) {
            (ReadError::Corrupt, None) => Lost::Corrupt,
            (ReadError::Corrupt, Some(slot)) => Lost::CorruptOnDevice { slot },
            (ReadError::File(FileError::Read { errno, .. }), Some(slot)) => {
                Lost::Unreadable { slot, errno: errno.raw_os_error() as u16 }
            }
            (ReadError::File(_), Some(slot)) => Lost::Unreadable { slot, errno: 0 },
            (ReadError::File(_) | ReadError::Missing, _) => Lost::Missing,
        }
    }

    /// A page of the program, or of a child that it serves, was poisoned: counted, and named by the supervisor.
    pub(crate) fn tell_poisoned(&self, address: usize, lost: Lost) {
        self.figures().add(Counter::Poisoned, 1);
        let control = self.descriptors.control.load(Relaxed);
        crate::engine::link::tell(
            control,
            Kind::Note,
            [Note::Poisoned as u64, address as u64, lost.pack()],
            None,
        );
    }

    /// Pages went back into the program.
    pub(crate) fn note_returned(&self, pages: u64) {
        self.counts.swapped_pages.fetch_sub(pages, Relaxed);
    }
    /// Pages left the program.
    pub(crate) fn note_gone(&self, pages: u64) {
        self.counts.swapped_pages.fetch_add(pages, Relaxed);
    }
}

impl Handler {
    /// Resolves a fault of this process.
    pub(crate) fn serve(&mut self, fault: Fault) {
        let engine = self.engine;
        let address = fault.address & !(PAGE - 1);
        if fault.access == Access::WriteProtected {
            engine.figures().add(Counter::WriteProtectFaults, 1);
        }
        if self.pass_trigger(&fault) {
            return;
        }
        loop {
            let Some(block) = engine.table.block_or_insert(address, engine.arena) else {
                engine.userfault().wake(address, PAGE);
                return;
            };
            if fault.access != Access::WriteProtected {
                engine.note_page_table(block, address);
            }
            let word = block.word(page_index(address));
            let done = match word.state() {
                // The evictor is between marking and moving: its section is some tens of microseconds.
                PageState::Isolated(_) => {
                    drop(engine.locks.moves.lock());
                    false
                }
                PageState::Clean(..) => self.serve_clean(block, address, word, fault.access),
                // Shared after a fork, or protected for a reason that is gone, or the page itself is gone; then the thread faults
                // anew.
                _ if fault.access == Access::WriteProtected => self.write_to_protected(block, address),
                PageState::Leaving(_) | PageState::Stored(_) => {
                    let window = self.window(block, address);
                    let resolved = self.swap_in(block, address, fault.access, window);
                    if resolved {
                        self.bring_blocks_ahead(address, fault.access, window);
                    }
                    resolved
                }
                PageState::Present(_) | PageState::Removed { .. } => {
                    let window = self.window(block, address);
                    let resolved = self.first_touch(block, address, window);
                    if resolved {
                        self.bring_blocks_ahead(address, fault.access, window);
                    }
                    resolved
                }
                // Only this thread makes these, and has ended each before it serves another fault.
                PageState::Returning(_) | PageState::Filling => {
                    engine.userfault().wake(address, PAGE);
                    true
                }
            };
            if done {
                return;
            }
        }
    }

    /// What a fault at `address`, in `block`, should bring in: as the region's history advises, but in the middle of another window no more than a
    /// piece.
    fn window(&self, block: &Block, address: usize) -> Window {
        let window = self.engine.window(block, address);
        match self.interruptions {
            Interruptions::Few(_) => window,
            Interruptions::None => Window { order: window.order.min(PIECE_ORDER), ..window },
        }
    }

    /// So many pages were filled in the program, one by one: they are charged, and pace what leaves.
    pub(crate) fn note_came(&mut self, pages: u64) {
        self.engine.member().charge_bytes.fetch_add(pages * PAGE as u64, Relaxed);
        self.engine.embedded.came(pages);
        self.pages_to_next_row = self.pages_to_next_row.saturating_sub(pages);
    }

    /// Brings back what `readahead` says of the 64 KiB piece of `address`, of which that page must be one. What came is counted as pages and
    /// faults, not as folios.
    pub(crate) fn bring(
        &mut self,
        block: &Block,
        address: usize,
        access: Access,
        readahead: &Readahead,
        purpose: Purpose,
    ) -> Brought {
        let engine = self.engine;
        // Only where the store's share is judged by it.
        let began_ns = engine.distances.are_counted().then(sys::now_ns);
        self.waited_ns = 0;
        let (index, order) = (page_index(address), readahead.order);
        let first = index & !(PIECE_PAGES - 1);
        let base = address - (index - first) * PAGE;
        let mut claimed: Claimed = [None; PIECE_PAGES];
        let mut failed: [Option<ReadError>; PIECE_PAGES] = [None; PIECE_PAGES];
        let (mut from_store, mut from_file, mut from_cache) = (0u64, 0u64, 0u64);
        let mut read_ahead: Pages = 0;
        for (page, claimed) in
            claimed.iter_mut().enumerate().filter(|(page, _)| readahead.pages >> page & 1 != 0)
        {
            *claimed = claim(block, first + page);
        }
        if claimed[index - first].is_none() {
            // The evictor was faster with this word: look at it again.
            self.unclaim_all(block, first, &claimed);
            return Brought::AGAIN;
        }
        let away = claimed.iter().flatten().count();
        let mut page = 0;
        while page < PIECE_PAGES {
            let Some(from) = claimed[page] else {
                page += 1;
                continue;
            };
            let mut run = 1;
            match from {
                // Looked up once: the write-back may end at any moment, but the place is not given back before we are done.
                PageState::Leaving(entry) | PageState::Stored(entry) => {
                    match engine.staging_berth(entry).filter(|_| matches!(from, PageState::Leaving(_))) {
                        Some(place) => {
                            self.read_staged(place, first + page, page);
                            from_cache += 1;
                        }
                        None => {
                            let source;
                            (run, source) =
                                self.read_stored(entry, page, &claimed, |bad, why| failed[bad] = Some(why));
                            if source == Purpose::Ahead {
                                read_ahead |= (page..page + run).fold(0, |pages, page| pages | 1 << page);
                            } else {
                                from_store += run as u64;
                                from_file += if engine.space.is_on_file(entry) { run as u64 } else { 0 };
                            }
                        }
                    }
                }
                _ => {}
            }
            page += run;
        }
        for page in 0..PIECE_PAGES {
            if let Some(why) = failed[page]
                && let Some(from) = claimed[page].take()
            {
                if first + page == index {
                    self.unclaim_all(block, first, &claimed);
                    let next =
                        if self.poison(block, address, from, why) { Next::Done } else { Next::LookAgain };
                    return Brought { next, ..Brought::AGAIN };
                }
                unclaim(block, first + page);
            }
        }
        let slot = match claimed[index - first] {
            Some(PageState::Stored(entry)) => engine.space.file_slot(entry),
            _ => None,
        };
        let keep = self.copies_to_keep(access, block, (base, order), |page| match claimed[page]? {
            PageState::Stored(entry) => Some(entry),
            _ => None,
        });
        let (next, copied) = self.copy_back(block, base, first, readahead, keep, &mut claimed);
        self.unclaim_all(block, first, &claimed);
        engine.note_refaults(core::mem::take(&mut self.refaults));
        let is_read = from_store > 0 || read_ahead != 0;
        if copied > 0 {
            let (figures, pages) = (engine.figures(), copied as u64);
            self.note_came(pages);
            // What was read ahead is counted as read already, and nothing was read for it now.
            let faults = if from_store > 0 { Counter::MajorFaults } else { Counter::MinorFaults };
            figures.add(faults, u64::from(purpose == Purpose::Fault));
            if is_read {
                if purpose == Purpose::Fault || order > 0 {
                    // A page that a stride gets ahead was not touched: it says nothing about its neighbours.
                    engine.around.came_back(address / PIECE, index - first, readahead.pages);
                }
                figures.add(Counter::PagesIn, from_store);
                figures.add(Counter::FilePagesIn, from_file);
            }
            figures.add(Counter::SwapCacheHits, from_cache);
            engine.note_activated(from_cache);
            if let Some(began_ns) = began_ns.filter(|_| purpose == Purpose::Fault && from_store > 0) {
                let source = if from_file > 0 || read_ahead != 0 { Source::Below } else { Source::Store };
                engine.costs.add(source, sys::now_ns() - began_ns + self.waited_ns + ROUND_TRIP_NS, pages);
            }
            if let Some(slot) = slot {
                let found = match read_ahead >> (index - first) & 1 {
                    0 if order == 0 => Found::Away,
                    0 => Found::InOrder,
                    _ => Found::ReadAhead,
                };
                self.reads.read_around(engine, block, address, slot, found);
            }
        }
        Brought { next, away, copied, is_read }
    }

    /// Reads the stored page `page` of the window into its buffer, and with it those that follow it on the file device.
    /// Returns how many were read, and whether ahead of this fault or for it; calls `bad` for those that could not be, with the reason.
    fn read_stored(
        &mut self,
        entry: SwapEntry,
        page: usize,
        claimed: &Claimed,
        mut bad: impl FnMut(usize, ReadError),
    ) -> (usize, Purpose) {
        let space = &self.engine.space;
        let Some(slot) = space.file_slot(entry) else {
            let (decoder, buffer) = self.buffers.page_to_read(page);
            if let Err(why) = space.read(entry, decoder, buffer, Movers::Running) {
                bad(page, why);
            }
            return (1, Purpose::Fault);
        };
        let mut entries = [None; PIECE_PAGES];
        let mut run = 0;
        for from in claimed[page..].iter().map_while(|from| *from) {
            let PageState::Stored(next) = from else { break };
            if space.file_slot(next).map(FileSlot::raw) != Some(slot.raw() + run as u64) {
                break;
            }
            entries[run] = Some(next);
            run += 1;
        }
        if run == 0 {
            // It was written back while it was claimed out of staging.
            let (decoder, buffer) = self.buffers.page_to_read(page);
            if let Err(why) = space.read(entry, decoder, buffer, Movers::Running) {
                bad(page, why);
            }
            return (1, Purpose::Fault);
        }
        // As far as it was read ahead; what follows is asked for next.
        let ahead = self.reads.read_ahead(slot, run);
        run = if ahead > 0 { ahead } else { run };
        let pages = self.buffers.pages(page, run);
        if let Some(taken) = self.reads.take(self.engine, slot, pages) {
            let mut is_whole = true;
            space.check_run(&entries[..run], pages, |_| is_whole = false);
            if is_whole {
                // What was waited for in earlier rounds; this one is counted as a whole.
                let waited_ns =
                    taken.waited_since_ns.map_or(0, |since| self.round_began_ns.saturating_sub(since));
                self.engine.figures().add(Counter::FaultNanoseconds, waited_ns);
                self.waited_ns += waited_ns;
                return (run, taken.purpose);
            }
        }
        space.read_run(&entries[..run], slot, pages, |index, why| bad(page + index, why));
        (run, Purpose::Fault)
    }

    fn read_staged(&mut self, place: u32, index: usize, page: usize) {
        // SAFETY: the ring's memory is fixed once installed.
        let staged = unsafe { &*self.engine.staging.get() }.address(place) + index % PIECE_PAGES * PAGE;
        // SAFETY: a page of the staging area, which is always mapped; the page is claimed, so the evictor does not give
        // its place back before we are done.
        *self.buffers.page(page) = unsafe { *(staged as *const Page) };
    }

    /// Copies the claimed pages into the program, run by run; those in `keep` keep their stored copy. Says what is to be done next,
    /// and how many pages are back; the claims of those are gone from the list.
    fn copy_back(
        &mut self,
        block: &Block,
        base: usize,
        first: usize,
        readahead: &Readahead,
        keep: Pages,
        claimed: &mut Claimed,
    ) -> (Next, usize) {
        let engine = self.engine;
        let (mut page, mut copied) = (0, 0);
        let (mut run_most, mut freeing) = (PIECE_PAGES, Freeing::new(engine));
        while page < PIECE_PAGES {
            let kept = keep >> page & 1;
            let alike = |&(at, from): &(usize, &Option<PageState>)| from.is_some() && keep >> at & 1 == kept;
            let run = claimed.iter().enumerate().skip(page).take(run_most).take_while(alike).count();
            if run == 0 {
                page += 1;
                continue;
            }
            let from: *const u8 = self.buffers.page(page).as_ptr();
            let (to, bytes) = (base + page * PAGE, run * PAGE);
            // SAFETY: the buffers are the engine's memory.
            let result = unsafe {
                if kept != 0 {
                    engine.userfault().copy_protected(to, from, bytes)
                } else {
                    engine.userfault().copy(to, from, bytes)
                }
            };
            let (done, why) = match result {
                Ok(()) => (run, None),
                Err(stopped) => (stopped.done / PAGE, Some(stopped.why)),
            };
            for (at, from) in claimed.iter_mut().enumerate().skip(page).take(done) {
                if let Some(from) = from.take() {
                    let heat = self.heat_of(from, readahead.heat());
                    if kept != 0 {
                        self.keep_copy(&mut freeing, block, (first + at, from), heat);
                    } else {
                        self.give_up_copy(&mut freeing, block, (first + at, from), heat);
                    }
                }
            }
            copied += done;
            page += done;
            match why {
                None => {}
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::EXIST) => {
                    // It is there already: it was served while a fork froze the words. What is stored is old.
                    if let Some(from) = claimed[page].take() {
                        let heat = self.heat_of(from, readahead.heat());
                        self.give_up_copy(&mut freeing, block, (first + page, from), heat);
                    }
                    engine.userfault().wake(base + page * PAGE, PAGE);
                    page += 1;
                }
                Some(why @ (Errno::AGAIN | Errno::NOMEM)) => {
                    self.unclaim_all(block, first, claimed);
                    claimed.fill(None);
                    if why == Errno::NOMEM {
                        return (Next::Fewer, copied);
                    }
                    rustix::thread::sched_yield();
                    self.read_messages();
                    return (Next::LookAgain, copied);
                }
                // The run reaches past the end of a mapping: page by page then.
                Some(_) if run - done > 1 => run_most = 1,
                // The mapping is gone, or the process ends: let the thread look for itself.
                Some(_) => {
                    if claimed[page].take().is_some() {
                        unclaim(block, first + page);
                    }
                    engine.userfault().wake(base + page * PAGE, PAGE);
                    page += 1;
                }
            }
        }
        (Next::Done, copied)
    }

    /// The page is in the program: its entry is given up. One that was still in staging is the evictor's to free.
    fn give_up_copy(
        &self,
        freeing: &mut Freeing,
        block: &Block,
        (index, from): (usize, PageState),
        heat: Heat,
    ) {
        let engine = self.engine;
        block.set(index, PageWord::present(heat));
        if let PageState::Stored(entry) = from {
            freeing.put(entry);
        }
        engine.note_returned(1);
    }

    /// The page is in the program, protected, and its entry stays: only after this does the evictor look at it again.
    fn keep_copy(&self, freeing: &mut Freeing, block: &Block, (index, from): (usize, PageState), heat: Heat) {
        match block.word(index).returned_clean(heat) {
            Some(clean) => {
                if let PageState::Stored(entry) = from {
                    self.engine.space.note_kept(entry);
                }
                self.engine.counts.clean_pages.fetch_add(1, Relaxed);
                self.engine.note_returned(1);
                block.set(index, clean);
            }
            None => self.give_up_copy(freeing, block, (index, from), heat),
        }
    }

    fn unclaim_all(&self, block: &Block, first: usize, claimed: &Claimed) {
        for (page, from) in claimed.iter().enumerate() {
            if from.is_some() {
                unclaim(block, first + page);
            }
        }
    }

    /// The bytes of this page, which is claimed, are lost: who touches it gets SIGBUS, and nobody else is harmed. False: not now, an event waits.
    fn poison(&mut self, block: &Block, address: usize, from: PageState, why: ReadError) -> bool {
        let (engine, index) = (self.engine, page_index(address));
        match engine.userfault().poison(address) {
            Err(errno) => {
                unclaim(block, index);
                if matches!(errno, Errno::AGAIN | Errno::NOMEM) {
                    self.read_messages();
                    return false;
                }
                // Something stands there, or the mapping is gone: let the thread look for itself.
            }
            Ok(()) => {
                let (PageState::Leaving(entry) | PageState::Stored(entry)) = from else {
                    unreachable!("nothing else is claimed")
                };
                // Before it is given up, by us or by the evictor, which waits for its word.
                let lost = engine.why_lost(entry, why);
                self.give_up_copy(&mut Freeing::new(engine), block, (index, from), Heat::Cold);
                engine.tell_poisoned(address, lost);
            }
        }
        engine.userfault().wake(address, PAGE);
        true
    }
}

//! Bringing back a piece: its pages are claimed, read from where they are, copied into the program,
//! and accounted for.

use crate::fault::claim::ClaimedPiece;
use crate::fault::handler::Handler;
use crate::fault::read_around::Found;
use crate::fault::readahead::Readahead;
use crate::fault::reading::Purpose;
use crate::kernel::sys;
use crate::kernel::uffd::Access;
use crate::staging::ring::BerthIndex;
use crate::units::{PAGE, PIECE_PAGES, PageAddr, Pages};
use folioswap_devices::{FileSlot, Page};
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;
use folioswap_policy::reclaim::store_share::Source;
use folioswap_slots::SwapEntry;
use folioswap_space::space::{Movers, ReadError};

/// The time from the fault until the handler has it, and from its end until the thread runs again.
const ROUND_TRIP_NS: u64 = 10_000;

/// The next step after pages of a piece came back, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The fault is resolved.
    Done,
    /// The page's word is to be looked at again: another thread changed it first, or an event
    /// waited, which is read now.
    LookAgain,
    /// The kernel had no memory for so many pages at once: fewer are tried next.
    Fewer,
}

/// The pages of a piece that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brought {
    pub(crate) next: Next,
    /// The number of pages that were away, of those that should come.
    pub(crate) away: usize,
    /// The number of pages that came.
    pub(crate) copied: usize,
    /// Whether some were read from a device, now or ahead.
    pub(crate) is_read: bool,
}

impl Brought {
    const AGAIN: Brought = Brought { next: Next::LookAgain, away: 0, copied: 0, is_read: false };
}

/// Whether the program has made the touched page a guard meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    IsGuard,
    IsNone,
}

/// Where the pages of a piece were read from.
#[derive(Default)]
struct Sources {
    /// Pages from the compressed store or a device, read now.
    store: u64,
    /// Those of them that were on a file or block device.
    file: u64,
    /// Pages out of staging, which is the swap cache.
    cache: u64,
    /// Pages that had been read ahead.
    read_ahead: Pages,
    /// For each page that could not be read, the reason.
    failed: [Option<ReadError>; PIECE_PAGES],
}

impl Sources {
    fn any_was_read(&self) -> bool {
        self.store > 0 || self.read_ahead != 0
    }
}

/// The purpose of a swap-in, and when it began.
#[derive(Clone, Copy)]
struct Occasion {
    address: PageAddr,
    purpose: Purpose,
    /// Order of the folio that is read from a device.
    order: u8,
    /// When the swap-in began; `None` where the store's share is not judged by the costs of
    /// swap-ins.
    began_ns: Option<u64>,
    /// The slot of the touched page, if it lies on a file device.
    slot: Option<FileSlot>,
}

impl Handler {
    /// Brings back the pages that `readahead` names of the piece of `address`, among them the page
    /// of `address` itself. The pages that came are counted as pages and faults, not as folios.
    pub(crate) fn bring(
        &mut self,
        block: &Block,
        address: PageAddr,
        access: Access,
        readahead: &Readahead,
        purpose: Purpose,
    ) -> Brought {
        let engine = self.engine;
        let began_ns = engine.distances.are_counted().then(sys::now_ns);
        self.swapin.waited_ns = 0;
        let mut claimed = ClaimedPiece::claim(block, address, readahead.pages);
        if claimed.from[claimed.touched].is_none() {
            // The evictor changed this word first: look at it again.
            claimed.release(block);
            return Brought::AGAIN;
        }
        if (claimed.count() > 1 || purpose != Purpose::Fault)
            && self.give_way_to_guards(block, &mut claimed) == Touched::IsGuard
        {
            claimed.release(block);
            engine.userfault().wake(address.raw(), PAGE);
            return Brought { next: Next::Done, ..Brought::AGAIN };
        }
        let away = claimed.count();
        let sources = self.read_claimed(&claimed);
        if let Some(next) = self.give_up_unreadable(block, &mut claimed, &sources) {
            return Brought { next, ..Brought::AGAIN };
        }
        let slot = claimed.stored(claimed.touched).and_then(|entry| engine.space.file_slot(entry));
        let occasion = Occasion { address, purpose, order: readahead.order, began_ns, slot };
        let keep =
            self.copies_to_keep(access, block, (claimed.piece, occasion.order), |page| claimed.stored(page));
        let (next, copied) = self.copy_back(block, &mut claimed, readahead, keep);
        claimed.release(block);
        engine.note_refaults(core::mem::take(&mut self.swapin.refaults));
        if copied > 0 {
            self.account_for_brought(block, &claimed, readahead.pages, &sources, copied as u64, occasion);
        }
        Brought { next, away, copied, is_read: sources.any_was_read() }
    }

    /// Gives up the pages of the piece where the program has installed a guard
    /// (MADV_GUARD_INSTALL): no page must come there, and what was there is gone. The kernel tells
    /// nobody when it installs one, and a copy would replace it (UFFDIO_COPY takes it for nothing).
    fn give_way_to_guards(&mut self, block: &Block, claimed: &mut ClaimedPiece) -> Touched {
        let Ok(guarded) = self.engine.guards_now(claimed.piece) else {
            // The neighbours stay away.
            let touched = claimed.touched;
            (0..PIECE_PAGES)
                .filter(|&page| page != touched)
                .for_each(|page| claimed.release_page(block, page));
            return Touched::IsNone;
        };
        if guarded == 0 {
            return Touched::IsNone;
        }
        // What was read ahead may be of a slot that is free in a moment.
        self.reads.forget_all();
        for page in (0..PIECE_PAGES).filter(|page| guarded >> page & 1 != 0) {
            claimed.release_page(block, page);
            self.engine.forget_page(block, claimed.first.plus(page));
        }
        if guarded >> claimed.touched & 1 != 0 { Touched::IsGuard } else { Touched::IsNone }
    }

    /// Reads all claimed pages into the buffers.
    fn read_claimed(&mut self, claimed: &ClaimedPiece) -> Sources {
        let engine = self.engine;
        let mut sources = Sources::default();
        let mut page = 0;
        while page < PIECE_PAGES {
            let Some(from) = claimed.from[page] else {
                page += 1;
                continue;
            };
            let mut run = 1;
            // The berth is looked up once: the write-back may end at any moment, but the berth is
            // not given back before this is done.
            if let PageState::Leaving(entry) | PageState::Stored(entry) = from {
                match engine.staging_berth(entry).filter(|_| matches!(from, PageState::Leaving(_))) {
                    Some(berth) => {
                        self.read_staged(berth, page);
                        sources.cache += 1;
                    }
                    None => {
                        let failed = &mut sources.failed;
                        let source;
                        (run, source) =
                            self.read_stored(entry, page, claimed, |bad, why| failed[bad] = Some(why));
                        if source == Purpose::Ahead {
                            sources.read_ahead |= (page..page + run).fold(0, |pages, page| pages | 1 << page);
                        } else {
                            sources.store += run as u64;
                            sources.file += if engine.space.is_on_file(entry) { run as u64 } else { 0 };
                        }
                    }
                }
            }
            page += run;
        }
        sources
    }

    /// Ends the claims on pages that could not be read. If the touched page is one of them it is
    /// poisoned: then the next step is returned, and no claim is left.
    fn give_up_unreadable(
        &mut self,
        block: &Block,
        claimed: &mut ClaimedPiece,
        sources: &Sources,
    ) -> Option<Next> {
        for page in 0..PIECE_PAGES {
            let (Some(why), Some(from)) = (sources.failed[page], claimed.from[page]) else { continue };
            if page == claimed.touched {
                claimed.from[page] = None;
                claimed.release(block);
                let is_resolved = self.poison(block, claimed.piece.page(page), from, why);
                return Some(if is_resolved { Next::Done } else { Next::LookAgain });
            }
            claimed.release_page(block, page);
        }
        None
    }

    /// Counts `copied` pages that came back, and records the lesson of their swap-in about
    /// neighbours and costs.
    fn account_for_brought(
        &mut self,
        block: &Block,
        claimed: &ClaimedPiece,
        wanted: Pages,
        sources: &Sources,
        copied: u64,
        occasion: Occasion,
    ) {
        let (engine, touched) = (self.engine, claimed.touched);
        let Occasion { address, purpose, order, began_ns, slot } = occasion;
        let figures = engine.figures();
        self.note_came(copied);
        // Pages that had been read ahead are counted as read already, and nothing was read for them
        // now.
        let faults = if sources.store > 0 { Counter::MajorFaults } else { Counter::MinorFaults };
        figures.add(faults, u64::from(purpose == Purpose::Fault));
        if sources.any_was_read() {
            if purpose == Purpose::Fault || order > 0 {
                // A page that a stride gets ahead was not touched: it says nothing about its
                // neighbours.
                engine.around.came_back(address.piece().number(), touched, wanted);
            }
            figures.add(Counter::PagesIn, sources.store);
            figures.add(Counter::FilePagesIn, sources.file);
        }
        figures.add(Counter::SwapCacheHits, sources.cache);
        engine.note_activated(sources.cache);
        if let Some(began_ns) = began_ns.filter(|_| purpose == Purpose::Fault && sources.store > 0) {
            let is_below = sources.file > 0 || sources.read_ahead != 0;
            let source = if is_below { Source::Below } else { Source::Store };
            engine.costs.add(
                source,
                sys::now_ns() - began_ns + self.swapin.waited_ns + ROUND_TRIP_NS,
                copied,
            );
        }
        if let Some(slot) = slot {
            let found = match sources.read_ahead >> touched & 1 {
                0 if order == 0 => Found::Away,
                0 => Found::InOrder,
                _ => Found::ReadAhead,
            };
            self.reads.read_around(engine, block, address, slot, found);
        }
    }

    /// Reads the stored page `page` of the piece into its buffer, and with it the pages that follow
    /// it on the file device. Returns how many were read, and whether ahead of this fault or for
    /// it; calls `bad` for each page that could not be read, with the reason.
    fn read_stored(
        &mut self,
        entry: SwapEntry,
        page: usize,
        claimed: &ClaimedPiece,
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
        for from in claimed.from[page..].iter().map_while(|from| *from) {
            let PageState::Stored(next) = from else { break };
            if space.file_slot(next).map(FileSlot::raw) != Some(slot.raw() + run as u64) {
                break;
            }
            entries[run] = Some(next);
            run += 1;
        }
        if run == 0 {
            // The page was written back while it was claimed out of staging.
            let (decoder, buffer) = self.buffers.page_to_read(page);
            if let Err(why) = space.read(entry, decoder, buffer, Movers::Running) {
                bad(page, why);
            }
            return (1, Purpose::Fault);
        }
        // The run ends where the read ahead ends; the pages that follow are asked for next.
        let ahead = self.reads.read_ahead(slot, run);
        run = if ahead > 0 { ahead } else { run };
        let pages = self.buffers.pages(page, run);
        if let Some(taken) = self.reads.take(self.engine, slot, pages) {
            let mut is_whole = true;
            space.check_run(&entries[..run], pages, |_| is_whole = false);
            if is_whole {
                // Only the wait in earlier rounds is added; the present round is counted as a
                // whole.
                let waited_ns =
                    taken.waited_since_ns.map_or(0, |since| self.swapin.round_began_ns.saturating_sub(since));
                self.engine.figures().add(Counter::FaultNanoseconds, waited_ns);
                self.swapin.waited_ns += waited_ns;
                return (run, taken.purpose);
            }
        }
        space.read_run(&entries[..run], slot, pages, |index, why| bad(page + index, why));
        (run, Purpose::Fault)
    }

    fn read_staged(&mut self, berth: BerthIndex, page: usize) {
        // SAFETY: the ring's memory is fixed once installed.
        let staged = unsafe { &*self.engine.staging.get() }.address(berth) + page * PAGE;
        // SAFETY: the source is a page of the staging area, which is always mapped; the page is
        // claimed, so the evictor does not give its berth back before we are done.
        *self.buffers.page(page) = unsafe { *(staged as *const Page) };
    }
}

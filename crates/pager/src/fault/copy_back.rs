//! Claimed pages go into the program, by one copy for as many as lie side by side; lost pages are
//! poisoned.

use crate::fault::bring::Next;
use crate::fault::claim::{ClaimedPiece, unclaim};
use crate::fault::handler::Handler;
use crate::fault::readahead::Readahead;
use crate::store::freeing::Freeing;
use crate::units::{PAGE, PIECE_PAGES, PageAddr, PageInBlock, Pages};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::page::{Heat, PageState, PageWord};
use folioswap_policy::page_table::Block;
use folioswap_space::space::ReadError;
use rustix::io::Errno;

/// The future of the stored copy of a page that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The copy stays, and the page is write-protected.
    Kept,
    /// The copy is freed.
    GivenUp,
}

impl Handler {
    /// Copies the claimed pages into the program, run by run; those in `keep` keep their stored
    /// copy. Returns the next step, and how many pages are back; their claims are gone.
    pub(crate) fn copy_back(
        &mut self,
        block: &Block,
        claimed: &mut ClaimedPiece,
        readahead: &Readahead,
        keep: Pages,
    ) -> (Next, usize) {
        let engine = self.engine;
        let (mut page, mut copied) = (0, 0);
        let (mut run_most, mut freeing) = (PIECE_PAGES, Freeing::new(engine));
        while page < PIECE_PAGES {
            let kept = keep >> page & 1;
            let alike = |&(at, from): &(usize, &Option<PageState>)| from.is_some() && keep >> at & 1 == kept;
            let run = claimed.from.iter().enumerate().skip(page).take(run_most).take_while(alike).count();
            if run == 0 {
                page += 1;
                continue;
            }
            let fate = if kept != 0 { Fate::Kept } else { Fate::GivenUp };
            let (done, why) = self.copy_run(block, claimed, (page, run), fate, readahead, &mut freeing);
            copied += done;
            page += done;
            match why {
                None => {}
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::EXIST) => {
                    // The page is there already: it was served while a fork froze the words. The
                    // stored copy is old.
                    if let Some(from) = claimed.from[page].take() {
                        let heat = self.heat_of(from, readahead.heat());
                        self.give_up_copy(&mut freeing, block, (claimed.first.plus(page), from), heat);
                    }
                    engine.userfault().wake(claimed.piece.page(page).raw(), PAGE);
                    page += 1;
                }
                Some(Errno::NOMEM) => {
                    claimed.release(block);
                    return (Next::Fewer, copied);
                }
                Some(Errno::AGAIN) => {
                    claimed.release(block);
                    rustix::thread::sched_yield();
                    self.read_messages();
                    return (Next::LookAgain, copied);
                }
                // The run reaches past the end of a mapping: the rest goes page by page.
                Some(_) if run - done > 1 => run_most = 1,
                // The mapping is gone, or the process ends: let the thread look for itself.
                Some(_) => {
                    claimed.release_page(block, page);
                    engine.userfault().wake(claimed.piece.page(page).raw(), PAGE);
                    page += 1;
                }
            }
        }
        (Next::Done, copied)
    }

    /// Copies `run` pages from number `page` on into the program, and sets the words of those that
    /// are there then. Returns how many arrived, and why the others did not.
    fn copy_run(
        &mut self,
        block: &Block,
        claimed: &mut ClaimedPiece,
        (page, run): (usize, usize),
        fate: Fate,
        readahead: &Readahead,
        freeing: &mut Freeing,
    ) -> (usize, Option<Errno>) {
        let userfault = self.engine.userfault();
        let from: *const u8 = self.buffers.page(page).as_ptr();
        let (to, bytes) = (claimed.piece.page(page).raw(), run * PAGE);
        // SAFETY: the buffers are the engine's memory.
        let result = unsafe {
            match fate {
                Fate::Kept => userfault.copy_protected(to, from, bytes),
                Fate::GivenUp => userfault.copy(to, from, bytes),
            }
        };
        let (done, why) = match result {
            Ok(()) => (run, None),
            Err(stopped) => (stopped.done / PAGE, Some(stopped.why)),
        };
        for at in page..page + done {
            let Some(from) = claimed.from[at].take() else { continue };
            let heat = self.heat_of(from, readahead.heat());
            match fate {
                Fate::Kept => self.keep_copy(freeing, block, (claimed.first.plus(at), from), heat),
                Fate::GivenUp => self.give_up_copy(freeing, block, (claimed.first.plus(at), from), heat),
            }
        }
        (done, why)
    }

    /// Gives up the entry of a page that is in the program. The evictor frees an entry that was
    /// still in staging.
    fn give_up_copy(
        &self,
        freeing: &mut Freeing,
        block: &Block,
        (index, from): (PageInBlock, PageState),
        heat: Heat,
    ) {
        let engine = self.engine;
        block.set(index, PageWord::present(heat));
        if let PageState::Stored(entry) = from {
            freeing.put(entry);
        }
        engine.note_returned(1);
    }

    /// Keeps the entry of a page that is in the program, protected; only after this does the
    /// evictor look at the page again.
    fn keep_copy(
        &self,
        freeing: &mut Freeing,
        block: &Block,
        (index, from): (PageInBlock, PageState),
        heat: Heat,
    ) {
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

    /// Poisons this claimed page, whose bytes are lost: a thread that touches it gets SIGBUS, and
    /// nobody else is harmed. Returns false if that is not possible now because an event waits.
    pub(crate) fn poison(
        &mut self,
        block: &Block,
        address: PageAddr,
        from: PageState,
        why: ReadError,
    ) -> bool {
        let (engine, index) = (self.engine, address.index());
        match engine.userfault().poison(address.raw()) {
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
                // The reason is found before the entry is given up, by us or by the evictor, which
                // waits for the page's word.
                let lost = engine.why_lost(entry, why);
                self.give_up_copy(&mut Freeing::new(engine), block, (index, from), Heat::Cold);
                engine.tell_poisoned(address, lost);
            }
        }
        engine.userfault().wake(address.raw(), PAGE);
        true
    }
}

//! Huge pages that come to the program as a whole: at a first touch, out of staging, and from a
//! device.
//!
//! The 2 MiB are moved, not copied, and stay one huge page of the kernel's. All three ways begin
//! alike: either every page word of the block is claimed, or nothing is done and the piece is
//! served as any other. Where the kernel moves only a part, each page's word says what became of
//! it.
//!
//! A huge page stays one only where no page table stands. The fault itself leaves one in its block
//! (`do_anonymous_page`), unless the program has asked for huge pages there. So a fault is served
//! by a huge page only there; elsewhere a walk gets its huge pages ahead of it, in the blocks that
//! it will come to next. (If the pager asked the kernel for huge pages in the program's stead, each
//! fault in 2 MiB without a page table would clear a huge page in vain, before userfaultfd is
//! asked.)

use crate::engine::Engine;
use crate::engine::ending::certainly;
use crate::engine::pool::{For, Taken};
use crate::fault::claim::{claim_all, unclaim};
use crate::fault::first_touch::begin_filling;
use crate::fault::handler::Handler;
use crate::fault::reading::Purpose;
use crate::kernel::pagemap;
use crate::kernel::uffd::Stopped;
use crate::staging::staged_folio::StagedFolio;
use crate::store::freeing::Freeing;
use crate::units::{BLOCK, BLOCK_ORDER, BLOCK_PAGES, BlockAddr, PAGE, PageAddr, PageInBlock};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::{FileSlot, Page};
use folioswap_group::counters::{Counter, SizeCounter};
use folioswap_policy::page::{Heat, PageState, PageWord};
use folioswap_policy::page_table::Block;
use folioswap_policy::reclaim::workingset::Refaults;
use folioswap_slots::{Order, SlotWord, SwapEntry};
use folioswap_space::space::Movers;
use rustix::io::Errno;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeSwapIn {
    /// The page that was touched is there.
    Done,
    /// The word of the page is to be looked at again.
    Again,
    /// The block cannot come as a whole: one piece comes instead.
    Refused,
}

impl Handler {
    /// Fills this block with zeroes, if nothing of it is in memory or on a device.
    pub(crate) fn first_touch_huge_page(
        &mut self,
        block: &Block,
        start: BlockAddr,
        purpose: Purpose,
    ) -> HugeSwapIn {
        let engine = self.engine;
        let pagemap = engine.descriptors.pagemap.load(Relaxed);
        if !engine.is_block_registered(start) || !pagemap::is_empty(pagemap, start.raw(), start.end()) {
            return HugeSwapIn::Refused;
        }
        if PageInBlock::all().any(|page| block.word(page).fill().is_none()) {
            return HugeSwapIn::Refused;
        }
        let Ok(zeroes) = engine.take_huge_page(For::FirstTouch) else { return HugeSwapIn::Refused };
        if purpose == Purpose::Ahead {
            // Taking the huge page may have lasted longer than the program needs to come here. Its
            // fault leaves a page table. The kernel would then split the huge page, and take its
            // parts, which are zeroes, for the shared zero page: each write would be one more
            // fault.
            self.read_messages();
            if self.has_more_to_do() {
                engine.put_cleared_back(zeroes);
                return HugeSwapIn::Refused;
            }
        }
        // The messages that were read may have taken the block away, and given it to another
        // address.
        let Some(block) = engine.table.block(start) else {
            engine.put_cleared_back(zeroes);
            return HugeSwapIn::Refused;
        };
        let claimed = PageInBlock::all().take_while(|&page| begin_filling(block, page)).count();
        let result = (claimed == BLOCK_PAGES).then(|| {
            // SAFETY: all pages of the target are claimed, and the source is a page of the pool
            // that we have taken.
            unsafe { engine.userfault().move_pages(start.raw(), zeroes.address, BLOCK) }
        });
        let filled = match result {
            Some(Ok(())) => BLOCK_PAGES,
            // Pages that the kernel may have moved besides, without reporting them, are zeroes too,
            // and count as present before.
            Some(Err(Stopped { done, .. })) => done / PAGE,
            None => 0,
        };
        engine.embedded.came(filled as u64);
        for page in PageInBlock::range(0..claimed) {
            let word = block.word(page);
            if let Some(after) = if page.get() < filled { word.filled() } else { word.not_filled() } {
                block.set(page, after);
            }
        }
        match result {
            Some(Ok(())) => engine.huge_page_has_moved(zeroes, start),
            // The block has another protection, or is locked: nothing was moved.
            None | Some(Err(Stopped { done: 0, why: Errno::INVAL })) => engine.put_huge_page_back(zeroes),
            Some(Err(_)) => engine.give_up_huge_page(zeroes),
        }
        if filled < BLOCK_PAGES {
            return HugeSwapIn::Refused;
        }
        block.history.remember(0, filled, BLOCK_ORDER);
        HugeSwapIn::Done
    }

    /// Serves a touch of a huge page that waits in staging: where the program wants huge pages, and
    /// no page of it has been written back, all of it goes back.
    pub(crate) fn return_huge_page(
        &mut self,
        block: &Block,
        address: PageAddr,
        entry: SwapEntry,
    ) -> HugeSwapIn {
        let engine = self.engine;
        let SlotWord::Cached { folio, .. } = engine.space.slots().word(entry) else {
            return HugeSwapIn::Refused;
        };
        let folio = StagedFolio::of(folio);
        // SAFETY: the ring's memory is fixed once installed, and the flag is atomic.
        let staging = unsafe { &*engine.staging.get() };
        let start = address.block();
        if folio.order != Order::MAX || !staging.is_huge_page(folio.first) || !engine.wants_huge_pages(start)
        {
            return HugeSwapIn::Refused;
        }
        // All pages must wait in this very folio: a page that was written back and touched since
        // waits in another berth, and here lies its content from before.
        let is_of_folio = |entry| match engine.space.slots().word(entry) {
            SlotWord::Cached { folio: of, .. } => StagedFolio::of(of) == folio,
            _ => false,
        };
        let is_leaving = |state| matches!(state, PageState::Leaving(entry) if is_of_folio(entry));
        if !claim_all(block, is_leaving) {
            return HugeSwapIn::Refused;
        }
        let staged = staging.address(folio.first);
        // SAFETY: all pages are claimed, so the evictor keeps their berths until we are done, and
        // nobody else fills the target.
        let result = unsafe { engine.userfault().move_pages(start.raw(), staged, BLOCK) };
        // The kernel's count of moved pages is not reliable when the move stops (`moves.rs`); a
        // page that is not in staging any more has moved. (Where the evictor has looked at a berth
        // meanwhile the shared zero page stands there, which does not count as present.)
        let is_left = |page: PageInBlock| {
            let at = staged + page.get() * PAGE;
            result.is_err() && !engine.is_certainly_empty(at)
        };
        let mut returned = 0;
        for page in PageInBlock::all() {
            if is_left(page) {
                unclaim(block, page);
            } else {
                // The evictor frees its entry.
                block.set(page, PageWord::PRESENT_HOT);
                returned += 1;
            }
        }
        engine.note_returned(returned);
        engine.embedded.came(returned);
        let figures = engine.figures();
        figures.add(Counter::MinorFaults, u64::from(returned > 0));
        figures.add(Counter::SwapCacheHits, returned);
        engine.note_activated(returned);
        self.end_huge_page(block, address, result)
    }

    /// Brings the block of `address` as one huge page, if all of its pages are on devices, and it
    /// will stay one. Otherwise no huge page is asked for, and none falls back.
    ///
    /// The huge page keeps no stored copies, not even where a walk only reads. It cannot come
    /// protected, and compressing a huge page that was moved as a whole costs less than copying it
    /// page by page, so that it can be dropped later, and moving it out again
    /// (`docs/decisions/0013-clean-copies.md`).
    pub(crate) fn swap_in_huge_page(
        &mut self,
        block: &Block,
        address: PageAddr,
        purpose: Purpose,
    ) -> HugeSwapIn {
        let engine = self.engine;
        let start = address.block();
        let Some(taken) = self.claim_stored_block(block, start, purpose) else { return HugeSwapIn::Refused };
        if !self.read_huge_page(block, taken) {
            PageInBlock::all().for_each(|page| unclaim(block, page));
            engine.put_huge_page_back(taken);
            // The swap-in of the piece finds out which page could not be read.
            engine.fall_back(BLOCK_ORDER, None);
            return HugeSwapIn::Refused;
        }
        // SAFETY: all pages of the target are claimed, and the source is a page of the pool that
        // was taken.
        let result = unsafe { engine.userfault().move_pages(start.raw(), taken.address, BLOCK) };
        // Pages that the kernel may have moved besides, without reporting them, are present under a
        // word that says `Stored`, as after a fork freeze.
        let done = match result {
            Ok(()) => BLOCK_PAGES,
            Err(Stopped { done, .. }) => done / PAGE,
        };
        let from_file = self.settle_swapped_in(block, done);
        match result {
            Ok(()) => engine.huge_page_has_moved(taken, start),
            Err(Stopped { why, .. }) => {
                // A huge page is not asked for again and again where the kernel refuses it.
                block.left_huge.store(why == Errno::AGAIN, Relaxed);
                engine.give_up_huge_page(taken);
            }
        }
        engine.note_returned(done as u64);
        engine.embedded.came(done as u64);
        if done > 0 {
            block.history.remember(0, done, BLOCK_ORDER);
        }
        let figures = engine.figures();
        figures.add(Counter::MajorFaults, u64::from(done > 0 && purpose == Purpose::Fault));
        figures.add(Counter::PagesIn, done as u64);
        figures.add(Counter::FilePagesIn, from_file);
        match result {
            Ok(()) => figures.add_size(SizeCounter::SwapIn, BLOCK_ORDER as usize, 1),
            Err(_) => {
                figures.add_size(SizeCounter::SwapIn, 0, done as u64);
                engine.fall_back(BLOCK_ORDER, None);
            }
        }
        self.end_huge_page(block, address, result)
    }

    /// Claims all pages of the block at `start`, if each is stored, and takes a huge page of
    /// the pool to read them into. Returns `None`, with nothing claimed, if that is not possible.
    fn claim_stored_block(&mut self, block: &Block, start: BlockAddr, purpose: Purpose) -> Option<Taken> {
        let engine = self.engine;
        if !engine.is_block_registered(start) {
            return None;
        }
        if purpose == Purpose::Ahead && !engine.stays_huge(block, start) {
            return None;
        }
        // A thread that waits for a page waits for a file too. Ahead of a walk the handler should
        // not wait for one, since events are not read meanwhile.
        let is_stored = |state| match state {
            PageState::Stored(entry) => purpose == Purpose::Fault || engine.space.file_slot(entry).is_none(),
            _ => false,
        };
        if !PageInBlock::all().all(|page| is_stored(block.word(page).state())) {
            return None;
        }
        let taken = match engine.take_huge_page(For::SwapIn) {
            Ok(taken) => taken,
            Err(why) => {
                // Ahead of a walk nobody waits for the huge page, and it is asked for again: it
                // counts once.
                if purpose == Purpose::Fault || self.walk.missed_ahead != Some(start) {
                    engine.fall_back(BLOCK_ORDER, Some(why));
                }
                if purpose == Purpose::Ahead {
                    self.walk.missed_ahead = Some(start);
                }
                return None;
            }
        };
        if !claim_all(block, is_stored) {
            engine.put_huge_page_back(taken);
            engine.fall_back(BLOCK_ORDER, None);
            return None;
        }
        Some(taken)
    }

    /// Frees the entries of the first `done` pages of a claimed block, which are in the program,
    /// and ends the other claims. Returns how many of them came from a file.
    fn settle_swapped_in(&mut self, block: &Block, done: usize) -> u64 {
        let engine = self.engine;
        // Slots that are given up here may belong to another page before a read from them that is
        // under way ends.
        self.reads.forget_all();
        let (mut from_file, mut refaults, mut freeing) = (0, Refaults::default(), Freeing::new(engine));
        for page in PageInBlock::all() {
            let entry = block.word(page).entry();
            if page.get() >= done {
                unclaim(block, page);
            } else if let Some(entry) = entry {
                from_file += u64::from(engine.space.is_on_file(entry));
                refaults.add(engine.refault(entry));
                block.set(page, PageWord::present(Heat::Cold));
                freeing.put(entry);
            }
        }
        drop(freeing);
        engine.note_refaults(refaults);
        from_file
    }

    /// Reads all claimed pages of a block into a huge page of the pool, consecutive slots of a file
    /// with one read. Returns false if one of the pages cannot be read.
    fn read_huge_page(&mut self, block: &Block, taken: Taken) -> bool {
        let space = &self.engine.space;
        let entries: [Option<SwapEntry>; BLOCK_PAGES] =
            core::array::from_fn(|page| block.word(PageInBlock::new(page)).entry());
        // SAFETY: the target is a huge page of the pool that we have taken: nobody else looks at
        // it.
        let pages = unsafe { &mut *(taken.address as *mut [Page; BLOCK_PAGES]) };
        let slot_of =
            |page: usize| entries.get(page).copied().flatten().and_then(|entry| space.file_slot(entry));
        let mut page = 0;
        while page < BLOCK_PAGES {
            let Some(entry) = entries[page] else { return false };
            let Some(slot) = slot_of(page) else {
                let decoder = &mut self.buffers.decoder;
                if space.read(entry, decoder, &mut pages[page], Movers::Running).is_err() {
                    return false;
                }
                page += 1;
                continue;
            };
            let follows = |&further: &usize| {
                slot_of(page + further).map(FileSlot::raw) == Some(slot.raw() + further as u64)
            };
            let run = (1..).take_while(follows).count() + 1;
            let mut is_whole = true;
            space.read_run(&entries[page..page + run], slot, &mut pages[page..page + run], |_, _| {
                is_whole = false;
            });
            if !is_whole {
                return false;
            }
            page += run;
        }
        true
    }

    /// Chooses the result after a move to the program that may have ended early.
    fn end_huge_page(&mut self, block: &Block, address: PageAddr, result: Result<(), Stopped>) -> HugeSwapIn {
        match result {
            Ok(()) => HugeSwapIn::Done,
            Err(_) if matches!(block.word(address.index()).state(), PageState::Present(_)) => {
                self.engine.userfault().wake(address.raw(), PAGE);
                HugeSwapIn::Done
            }
            Err(Stopped { why: Errno::AGAIN | Errno::NOMEM, .. }) => {
                rustix::thread::sched_yield();
                self.read_messages();
                HugeSwapIn::Again
            }
            // The memory is shared after a fork, or another mapping stands there: a piece is
            // copied.
            Err(_) => HugeSwapIn::Refused,
        }
    }
}

impl Engine {
    /// Whether all of this block is registered, so that it may come as a whole.
    pub(crate) fn is_block_registered(&self, block: BlockAddr) -> bool {
        let _events_wait = self.locks.moves.lock();
        self.mappings.registered.covers(block.raw(), block.end())
    }

    /// Called when all of a block has moved to staging, at `staged`, by one move: notes whether it
    /// is still one huge page. If it is not, the kernel has split it, and the block keeps its page
    /// table.
    pub(crate) fn note_left_huge(&self, start: BlockAddr, staged: usize) {
        let is_huge = pagemap::is_huge(self.descriptors.pagemap.load(Relaxed), staged);
        if let Some(block) = self.table.block(start) {
            block.left_huge.store(is_huge, Relaxed);
        }
    }

    /// Whether a huge page that comes to this block, from `start` on, would stay one, as far as
    /// that is known, or the program wants one there in any case.
    pub(crate) fn stays_huge(&self, block: &Block, start: BlockAddr) -> bool {
        block.left_huge.load(Relaxed) || self.wants_huge_pages(start)
    }

    /// Called for a fault on this page of `block`, where nothing is: the fault has left a page
    /// table, unless the program has asked for huge pages there.
    pub(crate) fn note_page_table(&self, block: &Block, page: PageAddr) {
        if block.left_huge.load(Relaxed) && !self.wants_huge_pages(page.block()) {
            block.left_huge.store(false, Relaxed);
        }
    }

    /// Whether nothing (or the shared zero page) is at this page of staging.
    fn is_certainly_empty(&self, page: usize) -> bool {
        certainly(self, || {
            let pagemap = self.descriptors.pagemap.load(Relaxed);
            let found = pagemap::present(pagemap, page, page + PAGE, &mut [pagemap::EMPTY; 1])?;
            // A page in the kernel's own swap, or on its way to another frame, does not count as
            // present, and yet is there.
            let now = pagemap::now(pagemap, page, 1)?;
            Ok(found.regions == 0 && now.swapped == 0)
        })
    }
}

#[cfg(test)]
mod tests;

//! Swapin readahead from slow devices (`run --page-cluster`). A fault out of order that had to read
//! its page from a file also begins to read the pages around it. The handler only keeps them in its
//! buffers (`reads.rs`), until a fault wants them or a newer read needs the buffer.
//!
//! The fault is served first and waits for none of these reads. The size of a read follows from how
//! often the last one was of use (`folioswap_policy::readahead`). Nothing is read ahead from
//! devices where reading costs as little as copying (spec 5.5), nor from the compressed store.

use crate::engine::Engine;
use crate::fault::reads::{AHEAD_PAGES, Reads};
use crate::units::{BLOCK_PAGES, PageAddr, PageInBlock, Pages};
use core::sync::atomic::Ordering::Acquire;
use folioswap_devices::FileSlot;
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;

/// Where the page of a fault came from, if it was on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The page came from the device, out of order.
    Away,
    /// The page came from the device, in a walk (faults go on from page to page).
    InOrder,
    /// The page had been read ahead.
    ReadAhead,
}

/// Consecutive slots whose pages are consecutive too, read together.
#[derive(Clone, Copy)]
struct ReadRun {
    first: FileSlot,
    /// Index in its block of the page in slot `first`.
    page: usize,
    wanted: Pages,
}

impl ReadRun {
    /// Adds one more page, if it lies near enough; returns whether it does. The slots in between
    /// are read along, to no use.
    fn add(&mut self, page: usize, slot: FileSlot) -> bool {
        let at = page - self.page;
        let fits = at < AHEAD_PAGES && slot.raw() == self.first.raw() + at as u64;
        self.wanted |= if fits { 1 << at } else { 0 };
        fits
    }
}

impl Reads {
    /// Called after a fault at `address` was served whose page stood in `slot`: reads ahead the
    /// pages of its block that should be, and counts misses and hits.
    pub(crate) fn read_around(
        &mut self,
        engine: &Engine,
        block: &Block,
        address: PageAddr,
        slot: FileSlot,
        found: Found,
    ) {
        let most = 1 << engine.decisions().page_cluster();
        let devices = engine.space.shared_devices();
        if most == 1 || devices.is_synchronous(slot) {
            return;
        }
        let (page, index) = (address.number(), address.index().get());
        let readahead = &mut self.readahead;
        let window = match found {
            Found::Away => readahead.missed(page, most),
            Found::InOrder => return readahead.in_order(page),
            Found::ReadAhead => {
                engine.figures().add(Counter::ReadAheadHits, 1);
                return readahead.hit(page);
            }
        };
        // The count is taken before the words are looked at, so that no page is taken that turns
        // stale later.
        let stale_copies = engine.counts.stale_copies.load(Acquire);
        let block_page = page - index;
        let window =
            window.start.max(block_page) - block_page..window.end.min(block_page + BLOCK_PAGES) - block_page;
        let device = devices.of_slot(slot);
        let mut run: Option<ReadRun> = None;
        for page in window.filter(|&page| page != index) {
            let PageState::Stored(entry) = block.word(PageInBlock::new(page)).state() else { continue };
            let Some(slot) = engine.space.file_slot(entry).filter(|&slot| devices.of_slot(slot) == device)
            else {
                continue;
            };
            if self.is_ahead(slot) || run.as_mut().is_some_and(|run| run.add(page, slot)) {
                continue;
            }
            let next = ReadRun { first: slot, page, wanted: 1 };
            if let Some(ended) = run.replace(next) {
                self.begin_run(engine, ended, stale_copies);
            }
        }
        if let Some(ended) = run {
            self.begin_run(engine, ended, stale_copies);
        }
    }

    fn begin_run(&mut self, engine: &Engine, run: ReadRun, stale_copies: u32) {
        let count = (Pages::BITS - run.wanted.leading_zeros()) as usize;
        if self.begin_ahead(engine, run.first, (count, run.wanted), stale_copies) {
            let (figures, pages) = (engine.figures(), u64::from(run.wanted.count_ones()));
            figures.add(Counter::PagesReadAhead, pages);
            figures.add(Counter::PagesIn, pages);
            let is_file = engine.space.shared_devices().is_on_disk(run.first);
            figures.add(Counter::FilePagesIn, if is_file { pages } else { 0 });
        }
    }
}

#[cfg(test)]
mod tests;

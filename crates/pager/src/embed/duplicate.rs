//! Copy-on-write duplicates of managed ranges, for an embedder: a stored page is held once more, by
//! a word of its own, and a page in memory is copied. A thread that writes to one of them brings a
//! page of its own into memory; the last holder frees the entry.
//!
//! The evictor duplicates, a step at a time, under the gate and with the handler outside of its
//! rounds: no word changes, nothing leaves, and nothing comes back. A write of the program to a
//! page meanwhile is in the copy or not.
//!
//! The word says that a page is stored, and the kernel says that no other page is there: as
//! everywhere, a present page goes before a stored copy, unless the page is clean and still
//! protected (`clean.rs`).

use crate::engine::Engine;
use crate::engine::ending::certainly;
use crate::kernel::pagemap::{self, Now};
use crate::kernel::uffd::Stopped;
use crate::units::{PAGE, PIECE_PAGES, PageAddr};
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::page_table::Block;
use folioswap_slots::SwapEntry;
use rustix::io::Errno;

/// Blocks of 2 MiB that one step looks at, and pages that it copies, so that no thread waits long.
const STEP_BLOCKS: usize = 8;

const STEP_COPIES: usize = 64;

/// The source of a page's duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// None: the page reads as zero.
    Hole,
    /// The entry stands for the page.
    Stored(SwapEntry),
    /// The page is in memory, and nowhere else for sure.
    InMemory,
    /// The page is on its way, and must be looked at again.
    HalfWay,
}

/// Returns the source of page number `page` of its piece, by its word and by the kernel's state.
fn source_of(word: PageWord, now: Now, page: usize) -> Source {
    let (is_present, is_protected) = (now.present >> page & 1 != 0, now.protected >> page & 1 != 0);
    match word.state() {
        PageState::Isolated(_) | PageState::Leaving(_) | PageState::Returning(_) | PageState::Filling => {
            Source::HalfWay
        }
        PageState::Clean(entry, _) if is_protected => Source::Stored(entry),
        _ if is_present => Source::InMemory,
        PageState::Stored(entry) | PageState::Clean(entry, _) => Source::Stored(entry),
        PageState::Present(_) | PageState::Removed { .. } => Source::Hole,
    }
}

/// Consecutive entries that get a further reference, by the words of consecutive pages.
#[derive(Clone, Copy, Debug)]
struct CloneRun {
    first: SwapEntry,
    target: usize,
    pages: u32,
}

impl CloneRun {
    /// The most entries that get a reference under one lock of their cluster.
    const LONGEST: u32 = 64;

    fn continues_with(&self, entry: SwapEntry, target: usize) -> bool {
        self.pages < Self::LONGEST
            && self.first.checked_add(u64::from(self.pages)) == Some(entry)
            && self.target + self.pages as usize * PAGE == target
    }
}

/// One step of duplication.
struct Step<'e> {
    engine: &'e Engine,
    run: Option<CloneRun>,
    copied: usize,
}

/// The address where a step ends before its range does, and whether it failed there.
type Stop = (usize, Result<(), Errno>);

impl Engine {
    /// Duplicates as much as it can of `bytes` from `source` on; returns how many bytes it did, and
    /// the error behind them. Called by the evictor under the gate, with the handler outside of its
    /// rounds. No page of the target was ever touched.
    pub(crate) fn duplicate_step(
        &self,
        source: usize,
        target: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        self.embedded.note_duplicate();
        let mut step = Step { engine: self, run: None, copied: 0 };
        let (end, mut blocks, mut stopped) = (source + bytes, 0, None);
        // Memory without a block was never touched.
        self.table.for_blocks_while(source, end, |base, block| {
            let range = base.raw().max(source)..end.min(base.end());
            let stop = match blocks {
                STEP_BLOCKS => Err((range.start, Ok(()))),
                _ => step.block(block, range.clone(), target + (range.start - source)),
            };
            blocks += 1;
            stopped = stop.err();
            if stopped.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let held = step.hold();
        let (reached, result) = stopped.unwrap_or((end, Ok(())));
        (reached - source, result.and(held))
    }
}

impl Step<'_> {
    /// Duplicates the pages of a range within one block.
    fn block(&mut self, block: &Block, range: Range<usize>, target: usize) -> Result<(), Stop> {
        let engine = self.engine;
        let mut start = range.start;
        while start < range.end {
            let pages = PIECE_PAGES.min((range.end - start) / PAGE);
            let ask = || pagemap::now(engine.descriptors.pagemap.load(Relaxed), start, pages);
            let now = certainly(engine, ask);
            for page in 0..pages {
                let (at, to) = (start + page * PAGE, target + (start - range.start) + page * PAGE);
                let result = match source_of(block.word(PageAddr::containing(at).index()), now, page) {
                    Source::Hole => Ok(()),
                    Source::Stored(entry) => self.append(entry, to),
                    Source::InMemory if self.copied < STEP_COPIES => match self.copy(at, to) {
                        Ok(()) => Ok(()),
                        // An event waits, and its reader waits for the lock that we hold.
                        Err(Errno::AGAIN) => return Err((at, Ok(()))),
                        Err(why) => Err(why),
                    },
                    Source::InMemory | Source::HalfWay => return Err((at, Ok(()))),
                };
                result.map_err(|why| (at, Err(why)))?;
            }
            start += pages * PAGE;
        }
        Ok(())
    }

    fn append(&mut self, entry: SwapEntry, target: usize) -> Result<(), Errno> {
        if let Some(run) = self.run.as_mut().filter(|run| run.continues_with(entry, target)) {
            run.pages += 1;
            return Ok(());
        }
        self.hold()?;
        self.run = Some(CloneRun { first: entry, target, pages: 1 });
        Ok(())
    }

    /// Adds a holder to the collected entries: first the count, then the words.
    fn hold(&mut self) -> Result<(), Errno> {
        let Some(CloneRun { first, target, pages }) = self.run.take() else { return Ok(()) };
        let engine = self.engine;
        let last = target + (pages as usize - 1) * PAGE;
        for address in [target, last] {
            engine.table.block_or_insert(PageAddr::containing(address), engine.arena).ok_or(Errno::NOMEM)?;
        }
        engine.space.duplicate(first, pages).map_err(|_| Errno::NOMEM)?;
        for page in 0..pages as usize {
            let at = PageAddr::containing(target).plus(page);
            let (Some(block), Some(entry)) = (engine.table.block(at), first.checked_add(page as u64)) else {
                unreachable!("both are there: the block was made above, the entry was found in a word")
            };
            let word = block.word(at.index());
            let Some(stored) = word.duplicate(entry) else {
                unreachable!("nothing of the target was ever touched")
            };
            block.set(at.index(), stored);
        }
        engine.note_gone(u64::from(pages));
        Ok(())
    }

    /// Copies a page that is in memory. A poisoned page has a poisoned duplicate.
    fn copy(&mut self, source: usize, target: usize) -> Result<(), Errno> {
        let engine = self.engine;
        // A page that comes to memory has a word.
        engine.table.block_or_insert(PageAddr::containing(target), engine.arena).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel reads the source itself, whatever it is. The page is present, and
        // nothing takes it away: we hold the gate.
        let result = unsafe { engine.userfault().copy(target, source as *const u8, PAGE) };
        match result {
            Ok(()) => {
                self.copied += 1;
                engine.member().charge_bytes.fetch_add(PAGE as u64, Relaxed);
                engine.embedded.came(1);
                Ok(())
            }
            Err(Stopped { why: Errno::FAULT, .. }) => {
                engine.userfault().poison(target)?;
                engine.figures().add(Counter::Poisoned, 1);
                Ok(())
            }
            Err(Stopped { why, .. }) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests;

//! Copy-on-write duplicates of managed ranges, for an embedder: what is stored is held once more, by a word of its own, and what is in memory is
//! copied. Whoever writes to one of them brings a page of his own into memory; the entry is freed by its last holder.
//!
//! The evictor duplicates, a step at a time, under the gate and with the handler outside of its rounds: no word changes, nothing leaves,
//! and nothing comes back. What the program itself writes to a page meanwhile is in its copy or not.
//!
//! That a page is stored says its word, and that no other page is there says the kernel: as everywhere, what is present goes before a stored copy,
//! unless the page is clean and still protected (`clean.rs`).

use crate::engine::Engine;
use crate::isolate::page_index;
use crate::pagemap::{self, Now};
use crate::staging::FOLIO_PAGES;
use crate::uffd::Stopped;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::page_table::{BLOCK, Block, PAGE};
use folioswap_slots::SwapEntry;
use rustix::io::Errno;

/// Blocks of 2 MiB that one step looks at, and pages that it copies: so that nobody waits long.
const STEP_BLOCKS: usize = 8;
const STEP_COPIES: usize = 64;

/// What a page is to its duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Nothing: it reads as zero.
    Hole,
    /// The entry stands for it.
    Stored(SwapEntry),
    /// It is in memory, and nowhere else for sure.
    InMemory,
    /// On its way: to be looked at again.
    HalfWay,
}

/// What this word, and what the kernel says of page number `page` of its piece, make of it.
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

/// Entries in a row that are to be held once more, by the words of pages in a row.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: SwapEntry,
    target: usize,
    pages: u32,
}

impl Run {
    /// Most entries that are held under one lock of their cluster.
    const LONGEST: u32 = 64;

    fn continues_with(&self, entry: SwapEntry, target: usize) -> bool {
        self.pages < Self::LONGEST
            && self.first.checked_add(u64::from(self.pages)) == Some(entry)
            && self.target + self.pages as usize * PAGE == target
    }
}

/// One step.
struct Step<'e> {
    engine: &'e Engine,
    run: Option<Run>,
    copied: usize,
}

/// Where a step ends before its range does, and whether anything went wrong there.
type Stop = (usize, Result<(), Errno>);

impl Engine {
    /// Duplicates what it can of `bytes` from `source` on; says how many bytes it did, and what went wrong behind them. Evictor, under the gate,
    /// with the handler outside of its rounds. Nothing of the target was ever touched.
    pub(crate) fn duplicate_step(
        &self,
        source: usize,
        target: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        self.embedded.note_duplicate();
        let mut step = Step { engine: self, run: None, copied: 0 };
        let (end, mut blocks, mut stopped) = (source + bytes, 0, None);
        // What has no block was never touched.
        self.table.for_blocks_while(source, end, |base, block| {
            let range = base.max(source)..end.min(base + BLOCK);
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
    /// The pages of a range within one block.
    fn block(&mut self, block: &Block, range: Range<usize>, target: usize) -> Result<(), Stop> {
        let engine = self.engine;
        let mut start = range.start;
        while start < range.end {
            let pages = FOLIO_PAGES.min((range.end - start) / PAGE);
            let ask = || pagemap::now(engine.descriptors.pagemap.load(Relaxed), start, pages);
            let now = pagemap::certainly(engine, ask);
            for page in 0..pages {
                let (at, to) = (start + page * PAGE, target + (start - range.start) + page * PAGE);
                let result = match source_of(block.word(page_index(at)), now, page) {
                    Source::Hole => Ok(()),
                    Source::Stored(entry) => self.append(entry, to),
                    Source::InMemory if self.copied < STEP_COPIES => match self.copy(at, to) {
                        Ok(()) => Ok(()),
                        // An event waits, and its reader for the lock that we hold.
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
        self.run = Some(Run { first: entry, target, pages: 1 });
        Ok(())
    }

    /// What was collected has one holder more: first the count, then the words.
    fn hold(&mut self) -> Result<(), Errno> {
        let Some(Run { first, target, pages }) = self.run.take() else { return Ok(()) };
        let engine = self.engine;
        let last = target + (pages as usize - 1) * PAGE;
        for address in [target, last] {
            engine.table.block_or_insert(address, engine.arena).ok_or(Errno::NOMEM)?;
        }
        engine.space.duplicate(first, pages).map_err(|_| Errno::NOMEM)?;
        for page in 0..pages as usize {
            let address = target + page * PAGE;
            let (Some(block), Some(entry)) = (engine.table.block(address), first.checked_add(page as u64))
            else {
                unreachable!("both are there: the block was made above, the entry was found in a word")
            };
            let word = block.word(page_index(address));
            let Some(stored) = word.duplicate(entry) else {
                unreachable!("nothing of the target was ever touched")
            };
            block.set(page_index(address), stored);
        }
        engine.note_gone(u64::from(pages));
        Ok(())
    }

    /// A page that is in memory. One that is poisoned has a poisoned duplicate.
    fn copy(&mut self, source: usize, target: usize) -> Result<(), Errno> {
        let engine = self.engine;
        // What comes to memory has a word.
        engine.table.block_or_insert(target, engine.arena).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel reads the source itself, whatever it is. It is present, and nothing takes it away: we hold the gate.
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
mod tests {
    use super::*;
    use crate::staging::FOLIO;
    use crate::test_memory::{clean_piece, map, store_page, watching_engine, word_at};
    use folioswap_devices::zstd::Decoder;
    use folioswap_policy::page::Heat;
    use folioswap_slots::SlotWord;
    use folioswap_space::space::Movers;
    use std::vec::Vec;

    /// 64 KiB of the program, registered, on a border of them.
    fn piece(engine: &Engine) -> usize {
        let start = map(2 * FOLIO).next_multiple_of(FOLIO);
        engine.register_pieces(start, start + FOLIO);
        start
    }

    fn word(engine: &Engine, address: usize) -> PageWord {
        engine.table.block(address).map_or(PageWord::PRESENT, |block| block.word(page_index(address)))
    }

    fn set(engine: &Engine, address: usize, word: PageWord) {
        engine.table.block_or_insert(address, engine.arena).unwrap().set(page_index(address), word);
    }

    fn holders(engine: &Engine, entry: SwapEntry) -> u64 {
        match engine.space.slots().word(entry) {
            SlotWord::Shadow { count, .. } | SlotWord::Cached { count, .. } => count,
            _ => 0,
        }
    }

    #[test]
    fn what_is_stored_is_held_once_more_and_what_is_in_memory_is_copied() {
        let Some(engine) = watching_engine() else { return };
        let (source, target) = (piece(engine), piece(engine));
        // Page 0 is stored, 1 in memory, 2 was never touched, 3 was given up, 4 is stored and there all the same: what is there counts.
        let stored: Vec<_> =
            [0, 4, 5, 6].map(|page| store_page(engine, source + page * PAGE, &[page as u8 + 1; PAGE])).into();
        for page in [1, 4] {
            let bytes = [0x50 + page as u8; PAGE];
            // SAFETY: the page is missing.
            unsafe { engine.userfault().copy(source + page * PAGE, bytes.as_ptr(), PAGE) }.unwrap();
        }
        set(engine, source + 3 * PAGE, PageWord::PRESENT.remove(7).unwrap());
        // Something else was at the target before.
        set(engine, target + 5 * PAGE, PageWord::PRESENT.remove(9).unwrap());
        engine.note_gone(4);
        assert_eq!(engine.duplicate_step(source, target, FOLIO), (FOLIO, Ok(())));
        for (page, &entry) in [0, 5, 6].iter().zip([&stored[0], &stored[2], &stored[3]]) {
            assert_eq!(word(engine, target + page * PAGE).state(), PageState::Stored(entry), "{page}");
            assert_eq!(word(engine, source + page * PAGE).state(), PageState::Stored(entry), "{page}");
            assert_eq!(holders(engine, entry), 2, "{page}");
        }
        assert_eq!(holders(engine, stored[1]), 1);
        assert_eq!((word_at(target + PAGE) as u8, word_at(target + 4 * PAGE) as u8), (0x51, 0x54));
        assert_eq!(engine.pages_now(target, FOLIO_PAGES).present, 0b1_0010, "nothing else came");
        // The duplicate goes, then what it was made of.
        engine.unmap_pages(target, target + FOLIO);
        assert_eq!(holders(engine, stored[0]), 1);
        let mut found = [0; PAGE];
        engine.space.read(stored[2], &mut Decoder::new(), &mut found, Movers::Running).unwrap();
        assert_eq!(found, [6; PAGE]);
        engine.unmap_pages(source, source + FOLIO);
        assert_eq!(engine.space.slots().stats().inuse, 0);
        assert_eq!(engine.space.mm_stat().same_pages, 0);
    }

    /// Each of an entry's holders counts its part of it.
    #[test]
    fn invariants_hold_with_many_holders_and_a_count_too_many_is_found() {
        let Some(engine) = watching_engine() else { return };
        let source = piece(engine);
        for page in 0..FOLIO_PAGES {
            store_page(engine, source + page * PAGE, &[page as u8 + 1; PAGE]);
        }
        engine.note_gone(FOLIO_PAGES as u64);
        let targets: Vec<_> = (0..15).map(|_| piece(engine)).collect();
        for (before, &target) in targets.iter().enumerate() {
            assert_eq!(engine.duplicate_step(source, target, FOLIO), (FOLIO, Ok(())));
            assert_eq!(engine.validate(), Ok(FOLIO_PAGES as u64), "{} holders", before + 2);
        }
        for &target in &targets[5..] {
            engine.unmap_pages(target, target + FOLIO);
            assert_eq!(engine.validate(), Ok(FOLIO_PAGES as u64));
        }
        let PageState::Stored(entry) = word(engine, source).state() else { panic!("it is stored") };
        engine.space.duplicate(entry, 1).unwrap();
        assert!(engine.validate().is_err(), "nobody else holds it");
        engine.space.put(entry, 1);
        engine.space.put(entry, 1);
        assert!(engine.validate().is_err(), "one holder has none");
    }

    #[test]
    fn clean_pages_are_shared_unless_they_were_written() {
        let Some(engine) = watching_engine() else { return };
        let (source, entries) = clean_piece(engine);
        let target = piece(engine);
        // Written although the word does not know it.
        engine.userfault().unprotect(source + 2 * PAGE, PAGE).unwrap();
        // SAFETY: mapped by the test.
        unsafe { ((source + 2 * PAGE) as *mut u64).write_volatile(99) };
        assert_eq!(engine.duplicate_step(source, target, FOLIO), (FOLIO, Ok(())));
        for (page, &entry) in entries.iter().enumerate() {
            let is_clean = word(engine, source + page * PAGE).state() == PageState::Clean(entry, Heat::Cold);
            assert!(is_clean, "nothing changes here");
            let duplicate = word(engine, target + page * PAGE).state();
            if page == 2 {
                assert!(matches!(duplicate, PageState::Present(_)));
                assert_eq!((word_at(target + page * PAGE), holders(engine, entry)), (99, 1));
            } else {
                assert_eq!((duplicate, holders(engine, entry)), (PageState::Stored(entry), 2), "{page}");
            }
        }
    }

    #[test]
    fn a_page_half_way_ends_the_step_and_what_is_before_it_is_done() {
        let Some(engine) = watching_engine() else { return };
        let (source, target) = (piece(engine), piece(engine));
        let entries: Vec<_> = (0..FOLIO_PAGES)
            .map(|page| store_page(engine, source + page * PAGE, &[page as u8 + 1; PAGE]))
            .collect();
        engine.note_gone(FOLIO_PAGES as u64);
        let claimed = word(engine, source + 7 * PAGE).claim().unwrap();
        set(engine, source + 7 * PAGE, claimed);
        assert_eq!(engine.duplicate_step(source, target, FOLIO), (7 * PAGE, Ok(())));
        assert_eq!((holders(engine, entries[6]), holders(engine, entries[7])), (2, 1));
        assert_eq!(engine.duplicate_step(source + 7 * PAGE, target + 7 * PAGE, 9 * PAGE), (0, Ok(())));
        set(engine, source + 7 * PAGE, claimed.unclaim().unwrap());
        let rest = engine.duplicate_step(source + 7 * PAGE, target + 7 * PAGE, 9 * PAGE);
        assert_eq!(rest, (9 * PAGE, Ok(())));
        assert!(entries.iter().all(|&entry| holders(engine, entry) == 2));
        assert_eq!(engine.validate(), Ok(FOLIO_PAGES as u64));
    }

    #[test]
    fn a_step_copies_a_bounded_number_of_pages() {
        let Some(engine) = watching_engine() else { return };
        let bytes = 2 * STEP_COPIES * PAGE;
        let [source, target] = [(); 2].map(|()| {
            let start = map(bytes + FOLIO).next_multiple_of(FOLIO);
            engine.register_pieces(start, start + bytes);
            start
        });
        for page in 0..bytes / PAGE {
            let contents = [page as u8; PAGE];
            // SAFETY: the page is missing.
            unsafe { engine.userfault().copy(source + page * PAGE, contents.as_ptr(), PAGE) }.unwrap();
            set(engine, source + page * PAGE, PageWord::PRESENT_HOT);
        }
        assert_eq!(engine.duplicate_step(source, target, bytes), (bytes / 2, Ok(())));
        assert_eq!(
            engine.duplicate_step(source + bytes / 2, target + bytes / 2, bytes / 2),
            (bytes / 2, Ok(()))
        );
        assert!((0..bytes / PAGE).all(|page| word_at(target + page * PAGE) as u8 == page as u8));
        assert_eq!(engine.embedded.managed_pages(), bytes as i64 / PAGE as i64, "what came is counted");
    }

    #[test]
    fn what_is_lost_is_lost_in_the_duplicate_too() {
        let Some(engine) = watching_engine() else { return };
        let (source, target) = (piece(engine), piece(engine));
        set(engine, source, PageWord::PRESENT);
        engine.userfault().poison(source + PAGE).unwrap();
        assert_eq!(engine.duplicate_step(source, target, FOLIO), (FOLIO, Ok(())));
        assert_eq!(engine.figures().counter(Counter::Poisoned), 1);
        let found = engine.pages_now(target, FOLIO_PAGES);
        assert_eq!((found.present, found.swapped), (0b10, 0b10), "a marker, and nothing else");
    }
}

//! Moving pages by UFFDIO_MOVE: what the kernel answers, and what that means.

use crate::engine::Engine;
use crate::isolate::{Isolation, Pages, Refused};
use crate::pagemap;
use crate::staging::FOLIO_PAGES;
use crate::sys;
use crate::uffd::Stopped;
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_core::page_table::PAGE;
use folioswap_group::counters::Counter;
use rustix::io::Errno;

impl Engine {
    /// Moves the pages of the piece, run by run, each to its place (consecutive pages have consecutive places), and notes
    /// what became of them. Under the move lock; the pages' words say `Isolated`, by us.
    pub(crate) fn move_runs(
        &self,
        piece: usize,
        pages: Pages,
        place_of: impl Fn(usize) -> usize,
        isolation: &mut Isolation,
    ) {
        let mut page = 0;
        let mut run_most = FOLIO_PAGES;
        while page < FOLIO_PAGES {
            let run = ((pages >> page).trailing_ones() as usize).min(run_most);
            if run == 0 {
                page += 1;
                continue;
            }
            let (from, userfault) = (piece + page * PAGE, self.userfault());
            let result = match userfault.check_registered(from) {
                // SAFETY: the pages are marked as isolated, so nobody else changes their state; the mapping of the first, which
                // is that of all that are moved, is registered, and no unmapping is unread (the kernel would answer
                // EAGAIN), so whoever touches a moved page is served.
                Ok(()) => unsafe { userfault.move_pages(place_of(page), from, run * PAGE) },
                Err(Errno::NOENT) => {
                    self.not_registered(from, run * PAGE);
                    isolation.refused = Some(Refused::Gone);
                    break;
                }
                Err(why) => Err(Stopped { done: 0, why }),
            };
            let (done, why) = match result {
                Ok(()) => (run, None),
                Err(stopped) => (stopped.done / PAGE, Some(stopped.why)),
            };
            isolation.moves += 1;
            isolation.moved |= bits(page, done);
            page += done;
            match why {
                None => {}
                // A part was moved; the next attempt tells why it stopped, unless an event waits.
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::AGAIN) => {
                    isolation.refused = Some(Refused::EventPending);
                    break;
                }
                Some(Errno::BUSY) => {
                    isolation.busy |= bits(page, 1);
                    page += 1;
                }
                // A run that reaches from one of the kernel's mappings into the next, which need not begin where a piece does:
                // by halves, until what cannot be moved is a page.
                Some(Errno::INVAL) if run - done > 1 => run_most = (run - done) / 2,
                Some(Errno::INVAL) => {
                    isolation.unmovable |= bits(page, 1);
                    page += 1;
                }
                Some(Errno::EXIST) => {
                    let pages = self.moved_after_all(piece + page * PAGE, place_of(page), run - done);
                    isolation.moved |= bits(page, pages);
                    isolation.residue |= if pages == 0 { bits(page, 1) } else { 0 };
                    page += pages.max(1);
                }
                // Absent by now (given up, or never there): leave it.
                Some(_) => page += 1,
            }
        }
    }

    /// The move answered that something stands in the target: how many of the `pages` (up to 16), from the first on, has it moved there
    /// itself? Under the move lock; the pages are `Isolated`, by us.
    ///
    /// Linux 6.18 moves many pages at a time, tries again when a page table entry has just changed (a protection that the handler lifts),
    /// succeeds, forgets that it did, and finds what it has moved in its way. ("userfaultfd: reset err to be 0 when move_pages_ptes
    /// succeeded" mends it.) Believed, that answer loses the page: its word would say that it is in the program, and the next touch would
    /// find zeroes. So both ends are asked. What is gone from the one and present in the other was moved: nobody fills what is
    /// `Isolated`, nobody removes it before the event is read, and the target was empty (`staging.rs`).
    fn moved_after_all(&self, source: usize, target: usize, pages: usize) -> usize {
        let (source, target) = (self.pages_certainly(source, pages), self.pages_certainly(target, pages));
        let moved = ((!source & target).trailing_ones() as usize).min(pages);
        self.figures().add(Counter::MovesMisreported, moved as u64);
        moved
    }

    /// Which of the pages (up to 16) are present. Without an answer no page would be safe any more: then this process ends.
    fn pages_certainly(&self, address: usize, pages: usize) -> Pages {
        for _ in 0..1000 {
            if let Ok(now) = pagemap::now(self.descriptors.pagemap.load(Relaxed), address, pages) {
                return now.present;
            }
            rustix::thread::sched_yield();
        }
        sys::kill_self()
    }

    /// What was registered as one range had a hole just then, which is mapped by now: the next look at the mappings finds it.
    /// Under the move lock.
    fn not_registered(&self, start: usize, bytes: usize) {
        // SAFETY: the set is used under the move lock. A full set keeps the range, and is asked again.
        let _ = unsafe { &mut *self.registered.get() }.remove(start, start + bytes);
        self.scan_wanted.store(1, Release);
    }
}

fn bits(first: usize, count: usize) -> Pages {
    (((1u32 << count) - 1) << first) as Pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::Candidates;
    use crate::isolate::page_index;
    use crate::staging::FOLIO;
    use crate::test_memory::{fill, map, moving_engine, word_at};
    use core::sync::atomic::AtomicBool;
    use folioswap_core::page::PageWord;
    use folioswap_devices::Page;

    /// Which pages of the folio at `start` are there.
    fn present(engine: &Engine, start: usize) -> Pages {
        engine.pages_now(start, FOLIO_PAGES).present
    }

    /// Says so when it is dropped, also by a panic, after which the scope would wait for ever.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// Linux 6.18 loses pages here without [`Engine::moved_after_all`]: one folio in thirty, while a protection changes all the time.
    #[test]
    fn what_the_kernel_moves_in_spite_of_its_answer_is_not_lost() {
        let Some(engine) = moving_engine() else { return };
        let start = map(2 * FOLIO).next_multiple_of(FOLIO);
        engine.register_pieces(start, start + FOLIO);
        let block = engine.table.block_or_insert(start, engine.arena).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // Of the first page: what a move looks at first has then changed when it looks again.
                    let _ = engine.userfault().protect(start, PAGE);
                    let _ = engine.userfault().unprotect(start, PAGE);
                }
            });
            let _end = Ends(&stop);
            for round in 0..10_000 {
                let there = present(engine, start);
                for page in (0..FOLIO_PAGES).filter(|page| there >> page & 1 == 0) {
                    let contents: Page = [round as u8; PAGE];
                    // SAFETY: mapped by the test; the page is missing.
                    let filled =
                        unsafe { engine.userfault().copy(start + page * PAGE, contents.as_ptr(), PAGE) };
                    filled.expect("a missing page");
                }
                let isolation = engine.isolate(start, Candidates::ALL_DIRTY);
                assert_eq!(isolation.moved, !present(engine, start), "round {round}: {isolation:?}");
                assert_eq!((isolation.busy, isolation.unmovable, isolation.residue), (0, 0, 0));
                assert!(isolation.refused.is_none());
                // SAFETY: nobody else uses the ring.
                let staging = unsafe { &mut *engine.staging.get() };
                if isolation.moved != 0 {
                    let place = staging.oldest().expect("pushed");
                    for page in 0..FOLIO_PAGES {
                        if let Some(entry) = staging.folio_mut(place).entries[page].take() {
                            assert_eq!(
                                word_at(staging.address(place) + page * PAGE) as u8,
                                round as u8,
                                "page {page} of round {round}"
                            );
                            engine.space.abandon(entry);
                        }
                        block.set(page_index(start) + page, PageWord::PRESENT);
                    }
                    staging.pop();
                    staging.recycle(engine.userfault(), 1);
                }
            }
        });
        std::eprintln!("misreported: {} pages", engine.figures().counter(Counter::MovesMisreported));
    }

    /// What stands in the way of a move and was not moved by it is thrown away.
    #[test]
    fn a_place_that_is_not_empty_is_emptied() {
        let Some(engine) = moving_engine() else { return };
        let start = map(2 * FOLIO).next_multiple_of(FOLIO);
        fill(start);
        engine.register_pieces(start, start + FOLIO);
        engine.table.block_or_insert(start, engine.arena).unwrap();
        // SAFETY: nobody else uses the ring.
        let staging = unsafe { &*engine.staging.get() };
        fill(staging.address(staging.next_place().unwrap()));
        let isolation = engine.isolate(start, Candidates::ALL_DIRTY);
        assert_eq!((isolation.moved, isolation.residue), (0, Pages::MAX));
        assert!((0..FOLIO_PAGES).all(|page| word_at(start + page * PAGE) == 7 + page as u64));
        assert_eq!(engine.isolate(start, Candidates::ALL_DIRTY).moved, Pages::MAX);
    }
}

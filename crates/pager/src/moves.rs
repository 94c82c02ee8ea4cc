//! Moving pages by UFFDIO_MOVE: what the kernel answers, and what that means.

use crate::engine::Engine;
use crate::isolate::{Pages, Refused};
use crate::pagemap;
use crate::row_pages::{ROW_PAGES, RowPages};
use crate::staging::FOLIO_PAGES;
use crate::uffd::Stopped;
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_group::counters::Counter;
use folioswap_policy::page_table::PAGE;
use rustix::io::Errno;

/// What became of the pages of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub(crate) moved: RowPages,
    /// Moves that were tried.
    pub(crate) tries: u64,
    pub(crate) busy: RowPages,
    pub(crate) unmovable: RowPages,
    pub(crate) residue: RowPages,
    /// At which page they ended, and why, if it was before the last.
    pub(crate) refused: Option<(usize, Refused)>,
}

impl Moves {
    const NONE: Moves = Moves {
        moved: RowPages::NONE,
        tries: 0,
        busy: RowPages::NONE,
        unmovable: RowPages::NONE,
        residue: RowPages::NONE,
        refused: None,
    };
}

impl Engine {
    /// Moves pages from `start` on to as many from `target` on, run by run. Under the move lock; the pages' words say `Isolated`, by us.
    ///
    /// What one of the kernel's huge pages holds, and all of which is moved to 2 MiB that hold nothing, stays huge.
    pub(crate) fn move_runs(&self, start: usize, pages: &RowPages, target: usize) -> Moves {
        let mut moves = Moves::NONE;
        let mut page = 0;
        let mut run_most = ROW_PAGES;
        while page < ROW_PAGES {
            let run = pages.run(page, run_most);
            if run == 0 {
                page += 1;
                continue;
            }
            let (from, to, userfault) = (start + page * PAGE, target + page * PAGE, self.userfault());
            let result = match userfault.check_registered(from) {
                // SAFETY: the pages are marked as isolated, so nobody else changes their state; the mapping of the first, which
                // is that of all that are moved, is registered, and no unmapping is unread (the kernel would answer
                // EAGAIN), so whoever touches a moved page is served.
                Ok(()) => unsafe { userfault.move_pages(to, from, run * PAGE) },
                Err(Errno::NOENT) => {
                    // Of the others of the run nothing is known.
                    self.not_registered(from, run.min(FOLIO_PAGES - page % FOLIO_PAGES) * PAGE);
                    moves.refused = Some((page, Refused::Gone));
                    break;
                }
                Err(why) => Err(Stopped { done: 0, why }),
            };
            let (done, why) = match result {
                Ok(()) => (run, None),
                Err(stopped) => (stopped.done / PAGE, Some(stopped.why)),
            };
            moves.tries += 1;
            moves.moved.add(page, done);
            page += done;
            match why {
                None => run_most = ROW_PAGES,
                // A part was moved; the next attempt tells why it stopped, unless an event waits.
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::AGAIN) => {
                    // Nor does it tell then of what the last one has moved without saying so.
                    let pages = self.moved_after_all(from, to, run);
                    moves.moved.add(page, pages);
                    moves.refused = Some((page, Refused::EventPending));
                    break;
                }
                // A part of a huge page would be split for nothing: all of it is pinned, or shared.
                Some(Errno::BUSY) if run == ROW_PAGES && done == 0 => {
                    moves.busy.add(page, ROW_PAGES);
                    break;
                }
                Some(Errno::BUSY) => {
                    moves.busy.add(page, 1);
                    page += 1;
                }
                // A run that reaches from one of the kernel's mappings into the next, which need not begin where a piece does:
                // by halves, until what cannot be moved is a page.
                Some(Errno::INVAL) if run - done > 1 => run_most = (run - done) / 2,
                Some(Errno::INVAL) => {
                    moves.unmovable.add(page, 1);
                    page += 1;
                }
                Some(Errno::EXIST) => {
                    let pages = self.moved_after_all(start + page * PAGE, target + page * PAGE, run - done);
                    moves.moved.add(page, pages);
                    moves.residue.add(page, usize::from(pages == 0));
                    page += pages.max(1);
                }
                // Absent by now (given up, or never there): leave it.
                Some(_) => page += 1,
            }
        }
        moves
    }

    /// The move answered that something stands in the target: how many of the `pages`, from the first on, has it moved there itself? Under the move lock; the pages are `Isolated`, by us.
    ///
    /// Linux 6.18 moves many pages at a time, tries again when a page table entry has just changed (a protection that the handler lifts),
    /// succeeds, forgets that it did, and finds what it has moved in its way. ("userfaultfd: reset err to be 0 when move_pages_ptes
    /// succeeded" mends it.) Believed, that answer loses the page: its word would say that it is in the program, and the next touch would
    /// find zeroes. So both ends are asked. What is gone from the one and present in the other was moved: nobody fills what is
    /// `Isolated`, nobody removes it before the event is read, and the target was empty (`staging.rs`).
    fn moved_after_all(&self, source: usize, target: usize, pages: usize) -> usize {
        let mut moved = 0;
        for first in (0..pages).step_by(FOLIO_PAGES) {
            let (asked, at) = (FOLIO_PAGES.min(pages - first), first * PAGE);
            let left = self.pages_certainly(source + at, asked);
            let came = self.pages_certainly(target + at, asked);
            let both = ((!left & came).trailing_ones() as usize).min(asked);
            moved += both;
            if both < asked {
                break;
            }
        }
        self.figures().add(Counter::MovesMisreported, moved as u64);
        moved
    }

    /// Which of the pages (up to 16) are present.
    fn pages_certainly(&self, address: usize, pages: usize) -> Pages {
        pagemap::certainly(self, || pagemap::now(self.descriptors.pagemap.load(Relaxed), address, pages))
            .present
    }

    /// What was registered as one range had a hole just then, which is mapped by now: the next look at the mappings finds it.
    /// Under the move lock.
    fn not_registered(&self, start: usize, bytes: usize) {
        // SAFETY: the set is used under the move lock.
        unsafe { &mut *self.registered.get() }.forget(start, start + bytes);
        self.scan_wanted.store(1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::Candidates;
    use crate::isolate::page_index;
    use crate::row::{JOINED_PIECES, Row, Rows};
    use crate::staging::FOLIO;
    use crate::test_memory::{fill, map, moving_engine, word_at};
    use core::sync::atomic::AtomicBool;
    use folioswap_devices::Page;
    use folioswap_policy::page::PageWord;

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

    /// Linux 6.18 loses pages here without [`Engine::moved_after_all`]: one row in thirty, while a protection changes all the time.
    #[test]
    fn what_the_kernel_moves_in_spite_of_its_answer_is_not_lost() {
        let Some(engine) = moving_engine() else { return };
        let start = map(2 * JOINED_PIECES * FOLIO).next_multiple_of(JOINED_PIECES * FOLIO);
        engine.register_pieces(start, start + JOINED_PIECES * FOLIO);
        let mut row = Row::of(start, Candidates::ALL_DIRTY);
        for piece in (start..).step_by(FOLIO).take(JOINED_PIECES).skip(1) {
            assert!(row.append(piece, Candidates::ALL_DIRTY, Rows::Joined));
        }
        for (piece, _) in row.pieces() {
            engine.table.block_or_insert(piece, engine.arena).unwrap();
        }
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
            for round in 0..5_000 {
                for (piece, _) in row.pieces() {
                    let there = present(engine, piece);
                    for page in (0..FOLIO_PAGES).filter(|page| there >> page & 1 == 0) {
                        let contents: Page = [round as u8; PAGE];
                        // SAFETY: mapped by the test; the page is missing.
                        let filled =
                            unsafe { engine.userfault().copy(piece + page * PAGE, contents.as_ptr(), PAGE) };
                        filled.expect("a missing page");
                    }
                }
                let done = engine.isolate_row(&row);
                for ((piece, _), isolation) in row.pieces().zip(done) {
                    assert_eq!(isolation.moved, !present(engine, piece), "round {round}: {isolation:?}");
                    assert_eq!((isolation.busy, isolation.unmovable, isolation.residue), (0, 0, 0));
                    assert!(isolation.refused.is_none());
                    let block = engine.table.block(piece).expect("inserted");
                    (0..FOLIO_PAGES).for_each(|page| block.set(page_index(piece) + page, PageWord::PRESENT));
                }
                // SAFETY: nobody else uses the ring.
                let staging = unsafe { &mut *engine.staging.get() };
                while let Some(place) = staging.oldest() {
                    for page in 0..FOLIO_PAGES {
                        if let Some(entry) = staging.folio_mut(place).entries[page].take() {
                            assert_eq!(
                                word_at(staging.address(place) + page * PAGE) as u8,
                                round as u8,
                                "page {page} of round {round}"
                            );
                            engine.space.abandon(entry);
                        }
                    }
                    staging.pop();
                }
                staging.recycle(engine.userfault(), 1, |_| false);
            }
        });
        std::eprintln!("misreported: {} pages", engine.figures().counter(Counter::MovesMisreported));
    }

    /// What stands in the way of a move and was not moved by it is thrown away in its turn.
    #[test]
    fn a_place_that_is_not_empty_is_passed_over_and_emptied() {
        let Some(engine) = moving_engine() else { return };
        let start = map(2 * FOLIO).next_multiple_of(FOLIO);
        fill(start);
        engine.register_pieces(start, start + FOLIO);
        engine.table.block_or_insert(start, engine.arena).unwrap();
        // SAFETY: nobody else uses the ring.
        let staging = unsafe { &*engine.staging.get() };
        let place = staging.next_place().unwrap();
        fill(staging.address(place));
        let isolation = engine.isolate(start, Candidates::ALL_DIRTY);
        assert_eq!((isolation.moved, isolation.residue), (0, Pages::MAX));
        assert!((0..FOLIO_PAGES).all(|page| word_at(start + page * PAGE) == 7 + page as u64));
        assert_eq!(engine.isolate(start, Candidates::ALL_DIRTY).moved, Pages::MAX);
        // SAFETY: nobody else uses the ring.
        let staging = unsafe { &mut *engine.staging.get() };
        assert_eq!((staging.waiting(), staging.held_bytes()), (2, 2 * FOLIO as u64));
        assert!(staging.folio(place).entries.iter().all(Option::is_none));
        staging.pop();
        staging.recycle(engine.userfault(), 1, |_| false);
        assert_eq!((present(engine, staging.address(place)), staging.held_bytes()), (0, FOLIO as u64));
    }
}

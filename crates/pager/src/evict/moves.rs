//! Moving pages by UFFDIO_MOVE: the kernel's answers, and their meaning.

use crate::engine::Engine;
use crate::engine::ending::certainly;
use crate::kernel::pagemap;
use crate::kernel::uffd::Stopped;
use crate::staging::isolation::{Moves, Refused};
use crate::staging::row_pages::{ROW_PAGES, RowPages};
use crate::units::{PAGE, PIECE_PAGES, Pages};
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_group::counters::Counter;
use rustix::io::Errno;

impl Engine {
    /// Moves pages from `start` on to as many from `target` on, run by run. The caller holds the
    /// move lock and has set the words of the pages to `Isolated`.
    ///
    /// A huge page of the kernel's that moves whole to an empty block stays huge.
    pub(crate) fn move_runs(&self, start: usize, pages: &RowPages, target: usize) -> Moves {
        let mut moves = Moves::NONE;
        let mut page = 0;
        let mut run_most = ROW_PAGES;
        // The last attempt moved a part, and perhaps more than it said.
        let mut is_unsure = false;
        while page < ROW_PAGES {
            let run = pages.run(page, run_most);
            if run == 0 {
                page += 1;
                continue;
            }
            let (from, to) = (start + page * PAGE, target + page * PAGE);
            let Some((done, why)) = self.attempt(from, to, run) else {
                // The mapping may be on its way to another address, with the pages that are left:
                // those that the last attempt moved without saying so are to follow it there.
                if is_unsure {
                    moves.moved.add(page, self.moved_after_all(from, to, run));
                }
                // Nothing is known of the other pages of the run.
                let unknown = if self.calls_hold() { 1 } else { run.min(PIECE_PAGES - page % PIECE_PAGES) };
                self.not_registered(from, unknown * PAGE);
                moves.refused = Some((page, Refused::Gone));
                break;
            };
            moves.tries += 1;
            moves.moved.add(page, done);
            page += done;
            let was_unsure = core::mem::replace(&mut is_unsure, done > 0 && why.is_some());
            // After a part, this attempt may have been refused before it could find in its way what
            // the last one moved without saying so (the kernel has no memory for a page table, for
            // example).
            if was_unsure && done == 0 || why == Some(Errno::EXIST) {
                let pages = self.moved_after_all(start + page * PAGE, target + page * PAGE, run - done);
                moves.moved.add(page, pages);
                page += pages;
                if pages > 0 {
                    continue;
                }
            }
            match why {
                None => run_most = ROW_PAGES,
                // A part was moved; the next attempt tells why the move stopped, unless an event
                // waits.
                Some(Errno::AGAIN) if done > 0 => {}
                Some(Errno::AGAIN) => {
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
                // The run reaches from one of the kernel's mappings into the next, which need not
                // begin where a piece does: it is tried by halves, until only a single page cannot
                // be moved.
                Some(Errno::INVAL) if run - done > 1 => run_most = (run - done) / 2,
                Some(Errno::INVAL) => {
                    moves.unmovable.add(page, 1);
                    page += 1;
                }
                Some(Errno::EXIST) => {
                    moves.residue.add(page, 1);
                    page += 1;
                }
                // The page is absent by now (given up, or never there): leave it.
                Some(_) => page += 1,
            }
        }
        moves
    }

    /// Tries to move so many pages. Returns how many were moved, and why no more; `None` where the
    /// first of them is not registered. The caller's duties are those of [`Engine::move_runs`].
    fn attempt(&self, from: usize, to: usize, pages: usize) -> Option<(usize, Option<Errno>)> {
        let userfault = self.userfault();
        let result = match userfault.check_registered(from) {
            // SAFETY: the pages are marked as isolated, so nobody else changes their state; the
            // mapping of the first, which is that of all that are moved, is registered, and no
            // unmapping is unread (the kernel would answer EAGAIN), so a thread that touches a
            // moved page is served.
            Ok(()) => unsafe { userfault.move_pages(to, from, pages * PAGE) },
            Err(Errno::NOENT) => return None,
            Err(why) => Err(Stopped { done: 0, why }),
        };
        Some(match result {
            Ok(()) => (pages, None),
            Err(stopped) => (stopped.done / PAGE, Some(stopped.why)),
        })
    }

    /// The move answered that something stands in the target: returns how many of the `pages`, from
    /// the first on, it has moved there itself. The caller holds the move lock; the pages are
    /// `Isolated`, by the caller.
    ///
    /// Linux 6.18 moves many pages at a time, tries again when a page table entry has just changed
    /// (a protection that the handler lifts), succeeds, forgets that it did, and finds the moved
    /// pages in its way. ("userfaultfd: reset err to be 0 when move_pages_ptes succeeded" mends
    /// it.) Believing that answer would lose the page: its word would say that it is in the
    /// program, and the next touch would find zeroes. So both ends are asked. A page that is gone
    /// from the one and present in the other was moved: nobody fills an `Isolated` page, nobody
    /// removes it before the event is read, and the target was empty (`staging/ring.rs`).
    fn moved_after_all(&self, source: usize, target: usize, pages: usize) -> usize {
        let mut moved = 0;
        for first in (0..pages).step_by(PIECE_PAGES) {
            let (asked, at) = (PIECE_PAGES.min(pages - first), first * PAGE);
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
        certainly(self, || pagemap::now(self.descriptors.pagemap.load(Relaxed), address, pages)).present
    }

    /// The range was registered as one, but had a hole just then, which is mapped by now: the next
    /// look at the mappings finds it. The caller holds the move lock.
    fn not_registered(&self, start: usize, bytes: usize) {
        self.mappings.registered.forget(start, start + bytes);
        self.mappings.scan_wanted.store(1, Release);
    }
}

#[cfg(test)]
mod tests;

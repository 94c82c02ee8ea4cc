//! Clean copies at a fault: which of the pages that come back keep their stored copy, and a write
//! to one of them.

use crate::fault::handler::Handler;
use crate::kernel::uffd::Access;
use crate::store::clean::{KEEP_NOTHING, NOTHING_KEPT, REWRITES_MAX, REWRITTEN};
use crate::units::{PAGE, PIECE_PAGES, PageAddr, PageInBlock, Pages, PieceAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::Block;
use folioswap_slots::SwapEntry;

impl Handler {
    /// The pages of a window, bit by bit, that keep their stored copy when they come back. Pages
    /// that were only read keep it, unless pages read in this block are usually written soon after,
    /// or space is short, or (for a single page, order 0) the store is the better place. Pages that
    /// must stay resident keep none, since the kernel may write there where no fault can be served.
    /// `stored` gives the entry of a page that is stored.
    pub(crate) fn copies_to_keep(
        &self,
        access: Access,
        block: &Block,
        (piece, order): (PieceAddr, u8),
        stored: impl Fn(usize) -> Option<SwapEntry>,
    ) -> Pages {
        if access != Access::Read {
            return 0;
        }
        let rewrites = block.history_rewrites.load(Relaxed);
        if rewrites >= KEEP_NOTHING {
            block.history_rewrites.store(rewrites - NOTHING_KEPT, Relaxed);
            return 0;
        }
        let mut keep = 0;
        for page in 0..PIECE_PAGES {
            let has_space = stored(page).is_some_and(|entry| {
                self.engine.has_space_for_copy(entry) && (order > 0 || !self.engine.goes_to_store_next(entry))
            });
            keep |= Pages::from(has_space) << page;
        }
        if keep != 0 {
            keep &= !self.engine.kept_pages(piece);
        }
        keep
    }

    /// Serves a fault on a page that is clean as far as we know. Returns true if it is resolved.
    pub(crate) fn serve_clean(
        &mut self,
        block: &Block,
        address: PageAddr,
        word: PageWord,
        access: Access,
    ) -> bool {
        let engine = self.engine;
        let index = address.index();
        if access != Access::WriteProtected {
            // The page was missing when the fault was raised; most likely another thread's fault
            // has brought it in since.
            let now = engine.pages_now(address, 1);
            if now.guarded != 0 {
                // The program has made a guard of it meanwhile.
                engine.userfault().wake(address.raw(), PAGE);
                return true;
            }
            if now.present == 0 {
                if let (Some(stored), Some(entry)) = (word.missed(), word.entry())
                    && block.replace(index, word, stored).is_ok()
                {
                    engine.space.note_left_clean(entry);
                    engine.counts.clean_pages.fetch_sub(1, Relaxed);
                    engine.note_gone(1);
                }
                return false;
            }
            if access == Access::Read {
                engine.userfault().wake(address.raw(), PAGE);
                return true;
            }
        }
        if engine.end_clean(block, index, word, word.dirtied()) {
            let rewrites = block.history_rewrites.load(Relaxed).saturating_add(REWRITTEN).min(REWRITES_MAX);
            block.history_rewrites.store(rewrites, Relaxed);
            if engine.fork.has_relatives() {
                let shared = engine.is_shared(address);
                let resolved = self.unprotect_run(address, 1);
                if resolved && shared {
                    engine.end_sharing(PAGE);
                }
                return resolved;
            }
            let given_up = if rewrites >= KEEP_NOTHING {
                engine.give_up_around(block, index)
            } else {
                index.get()..index.get() + 1
            };
            return self
                .unprotect_run(address.block().page(PageInBlock::new(given_up.start)), given_up.len());
        }
        // The evictor changed this word first: look at it again.
        false
    }

    /// Lifts the protection of this many pages, on which nothing stored depends: they may be
    /// written. Returns true if it is lifted.
    pub(crate) fn unprotect_run(&mut self, first: PageAddr, pages: usize) -> bool {
        let lifted = self.engine.unprotect_and_wake(first.raw(), pages * PAGE);
        if lifted.is_err() {
            rustix::thread::sched_yield();
            self.read_messages();
        }
        lifted.is_ok()
    }
}

//! Write faults on pages that relatives share, and the question which faults need memory.

use crate::fault::handler::Handler;
use crate::fault::queue::Fault;
use crate::kernel::uffd::Access;
use crate::units::{PAGE, PIECE_PAGES, PageAddr};
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;

impl Handler {
    /// Whether this fault must wait while there is no memory.
    pub(crate) fn needs_memory(&self, fault: &Fault) -> bool {
        let (engine, address) = (self.engine, fault.page);
        // A walk is to get the blocks after its trigger as huge pages, for which there must be
        // headroom.
        if fault.access != Access::WriteProtected || self.is_triggered(fault) {
            return true;
        }
        // A clean page was filled by us: without relatives nobody shares it.
        let word = engine.table.block(address).map(|block| block.word(address.index()).state());
        let is_own = matches!(word, Some(PageState::Clean(..))) && !engine.fork.has_relatives();
        !is_own && engine.is_shared(address)
    }

    /// Serves a write to a page that is protected and not clean. The pages around it that are this
    /// process's own are unprotected with it, and where writes go on from page to page so are the
    /// shared ones that come next. Returns true if the fault is resolved.
    pub(crate) fn write_to_protected(&mut self, block: &Block, address: PageAddr) -> bool {
        let engine = self.engine;
        let (piece, at) = (address.piece(), address.in_piece());
        let now = engine.pages_now(piece.page(0), PIECE_PAGES);
        let base = piece.index();
        // Beside this mapping another one may lie whose protection is somebody else's, and the
        // kernel would lift that as well.
        let ours = engine
            .registered_around(address)
            .map_or(address.raw()..address.end(), |range| range.start..range.end);
        let plain = |page: usize| {
            let state = block.word(base.plus(page)).state();
            ours.contains(&piece.page(page).raw())
                && now.protected >> page & 1 != 0
                && matches!(state, PageState::Present(_) | PageState::Removed { .. })
        };
        if now.present >> at & 1 != 0 && now.protected >> at & 1 == 0 {
            // Another thread's fault has lifted the protection.
            engine.userfault().wake(address.raw(), PAGE);
            return true;
        }
        let exclusive = |page: usize| now.exclusive >> page & 1 != 0;
        let (mut first, mut end, mut cost) = (at, at + 1, None);
        if exclusive(at) {
            while first > 0 && plain(first - 1) && exclusive(first - 1) {
                first -= 1;
            }
            while end < PIECE_PAGES && plain(end) && exclusive(end) {
                end += 1;
            }
        } else {
            let window = engine.window(block, address);
            let run = window.run(at, PIECE_PAGES, |page| plain(page) && !exclusive(page));
            (first, end) = (run.start, run.end);
            cost = Some(engine.cost_of_own_pages(piece.page(first).raw(), piece.page(end).raw()));
            block.history.remember(base.get() + first, base.get() + end, window.order);
        }
        let resolved = self.unprotect_run(piece.page(first), end - first);
        if let Some(cost) = cost.filter(|_| resolved) {
            engine.charge_own_pages(cost);
            engine.figures().add(Counter::MinorFaults, 1);
        }
        resolved
    }
}

#[cfg(test)]
mod tests;

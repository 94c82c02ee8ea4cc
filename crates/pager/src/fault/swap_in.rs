//! The sizes in which pages that are away come back (spec §6, phase IV).
//!
//! A swap-in *asks for* the largest folio that the block's history advises, that `--thp` allows,
//! and all of which is away; a folio of more than 64 KiB must be in the compressed store (or on a
//! file, where nothing smaller is allowed). If the folio cannot be had, that is a fallback of its
//! size, and the next smaller allowed size is asked for, down to the page alone. The reasons for a
//! fallback: the group may not be charged for it, the kernel has no memory, another thread takes a
//! part of it meanwhile, or other faults wait that cannot be served in between.
//!
//! A block that the program wants huge comes as one huge page of the kernel's (`huge_page.rs`).
//! Anything else is copied, 64 KiB at a time, the piece of the fault first: its thread goes on
//! meanwhile, and pages may keep their stored copies.

use crate::engine::Engine;
use crate::engine::pool::NoHugePage;
use crate::fault::bring::Next;
use crate::fault::handler::{Handler, Interruptions};
use crate::fault::huge_page::HugeSwapIn;
use crate::fault::readahead::Readahead;
use crate::fault::reading::Purpose;
use crate::kernel::uffd::Access;
use crate::units::{
    BLOCK, BLOCK_ORDER, BlockAddr, PAGE, PIECE, PIECE_ORDER, PIECE_PAGES, PageAddr, PageInBlock, PieceAddr,
};
use core::ops::Range;
use folioswap_group::counters::SizeCounter;
use folioswap_policy::history::{Direction, Stride, Window};
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;

/// How far the group may be charged for pages that come along with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceiling {
    /// Up to its limit.
    BelowLimit,
    /// Beyond it by a huge page.
    Beyond,
}

/// A folio of more than 64 KiB that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Large {
    /// The order of the folio, and the direction of the walk.
    window: Window,
    /// The order that the history advises.
    advised: u8,
    room: Ceiling,
}

impl Handler {
    /// Brings back a page that is away, with the pages of `window` that should come along. Returns
    /// true if the fault is resolved.
    pub(crate) fn swap_in(
        &mut self,
        block: &Block,
        address: PageAddr,
        access: Access,
        window: Window,
    ) -> bool {
        let engine = self.engine;
        let mut at_most = window.order;
        let huge_page = match block.word(address.index()).state() {
            PageState::Leaving(entry) => self.return_huge_page(block, address, entry),
            _ if at_most == BLOCK_ORDER && engine.wants_huge_pages(address.block()) => {
                let came = self.swap_in_huge_page(block, address, Purpose::Fault);
                at_most -= u8::from(came == HugeSwapIn::Refused);
                came
            }
            _ => HugeSwapIn::Refused,
        };
        if huge_page != HugeSwapIn::Refused {
            return huge_page == HugeSwapIn::Done;
        }
        if window.order == 0
            && self.swapin.interruptions != Interruptions::None
            && engine.is_in_store(block, address.index())
            && let Some(stride) = engine.stride(block, address)
        {
            return self.swap_in_strided(block, address, access, stride);
        }
        let (order, room) = engine.order_to_ask_for(block, address, at_most);
        if order > PIECE_ORDER {
            self.swap_in_large(
                block,
                address,
                access,
                Large { window: Window { order, ..window }, advised: window.order, room },
            )
        } else {
            self.swap_in_piece(block, address, access, window)
        }
    }

    /// The same for no more than 64 KiB. Where some of the pages are present already the others are
    /// asked for one by one, so nothing falls back.
    fn swap_in_piece(&mut self, block: &Block, address: PageAddr, access: Access, window: Window) -> bool {
        let engine = self.engine;
        let mut readahead = engine.readahead(block, address, window);
        loop {
            let came = self.bring(block, address, access, &readahead, Purpose::Fault);
            let is_asked_for = came.away >= 1 << readahead.order;
            let is_whole = came.copied >= 1 << readahead.order;
            if came.is_read && came.copied > 0 {
                let (order, folios) = if is_whole { (readahead.order, 1) } else { (0, came.copied as u64) };
                engine.figures().add_size(SizeCounter::SwapIn, order.into(), folios);
            }
            if came.is_read && is_asked_for && !is_whole && (came.copied > 0 || came.next == Next::Fewer) {
                engine.fall_back(readahead.order, None);
            }
            if came.copied > 0 {
                readahead.remember(block);
            }
            match came.next {
                Next::Done => return true,
                Next::LookAgain => return false,
                Next::Fewer if readahead.pages.is_power_of_two() => return self.wait_for_kernel(),
                Next::Fewer => {
                    let order = engine.largest_order(address, readahead.order.saturating_sub(1));
                    readahead = readahead.smaller(address.index().get(), order);
                }
            }
        }
    }

    /// Brings back a folio of more than 64 KiB, all of which is stored, or as much of it as can be
    /// had.
    fn swap_in_large(&mut self, block: &Block, address: PageAddr, access: Access, large: Large) -> bool {
        let Large { window, advised, room } = large;
        let (engine, order) = (self.engine, window.order);
        let (index, base) = (address.index(), address.block());
        let pages = aligned(index, order);
        let own = index.piece();
        let others = pages.start / PIECE_PAGES..pages.end / PIECE_PAGES;
        let came = self.bring(block, address, access, &Readahead::of_walk(own), Purpose::Fault);
        match came.next {
            Next::Done if came.copied > 0 => {}
            Next::Done => return true,
            Next::LookAgain => return false,
            Next::Fewer => {
                engine.fall_back(order, None);
                let order = engine.largest_order(address, PIECE_ORDER);
                return self.swap_in_piece(block, address, access, Window { order, ..window });
            }
        }
        // The pieces ahead of the walk come first, then those that it has passed.
        let (mut above, mut below) = (own + 1..others.end, (others.start..own).rev());
        let sides: [&mut dyn Iterator<Item = usize>; 2] = match window.direction {
            Direction::Forwards => [&mut above, &mut below],
            Direction::Backwards => [&mut below, &mut above],
        };
        self.begin_window();
        let (mut came_pieces, mut copied) = (own..own + 1, came.copied);
        let within = base.piece(others.start).page(0)..base.piece(others.end).page(0);
        for side in sides {
            for piece in side {
                if advised == BLOCK_ORDER && is_last_of_block(piece, window.direction) {
                    self.bring_blocks_before_end(address, access, window.direction);
                }
                let Some(pages) = self.bring_next(base.piece(piece), access, &within, room) else { break };
                copied += pages;
                came_pieces = came_pieces.start.min(piece)..came_pieces.end.max(piece + 1);
                if pages < PIECE_PAGES {
                    break;
                }
            }
        }
        let is_whole = copied == pages.len();
        if is_whole {
            engine.figures().add_size(SizeCounter::SwapIn, order.into(), 1);
        } else {
            let not_charged = room == Ceiling::BelowLimit && engine.is_at_limit();
            engine.fall_back(order, not_charged.then_some(NoHugePage::NotCharged));
            let by_piece = engine.allows_order(address, PIECE_ORDER);
            let (pieces, single) =
                if by_piece { (copied / PIECE_PAGES, copied % PIECE_PAGES) } else { (0, copied) };
            engine.figures().add_size(SizeCounter::SwapIn, PIECE_ORDER.into(), pieces as u64);
            engine.figures().add_size(SizeCounter::SwapIn, 0, single as u64);
        }
        // After the messages that were read meanwhile the block may be another's.
        if let Some(block) = engine.table.block(base) {
            let walked = if is_whole { advised } else { PIECE_ORDER };
            block.history.remember(came_pieces.start * PIECE_PAGES, came_pieces.end * PIECE_PAGES, walked);
        }
        true
    }

    /// Brings the next piece of a large folio, if all of it is still away and may come; returns how
    /// many of its pages came. `within` is the folio: a thread that waits for another part of it
    /// does not wait in vain.
    fn bring_next(
        &mut self,
        piece: PieceAddr,
        access: Access,
        within: &Range<PageAddr>,
        room: Ceiling,
    ) -> Option<usize> {
        let block = self.may_bring_more(piece.block(), within, room)?;
        let (engine, first, address) = (self.engine, piece.index(), piece.page(0));
        let mut pages = PageInBlock::range(first.get()..first.get() + PIECE_PAGES);
        if !pages.all(|page| engine.may_come_in_large(block, address, page)) {
            return None;
        }
        let readahead = Readahead::of_walk(first.piece());
        let came = self.bring(block, address, access, &readahead, Purpose::Ahead);
        (came.next == Next::Done).then_some(came.copied)
    }

    /// This block, if more of it may come ahead of its faults: no fault waits any more
    /// except for pages `within` (or, where the folio may exceed the limit, for memory), and the
    /// group has headroom. Reads messages and serves other faults, so earlier knowledge of the
    /// block is out of date.
    fn may_bring_more(
        &mut self,
        block: BlockAddr,
        within: &Range<PageAddr>,
        room: Ceiling,
    ) -> Option<&'static Block> {
        self.read_messages();
        let others_are_served = self.serve_others(within, room);
        let has_room = match room {
            Ceiling::BelowLimit => !self.engine.is_at_limit(),
            Ceiling::Beyond => self.engine.headroom() >= PIECE as u64,
        };
        let may = has_room && others_are_served;
        self.engine.table.block(block).filter(|_| may)
    }

    /// Brings back a page of a stride, and the pages that the stride will come to next, each by
    /// itself.
    fn swap_in_strided(&mut self, block: &Block, address: PageAddr, access: Access, stride: Stride) -> bool {
        let engine = self.engine;
        let (index, base) = (address.index().get(), address.block());
        let came = self.bring(block, address, access, &Readahead::of_stride(index), Purpose::Fault);
        match came.next {
            Next::Done => {}
            Next::LookAgain => return false,
            Next::Fewer => return self.wait_for_kernel(),
        }
        self.begin_window();
        let (mut copied, mut passed) = (came.copied, 0);
        for page in stride.pages(index) {
            let Some(block) = self.may_bring_more(base, &base.pages(), Ceiling::BelowLimit) else {
                break;
            };
            passed += 1;
            // A page that is present already, or elsewhere, is passed over.
            let at = PageInBlock::new(page);
            if engine.is_in_store(block, at) {
                let readahead = Readahead::of_stride(page);
                copied += self.bring(block, base.page(at), access, &readahead, Purpose::Ahead).copied;
            }
        }
        engine.figures().add_size(SizeCounter::SwapIn, 0, copied as u64);
        if let Some(block) = engine.table.block(base).filter(|_| came.copied > 0) {
            block.history.remember_stride(index, stride, passed);
        }
        true
    }

    /// Begins a window: the pages that come along from here on may be interrupted, unless this is
    /// an interruption itself.
    fn begin_window(&mut self) {
        if let Interruptions::Few(count) = &mut self.swapin.interruptions {
            *count = 0;
        }
    }

    /// Waits because the kernel does not have even one page.
    fn wait_for_kernel(&mut self) -> bool {
        rustix::thread::sched_yield();
        self.read_messages();
        false
    }
}

impl Engine {
    /// Counts a folio of this order that was asked for and does not come as one; `why` is the
    /// reason, if it is known.
    pub(crate) fn fall_back(&self, order: u8, why: Option<NoHugePage>) {
        let figures = self.figures();
        let not_charged = u64::from(why == Some(NoHugePage::NotCharged));
        figures.add_size(SizeCounter::SwapInFallback, order.into(), 1);
        figures.add_size(SizeCounter::SwapInFallbackCharge, order.into(), not_charged);
    }

    /// The largest order up to `at_most` that is allowed for the page at `address`, which is away,
    /// and that can be had. All of a folio of more than 64 KiB has to be away. A window is no
    /// larger than the group's headroom below its limit where a smaller size is allowed; a folio
    /// that may come in one size alone may exceed the limit, as a huge page may.
    fn order_to_ask_for(&self, block: &Block, address: PageAddr, at_most: u8) -> (u8, Ceiling) {
        let mut order = self.largest_order(address, at_most);
        let bound = self.bound();
        let room = bound.limit.saturating_sub(bound.charge);
        let may_come = |page| self.may_come_in_large(block, address, page);
        while order > PIECE_ORDER {
            let (bytes, smaller) = ((PAGE as u64) << order, self.largest_order(address, order - 1));
            if PageInBlock::range(aligned(address.index(), order)).all(may_come) {
                if room >= bytes {
                    return (order, Ceiling::BelowLimit);
                }
                if smaller == 0 {
                    if self.headroom() >= bytes {
                        return (order, Ceiling::Beyond);
                    }
                    // As in the kernel, a folio that may not be charged counts as asked for, and
                    // falls back.
                    self.fall_back(order, Some(NoHugePage::NotCharged));
                }
            }
            order = smaller;
        }
        (order, Ceiling::BelowLimit)
    }

    /// Whether this page of a block is away so that a folio of more than 64 KiB may bring it, for
    /// the fault at `address`. A page on a file may come so only where nothing smaller is allowed,
    /// since each piece is a wait there.
    fn may_come_in_large(&self, block: &Block, address: PageAddr, page: PageInBlock) -> bool {
        self.is_in_store(block, page)
            || matches!(block.word(page).state(), PageState::Stored(_))
                && self.largest_order(address, PIECE_ORDER) == 0
    }

    /// Whether this page of a block is in the compressed store. The answer is a hint, since the
    /// page is not claimed.
    pub(crate) fn is_in_store(&self, block: &Block, page: PageInBlock) -> bool {
        match block.word(page).state() {
            PageState::Stored(entry) => self.space.file_slot(entry).is_none(),
            _ => false,
        }
    }
}

/// Whether this piece of a block is the last that a walk in this direction comes to.
fn is_last_of_block(piece: usize, direction: Direction) -> bool {
    match direction {
        Direction::Forwards => piece + 1 == BLOCK / PIECE,
        Direction::Backwards => piece == 0,
    }
}

/// The pages of the folio of this order that contains page `index`.
fn aligned(index: PageInBlock, order: u8) -> Range<usize> {
    let first = index.get() & !((1 << order) - 1);
    first..first + (1 << order)
}

#[cfg(test)]
mod tests;

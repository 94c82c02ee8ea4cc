//! What a walk gets ahead of it, after its fault is served and as long as nobody else waits: the rest of its window, and the blocks that
//! come as a whole.

use crate::engine::Engine;
use crate::handler::Handler;
use crate::isolate::page_index;
use crate::reading::Purpose;
use crate::staging::FOLIO_PAGES;
use crate::uffd::Access;
use crate::whole::{WHOLE_ORDER, Whole};
use folioswap_core::history::{Direction, Window};
use folioswap_core::page::PageState;
use folioswap_core::page_table::{BLOCK, BLOCK_PAGES, PAGE};

/// Most blocks that a walk gets ahead of it.
const BLOCKS_AHEAD: usize = 3;

impl Handler {
    /// The rest of a window of more than 64 KiB: the pieces that a walk will come to next, as long as all of the next one is in the
    /// compressed store, nobody else waits, and the group is below its limit. The thread that walks goes on meanwhile.
    pub(crate) fn swap_in_ahead(&mut self, address: usize, access: Access, window: Window) {
        let engine = self.engine;
        let (piece, base) = (page_index(address) / FOLIO_PAGES, address & !(BLOCK - 1));
        let most = (1usize << window.order) / FOLIO_PAGES;
        for further in 1..most {
            let next = match window.direction {
                Direction::Forwards => Some(piece + further).filter(|&next| next < BLOCK_PAGES / FOLIO_PAGES),
                Direction::Backwards => piece.checked_sub(further),
            };
            self.read_messages();
            // After what was read the block may be another's.
            let (Some(next), Some(block)) = (next, engine.table.block(base)) else { return };
            let is_stored = |page| match block.word(page).state() {
                PageState::Stored(entry) => engine.space.file_slot(entry).is_none(),
                _ => false,
            };
            let pages = next * FOLIO_PAGES..(next + 1) * FOLIO_PAGES;
            let (first, last) = (pages.start, pages.end - 1);
            if !pages.clone().all(is_stored) || engine.is_at_limit() || self.has_more_to_do() {
                return;
            }
            let page = if window.direction == Direction::Forwards { first } else { last };
            let address = base + page * PAGE;
            // Of its own: what came before it has been remembered.
            let window = engine.window(block, address);
            if !self.swap_in(block, address, access, window, Purpose::Ahead) {
                return;
            }
        }
    }

    /// In the middle of a walk: brings the blocks ahead of it that come as a whole, be it from a device or for the first time, as long as
    /// there are huge pages for them, nobody else waits, and the group is below its limit. Asked four times in each block.
    pub(crate) fn bring_blocks_ahead(&mut self, address: usize, access: Access, window: Window) {
        let engine = self.engine;
        let (index, block) = (page_index(address), address & !(BLOCK - 1));
        let is_due = match window.direction {
            Direction::Forwards => index.is_multiple_of(BLOCK_PAGES / 4),
            Direction::Backwards => (index + 1).is_multiple_of(BLOCK_PAGES / 4),
        };
        if window.order < WHOLE_ORDER || !is_due {
            return;
        }
        for further in 1..=engine.blocks_ahead() {
            let start = match window.direction {
                Direction::Forwards => block + further * BLOCK,
                Direction::Backwards => block.saturating_sub(further * BLOCK),
            };
            self.read_messages();
            let is_allowed = |page| engine.allows_order(page, WHOLE_ORDER);
            if self.has_more_to_do()
                || engine.is_at_limit()
                || !engine.is_registered_whole(start)
                || !is_allowed(start)
                || !is_allowed(start + BLOCK - PAGE)
            {
                return;
            }
            let Some(block) = engine.table.block_or_insert(start, engine.arena) else { return };
            let came = match block.word(0).state() {
                PageState::Stored(_) => self.swap_in_whole(block, start, access, Purpose::Ahead),
                // It came with an earlier look.
                PageState::Present(_) if block.history.is_walked_through() => continue,
                PageState::Present(_) | PageState::Removed { .. } => self.first_touch_whole(block, start),
                _ => Whole::Refused,
            };
            if came != Whole::Done {
                return;
            }
        }
    }
}

impl Engine {
    /// Most blocks that a walk gets ahead.
    fn blocks_ahead(&self) -> usize {
        if self.has_room_for_whole() { self.pool.slots().saturating_sub(1).min(BLOCKS_AHEAD) } else { 0 }
    }
}

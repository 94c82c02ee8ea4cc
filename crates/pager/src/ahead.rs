//! What a walk gets ahead of it, after its fault is served and as long as nobody else waits: the blocks that come as a whole.

use crate::engine::Engine;
use crate::handler::Handler;
use crate::isolate::page_index;
use crate::reading::Purpose;
use crate::uffd::Access;
use crate::whole::{WHOLE_ORDER, Whole};
use folioswap_core::history::{Direction, Window};
use folioswap_core::page::PageState;
use folioswap_core::page_table::{BLOCK, BLOCK_PAGES, PAGE};

/// Most blocks that a walk gets ahead of it.
const BLOCKS_AHEAD: usize = 3;

impl Handler {
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

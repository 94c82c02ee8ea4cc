//! The blocks that a walk gets ahead of it, each as a huge page: after its fault is served or
//! before the end of its block, as long as nobody else waits.

use crate::engine::Engine;
use crate::fault::handler::{Handler, Interruptions};
use crate::fault::huge_page::HugeSwapIn;
use crate::fault::queue::Fault;
use crate::fault::reading::Purpose;
use crate::kernel::uffd::Access;
use crate::store::clean::EventWaits;
use crate::units::{BLOCK, BLOCK_ORDER, BLOCK_PAGES, BlockAddr, PIECE, PageAddr, PageInBlock};
use folioswap_policy::history::{Direction, Window};
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;

/// The most blocks that a walk gets ahead of it.
const BLOCKS_AHEAD: usize = 3;

/// The number, among the blocks that come at a time, of the one that becomes the trigger, if so
/// many come: the blocks behind it are left to the walk while the next ones are asked for.
const MARKED: usize = 2;

/// Attempts to lift a trigger while events come; after these it is lifted piece by piece.
const LIFT_ATTEMPTS: u32 = 16;

/// A block that came ahead of a walk of writes and is write-protected, so that the write that
/// enters it asks for the blocks that come after it. Without a trigger nothing would be known of a
/// walk through present memory until its next fault, in a block that it would then get piece by
/// piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trigger {
    start: BlockAddr,
    direction: Direction,
}

impl Handler {
    /// In the middle of a walk: brings the blocks ahead of it that can come as huge pages, from a
    /// device or for the first time, as long as there are huge pages for them, nobody else waits,
    /// and the group is below its limit. Takes effect four times in each block.
    pub(crate) fn bring_blocks_ahead(&mut self, address: PageAddr, access: Access, window: Window) {
        let index = address.index().get();
        let is_due = match window.direction {
            Direction::Forwards => index.is_multiple_of(BLOCK_PAGES / 4),
            Direction::Backwards => (index + 1).is_multiple_of(BLOCK_PAGES / 4),
        };
        if window.order == BLOCK_ORDER && is_due {
            self.bring_blocks(address, access, window.direction, Walker::GoesOn);
        }
    }

    /// The same while the last piece of the walk's block is still away: the thread that goes
    /// through the block waits there, and cannot meanwhile reach the next block, where its fault
    /// would leave a page table.
    pub(crate) fn bring_blocks_before_end(
        &mut self,
        address: PageAddr,
        access: Access,
        direction: Direction,
    ) {
        self.bring_blocks(address, access, direction, Walker::Waits { block: address.block() });
    }

    /// Brings the blocks ahead of a walk that is at `address`.
    fn bring_blocks(&mut self, address: PageAddr, access: Access, direction: Direction, walker: Walker) {
        let (mut came, mut marked) = (0, None);
        for further in 1..=self.engine.blocks_ahead() {
            let Some(start) = beyond(address.block(), further, direction) else { break };
            match self.bring_block_ahead(start, access, walker) {
                Ahead::Came => {
                    came += 1;
                    marked = Some(start).filter(|_| came <= MARKED).or(marked);
                }
                Ahead::WasThere => {}
                Ahead::Refused => break,
            }
        }
        if let Some(start) =
            marked.filter(|_| access != Access::Read && !self.comes_to_trigger(address, direction))
        {
            self.set_trigger(Trigger { start, direction });
        }
    }

    /// Whether the trigger lies ahead of a walk that is at `address`.
    fn comes_to_trigger(&self, address: PageAddr, direction: Direction) -> bool {
        let Some(trigger) = self.walk.trigger else { return false };
        let is_triggered = |further| beyond(address.block(), further, direction) == Some(trigger.start);
        (1..=self.engine.blocks_ahead()).any(is_triggered)
    }

    /// Brings one of the blocks. For a read, a stored block does not come so where relatives share
    /// it: giving up the copies would free nothing, and each relative would store all that it reads
    /// once more.
    fn bring_block_ahead(&mut self, start: BlockAddr, access: Access, walker: Walker) -> Ahead {
        let engine = self.engine;
        self.read_messages();
        let is_allowed = |page| engine.allows_order(start.page(page), BLOCK_ORDER);
        let may_come = match walker {
            Walker::GoesOn => !self.has_more_to_do() && !engine.is_at_limit(),
            Walker::Waits { block } => {
                !self.others_wait(&block.pages())
                    && engine.table.block(start).is_some_and(|block| engine.stays_huge(block, start))
                    && engine.ask_for_huge_page_and(PIECE as u64)
            }
        };
        if !may_come
            || !engine.is_block_registered(start)
            || !is_allowed(PageInBlock::FIRST)
            || !is_allowed(PageInBlock::LAST)
        {
            return Ahead::Refused;
        }
        let Some(block) = engine.table.block_or_insert(start, engine.arena) else { return Ahead::Refused };
        let came = match block.word(PageInBlock::FIRST).state() {
            PageState::Stored(_)
                if access == Access::Read && (engine.shares_memory() || !self.raw_children.is_empty()) =>
            {
                HugeSwapIn::Refused
            }
            PageState::Stored(_) => {
                self.swap_in_huge_page(block, start.page(PageInBlock::FIRST), Purpose::Ahead)
            }
            // The block came with an earlier look.
            PageState::Present(_) if block.history.is_walked_through() => return Ahead::WasThere,
            PageState::Present(_) | PageState::Removed { .. } if walker == Walker::GoesOn => {
                self.first_touch_huge_page(block, start, Purpose::Ahead)
            }
            _ => HugeSwapIn::Refused,
        };
        if came == HugeSwapIn::Done { Ahead::Came } else { Ahead::Refused }
    }

    /// Makes a block the trigger that has just come, and nothing of which is used yet. A block does
    /// not become one where a system call cannot wait for us, as may be for a library; nor beside
    /// relatives, since their shared pages are protected for other reasons; nor where pages must
    /// stay resident, since the kernel writes there without a fault.
    fn set_trigger(&mut self, trigger: Trigger) {
        let engine = self.engine;
        if let Some(before) = self.walk.trigger.take() {
            // The trigger is of another walk, or of one that went elsewhere. The part that is still
            // protected costs that walk a fault for each 64 KiB.
            let _ = self.lift(before.start);
        }
        engine.apply_requests();
        let must_stay = |piece| engine.kept_pages(trigger.start.piece(piece)) != 0;
        if engine.embedded.is_on()
            || engine.calls_hold()
            || engine.fork.has_relatives()
            || (0..BLOCK / PIECE).any(must_stay)
        {
            return;
        }
        let _nobody_claims = engine.locks.moves.lock();
        if engine.may_be_lifted(trigger.start)
            && engine.userfault().protect(trigger.start.raw(), BLOCK).is_ok()
        {
            self.walk.trigger = Some(trigger);
        }
    }

    /// Whether this fault is a write to the trigger.
    pub(crate) fn is_triggered(&self, fault: &Fault) -> bool {
        fault.access == Access::WriteProtected
            && self.walk.trigger.is_some_and(|trigger| trigger.start == fault.page.block())
    }

    /// If this fault is a write to the trigger: brings the blocks after it, and the walk goes on.
    /// Returns true if the fault is resolved; if false, it is a fault like any other, whose word is
    /// to be looked at only now.
    pub(crate) fn pass_trigger(&mut self, fault: &Fault) -> bool {
        if !self.is_triggered(fault) {
            return false;
        }
        let Some(trigger) = self.walk.trigger.take() else { return false };
        // The blocks are brought first, so that the walk does not reach them meanwhile: a block in
        // which a fault waits does not come as a whole.
        if self.swapin.interruptions != Interruptions::None {
            self.bring_blocks(fault.page, Access::Write, trigger.direction, Walker::GoesOn);
        }
        for _ in 0..LIFT_ATTEMPTS {
            match self.lift(trigger.start) {
                Ok(()) => return true,
                Err(NotLifted::NotOurs) => return false,
                Err(NotLifted::EventWaits) => {
                    rustix::thread::sched_yield();
                    self.read_messages();
                }
            }
        }
        false
    }

    /// Lifts the protection of a block that was the trigger, and wakes the threads that wait there.
    ///
    /// # Errors
    /// [`NotLifted`]
    fn lift(&mut self, start: BlockAddr) -> Result<(), NotLifted> {
        let engine = self.engine;
        // A page that the evictor has claimed may be clean, and leave as such because it is
        // protected: the evictor's claims end within this lock.
        let _nobody_claims = engine.locks.moves.lock();
        // A fork may have come with the messages that were read.
        if engine.fork.has_relatives() || !engine.may_be_lifted(start) {
            return Err(NotLifted::NotOurs);
        }
        engine.unprotect_and_wake(start.raw(), BLOCK).map_err(|EventWaits| NotLifted::EventWaits)
    }

    /// Forgets the trigger if it lies in this range, whose content is not there any more.
    pub(crate) fn forget_trigger(&mut self, start: usize, end: usize) {
        self.walk.trigger =
            self.walk.trigger.filter(|trigger| trigger.start.raw() >= end || start >= trigger.start.end());
    }
}

/// Why the protection of a block stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotLifted {
    /// Pages of it are protected for another reason.
    NotOurs,
    /// An event waits, which has to be read first.
    EventWaits,
}

impl Engine {
    /// The most blocks that a walk gets ahead.
    fn blocks_ahead(&self) -> usize {
        if self.affords_huge_pages() { self.pool.slots().saturating_sub(1).min(BLOCKS_AHEAD) } else { 0 }
    }

    /// Whether nothing rests on the protection of this block, and all of it is still ours. Clean
    /// pages rest on it, and only the handler makes them; where a part of the block was unmapped,
    /// somebody else's memory may lie there. Called under the move lock, so that no page is
    /// claimed.
    fn may_be_lifted(&self, start: BlockAddr) -> bool {
        let is_clean = |block: &Block| {
            PageInBlock::all().any(|page| matches!(block.word(page).state(), PageState::Clean(..)))
        };
        let is_ours = self.mappings.registered.covers(start.raw(), start.end());
        is_ours && self.table.block(start).is_some_and(|block| !is_clean(block))
    }
}

/// The known activity of the thread whose walk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walker {
    /// The fault of the thread is served.
    GoesOn,
    /// The thread goes through this block, whose last piece is still away: it goes on waiting
    /// there, and finds headroom for that piece.
    Waits { block: BlockAddr },
}

/// The result for a block ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    Came,
    /// The block came with an earlier look.
    WasThere,
    /// The block is present in part, or not to be had now.
    Refused,
}

/// The block that lies this many blocks further on.
fn beyond(block: BlockAddr, further: usize, direction: Direction) -> Option<BlockAddr> {
    let address = match direction {
        Direction::Forwards => block.raw().checked_add(further * BLOCK),
        Direction::Backwards => block.raw().checked_sub(further * BLOCK),
    };
    address.map(BlockAddr::containing)
}

#[cfg(test)]
mod tests;

//! Memory that the program serves by a userfaultfd of its own: a mapping belongs to one of them at
//! a time, so the pager gives up what it has registered there.
//!
//! The evictor alone registers memory, and only the pager has its userfaultfd. So a thread of the
//! program takes the cell of `Demand` (`engine/demand.rs`), which keeps the range
//! resident; it waits until no batch is under way that does not know that, brings back what is
//! away, and leaves its demand. The evictor unregisters the range with the handler outside of its
//! round, and nothing is registered until that thread has registered the range itself.

use crate::engine::Engine;
use crate::engine::demand::{Step, Ticket};
use crate::engine::holds::Populate;
use crate::engine::mappings::Wait;
use crate::engine::threads::Life;
use crate::engine::words::pages_within;
use crate::fault::handler::Handler;
use crate::kernel::futex::{self, Sharing};
use crate::units::{ADDRESS_END, BlockAddr, PAGE, PageInBlock};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::{Kind, Note};
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};

/// How often pages are brought back that came in the way of giving a range up.
const ATTEMPTS: u32 = 16;

/// How often, and how far apart, a thread looks whether the evictor has followed, or whether
/// another thread is done.
const LOOKS: u32 = 1000;
const LOOK_NS: u64 = 200_000;

/// What became of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// Nothing of it is registered any more.
    Up,
    /// Nothing has changed: a page of it is away, or on its way.
    Not,
}

impl Engine {
    /// Calls `register`, by which the program registers `start..end` with a userfaultfd of its own,
    /// while the range is not the pager's. Pages that are away come back first. Where the pager
    /// does not answer, `register` is called all the same, and the kernel refuses it (EBUSY).
    /// Threads of the program.
    pub fn leave_to_program<T>(&self, start: usize, end: usize, register: impl FnOnce() -> T) -> T {
        let (start, end) = (start & !(PAGE - 1), end.next_multiple_of(PAGE));
        if !self.is_engaged() {
            return register();
        }
        let Some(mine) = self.take_demand(start, end) else { return register() };
        let mine = self.have_given_up(mine, start, end);
        let result = register();
        self.demand.go(mine, Step::Nothing);
        futex::wake(self.demand.futex(), Sharing::Private);
        result
    }

    /// Has the pager give up all of the program's memory, for good: pages that are away come back,
    /// and nothing leaves any more. Returns when that is so; where the memory does not fit into the
    /// limit the run ends. Threads of the program.
    pub fn leave_everything_to_program(&self) {
        while self.is_served() && self.demand.now().step() != Step::Closed {
            self.end_without_pager();
            if let Some(mine) = self.take_demand(0, ADDRESS_END) {
                let mine = self.have_given_up(mine, 0, ADDRESS_END);
                let closed = mine.step() == Step::GivenUp && self.demand.go(mine, Step::Closed);
                if !closed {
                    self.demand.go(mine, Step::Nothing);
                }
                futex::wake(self.demand.futex(), Sharing::Private);
            }
        }
    }

    /// Undoes [`Engine::leave_everything_to_program`]. Threads of the program.
    pub fn take_everything_back(&self) {
        let now = self.demand.now();
        if now.step() == Step::Closed {
            self.demand.go(now, Step::Nothing);
        }
    }

    fn is_served(&self) -> bool {
        self.is_ours() && self.life() == Life::Running
    }

    /// Takes the cell for a range; `None`: this process has no pager, or other threads do not give
    /// the cell back.
    fn take_demand(&self, start: usize, end: usize) -> Option<Ticket> {
        let demand = &self.demand;
        for _ in 0..LOOKS {
            if !self.is_served() {
                return None;
            }
            if let Some(mine) = demand.take(start, end) {
                return Some(mine);
            }
            futex::wait(demand.futex(), demand.now().word(), LOOK_NS, Sharing::Private);
        }
        None
    }

    /// Brings back what is away of a range, and has the evictor give it up. Returns the demand as
    /// it is then.
    fn have_given_up(&self, mut mine: Ticket, start: usize, end: usize) -> Ticket {
        for _ in 0..ATTEMPTS {
            if !self.is_served() || self.wait_for_pager() == Wait::InVain {
                break;
            }
            self.bring_back_missing(start, end);
            if !self.demand.go(mine, Step::Wanted) {
                break;
            }
            mine = self.wait_for_evictor(mine.at(Step::Wanted));
            if mine.step() == Step::GivenUp {
                break;
            }
        }
        mine
    }

    /// Waits until the evictor has followed the demand. Returns the demand as it is then.
    fn wait_for_evictor(&self, wanted: Ticket) -> Ticket {
        let demand = &self.demand;
        for _ in 0..LOOKS {
            futex::post(&self.member().wake, Sharing::Shared);
            futex::wait(demand.futex(), wanted.word(), LOOK_NS, Sharing::Private);
            let now = demand.now();
            if now != wanted {
                return now;
            }
        }
        // The demand must not be followed any more, unless it has been in this moment.
        if demand.go(wanted, Step::Taken) { wanted.at(Step::Taken) } else { demand.now() }
    }

    /// Brings back the pages of the range that are away; they are to stay.
    fn bring_back_missing(&self, start: usize, end: usize) {
        self.table.for_blocks(start, end, |base, block| {
            for index in pages_within(base, start, end) {
                if self.is_missing(base, block, index) {
                    let page = base.page(index).raw();
                    self.demand.note_alive();
                    // Where the program has unmapped the page, the kernel refuses.
                    if self.populate(page, page + PAGE, Populate::Read) == Err(Errno::INVAL) {
                        self.bring_back_hidden(page);
                    }
                }
            }
        });
    }

    /// Brings back a page that the program may not read now.
    fn bring_back_hidden(&self, page: usize) {
        let protect = |access| {
            // SAFETY: the program may not touch the page, so it finds no difference.
            unsafe { mprotect(page as *mut _, PAGE, access) }
        };
        if protect(MprotectFlags::READ).is_ok() {
            let _ = self.populate(page, page + PAGE, Populate::Read);
            let _ = protect(MprotectFlags::empty());
        }
    }

    /// Whether the bytes of this page are not in memory, or are on their way.
    fn is_missing(&self, base: BlockAddr, block: &Block, index: PageInBlock) -> bool {
        match block.word(index).state() {
            PageState::Present(_) | PageState::Removed { .. } | PageState::Clean(..) => false,
            // What a fork's freeze has served is present under such a word.
            PageState::Stored(_) | PageState::Leaving(_) => {
                self.pages_now(base.page(index), 1).present & 1 == 0
            }
            PageState::Isolated(_) | PageState::Returning(_) | PageState::Filling => true,
        }
    }

    /// Follows the demand of a thread, if there is one. Called by the evictor under the gate.
    pub(crate) fn follow_demand(&self) {
        let demand = &self.demand;
        let wanted = demand.now();
        if wanted.step() != Step::Wanted {
            demand.forget_if_abandoned();
            return;
        }
        // The handler keeps addresses of words within its round. One that waits for memory, and so
        // for the evictor, is not waited for: the demand stands, and it makes way.
        let Some(_handler_waits) = self.handler_outside() else { return };
        let (start, end) = (demand.start.load(Relaxed), demand.end.load(Relaxed));
        let step = match self.give_up_range(start, end) {
            Given::Up => Step::GivenUp,
            Given::Not => Step::Kept,
        };
        if step == Step::GivenUp {
            demand.note_given_up();
            if end == ADDRESS_END {
                self.tell(Kind::Note, [Note::Confined as u64, 0, 0], None);
            }
        }
        // A thread that waits no longer has taken its demand back.
        demand.go(wanted, step);
        futex::wake(demand.futex(), Sharing::Private);
    }

    /// Unregisters a range of which no page is missing, and forgets its words. The caller has the
    /// handler outside.
    fn give_up_range(&self, start: usize, end: usize) -> Given {
        let _events_wait = self.locks.moves.lock();
        let mut is_whole = true;
        self.table.for_blocks(start, end, |base, block| {
            is_whole &= pages_within(base, start, end).all(|index| !self.is_missing(base, block, index));
        });
        if !is_whole {
            return Given::Not;
        }
        let registered = &self.mappings.registered;
        let mut at = start;
        while let Some(range) = registered.next(at) {
            let (from, to) = (range.start.max(at), range.end.min(end));
            if from >= to {
                break;
            }
            // SAFETY: no page of the range is away, and none leaves under the move lock. Where the
            // kernel refuses, it refuses the program as well.
            let _ = unsafe { self.userfault().unregister(from, to - from) };
            self.forget_words(from, to);
            at = to;
        }
        // What stays resident and the advice on huge pages are still true of the mapping.
        registered.forget(start, end);
        Given::Up
    }
}

impl Handler {
    /// Learns of ranges that were given up since the last round: a fault that was read before is
    /// served only where memory is registered now, and none of the program's own protections is
    /// lifted for a walk.
    pub(crate) fn learn_what_was_given_up(&mut self) {
        let count = self.engine.demand.given_up();
        if count != self.given_up_seen {
            self.given_up_seen = count;
            self.unmapped.forget_all();
            self.forget_trigger(0, ADDRESS_END);
        }
    }
}

#[cfg(test)]
mod tests;

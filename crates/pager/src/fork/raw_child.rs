//! Raw children: made by a bare clone(2), without the C library. No thread in them runs our code,
//! so their parent serves them.
//!
//! The FORK event is a barrier: until it is read, no page can be moved or copied. When it is read,
//! the handler writes back the pages that wait in staging and gives the child a page table of its
//! own, in which every entry is held once more. The child is served through the userfaultfd that
//! came with the event, until it execs or ends. If the parent ends first, the supervisor, which
//! holds a duplicate of that descriptor, ends the child at its first fault.

use crate::engine::Engine;
use crate::engine::ending::certainly_taken;
use crate::engine::fork_state::Protection;
use crate::engine::raw_tables::CHILDREN_MAX;
use crate::engine::words::{move_words, pages_within};
use crate::fault::handler::Handler;
use crate::fault::raw_children::RawChild;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::sys;
use crate::kernel::uffd::{Access, Event, Message, Stopped, Userfault};
use crate::units::{ADDRESS_END, PAGE, PageAddr, PageInBlock};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{Ending, Kind};
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::page_table::PageTable;
use folioswap_policy::reclaim::watermarks::Watermarks;
use folioswap_space::space::Movers;
use rustix::io::Errno;

/// Time between two checks for children that have ended.
const PROBE_NS: u64 = 500_000_000;

/// Longest wait of a child's faults for memory, short of the brink.
const PATIENCE_NS: u64 = 20_000_000;

impl Handler {
    /// Gives a child a table of its own. The caller holds the move lock, outside of a fork freeze.
    pub(crate) fn adopt_raw_child(&mut self, descriptor: i32) {
        let engine = self.engine;
        engine.protect_in_child(Userfault(descriptor));
        engine.fork.set_protection(Protection::Unprotected);
        // The child has a copy of the keys.
        engine.space.keys().renew();
        self.write_back_range(0, ADDRESS_END);
        let (index, table) = self.table_of_child();
        self.adopt(index, table, descriptor);
        engine.space.file_space().share_all();
        engine.figures().add(Counter::RawForks, 1);
        engine.fork.gain_relative(engine);
    }

    /// Returns the index of the next child, and its table, which is empty.
    fn next_child(&self) -> (usize, &'static PageTable) {
        let engine = self.engine;
        let index = self.raw_children.children.iter().position(Option::is_none);
        // Without a table the child would read zeroes.
        let index = index.unwrap_or_else(|| engine.end(Ending::NoTable, None));
        (index, certainly_taken(engine, || engine.children.tables.table(engine.arena, index)))
    }

    /// Makes the table of a child that this process makes by a bare clone(2): the pages that it
    /// finds stored. Returns the child's index too.
    fn table_of_child(&mut self) -> (usize, &'static PageTable) {
        let engine = self.engine;
        let (index, table) = self.next_child();
        copy_table(engine, &engine.table, table);
        // The cloning thread stands in clone(2) until the event is read: the mappings are now as
        // they were then, unless another thread, which knows nothing of the moment of that call,
        // has just changed them.
        self.for_not_inherited(|range| drop_table(engine, table, range.start, range.end));
        (index, table)
    }

    /// Begins to serve a child, which inherits the pages that its table says are stored.
    fn adopt(&mut self, index: usize, table: &'static PageTable, descriptor: i32) {
        let engine = self.engine;
        self.raw_children.children[index] = Some(RawChild { userfault: Userfault(descriptor), table });
        self.raw_children.unfound.begin(engine);
        if engine.children.raw.fetch_add(1, Relaxed) == 0 {
            self.raw_children.unfound.clear(engine);
            // Memory shared with the child is counted here until the supervisor finds it.
            let (sharing, header) = (&engine.member().sharing, &engine.segment().header);
            sharing.publish(sharing.before_measuring(header), 0);
        }
        futex::post(&engine.member().wake, Sharing::Shared);
        engine.tell(Kind::RawForked, [0; 3], Some(descriptor));
    }

    /// Serves the children; drops those that ended.
    pub(crate) fn raw_children_round(&mut self) {
        if self.raw_children.is_empty() || !self.engine.fork.is_thawed() {
            return;
        }
        while self.raw_children.waiting_count > 0 {
            self.raw_children.waiting_count -= 1;
            let descriptor = self.raw_children.waiting[self.raw_children.waiting_count];
            let engine = self.engine;
            let _moves_wait = engine.locks.moves.lock();
            self.adopt_raw_child(descriptor);
            // The child was made while the C library forked, so it inherited the engine's memory
            // too.
            engine.children.shared_bytes.store(engine.own_bytes(), Relaxed);
        }
        // At the limit no fault of a child is read for a while, and on the brink none until there
        // is memory: its threads wait.
        let now = sys::now_ns();
        let watermarks = Watermarks::of(self.engine.decisions().limit_bytes());
        self.raw_children.unfound.publish(self.engine);
        let charge = self.engine.group().charge_bytes();
        let has_waited = now >= self.raw_children.patience_ends_ns && charge < watermarks.brink;
        let has_headroom = charge < watermarks.limit || has_waited;
        if has_headroom {
            self.raw_children.patience_ends_ns = now + PATIENCE_NS;
        } else {
            futex::post(&self.engine.member().wake, Sharing::Shared);
        }
        let probe = self.raw_children.probe_due.take(now, PROBE_NS);
        for index in 0..CHILDREN_MAX {
            let Some(RawChild { userfault, table }) = self.raw_children.children[index] else { continue };
            if has_headroom {
                self.serve_raw_child(RawChild { userfault, table });
            }
            if probe && userfault.is_gone() {
                drop_table(self.engine, table, 0, ADDRESS_END);
                self.raw_children.children[index] = None;
                sys::close_range(userfault.0 as u32, userfault.0 as u32);
                if self.engine.children.raw.fetch_sub(1, Relaxed) == 1 {
                    self.raw_children.unfound.clear(self.engine);
                }
            }
        }
    }

    fn serve_raw_child(&mut self, child: RawChild) {
        let engine = self.engine;
        let mut messages = [Message::EMPTY; 16];
        let count = self.read_some(child.userfault, &mut messages);
        // The kernel hands out faults before events, so a fault is looked up after the events of
        // its batch.
        for message in &messages[..count] {
            match message.event() {
                Event::Remove { start, end } | Event::Unmap { start, end } => {
                    drop_table(engine, child.table, start, end)
                }
                Event::Remap { from, to, bytes } => {
                    move_words(engine, child.table, from, to, bytes);
                }
                // Advice that such a child gave by itself is not known here: its own children are
                // taken to inherit all.
                Event::Fork { child: descriptor } => {
                    let (index, table) = self.next_child();
                    copy_table(engine, child.table, table);
                    self.adopt(index, table, descriptor);
                }
                Event::Fault { .. } | Event::Unknown => {}
            }
        }
        for message in &messages[..count] {
            if let Event::Fault { address, access, .. } = message.event() {
                self.serve_child_fault(child, PageAddr::containing(address), access);
            }
        }
    }

    fn serve_child_fault(&mut self, child: RawChild, page: PageAddr, access: Access) {
        let (engine, address) = (self.engine, page.raw());
        if access == Access::WriteProtected {
            // The child inherited the protection of pages that are clean here. Nothing is ever
            // taken out of it, so nothing depends on the protection. (EAGAIN: an event of the child
            // waits; its thread looks again after it is read.)
            engine.end_sharing(PAGE);
            engine.figures().add(Counter::MinorFaults, 1);
            let _ = child.userfault.unprotect(address, PAGE);
            child.userfault.wake(address, PAGE);
            return;
        }
        let block = child.table.block(page);
        let word = block.map_or(PageWord::PRESENT, |block| block.word(page.index()));
        let stored = match word.state() {
            PageState::Stored(entry) => Some(entry),
            _ => None,
        };
        for _ in 0..1000 {
            let (decoder, buffer) = self.buffers.page_to_read(0);
            let result = match stored {
                Some(entry) => match engine.space.read(entry, decoder, buffer, Movers::Running) {
                    // SAFETY: the buffers are the engine's memory.
                    Ok(_) => unsafe { child.userfault.copy(address, self.buffers.page(0).as_ptr(), PAGE) },
                    Err(why) => {
                        if child.userfault.poison(address).is_ok() {
                            engine.tell_poisoned(page, engine.why_lost(entry, why));
                        }
                        child.userfault.wake(address, PAGE);
                        return;
                    }
                },
                // A read gets a page of its own too, as in `first_touch`.
                // SAFETY: the zeroes are the engine's memory.
                None => unsafe { child.userfault.copy(address, self.buffers.zeroes(), PAGE) },
            };
            match result {
                Ok(()) | Err(Stopped { why: Errno::EXIST, .. }) => {
                    self.raw_children.unfound.recent[0] += PAGE as u64;
                    engine.figures().add(Counter::MinorFaults, 1);
                    if let (Some(entry), Some(block)) = (stored, block) {
                        block.set(page.index(), PageWord::PRESENT);
                        engine.space.put(entry, 1);
                    }
                    child.userfault.wake(address, PAGE);
                    return;
                }
                Err(Stopped { why: Errno::AGAIN, .. }) => {
                    // An event of the child waits: its thread looks again after it is read.
                    child.userfault.wake(address, PAGE);
                    return;
                }
                Err(Stopped { why: Errno::NOMEM, .. }) => rustix::thread::sched_yield(),
                Err(_) => {
                    child.userfault.wake(address, PAGE);
                    return;
                }
            }
        }
        child.userfault.wake(address, PAGE);
    }
}

impl Engine {
    /// Gives up the tables of raw children in a forked child, which inherits them from its parent:
    /// the parent serves those children, and each word of the tables holds an entry of the child's
    /// copy of the engine.
    pub(crate) fn forget_raw_children(&self) {
        self.children.tables.iter().for_each(|table| drop_table(self, table, 0, ADDRESS_END));
        self.children.raw.store(0, Relaxed);
    }
}

/// Copies the word of every stored page, each of which holds its entry once more. Clean pages are
/// present in the child, which needs none of them.
fn copy_table(engine: &Engine, from: &PageTable, to: &PageTable) {
    from.for_blocks(0, ADDRESS_END, |base, block| {
        for index in PageInBlock::all() {
            let word = block.word(index);
            if let PageState::Stored(entry) = word.state() {
                // The child would read pages that it does not find as zeroes.
                let copy = certainly_taken(engine, || to.block_or_insert(base, engine.arena));
                certainly_taken(engine, || engine.space.duplicate(entry, 1).ok());
                copy.set(index, word);
            }
        }
    });
}

/// Gives up the entries of a range in a child's table.
fn drop_table(engine: &Engine, table: &PageTable, start: usize, end: usize) {
    table.for_blocks(start, end, |base, block| {
        for index in pages_within(base, start, end) {
            if let PageState::Stored(entry) = block.word(index).state() {
                block.set(index, PageWord::PRESENT);
                engine.space.put(entry, 1);
            }
        }
    });
}

#[cfg(test)]
mod tests;

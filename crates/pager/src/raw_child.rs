//! Children made by a bare clone(2), without the C library: nobody in them runs our code, so their parent serves them.
//!
//! The FORK event is a barrier: until it is read, no page can be moved or copied. When it is read, the handler writes back
//! what waits in staging and gives the child a page table of its own, in which every entry is held once more. The child
//! is served through the userfaultfd that came with the event, until it execs or ends. If the parent ends first, the
//! supervisor, which holds a duplicate of that descriptor, ends the child at its first fault.

use crate::arena::Arena;
use crate::due::Due;
use crate::engine::Engine;
use crate::events::pages_within;
use crate::fork::Shared;
use crate::futex::{self, Sharing};
use crate::handler::Handler;
use crate::isolate::page_index;
use crate::link;
use crate::sys;
use crate::uffd::{Access, Event, Message, Stopped, Userfault};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{Ending, Kind};
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::page_table::{BLOCK, PAGE, PageTable};
use folioswap_policy::reclaim::watermarks::Watermarks;
use folioswap_space::space::Movers;
use rustix::io::Errno;

/// Most such children at a time; one more ends the process with the supervisor's message, rather than read zeroes.
const CHILDREN_MAX: usize = 64;
const PROBE_NS: u64 = 500_000_000;
/// So long a child's faults wait for memory, short of the brink.
const PATIENCE_NS: u64 = 20_000_000;

#[derive(Clone, Copy)]
struct RawChild {
    userfault: Userfault,
    table: &'static PageTable,
}

/// The tables of such children, by their place: of nobody, with nothing stored in it, when the child is gone. They stay for the next child, and
/// are the engine's, so that a forked child finds what it has inherited of them. All-zero: none was made.
#[repr(C)]
pub(crate) struct RawTables([AtomicUsize; CHILDREN_MAX]);

impl RawTables {
    /// The table with this number, made if there is none. `None` without memory.
    fn table(&self, arena: &Arena, number: usize) -> Option<&'static PageTable> {
        let place = &self.0[number];
        let is_new = place.load(Relaxed) == 0;
        let table = arena.room::<PageTable>(place)?;
        // SAFETY: memory of the arena's for a table, there for ever; if it is new, nobody else knows of it.
        unsafe {
            if is_new {
                table.write(PageTable::new());
            }
            Some(table.as_ref())
        }
    }

    fn iter(&self) -> impl Iterator<Item = &'static PageTable> {
        // SAFETY: as above.
        self.0.iter().filter_map(|place| unsafe { (place.load(Relaxed) as *const PageTable).as_ref() })
    }
}

/// The children that this process serves.
pub(crate) struct RawChildren {
    children: [Option<RawChild>; CHILDREN_MAX],
    waiting: [i32; CHILDREN_MAX],
    waiting_count: usize,
    probe_due: Due,
    patience_ends_ns: u64,
    unfound: Unfound,
}

/// What such children made the group hold, and the supervisor may not have found: it counts them a few of its walks after
/// their birth, and what they grow by at its next one.
struct Unfound {
    /// Bytes, by the walk before which they came; the present one first.
    recent: [u64; WALKS],
    walks_seen: u32,
    ended_seen: u64,
    /// Walks that were made when the youngest child was born.
    youngest: u32,
}

/// After so many walks the supervisor has counted a new child: it gives a process 150 ms to become a member, and walks every
/// 100 ms at most.
const WALKS: usize = 5;
/// After so many it has counted what a child that it knows grew by: the walk that was under way may have missed it, the next did not.
const WALKS_KNOWN: usize = 2;

impl Unfound {
    /// Walks were made meanwhile: what is old enough has been found.
    fn forget(&mut self, walks: u32) {
        for _ in 0..walks.wrapping_sub(self.walks_seen).min(WALKS as u32) {
            self.recent.rotate_right(1);
            self.recent[0] = 0;
        }
        self.walks_seen = walks;
    }

    /// What is resident in a child counts nowhere; and what this process makes its own of what is shared with one adds to what
    /// the group holds.
    fn publish(&mut self, engine: &Engine) {
        let member = engine.member();
        self.forget(engine.segment().header.census_walks.load(Relaxed));
        let ended = member.sharing.ended_bytes();
        self.recent[0] += ended.wrapping_sub(self.ended_seen);
        self.ended_seen = ended;
        let known = self.walks_seen.wrapping_sub(self.youngest) > WALKS as u32;
        let missed = if known { WALKS_KNOWN } else { WALKS };
        member.unfound_bytes.store(self.recent[..missed].iter().sum(), Relaxed);
    }

    /// A child was born.
    fn begin(&mut self, engine: &Engine) {
        self.youngest = engine.segment().header.census_walks.load(Relaxed);
    }

    /// The last such child is gone.
    fn clear(&mut self, engine: &Engine) {
        self.recent = [0; WALKS];
        self.publish(engine);
        self.recent = [0; WALKS];
        engine.member().unfound_bytes.store(0, Relaxed);
    }
}

impl RawChildren {
    pub(crate) const fn new() -> Self {
        RawChildren {
            children: [const { None }; CHILDREN_MAX],
            waiting: [0; CHILDREN_MAX],
            waiting_count: 0,
            probe_due: Due::at_once(),
            patience_ends_ns: 0,
            unfound: Unfound { recent: [0; WALKS], walks_seen: 0, ended_seen: 0, youngest: 0 },
        }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting_count == 0 && self.children.iter().all(Option::is_none)
    }
    /// A child that came while a fork froze the words: it is adopted when the window closes, and stands still until then.
    pub(crate) fn wait(&mut self, engine: &Engine, child: i32) {
        if self.waiting_count == CHILDREN_MAX {
            engine.end(Ending::TooMany, None);
        }
        self.waiting[self.waiting_count] = child;
        self.waiting_count += 1;
    }
}

impl Handler {
    /// Gives a child a table of its own. Under the move lock, outside of a fork's window.
    pub(crate) fn adopt_raw_child(&mut self, descriptor: i32) {
        let engine = self.engine;
        engine.protect_in_child(Userfault(descriptor));
        engine.fork.set_shared(Shared::Unprotected);
        self.write_back_range(0, 1 << 47);
        let (place, table) = self.table_of_child();
        self.adopt(place, table, descriptor);
        engine.space.file_space().share_all();
        engine.figures().add(Counter::RawForks, 1);
        engine.fork.gain_relative(engine);
    }

    /// A place for one more child, and its table, which is empty.
    fn next_place(&self) -> (usize, &'static PageTable) {
        let engine = self.engine;
        let place = self.raw_children.children.iter().position(Option::is_none);
        let table = place.and_then(|place| Some((place, engine.raw_tables.table(engine.arena, place)?)));
        // Without one the child would read zeroes.
        table.unwrap_or_else(|| engine.end(Ending::NoTable, None))
    }

    /// What a child that this process makes by a bare clone(2) finds stored, and the child's place.
    fn table_of_child(&mut self) -> (usize, &'static PageTable) {
        let engine = self.engine;
        let (place, table) = self.next_place();
        copy_table(engine, &engine.table, table);
        // Its thread stands in clone(2) until the event is read: what the mappings say now they said then, unless another thread, which knows
        // nothing of the moment of that call, has just changed it.
        self.for_not_inherited(|range| drop_table(engine, table, range.start, range.end));
        (place, table)
    }

    /// Serves one more child, which inherits what its table says is stored.
    fn adopt(&mut self, place: usize, table: &'static PageTable, descriptor: i32) {
        let engine = self.engine;
        self.raw_children.children[place] = Some(RawChild { userfault: Userfault(descriptor), table });
        self.raw_children.unfound.begin(engine);
        if engine.raw_children.fetch_add(1, Relaxed) == 0 {
            self.raw_children.unfound.clear(engine);
            // What is shared with it is counted here until the supervisor finds it.
            let (sharing, header) = (&engine.member().sharing, &engine.segment().header);
            sharing.publish(sharing.before_measuring(header), 0);
        }
        futex::post(&engine.member().wake, Sharing::Shared);
        link::tell(engine.descriptors.control.load(Relaxed), Kind::RawForked, [0; 3], Some(descriptor));
    }

    /// Serves the children there are; drops those that ended.
    pub(crate) fn raw_children_round(&mut self) {
        if self.raw_children.is_empty() || !self.engine.fork.window_is_shut() {
            return;
        }
        while self.raw_children.waiting_count > 0 {
            self.raw_children.waiting_count -= 1;
            let descriptor = self.raw_children.waiting[self.raw_children.waiting_count];
            let engine = self.engine;
            let _moves_wait = engine.move_lock.lock();
            self.adopt_raw_child(descriptor);
            // It was made while the C library forked, so it inherited the engine's memory too.
            engine.shared_with_raw_children.store(engine.own_bytes(), Relaxed);
        }
        // At the limit nothing of a child is read for a while, and on the brink until there is memory: its threads wait.
        let now = sys::now_ns();
        let marks = Watermarks::of(self.engine.segment().header.limit_bytes.load(Relaxed));
        self.raw_children.unfound.publish(self.engine);
        let charge = self.engine.segment().charge_bytes();
        let has_waited = now >= self.raw_children.patience_ends_ns && charge < marks.brink;
        let has_room = charge < marks.limit || has_waited;
        if has_room {
            self.raw_children.patience_ends_ns = now + PATIENCE_NS;
        } else {
            futex::post(&self.engine.member().wake, Sharing::Shared);
        }
        let probe = self.raw_children.probe_due.take(now, PROBE_NS);
        for index in 0..CHILDREN_MAX {
            let Some(RawChild { userfault, table }) = self.raw_children.children[index] else { continue };
            if has_room {
                self.serve_raw_child(RawChild { userfault, table });
            }
            if probe && userfault.is_gone() {
                drop_table(self.engine, table, 0, 1 << 47);
                self.raw_children.children[index] = None;
                sys::close_range(userfault.0 as u32, userfault.0 as u32);
                if self.engine.raw_children.fetch_sub(1, Relaxed) == 1 {
                    self.raw_children.unfound.clear(self.engine);
                }
            }
        }
    }

    fn serve_raw_child(&mut self, child: RawChild) {
        let engine = self.engine;
        let mut messages = [Message::EMPTY; 16];
        let count = self.read_some(child.userfault, &mut messages);
        // The kernel hands out faults before events; what a fault finds is looked up after the events of its batch.
        for message in &messages[..count] {
            match message.event() {
                Event::Remove { start, end } | Event::Unmap { start, end } => {
                    drop_table(engine, child.table, start, end)
                }
                Event::Remap { from, to, bytes } => {
                    move_words(engine, child.table, from, to, bytes);
                }
                // What such a child has advised by itself is not known here: its own children are taken to inherit all.
                Event::Fork { child: descriptor } => {
                    let (place, table) = self.next_place();
                    copy_table(engine, child.table, table);
                    self.adopt(place, table, descriptor);
                }
                Event::Fault { .. } | Event::Unknown => {}
            }
        }
        for message in &messages[..count] {
            if let Event::Fault { address, access, .. } = message.event() {
                self.serve_child_fault(child, address & !(PAGE - 1), access);
            }
        }
    }

    fn serve_child_fault(&mut self, child: RawChild, address: usize, access: Access) {
        let engine = self.engine;
        if access == Access::WriteProtected {
            // It inherited the protection of what is clean here. Nothing is ever taken out of it, so nothing depends on it.
            // (EAGAIN: an event of the child waits; its thread looks again after it is read.)
            engine.end_sharing(PAGE);
            engine.figures().add(Counter::MinorFaults, 1);
            let _ = child.userfault.unprotect(address, PAGE);
            child.userfault.wake(address, PAGE);
            return;
        }
        let block = child.table.block(address);
        let word = block.map_or(PageWord::PRESENT, |block| block.word(page_index(address)));
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
                            engine.tell_poisoned(address, engine.why_lost(entry, why));
                        }
                        child.userfault.wake(address, PAGE);
                        return;
                    }
                },
                // For a read too, as in `first_touch`.
                // SAFETY: the zeroes are the engine's memory.
                None => unsafe { child.userfault.copy(address, self.buffers.zeroes(), PAGE) },
            };
            match result {
                Ok(()) | Err(Stopped { why: Errno::EXIST, .. }) => {
                    self.raw_children.unfound.recent[0] += PAGE as u64;
                    engine.figures().add(Counter::MinorFaults, 1);
                    if let (Some(entry), Some(block)) = (stored, block) {
                        block.set(page_index(address), PageWord::PRESENT);
                        engine.space.put(entry, 1);
                    }
                    child.userfault.wake(address, PAGE);
                    return;
                }
                Err(Stopped { why: Errno::AGAIN, .. }) => {
                    // An event of the child waits: let its thread look again after it is read.
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
    /// In a forked child: the bare clones' children that its parent serves are none of its own. It gives up what it has inherited of their tables,
    /// each word of which holds an entry of its copy of the engine.
    pub(crate) fn forget_raw_children(&self) {
        self.raw_tables.iter().for_each(|table| drop_table(self, table, 0, 1 << 47));
        self.raw_children.store(0, Relaxed);
    }
}

/// Copies every stored page's word, each of which holds its entry once more. Clean pages are present in the child: it needs none.
fn copy_table(engine: &Engine, from: &PageTable, to: &PageTable) {
    from.for_blocks(0, 1 << 47, |base, block| {
        for index in 0..BLOCK / PAGE {
            let word = block.word(index);
            if let PageState::Stored(entry) = word.state() {
                let held = engine.space.duplicate(entry, 1).is_ok();
                match to.block_or_insert(base, engine.arena).filter(|_| held) {
                    Some(copy) => copy.set(index, word),
                    // No memory: what the child does not find it would read as zeroes.
                    None => engine.end(Ending::NoTable, None),
                }
            }
        }
    });
}

/// Gives up the entries of a child's range.
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

/// Moves the words of a range to where its mapping went.
pub(crate) fn move_words(engine: &Engine, table: &PageTable, from: usize, to: usize, bytes: usize) {
    table.for_blocks(from, from + bytes, |base, block| {
        for index in pages_within(base, from, from + bytes) {
            let word = block.word(index);
            if word == PageWord::PRESENT {
                continue;
            }
            block.set(index, PageWord::PRESENT);
            let target = to + (base + index * PAGE - from);
            match table.block_or_insert(target, engine.arena) {
                Some(there) => there.set(page_index(target), word),
                // No memory for a table: the page can only be lost loudly.
                None => engine.end(Ending::NoTable, None),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;
    use crate::test_memory::{map, store_page, watching_engine};
    use rustix::mm::{Advice, MremapFlags, madvise, mremap_fixed};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;
    use std::vec::Vec;

    const PAGES: usize = 8;

    /// Memory of the program whose pages are all stored, which nothing of ours was told about.
    fn stored(engine: &'static Engine) -> usize {
        let start = map(PAGES * PAGE);
        engine.register_pieces(start, start + PAGES * PAGE);
        for page in 0..PAGES {
            store_page(engine, start + page * PAGE, &[page as u8 + 1; PAGE]);
        }
        start
    }

    fn advise(start: usize, pages: usize, advice: Advice) {
        // SAFETY: mapped by the test; nothing of it is changed for this process.
        unsafe { madvise(start as *mut _, pages * PAGE, advice) }.unwrap();
    }

    /// Which pages from `start` on such a table says are stored.
    fn stored_pages(table: &PageTable, start: usize) -> Vec<usize> {
        let is_stored = |&page: &usize| {
            let address = start + page * PAGE;
            let block = table.block(address);
            matches!(block.map(|block| block.word(page_index(address)).state()), Some(PageState::Stored(_)))
        };
        (0..PAGES).filter(is_stored).collect()
    }

    /// The advice is not seen: it is asked for by a system call, holds where the mapping has moved, and not for what is mapped in its place.
    #[test]
    fn what_a_child_does_not_inherit_is_not_served_to_it() {
        let Some(engine) = watching_engine() else { return };
        let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
        let [kept, wiped, absent, in_part, moved, renewed] = [(); 6].map(|()| stored(engine));
        advise(wiped, PAGES, Advice::LinuxWipeOnFork);
        advise(absent, PAGES, Advice::LinuxDontFork);
        advise(in_part + 2 * PAGE, 3, Advice::LinuxWipeOnFork);
        advise(moved, PAGES, Advice::LinuxWipeOnFork);
        advise(renewed, PAGES, Advice::LinuxWipeOnFork);
        advise(renewed, PAGES, Advice::LinuxKeepOnFork);
        let place = map(PAGES * PAGE);
        // SAFETY: both are the test's. What moves was never present; the place is replaced by it.
        unsafe {
            engine.userfault().unregister(moved, PAGES * PAGE).unwrap();
            let flags = MremapFlags::MAYMOVE;
            mremap_fixed(moved as *mut _, PAGES * PAGE, PAGES * PAGE, flags, place as *mut _)
        }
        .unwrap();
        engine.move_words(moved, place, PAGES * PAGE);
        let all: Vec<usize> = (0..PAGES).collect();
        let in_use = engine.space.slots().stats().inuse;
        let (_, table) = handler.table_of_child();
        assert_eq!(stored_pages(table, kept), all);
        assert_eq!(stored_pages(table, renewed), all, "the advice was taken back");
        assert_eq!(stored_pages(table, in_part), [0, 1, 5, 6, 7]);
        for (start, name) in [(wiped, "wiped"), (absent, "absent"), (moved, "moved"), (place, "moved to")] {
            assert_eq!(stored_pages(table, start), [0; 0], "{name}");
        }
        assert_eq!(stored_pages(&engine.table, place), all, "they are this process's");
        drop_table(engine, table, 0, 1 << 47);
        assert_eq!(engine.space.slots().stats().inuse, in_use);
        // As in a child that the C library forked: of this process's own words.
        handler.for_not_inherited(|range| engine.remove_pages(range.start, range.end));
        assert_eq!(stored_pages(&engine.table, kept), all);
        assert_eq!(stored_pages(&engine.table, in_part), [0, 1, 5, 6, 7]);
        for start in [wiped, absent, place] {
            assert_eq!(stored_pages(&engine.table, start), [0; 0]);
        }
    }

    /// What a forked child inherits of its parent's bare clones' tables holds entries that nobody would ever give up.
    #[test]
    fn a_forked_child_holds_nothing_for_its_parents_bare_clones() {
        let Some(engine) = watching_engine() else { return };
        let mut parent = Handler::new(engine, Buffers::of(engine).unwrap());
        let start = stored(engine);
        let (control, _supervisor) = UnixDatagram::pair().unwrap();
        engine.descriptors.control.store(control.as_raw_fd(), Relaxed);
        for _ in 0..2 {
            let (place, table) = parent.table_of_child();
            parent.adopt(place, table, engine.userfault().0);
            assert_eq!(stored_pages(table, start).len(), PAGES);
        }
        engine.note_gone(PAGES as u64);
        assert_eq!(engine.validate(), Ok(PAGES as u64), "with two bare clones");
        engine.unmap_pages(start, start + PAGE);
        assert_eq!(engine.space.slots().stats().inuse, PAGES as u64, "they hold it still");
        // From here on as in a forked child: with a handler of its own.
        engine.forget_raw_children();
        assert_eq!(engine.validate(), Ok(PAGES as u64 - 1));
        let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
        let (place, table) = handler.table_of_child();
        assert_eq!((place, stored_pages(table, start)), (0, (1..PAGES).collect()), "a table is used again");
    }
}

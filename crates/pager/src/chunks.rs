//! Huge pages that have been written back, for the compressed store to grow into.
//!
//! The store grows by 2 MiB at a time while memory leaves the program, and what leaves is there: a huge page whose folios are all
//! written back is moved to where the store will grow next (some 20 µs), instead of being given to the system and 512 fresh pages being
//! asked for and cleared, which nobody needs to be clear (1 to 2 µs each). One chunk at a time waits for the store, and only once that has asked for one.
//!
//! Chunks come from regions of the address space of their own, registered so that pages can be moved there. A chunk is registered no
//! more once it holds memory: the store gives parts of it back by itself, from threads that read userfaultfd's events.

use crate::arena::Arena;
use crate::pagemap;
use crate::staging::empty_target;
use crate::uffd::{Stopped, Userfault, Watch};
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use folioswap_policy::page_table::BLOCK;
use rustix::mm::{Advice, madvise};

/// Bytes of a region: address space only.
const REGION_BYTES: usize = 32 << 20;

/// What is at the next chunk's place. The state of birth: nothing, and nobody has asked for it.
const UNASKED: u8 = 0;
/// The store has asked for a chunk and none was there.
const ASKED: u8 = 1;
/// Memory: the store may have it.
const THERE: u8 = 2;
/// Somebody is changing it.
const BUSY: u8 = 3;
/// The system gives no region.
const OFF: u8 = 4;

/// The next chunk. All-zero: there is no region.
pub(crate) struct Chunks {
    state: AtomicU8,
    /// Changed by who has made the state [`BUSY`].
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Chunks {
    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Bytes of memory that wait for the store.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        if self.state.load(Relaxed) == THERE { BLOCK as u64 } else { 0 }
    }

    /// Gives what waits to the system, until the store asks again. Evictor.
    pub(crate) fn give_up_waiting(&self) {
        if self.change(THERE, BUSY) {
            let start = self.next.fetch_add(BLOCK, Relaxed);
            // SAFETY: a chunk that waits is nobody's, holds nothing that is needed, and is not registered.
            let _ = unsafe { madvise(start as *mut _, BLOCK, Advice::LinuxDontNeed) };
            self.state.store(UNASKED, Release);
        } else {
            self.change(ASKED, UNASKED);
        }
    }

    /// In a forked child: what waits is its own copy and as good, but the region is the parent's, and pages are moved to the child's own.
    pub(crate) fn forget_region(&self) {
        let waits = self.waiting_bytes();
        if waits == 0 {
            self.state.store(UNASKED, Relaxed);
        }
        self.end.store(self.next.load(Relaxed) + waits as usize, Relaxed);
    }

    /// 2 MiB of memory that holds anything, if they wait. Otherwise they are wanted from now on. The store's, from any thread.
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        if !self.change(THERE, BUSY) {
            self.change(UNASKED, ASKED);
            return None;
        }
        let start = self.next.fetch_add(BLOCK, Relaxed);
        // Who has taken one will want another.
        self.state.store(ASKED, Release);
        NonNull::new(start as *mut u8)
    }
}

impl Arena {
    /// Moves the huge page at `address`, in a target of moves, to where the store grows next, if that has asked for it. False: it is still there, or what is
    /// left of it. Evictor.
    pub(crate) fn keep_as_chunk(&self, userfault: Userfault, pagemap: i32, address: usize) -> bool {
        let chunks = self.chunks();
        if !chunks.change(ASKED, BUSY) {
            return false;
        }
        let Some(chunk) = self.next_chunk(userfault) else {
            chunks.state.store(OFF, Release);
            return false;
        };
        // SAFETY: nothing at the source is needed any more, and the target is an empty place of ours.
        let moved = unsafe { userfault.move_pages(chunk, address, BLOCK) };
        let is_whole = moved.is_ok() && pagemap::is_huge(pagemap, chunk);
        // SAFETY: nothing of it is swapped out.
        let is_there = is_whole && unsafe { userfault.unregister(chunk, BLOCK) }.is_ok();
        if !is_there && !matches!(moved, Err(Stopped { done: 0, .. })) {
            // SAFETY: a target of moves in which nothing is needed.
            unsafe { empty_target(userfault, chunk, BLOCK) };
            // A page table may be left there, with which no huge page stays one.
            chunks.next.store(chunk + BLOCK, Relaxed);
        }
        chunks.state.store(if is_there { THERE } else { ASKED }, Release);
        is_there
    }

    /// Where it is; in a new region if the last one is used up.
    fn next_chunk(&self, userfault: Userfault) -> Option<usize> {
        let chunks = self.chunks();
        if chunks.next.load(Relaxed) >= chunks.end.load(Relaxed) {
            let start = self.move_target(REGION_BYTES)?.as_ptr() as usize;
            userfault.register(start, REGION_BYTES, Watch::MoveTarget).ok()?;
            chunks.next.store(start, Relaxed);
            chunks.end.store(start + REGION_BYTES, Relaxed);
        }
        Some(chunks.next.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::StorePages;
    use crate::engine::Engine;
    use crate::test_memory::{huge_page, moving_engine};
    use folioswap_devices::{PageMemory, Prefault};
    use folioswap_policy::page_table::PAGE;

    fn pagemap(engine: &Engine) -> i32 {
        engine.descriptors.pagemap.load(Relaxed)
    }

    /// An engine whose store grows by huge pages, and two of them in use. `None` where that is not possible.
    fn scene() -> Option<(&'static Engine, usize, usize)> {
        let engine = moving_engine()?;
        engine.arena.let_store_come(StorePages::Together);
        Some((engine, huge_page(engine)?, huge_page(engine)?))
    }

    fn keep(engine: &Engine, address: usize) -> bool {
        engine.arena.keep_as_chunk(engine.userfault(), pagemap(engine), address)
    }

    #[test]
    fn the_store_grows_into_what_has_left_once_it_has_asked() {
        let Some((engine, first, second)) = scene() else { return };
        let arena = engine.arena;
        assert!(!keep(engine, first), "nobody has asked");
        let (small, resident) = arena.map_to_write(BLOCK).expect("memory");
        let small = small.as_ptr() as usize;
        assert_eq!(resident, Prefault::Not);
        assert!(pagemap::is_empty(pagemap(engine), small, small + BLOCK), "none was there");
        assert!(keep(engine, first));
        assert!(!keep(engine, second), "one at a time");
        assert!(pagemap::is_empty(pagemap(engine), first, first + BLOCK));
        assert_eq!(arena.chunks().waiting_bytes(), BLOCK as u64);
        let (chunk, resident) = arena.map_to_write(BLOCK).expect("memory");
        let start = chunk.as_ptr() as usize;
        assert_eq!((resident, arena.chunks().waiting_bytes()), (Prefault::Done, 0));
        assert!(start.is_multiple_of(BLOCK) && pagemap::is_huge(pagemap(engine), start));
        assert_eq!(arena.will_write(chunk, 32 * PAGE), Prefault::Done);
        // What is given back costs no event, for which this thread would wait for ever.
        // SAFETY: nothing in it is needed.
        unsafe { arena.give_back(chunk, 32 * PAGE) };
        assert!(pagemap::is_empty(pagemap(engine), start, start + 32 * PAGE));
        assert!(keep(engine, second), "who has taken one wants another");
        let next = arena.map_to_write(BLOCK).expect("memory").0.as_ptr() as usize;
        assert_eq!(next, start + BLOCK);
        // What has to be zeroes never comes from there.
        let zeroes = arena.map(BLOCK).expect("memory").as_ptr() as usize;
        assert!(zeroes < start || zeroes >= start + REGION_BYTES);
    }

    /// Is the page at `address` a part of a huge page, mapped as one or not? Only root is told.
    fn is_part_of_huge(engine: &Engine, address: usize) -> Option<bool> {
        use std::os::unix::fs::FileExt;
        const THP: u64 = 1 << 22;
        let read = |file: &std::fs::File, at: usize| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at as u64 * 8).map(|()| u64::from_ne_bytes(word))
        };
        // SAFETY: the engine's, and not closed here.
        let own = std::mem::ManuallyDrop::new(unsafe {
            <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(pagemap(engine))
        });
        let frame = read(&own, address / PAGE).ok()? & ((1 << 55) - 1);
        let flags = std::fs::File::open("/proc/kpageflags").ok().filter(|_| frame != 0)?;
        read(&flags, frame as usize).ok().map(|flags| flags & THP != 0)
    }

    /// Unmapped alone it would stay in use.
    #[test]
    fn a_part_that_the_store_gives_back_is_free() {
        let Some((engine, address, _)) = scene() else { return };
        let arena = engine.arena;
        arena.map_to_write(BLOCK).expect("memory");
        assert!(keep(engine, address));
        let (chunk, _) = arena.map_to_write(BLOCK).expect("memory");
        let last = chunk.as_ptr() as usize + BLOCK - PAGE;
        let Some(before) = is_part_of_huge(engine, last) else {
            crate::test_memory::skip("the flags of frames are for root");
            return;
        };
        assert!(before);
        // SAFETY: nothing in it is needed.
        unsafe { arena.give_back(chunk, 32 * PAGE) };
        assert_eq!(is_part_of_huge(engine, last), Some(false));
    }

    #[test]
    fn what_waits_in_vain_is_given_to_the_system() {
        let Some((engine, first, second)) = scene() else { return };
        let arena = engine.arena;
        arena.map_to_write(BLOCK).expect("memory");
        assert!(keep(engine, first));
        let chunk = arena.next_chunk(engine.userfault()).expect("its place");
        arena.chunks().give_up_waiting();
        assert!(pagemap::is_empty(pagemap(engine), chunk, chunk + BLOCK));
        assert!(!keep(engine, second), "nobody has asked since");
        assert_eq!(arena.map_to_write(BLOCK).expect("memory").1, Prefault::Not);
        assert!(keep(engine, second));
    }

    #[test]
    fn a_child_takes_what_waits_and_has_a_region_of_its_own() {
        let Some((engine, first, second)) = scene() else { return };
        let arena = engine.arena;
        arena.map_to_write(BLOCK).expect("memory");
        assert!(keep(engine, first));
        arena.chunks().forget_region();
        let chunk = arena.map_to_write(BLOCK).expect("memory").0.as_ptr() as usize;
        assert!(pagemap::is_huge(pagemap(engine), chunk));
        assert!(keep(engine, second));
        let next = arena.map_to_write(BLOCK).expect("memory").0.as_ptr() as usize;
        assert!(next < chunk || next >= chunk + REGION_BYTES, "{next:#x} is in the region of {chunk:#x}");
        // With nothing there it asks anew.
        arena.chunks().forget_region();
        let Some(third) = huge_page(engine) else { return };
        assert!(!keep(engine, third));
    }

    #[test]
    fn what_is_no_huge_page_there_is_given_up() {
        let Some((engine, address, another)) = scene() else { return };
        let arena = engine.arena;
        arena.map_to_write(BLOCK).expect("memory");
        // A page that stands in the way: part of what is moved goes elsewhere, or nothing.
        let chunk = arena.next_chunk(engine.userfault()).expect("memory");
        // SAFETY: nobody uses it.
        unsafe { ((chunk + BLOCK / 2) as *mut u8).write_volatile(1) };
        assert!(!keep(engine, address));
        // SAFETY: nothing in it is needed.
        unsafe { empty_target(engine.userfault(), chunk, BLOCK) };
        assert!(keep(engine, another), "the next place is as good");
    }
}

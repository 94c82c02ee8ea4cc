//! Huge pages that have been written back, for the compressed store to grow into.
//!
//! The store grows by 2 MiB at a time while memory leaves the program, and that memory is at hand:
//! a huge page whose folios are all written back is moved to where the store will grow next (some
//! 20 us). Otherwise it would be given to the system, and 512 fresh pages would be asked for and
//! cleared, although the store does not need them clear (1 to 2 us each). One chunk at a time waits
//! for the store, and only once the store has asked for one.
//!
//! Chunks come from regions of the address space of their own, registered so that pages can be
//! moved there. A chunk is unregistered once it holds memory: the store gives parts of it back by
//! itself, from threads that read userfaultfd's events.

use crate::engine::arena::Arena;
use crate::kernel::pagemap;
use crate::kernel::uffd::{Stopped, Userfault, Watch};
use crate::staging::ring::empty_target;
use crate::units::BLOCK;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicUsize};
use rustix::mm::{Advice, madvise};

/// Bytes of a region: address space only.
const REGION_BYTES: usize = 32 << 20;

/// State of the next chunk: it holds no memory, and the store has not asked for it. The state of
/// birth.
const UNASKED: u8 = 0;

/// The store has asked for a chunk and none was there.
const ASKED: u8 = 1;

/// The chunk holds memory: the store may take it.
const THERE: u8 = 2;

/// A thread is changing the chunk.
const BUSY: u8 = 3;

/// The system gives no region.
const OFF: u8 = 4;

/// The next chunk. All-zero: there is no region.
pub(crate) struct Chunks {
    state: AtomicU8,
    /// Changed by the thread that has made the state [`BUSY`].
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

    /// Gives the chunk that waits to the system, until the store asks again. Evictor.
    pub(crate) fn give_up_waiting(&self) {
        if self.change(THERE, BUSY) {
            let start = self.next.fetch_add(BLOCK, Relaxed);
            // SAFETY: a chunk that waits belongs to no thread, holds nothing that is needed, and is
            // not registered.
            let _ = unsafe { madvise(start as *mut _, BLOCK, Advice::LinuxDontNeed) };
            self.state.store(UNASKED, Release);
        } else {
            self.change(ASKED, UNASKED);
        }
    }

    /// Forgets the region, in a forked child: a chunk that waits is the child's own copy and as
    /// good, but the region is the parent's, and pages are moved to the child's own.
    pub(crate) fn forget_range(&self) {
        let waits = self.waiting_bytes();
        if waits == 0 {
            self.state.store(UNASKED, Relaxed);
        }
        self.end.store(self.next.load(Relaxed) + waits as usize, Relaxed);
    }

    /// 2 MiB of memory with any content, if such a chunk waits; otherwise a chunk is wanted from
    /// now on. For the store, from any thread.
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        if !self.change(THERE, BUSY) {
            self.change(UNASKED, ASKED);
            return None;
        }
        let start = self.next.fetch_add(BLOCK, Relaxed);
        // A store that has taken one chunk will want another.
        self.state.store(ASKED, Release);
        NonNull::new(start as *mut u8)
    }
}

impl Arena {
    /// Moves the huge page at `address`, in a target of moves, to where the store grows next, if
    /// the store has asked for it. False: the huge page, or the rest of it, is still there.
    /// Evictor.
    pub(crate) fn keep_as_chunk(&self, userfault: Userfault, pagemap: i32, address: usize) -> bool {
        let chunks = self.chunks();
        if !chunks.change(ASKED, BUSY) {
            return false;
        }
        let Some(chunk) = self.next_chunk(userfault) else {
            chunks.state.store(OFF, Release);
            return false;
        };
        // SAFETY: nothing at the source is needed any more, and the target is an empty chunk of
        // ours.
        let moved = unsafe { userfault.move_pages(chunk, address, BLOCK) };
        let is_whole = moved.is_ok() && pagemap::is_huge(pagemap, chunk);
        // SAFETY: no page of the chunk is swapped out.
        let is_there = is_whole && unsafe { userfault.unregister(chunk, BLOCK) }.is_ok();
        if !is_there && !matches!(moved, Err(Stopped { done: 0, .. })) {
            // SAFETY: a target of moves in which nothing is needed.
            unsafe { empty_target(userfault, chunk, BLOCK) };
            // The range may keep a page table, with which no huge page stays huge.
            chunks.next.store(chunk + BLOCK, Relaxed);
        }
        chunks.state.store(if is_there { THERE } else { ASKED }, Release);
        is_there
    }

    /// The address of the next chunk; in a new region if the last one is used up.
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
mod tests;

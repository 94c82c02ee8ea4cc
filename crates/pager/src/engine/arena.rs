//! The engine's own memory: private anonymous mappings that are never managed, with their addresses
//! on record. They lie apart from the program's (`kernel/window.rs`).
//!
//! The arena tells its mappings from the program's by address, since the kernel may merge
//! neighbours; MADV_DONTDUMP keeps them out of core dumps and, being a flag of the mapping, keeps
//! most neighbours from merging at all.
//!
//! A child made by a bare clone(2) runs none of our code: a copy of the store and the tables would
//! be of no use to any process and could not be taken away from that child. So all mappings have
//! MADV_DONTFORK, except while the C library forks, and except the first few: these hold the data
//! that our functions look at before they know whose copy they are in.
//!
//! Where the limit is so large that a huge page more or less does not matter, the compressed store
//! becomes resident 128 KiB at a time, where there are many objects of a size: the store grows by
//! first touches of the evictor and the handler, which were a sixth of their time while a program
//! filled its memory. Huge pages from the system made that worse (fills of 512 MiB within 128 MiB
//! took 0.72 s instead of 0.47, since each is cleared at once). Huge pages that have just been
//! written back are at hand, and need not be cleared: the store takes these first (`chunks.rs`).

use crate::engine::chunks::Chunks;
use crate::kernel::failing;
use crate::kernel::ranges::Range;
use crate::kernel::window;
use crate::units::{BLOCK, PAGE};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use folioswap_devices::{PageMemory, Prefault};
use folioswap_policy::lock::SpinLock;
use folioswap_policy::memory::Memory;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munlock, munmap,
};

/// The most mappings that can be on record. Mappings grow with the arena, so this bounds the arena
/// far above any memory.
const OWN_MAPPINGS_MAX: usize = 4096;

const OWN_MAPPING_BYTES_MIN: usize = 1 << 20;

const OWN_MAPPING_BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Copy)]
struct OwnMapping {
    start: usize,
    end: usize,
}

struct Fresh {
    next: usize,
    end: usize,
    taken: usize,
}

/// The children that find the arena's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Heirs {
    /// Any child finds memory that is made now. The state of birth.
    Everybody = 0,
    /// Children find only memory that was made before.
    Nobody = 1,
    /// The C library is forking: its child finds all of the memory.
    ForkedChild = 2,
}

/// The way in which the memory of the compressed store becomes resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum StorePages {
    /// Page by page: the resident memory is then the memory in use. The state of birth.
    Singly = 0,
    /// As much at a time as is going to be used soon.
    Together = 1,
}

/// The arena. All-zero memory is a valid empty arena.
pub struct Arena {
    count: AtomicUsize,
    /// [`Heirs`] as a number; changed by one thread at a time.
    heirs: AtomicU32,
    /// [`StorePages`] as a number.
    store_pages: AtomicU32,
    /// Mappings that every child finds.
    for_everybody: AtomicUsize,
    pieces: [SpinLock<OwnMapping>; OWN_MAPPINGS_MAX],
    fresh: SpinLock<Fresh>,
    chunks: Chunks,
}

impl Arena {
    /// Makes an arena inside memory of its own, which is its first mapping.
    pub fn create() -> Option<NonNull<Arena>> {
        let bytes = size_of::<Arena>().next_multiple_of(PAGE);
        let place: NonNull<Arena> = map(bytes)?.cast();
        // SAFETY: zeroed memory of the right size is a valid empty arena.
        unsafe { place.as_ref() }.record(place.as_ptr() as usize, bytes);
        Some(place)
    }

    /// Sets which children find the arena's contents from now on. Cost: a system call for each
    /// mapping that not every child finds.
    ///
    /// Once the setting was [`Heirs::Nobody`] it is never [`Heirs::Everybody`] again. No mapping
    /// may be added meanwhile.
    pub fn bequeath_to(&self, heirs: Heirs) {
        let _serialised = self.fresh.lock();
        let before = self.heirs.swap(heirs as u32, Relaxed);
        let count = self.count.load(Relaxed);
        if before == Heirs::Everybody as u32 {
            self.for_everybody.store(count, Relaxed);
        }
        for piece in &self.pieces[self.for_everybody.load(Relaxed)..count] {
            let piece = *piece.lock();
            advise_heirs(piece.start, piece.end - piece.start, heirs);
        }
    }

    fn record(&self, start: usize, bytes: usize) {
        if self.heirs.load(Relaxed) == Heirs::Nobody as u32 {
            advise_heirs(start, bytes, Heirs::Nobody);
        }
        let count = self.count.load(Relaxed);
        assert!(count < OWN_MAPPINGS_MAX, "more pieces than any memory holds");
        *self.pieces[count].lock() = OwnMapping { start, end: start + bytes };
        self.count.store(count + 1, Release);
    }

    /// Makes a mapping of its own, for memory that is given back or treated apart as a whole
    /// (staging, stacks).
    pub fn own_mapping(&self, bytes: usize) -> Option<NonNull<u8>> {
        let _serialised = self.fresh.lock();
        let start = map(bytes)?;
        self.record(start.as_ptr() as usize, bytes);
        Some(start)
    }

    /// A mapping of its own for one `T`, page aligned, made at the first call and there for ever;
    /// `place` keeps its address, 0 before. The mapping is all zero at first and resident where it
    /// was used; a forked child inherits it. `None` without memory.
    pub(crate) fn room<T>(&self, place: &AtomicUsize) -> Option<NonNull<T>> {
        if place.load(Relaxed) == 0 {
            place.store(self.own_mapping(size_of::<T>())?.as_ptr() as usize, Relaxed);
        }
        NonNull::new(place.load(Relaxed) as *mut T)
    }

    /// Makes a mapping of its own for `bytes` (a multiple of 2 MiB) that pages are moved to,
    /// aligned to 2 MiB. Huge pages stay huge there, and no 2 MiB of the address space hold both
    /// some of the mapping and some of the program, so no window of first touches around an address
    /// of the program reaches into it.
    pub fn move_target(&self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.own_mapping(bytes + BLOCK)?;
        // SAFETY: within the mapping, which is larger by the most that this may add.
        Some(unsafe { start.add(start.align_offset(BLOCK)) })
    }

    /// Calls `each` with the bounds of every mapping that intersects `start..end`.
    pub fn for_pieces(&self, start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
        for piece in &self.pieces[..self.count.load(Acquire)] {
            let piece = *piece.lock();
            if piece.start < end && start < piece.end {
                each(piece.start, piece.end);
            }
        }
    }

    /// Calls `each` with the parts of `start..end` that are none of these mappings, in ascending
    /// order.
    pub fn for_gaps(&self, start: usize, end: usize, mut each: impl FnMut(Range)) {
        let mut from = start;
        while from < end {
            let (until, next) = match self.next_piece(from) {
                Some((piece_start, piece_end)) if piece_start < end => (piece_start, piece_end),
                _ => (end, end),
            };
            if from < until {
                each(Range { start: from, end: until });
            }
            from = next;
        }
    }

    /// The bounds of the lowest mapping that ends above `address`.
    fn next_piece(&self, address: usize) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        self.for_pieces(address, usize::MAX, |start, end| {
            if best.is_none_or(|(lowest, _)| start < lowest) {
                best = Some((start, end));
            }
        });
        best
    }

    /// Calls `each` while no mapping can be added.
    pub fn with_pieces_fixed(&self, each: impl FnOnce(&Arena)) {
        let _fixed = self.fresh.lock();
        each(self);
    }

    /// Unmaps all mappings, the arena itself last.
    ///
    /// # Safety
    /// No thread uses the arena, or any memory that came from it, any more.
    pub(crate) unsafe fn unmap_all(&self) {
        let count = self.count.load(Acquire);
        // The first mapping holds the list of the others.
        for piece in self.pieces[..count].iter().rev() {
            let OwnMapping { start, end } = *piece.lock();
            // SAFETY: a mapping of the arena's, which by contract no thread uses.
            let _ = unsafe { munmap(start as *mut core::ffi::c_void, end - start) };
        }
    }

    /// The chunks that wait for the store to grow.
    pub(crate) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Sets how the store becomes resident from now on.
    pub(crate) fn let_store_come(&self, pages: StorePages) {
        self.store_pages.store(pages as u32, Relaxed);
    }

    fn comes_together(&self) -> bool {
        self.store_pages.load(Relaxed) == StorePages::Together as u32
    }

    /// Bytes handed out.
    pub fn taken_bytes(&self) -> usize {
        self.fresh.lock().taken
    }
}

/// Zeroed memory of the process, out of core dumps and without huge pages (the resident memory is
/// then the memory in use). It is not locked either: after mlockall(MCL_FUTURE) the kernel locks
/// each new mapping, and makes it resident where it can be accessed.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping, which takes nobody's place.
    unsafe {
        let start = mmap_anonymous(window::place(bytes), bytes, ProtFlags::empty(), flags).ok()?;
        let _ = munlock(start, bytes);
        if mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE).is_err() {
            let _ = munmap(start, bytes);
            return None;
        }
        let _ = madvise(start, bytes, Advice::LinuxDontDump);
        let _ = madvise(start, bytes, Advice::LinuxNoHugepage);
        NonNull::new(start.cast())
    }
}

fn advise_heirs(start: usize, bytes: usize, heirs: Heirs) {
    let advice = if heirs == Heirs::Nobody { Advice::LinuxDontFork } else { Advice::LinuxDoFork };
    // SAFETY: a mapping of the arena's; its contents for this process do not change.
    let _ = unsafe { madvise(start as *mut core::ffi::c_void, bytes, advice) };
}

impl Memory for Arena {
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut fresh = self.fresh.lock();
        if fresh.end - fresh.next < bytes {
            let size = (fresh.taken / 4)
                .clamp(OWN_MAPPING_BYTES_MIN, OWN_MAPPING_BYTES_MAX)
                .max(bytes)
                .next_multiple_of(PAGE);
            if failing::next().is_some() {
                return None;
            }
            let start = map(size)?.as_ptr() as usize;
            self.record(start, size);
            fresh.next = start;
            fresh.end = start + size;
        }
        let start = fresh.next;
        fresh.next += bytes;
        fresh.taken += bytes;
        NonNull::new(start as *mut u8)
    }
}

// SAFETY: the mappings are zeroed, private, never unmapped and page aligned; give_back advises
// exactly its range.
unsafe impl PageMemory for Arena {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.take(bytes)
    }

    fn map_to_write(&self, bytes: usize) -> Option<(NonNull<u8>, Prefault)> {
        let waiting = if bytes == BLOCK && self.comes_together() { self.chunks.take() } else { None };
        match waiting {
            Some(chunk) => Some((chunk, Prefault::Done)),
            None => self.map(bytes).map(|start| (start, Prefault::Not)),
        }
    }

    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        if self.comes_together() && bytes < BLOCK {
            // The range may be a part of a huge page, and would then only be unmapped there: the
            // huge page would stay in use as a whole until the system is short of memory. This
            // advice splits it.
            // SAFETY: the range is the arena's; its contents do not change.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxCold) };
        }
        // SAFETY: the owner says that the contents are not needed; the range is the arena's, and is
        // not registered anywhere.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }

    fn will_write(&self, start: NonNull<u8>, bytes: usize) -> Prefault {
        if !self.comes_together() {
            return Prefault::Not;
        }
        // Where this fails, the pages become resident one by one.
        // SAFETY: the range is the arena's; its contents do not change.
        match unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) } {
            Ok(()) => Prefault::Done,
            Err(_) => Prefault::Not,
        }
    }
}

#[cfg(test)]
mod tests;

//! The engine's own memory: private anonymous pieces that are never managed, with their addresses on record.
//!
//! A piece is told apart from the program's mappings by address, since the kernel may merge neighbours; MADV_DONTDUMP
//! keeps it out of core dumps and, being a flag of the mapping, keeps most neighbours from merging at all.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use folioswap_core::lock::SpinLock;
use folioswap_core::page_table::{Memory, PAGE};
use folioswap_devices::PageMemory;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Most pieces that can be on record. Pieces grow with the arena, so this bounds the arena far above any memory.
const PIECES_MAX: usize = 4096;
const PIECE_BYTES_MIN: usize = 1 << 20;
const PIECE_BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
}

struct Fresh {
    next: usize,
    end: usize,
    taken: usize,
}

/// The arena. All-zero memory is a valid empty one.
pub struct Arena {
    count: AtomicUsize,
    pieces: [SpinLock<Piece>; PIECES_MAX],
    fresh: SpinLock<Fresh>,
}

impl Arena {
    /// An arena inside memory of its own, which is its first piece.
    pub fn create() -> Option<NonNull<Arena>> {
        let bytes = size_of::<Arena>().next_multiple_of(PAGE);
        let place: NonNull<Arena> = map(bytes)?.cast();
        // SAFETY: zeroed memory of the right size is a valid empty arena.
        unsafe { place.as_ref() }.record(place.as_ptr() as usize, bytes);
        Some(place)
    }

    fn record(&self, start: usize, bytes: usize) {
        let count = self.count.load(Relaxed);
        assert!(count < PIECES_MAX, "more pieces than any memory holds");
        *self.pieces[count].lock() = Piece { start, end: start + bytes };
        self.count.store(count + 1, Release);
    }

    /// A mapping of its own, for what is given back or treated apart as a whole (staging, stacks).
    pub fn own_mapping(&self, bytes: usize) -> Option<NonNull<u8>> {
        let _serialised = self.fresh.lock();
        let start = map(bytes)?;
        self.record(start.as_ptr() as usize, bytes);
        Some(start)
    }

    /// Calls `each` with every piece that intersects `start..end`.
    pub fn for_pieces(&self, start: usize, end: usize, mut each: impl FnMut(usize, usize)) {
        for piece in &self.pieces[..self.count.load(Acquire)] {
            let piece = *piece.lock();
            if piece.start < end && start < piece.end {
                each(piece.start, piece.end);
            }
        }
    }

    /// The lowest piece that ends above `address`, by its bounds.
    pub fn next_piece(&self, address: usize) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        self.for_pieces(address, usize::MAX, |start, end| {
            if best.is_none_or(|(lowest, _)| start < lowest) {
                best = Some((start, end));
            }
        });
        best
    }

    /// Calls `each` while no piece can be added.
    pub fn with_pieces_fixed(&self, each: impl FnOnce(&Arena)) {
        let _fixed = self.fresh.lock();
        each(self);
    }

    /// Bytes handed out.
    pub fn taken_bytes(&self) -> usize {
        self.fresh.lock().taken
    }
}

/// Zeroed memory of the process, out of core dumps and without huge pages (what is used is then what is resident).
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    unsafe {
        let start =
            mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags).ok()?;
        let _ = madvise(start, bytes, Advice::LinuxDontDump);
        let _ = madvise(start, bytes, Advice::LinuxNoHugepage);
        NonNull::new(start.cast())
    }
}

impl Memory for Arena {
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut fresh = self.fresh.lock();
        if fresh.end - fresh.next < bytes {
            let size =
                (fresh.taken / 4).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX).max(bytes).next_multiple_of(PAGE);
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

// SAFETY: pieces are zeroed private mappings, never unmapped, page aligned; give_back advises exactly its range.
unsafe impl PageMemory for Arena {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.take(bytes)
    }

    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the owner says that the contents are not needed; the range is the arena's, not registered anywhere.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }
}

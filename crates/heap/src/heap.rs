//! The heap: arenas, and freed memory that is kept for reuse.

use crate::PAGE;
use crate::arena::{Arena, give_up};
use crate::extents::Contents;
use folioswap::{Error, Region, Swap};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of an arena, unless a piece is larger, or the limit is too small for the tables of so
/// many bytes.
const ARENA_BYTES: usize = 64 << 20;
/// Pieces of at least this size are zeroed by discarding their pages, smaller ones by writing.
const GIVE_UP_BYTES: usize = 64 << 10;
/// Free pages with left contents may take this part of the limit.
const LEFT_PART: u64 = 8;

/// The contents that a new piece is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Any bytes.
    Any,
    /// Zeroes.
    Zero,
}

/// The sizes of a heap at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of pieces in use.
    pub pieces: usize,
    /// The bytes of pieces in use, in whole pages.
    pub bytes: usize,
    /// The bytes of free pages that still hold the contents of freed pieces.
    pub left_bytes: usize,
    /// The number of arenas.
    pub arenas: usize,
}

/// A piece in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address of its first byte.
    pub address: usize,
    /// Its length in bytes, in whole pages.
    pub bytes: usize,
    /// The bytes of it that are in memory now.
    pub resident_bytes: usize,
}

/// Pieces of memory under the limit of a [`Swap`]. Threads may share a heap.
///
/// The heap must outlive its pieces: dropping it frees their memory.
pub struct Heap(Mutex<State>);

/// The state behind the lock.
pub(crate) struct State {
    pub(crate) swap: Swap,
    /// The arenas, by address.
    pub(crate) arenas: BTreeMap<usize, Arena>,
    pub(crate) process: u32,
}

impl State {
    /// Returns the arena that an address lies in.
    fn arena(&mut self, address: usize) -> Option<&mut Arena> {
        let (_, arena) = self.arenas.range_mut(..=address).next_back()?;
        (address < arena.start() + arena.bytes).then_some(arena)
    }

    fn left_bytes(&self) -> usize {
        self.arenas.values().map(|arena| arena.free.bytes(Contents::Left)).sum()
    }

    /// Returns whether the calling process is the one that the heap works in.
    fn is_at_home(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Heap {
    /// Makes a heap without pieces, and without arenas until the first piece.
    pub fn new(swap: Swap) -> Self {
        Heap(Mutex::new(State { swap, arenas: BTreeMap::new(), process: std::process::id() }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the swap whose limit holds.
    pub fn swap(&self) -> Swap {
        self.state().swap.clone()
    }

    /// Returns whether the calling process is the one that the heap works in. In a forked child
    /// without a copy nothing can be allocated.
    pub fn is_at_home(&self) -> bool {
        self.state().is_at_home()
    }

    /// Allocates a piece of `bytes`, rounded up to pages, aligned to a page. Cost: less than a
    /// microsecond where freed memory fits; a hundred and more for a new arena.
    ///
    /// # Errors
    /// Those of [`Swap::region`].
    pub fn allocate(&self, bytes: usize, fill: Fill) -> Result<NonNull<u8>, Error> {
        let mut state = self.state();
        if !state.is_at_home() {
            return Err(Error::Forked);
        }
        let too_large = Error::TooLarge { bytes: bytes as u64, why: "it is more than an address space has" };
        let Some(length) = bytes.max(1).checked_next_multiple_of(PAGE) else { return Err(too_large) };
        let wanted = match fill {
            Fill::Any => Contents::Left,
            Fill::Zero => Contents::Zero,
        };
        let mut taken = state.arenas.values_mut().find_map(|arena| arena.take(length, wanted));
        if taken.is_none() {
            let joined = |arena: &&mut Arena| {
                let (left, zero) = (arena.free.bytes(Contents::Left), arena.free.bytes(Contents::Zero));
                left > 0 && left + zero >= length
            };
            taken = state.arenas.values_mut().filter(joined).find_map(|arena| {
                arena.wash();
                arena.take(length, wanted)
            });
        }
        let (start, contents) = match taken {
            Some(taken) => taken,
            None => {
                let usual = ARENA_BYTES.min(state.swap.limit() as usize);
                let mut arena = Arena::new(state.swap.region(length.max(usual))?);
                let taken = arena.take(length, wanted);
                state.arenas.insert(arena.start(), arena);
                taken.ok_or(too_large)?
            }
        };
        if fill == Fill::Zero && contents == Contents::Left {
            // SAFETY: the piece has not been handed out yet.
            unsafe {
                if length >= GIVE_UP_BYTES {
                    give_up(start, length);
                } else {
                    std::ptr::write_bytes(start as *mut u8, 0, length);
                }
            }
        }
        NonNull::new(start as *mut u8).ok_or(Error::ZeroSize)
    }

    /// Frees the piece that begins at this address, and returns its length. `None`: no piece of
    /// this heap begins there, and nothing is done.
    ///
    /// # Safety
    /// No one uses the piece any more.
    pub unsafe fn free(&self, piece: NonNull<u8>) -> Option<usize> {
        let address = piece.as_ptr() as usize;
        if !address.is_multiple_of(PAGE) {
            return None;
        }
        let mut state = self.state();
        if !state.is_at_home() {
            // In a forked child without a copy, there is no mapping at that address, or another
            // one.
            return state.arena(address)?.pieces.remove(&address);
        }
        let (left, limit, arenas) = (state.left_bytes(), state.swap.limit(), state.arenas.len());
        let arena = state.arena(address)?;
        let length = arena.pieces.remove(&address)?;
        let is_kept = (left + length) as u64 <= limit / LEFT_PART;
        if !is_kept && arena.pieces.is_empty() && arenas > 1 {
            let start = arena.start();
            state.arenas.remove(&start);
            return Some(length);
        }
        let contents = if is_kept {
            Contents::Left
        } else {
            // SAFETY: the caller vouches that the piece is unused.
            unsafe { give_up(address, length) };
            Contents::Zero
        };
        arena.free.insert(address, length, contents);
        Some(length)
    }

    /// Returns the length of the piece that begins at this address, in whole pages. `None`: no
    /// piece of this heap begins there.
    pub fn length(&self, piece: NonNull<u8>) -> Option<usize> {
        let address = piece.as_ptr() as usize;
        address.is_multiple_of(PAGE).then(|| self.state().arena(address)?.pieces.get(&address).copied())?
    }

    /// Calls `work` with the region that this memory lies in, and its range of the region. No piece
    /// is allocated or freed meanwhile. `None`: the memory is not within one piece of this heap.
    ///
    /// # Safety
    /// `work` takes no slice of the region, because other threads hold pieces of it and write to
    /// them.
    pub unsafe fn with_region<R>(
        &self,
        first: NonNull<u8>,
        bytes: usize,
        work: impl FnOnce(&Region, Range<usize>) -> R,
    ) -> Option<R> {
        let address = first.as_ptr() as usize;
        let mut state = self.state();
        if !state.is_at_home() {
            return None;
        }
        let arena = state.arena(address)?;
        let range = arena.range(address, bytes)?;
        Some(work(&arena.region, range))
    }

    /// Returns the region that this memory lies in, and its range of the region, for work that
    /// takes long: other pieces may be allocated and freed meanwhile. `None`: the memory is not
    /// within one piece of this heap.
    ///
    /// The caller takes no slice of the region, because other threads hold pieces of it and write
    /// to them. The piece must not be freed before the work is done.
    pub fn region_of(&self, first: NonNull<u8>, bytes: usize) -> Option<(Arc<Region>, Range<usize>)> {
        let address = first.as_ptr() as usize;
        let mut state = self.state();
        if !state.is_at_home() {
            return None;
        }
        let arena = state.arena(address)?;
        let range = arena.range(address, bytes)?;
        Some((Arc::clone(&arena.region), range))
    }

    /// Returns all pieces in use, by address. Cost: one mincore(2) for each, some microseconds a
    /// GiB; nothing is allocated or freed meanwhile.
    ///
    /// # Errors
    /// Those of [`Region::resident_bytes`].
    pub fn pieces(&self) -> Result<Vec<Piece>, Error> {
        let state = self.state();
        if !state.is_at_home() {
            return Err(Error::Forked);
        }
        let of_arena = |arena: &Arena| {
            let region = Arc::clone(&arena.region);
            let start = arena.start();
            let piece = move |(&address, &bytes): (&usize, &usize)| {
                let resident_bytes = region.resident_bytes(address - start..address - start + bytes)?;
                Ok(Piece { address, bytes, resident_bytes })
            };
            arena.pieces.iter().map(piece).collect::<Vec<_>>()
        };
        state.arenas.values().flat_map(of_arena).collect()
    }

    /// Returns the sizes of this moment.
    pub fn figures(&self) -> Figures {
        let state = self.state();
        Figures {
            pieces: state.arenas.values().map(|arena| arena.pieces.len()).sum(),
            bytes: state.arenas.values().flat_map(|arena| arena.pieces.values()).sum(),
            left_bytes: state.left_bytes(),
            arenas: state.arenas.len(),
        }
    }
}

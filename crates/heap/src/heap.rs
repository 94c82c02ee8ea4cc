//! The heap: arenas, and what is kept of what was freed.

use crate::arena::{Arena, give_up};
use crate::extents::{Contents, PAGE};
use folioswap::{Error, Region, Swap};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of an arena, unless a piece is larger, or the limit is too small for the tables of so many.
const ARENA_BYTES: usize = 64 << 20;
/// Pieces of this size or more are made zero by giving their pages up, smaller ones by writing.
const GIVE_UP_BYTES: usize = 64 << 10;
/// What was left in free pages may take this part of the limit.
const LEFT_PART: u64 = 8;

/// What a piece is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Whatever is there.
    Any,
    /// Zeroes.
    Zero,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pieces that are in use.
    pub pieces: usize,
    /// Bytes of them, whole pages.
    pub bytes: usize,
    /// Bytes of free pages that still hold what was left there.
    pub left_bytes: usize,
    /// Arenas.
    pub arenas: usize,
}

/// Pieces of memory under the limit of a [`Swap`]. Threads may share it.
///
/// It must outlive its pieces; when it is dropped their memory goes.
pub struct Heap(Mutex<State>);

/// What is behind the lock.
pub(crate) struct State {
    pub(crate) swap: Swap,
    /// By address.
    pub(crate) arenas: BTreeMap<usize, Arena>,
    pub(crate) process: u32,
}

impl State {
    /// The arena of an address.
    fn arena(&mut self, address: usize) -> Option<&mut Arena> {
        let (_, arena) = self.arenas.range_mut(..=address).next_back()?;
        (address < arena.start() + arena.bytes).then_some(arena)
    }

    fn left_bytes(&self) -> usize {
        self.arenas.values().map(|arena| arena.free.bytes(Contents::Left)).sum()
    }

    /// Is the caller in the process that it works in?
    fn is_at_home(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Heap {
    /// Without pieces, and without arenas until the first.
    pub fn new(swap: Swap) -> Self {
        Heap(Mutex::new(State { swap, arenas: BTreeMap::new(), process: std::process::id() }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The swap whose limit holds.
    pub fn swap(&self) -> Swap {
        self.state().swap.clone()
    }

    /// Is the caller in the process that it works in? In a forked child without a copy nothing can be allocated.
    pub fn is_at_home(&self) -> bool {
        self.state().is_at_home()
    }

    /// A piece of `bytes`, rounded up to pages, at the beginning of a page. Cost: below a microsecond where something that was freed fits; a hundred
    /// and more for a new arena.
    ///
    /// # Errors
    /// As [`Swap::region`].
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
            // SAFETY: the piece, which nobody has yet.
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

    /// Ends the piece that begins there, and returns its length; `None`, and nothing is done: no piece of this heap begins there.
    ///
    /// # Safety
    /// Nobody uses the piece any more.
    pub unsafe fn free(&self, piece: NonNull<u8>) -> Option<usize> {
        let address = piece.as_ptr() as usize;
        if !address.is_multiple_of(PAGE) {
            return None;
        }
        let mut state = self.state();
        if !state.is_at_home() {
            // A forked child without a copy: there is nothing at that address, or something of others.
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
            // SAFETY: by contract.
            unsafe { give_up(address, length) };
            Contents::Zero
        };
        arena.free.insert(address, length, contents);
        Some(length)
    }

    /// The length of the piece that begins there, whole pages; `None`: no piece of this heap does.
    pub fn length(&self, piece: NonNull<u8>) -> Option<usize> {
        let address = piece.as_ptr() as usize;
        address.is_multiple_of(PAGE).then(|| self.state().arena(address)?.pieces.get(&address).copied())?
    }

    /// Calls `work` with the region that this memory lies in, and its place there; `None`: it is not within one piece of this heap. Nothing is
    /// allocated or freed meanwhile.
    ///
    /// # Safety
    /// `work` takes no slice of the region: others hold pieces of it, and write there.
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
        let (start, length) = arena.pieces.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        let within = end <= start + length;
        within.then(|| work(&arena.region, address - arena.start()..end - arena.start()))
    }

    /// How much there is now.
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

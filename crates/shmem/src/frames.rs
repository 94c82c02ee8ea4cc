//! Frames: the memory of folios, in blocks of 2 MiB from which naturally aligned pieces of every
//! order are cut and joined again (buddies).
//!
//! The reserved addresses far exceed the memory there may be, so that a large piece is found where
//! small ones are in use everywhere: only addresses get fragmented. Memory behind free frames is
//! kept for reuse, counted, and given back in the largest possible pieces.

use crate::folio::{Folio, Folios, NONE};
use crate::mapping::{Mapping, give_back};
use crate::sync::{AtomicU64, Mutex, Relaxed, lock};
use folioswap_slots::{ORDERS, Order};
use std::ptr::NonNull;

pub(crate) use folioswap_devices::PAGE_SIZE as PAGE;
/// Frames of a block, which is the largest piece.
pub(crate) const BLOCK: u32 = Order::MAX.slots();
const FREE: u32 = 1 << 8;

/// The frames of one space.
pub(crate) struct Frames {
    memory: Mapping,
    count: u32,
    state: Mutex<State>,
    /// Pages in use, and free ones that still have memory.
    used: AtomicU64,
    idle: AtomicU64,
    /// Frames ever used.
    known: AtomicU64,
}

struct State {
    /// First free piece of each order, and the last.
    heads: [u32; ORDERS],
    tails: [u32; ORDERS],
    /// Frames from this one on were never used.
    fresh: u32,
    /// One bit for each frame with memory behind it.
    resident: Vec<u64>,
}

impl Frames {
    /// Reserves `count` frames, a multiple of a block's. Cost: addresses only.
    pub(crate) fn new(count: u32) -> Option<Frames> {
        let memory = Mapping::new(count as usize * PAGE, BLOCK as usize * PAGE)?.without_huge_pages();
        let state = State { heads: [NONE; ORDERS], tails: [NONE; ORDERS], fresh: 0, resident: Vec::new() };
        let (used, idle, known) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Some(Frames { memory, count, state: Mutex::new(state), used, idle, known })
    }

    /// Start of a frame's memory.
    pub(crate) fn address(&self, frame: u32) -> NonNull<u8> {
        assert!(frame < self.count);
        // SAFETY: in range of the mapping.
        unsafe { self.memory.start().add(frame as usize * PAGE) }
    }

    /// Pages in use.
    pub(crate) fn used_pages(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Free pages whose memory was not given back.
    pub(crate) fn idle_pages(&self) -> u64 {
        self.idle.load(Relaxed)
    }

    /// Bytes of [`Folio`] of the frames that were ever used.
    pub(crate) fn metadata(&self) -> u64 {
        self.known.load(Relaxed) * (size_of::<Folio>() as u64)
    }

    /// Takes a piece, with arbitrary contents. `None` if no piece so large is left.
    pub(crate) fn take(&self, folios: &Folios, order: Order) -> Option<u32> {
        let mut state = lock(&self.state);
        let wanted = order.index();
        let (frame, found) = match (wanted..ORDERS).find(|&order| state.heads[order] != NONE) {
            Some(found) => (state.heads[found], found),
            None if state.fresh + BLOCK <= self.count => {
                let frame = state.fresh;
                state.fresh += BLOCK;
                self.known.store(state.fresh.into(), Relaxed);
                let words = (state.fresh / 64) as usize;
                state.resident.resize(words, 0);
                state.link(folios, frame, ORDERS - 1, End::Back);
                (frame, ORDERS - 1)
            }
            None => return None,
        };
        state.unlink(folios, frame, found);
        for order in (wanted..found).rev() {
            state.link(folios, frame + (1 << order), order, End::Front);
        }
        let pages = order.slots();
        let reused = state.mark_resident(frame, pages);
        self.used.fetch_add(pages.into(), Relaxed);
        self.idle.fetch_sub(reused, Relaxed);
        Some(frame)
    }

    /// Gives a piece back, or a naturally aligned part of one.
    pub(crate) fn free(&self, folios: &Folios, frame: u32, order: Order) {
        let mut state = lock(&self.state);
        let pages = u64::from(order.slots());
        self.used.fetch_sub(pages, Relaxed);
        self.idle.fetch_add(pages, Relaxed);
        let (mut frame, mut order) = (frame, order.index());
        while order + 1 < ORDERS {
            let buddy = frame ^ 1 << order;
            if folios.of(buddy).free.load(Relaxed) != FREE | order as u32 {
                break;
            }
            state.unlink(folios, buddy, order);
            frame = frame.min(buddy);
            order += 1;
        }
        state.link(folios, frame, order, End::Front);
    }

    /// Gives memory of free frames back, the largest pieces first, until at most `keep` pages of it
    /// are left; returns the pages.
    pub(crate) fn trim(&self, folios: &Folios, keep: u64) -> u64 {
        let mut given = 0;
        let mut state = lock(&self.state);
        for order in (0..ORDERS).rev() {
            let mut frame = state.heads[order];
            while frame != NONE && self.idle.load(Relaxed) > keep {
                let next = folios.of(frame).next.load(Relaxed);
                let resident = state.clear_resident(frame, 1 << order);
                if resident > 0 {
                    // SAFETY: a free piece, which no thread can take while the lock is held.
                    unsafe { give_back(self.address(frame), PAGE << order) };
                    self.idle.fetch_sub(resident, Relaxed);
                    given += resident;
                    // Pieces without memory are taken last.
                    state.unlink(folios, frame, order);
                    state.link(folios, frame, order, End::Back);
                } else {
                    break;
                }
                frame = next;
            }
        }
        given
    }
}

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl State {
    fn link(&mut self, folios: &Folios, frame: u32, order: usize, end: End) {
        let folio = folios.of(frame);
        folio.free.store(FREE | order as u32, Relaxed);
        let (previous, next) = match end {
            End::Front => (NONE, self.heads[order]),
            End::Back => (self.tails[order], NONE),
        };
        folio.previous.store(previous, Relaxed);
        folio.next.store(next, Relaxed);
        match previous {
            NONE => self.heads[order] = frame,
            previous => folios.of(previous).next.store(frame, Relaxed),
        }
        match next {
            NONE => self.tails[order] = frame,
            next => folios.of(next).previous.store(frame, Relaxed),
        }
    }

    fn unlink(&mut self, folios: &Folios, frame: u32, order: usize) {
        let folio = folios.of(frame);
        folio.free.store(0, Relaxed);
        let (previous, next) = (folio.previous.load(Relaxed), folio.next.load(Relaxed));
        match previous {
            NONE => self.heads[order] = next,
            previous => folios.of(previous).next.store(next, Relaxed),
        }
        match next {
            NONE => self.tails[order] = previous,
            next => folios.of(next).previous.store(previous, Relaxed),
        }
    }

    /// The words of a range, each with the mask of the range's bits.
    fn words(frame: u32, pages: u32) -> impl Iterator<Item = (usize, u64)> {
        let (first, within) = ((frame / 64) as usize, frame % 64);
        let mask = if pages >= 64 { u64::MAX } else { ((1 << pages) - 1) << within };
        (first..first + (pages as usize).div_ceil(64)).map(move |word| (word, mask))
    }

    /// Marks frames as having memory; returns the number of those that had it before.
    fn mark_resident(&mut self, frame: u32, pages: u32) -> u64 {
        let mut had = 0;
        for (word, mask) in State::words(frame, pages) {
            had += u64::from((self.resident[word] & mask).count_ones());
            self.resident[word] |= mask;
        }
        had
    }

    /// Marks frames as having no memory; returns the number of those that had it.
    fn clear_resident(&mut self, frame: u32, pages: u32) -> u64 {
        let mut had = 0;
        for (word, mask) in State::words(frame, pages) {
            had += u64::from((self.resident[word] & mask).count_ones());
            self.resident[word] &= !mask;
        }
        had
    }
}

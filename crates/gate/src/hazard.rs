//! Hazard slots: a call publishes the pages that the kernel will use, and an evictor leaves them
//! alone until the call is over.
//!
//! Dekker's pattern: a call publishes, fences, and looks at what the evictor has announced; the
//! evictor announces, fences, and looks at what calls have published. One of the two sees the
//! other. A call that sees an announcement waits for its end, and touches its pages only then, so
//! they come back and stay.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence_of_a_call, fence_of_the_evictor, pause};

/// Ranges of one call; a call that needs more holds everything.
pub const RANGES: usize = 6;
/// The owner of a slot that nobody but its call will release: asking for the thread's id would cost
/// a system call.
pub const ANYBODY: u32 = u32::MAX;
/// The word of no range.
const NOTHING: u64 = 0;
/// Bits of a range's word for its number of pages; the rest is its first page.
const COUNT_BITS: u32 = 24;
const MOST_PAGES: u64 = (1 << COUNT_BITS) - 1;
const PAGE_BITS: u32 = 12;
/// Bytes of a page.
pub const PAGE: u64 = 1 << PAGE_BITS;
/// Addresses of programs end here.
const END: u64 = 1 << 47;

/// Pages side by side, in one word: whoever reads it reads all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages(u64);

/// Why bytes are no [`Pages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPages {
    /// There are none.
    Empty,
    /// They wrap, or lie where no program has memory: the kernel will say EFAULT.
    Outside,
    /// They are more than 64 GiB: hold everything.
    Many,
}

impl Pages {
    /// The pages that `bytes` bytes from `address` on touch.
    ///
    /// # Errors
    /// [`NoPages`].
    pub fn around(address: u64, bytes: u64) -> Result<Pages, NoPages> {
        let Some(last) = bytes.checked_sub(1) else { return Err(NoPages::Empty) };
        let last = address.checked_add(last).filter(|last| *last < END).ok_or(NoPages::Outside)?;
        let first = address >> PAGE_BITS;
        let count = (last >> PAGE_BITS) - first + 1;
        if count > MOST_PAGES { Err(NoPages::Many) } else { Ok(Pages(first << COUNT_BITS | count)) }
    }

    /// The first page, by its number.
    pub fn first(self) -> u64 {
        self.0 >> COUNT_BITS
    }

    /// The page behind the last.
    pub fn end(self) -> u64 {
        self.first() + (self.0 & MOST_PAGES)
    }

    fn overlaps(self, other: Pages) -> bool {
        self.first() < other.end() && other.first() < self.end()
    }
}

/// What one call has published. All of it is zero in a slot that is free.
pub struct Slot {
    /// Id of the thread, or [`ANYBODY`].
    pub(super) owner: AtomicU32,
    /// Where the call's frame lies, which says later whether the call was left by a jump; zero
    /// where it does not say so.
    pub(super) place: AtomicU64,
    pub(super) ranges: [AtomicU64; RANGES],
    /// 1 while the call holds everything.
    pub(super) holds_all: AtomicU32,
}

/// The slots of a process, and the evictor's announcement.
pub struct Hazards<const SLOTS: usize> {
    pub(super) slots: [Slot; SLOTS],
    /// Zero while there is no announcement.
    pub(super) announced: AtomicU64,
    /// Calls that hold everything because they found no slot.
    pub(super) crowd: AtomicU32,
}

/// A slot that belongs to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotIndex(pub u32);

/// The side of a call.
impl<const SLOTS: usize> Hazards<SLOTS> {
    /// Takes a slot for the thread `owner`, which is not 0, and its frame at `place`. None: all are
    /// taken. The search begins where the place says, so that threads seldom meet.
    pub fn claim(&self, owner: u32, place: u64) -> Option<SlotIndex> {
        for probe in 0..SLOTS {
            let index = ((place >> 12) as usize).wrapping_add(probe) % SLOTS;
            let free = self.slots.get(index)?;
            if free.owner.load(Ordering::Relaxed) == 0
                && free.owner.compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                free.place.store(place, Ordering::Release);
                return Some(SlotIndex(index as u32));
            }
        }
        None
    }

    /// Publishes one more range of a call. When this returns, and until [`Hazards::release`], no
    /// evictor takes a page of it; those that were taken before come back at a touch and stay.
    pub fn publish(&self, index: SlotIndex, pages: Pages) {
        let Some(slot) = self.slots.get(index.0 as usize) else { return };
        let place = slot.ranges.iter().find(|range| range.load(Ordering::Relaxed) == NOTHING);
        let Some(place) = place else { return self.hold_all(index) };
        place.store(pages.0, Ordering::Release);
        fence_of_a_call();
        loop {
            match self.announced.load(Ordering::Acquire) {
                NOTHING => return,
                announced if !Pages(announced).overlaps(pages) => return,
                _ => pause(),
            }
        }
    }

    /// Holds every page until [`Hazards::release`]: the call may use any.
    pub fn hold_all(&self, index: SlotIndex) {
        let Some(slot) = self.slots.get(index.0 as usize) else { return };
        slot.holds_all.store(1, Ordering::Release);
        fence_of_a_call();
        while self.announced.load(Ordering::Acquire) != NOTHING {
            pause();
        }
    }

    /// Holds every page without a slot, until [`Hazards::leave_crowd`].
    pub fn join_crowd(&self) {
        self.crowd.fetch_add(1, Ordering::AcqRel);
        fence_of_a_call();
        while self.announced.load(Ordering::Acquire) != NOTHING {
            pause();
        }
    }

    /// Ends a hold without a slot.
    pub fn leave_crowd(&self) {
        self.crowd.fetch_sub(1, Ordering::Release);
    }

    /// Forgets, in the child of a fork, the holds of other threads and what the evictor was about
    /// to take: the child has neither of them. (The evictor stands still over a fork, or takes
    /// nothing of the child's.)
    pub fn forget_others(&self) {
        self.crowd.store(0, Ordering::Release);
        self.announced.store(NOTHING, Ordering::Release);
    }

    /// Ends a call's hold.
    pub fn release(&self, index: SlotIndex) {
        let Some(slot) = self.slots.get(index.0 as usize) else { return };
        for range in &slot.ranges {
            if range.load(Ordering::Relaxed) != NOTHING {
                range.store(NOTHING, Ordering::Release);
            }
        }
        if slot.holds_all.load(Ordering::Relaxed) != 0 {
            slot.holds_all.store(0, Ordering::Release);
        }
        slot.place.store(0, Ordering::Relaxed);
        slot.owner.store(0, Ordering::Release);
    }

    /// Says that the call's frame will be overwritten while the call lives.
    pub fn leave_place(&self, index: SlotIndex) {
        if let Some(slot) = self.slots.get(index.0 as usize) {
            slot.place.store(0, Ordering::Release);
        }
    }

    /// Ends the holds of calls that will not end them: `gone(owner, place)` knows them.
    pub fn release_of(&self, gone: impl Fn(u32, u64) -> bool) {
        for (index, slot) in self.slots.iter().enumerate() {
            let owner = slot.owner.load(Ordering::Acquire);
            if owner != 0 && gone(owner, slot.place.load(Ordering::Acquire)) {
                self.release(SlotIndex(index as u32));
            }
        }
    }
}

/// The side of the evictor, of which there is one at a time.
impl<const SLOTS: usize> Hazards<SLOTS> {
    /// Announces pages, takes those that no call holds by `take(page)`, and withdraws. Costs a
    /// load for each slot, and four more for each that is in use.
    pub fn evict(&self, pages: Pages, mut take: impl FnMut(u64)) {
        self.announced.store(pages.0, Ordering::Release);
        fence_of_the_evictor();
        let all_held = self.crowd.load(Ordering::Acquire) != 0
            || self.slots.iter().any(|slot| slot.holds_all.load(Ordering::Acquire) != 0);
        if !all_held {
            for page in pages.first()..pages.end() {
                if !self.holds(page) {
                    take(page);
                }
            }
        }
        self.announced.store(NOTHING, Ordering::Release);
    }

    fn holds(&self, page: u64) -> bool {
        self.slots.iter().any(|slot| {
            slot.ranges.iter().any(|range| match range.load(Ordering::Acquire) {
                NOTHING => false,
                word => (Pages(word).first()..Pages(word).end()).contains(&page),
            })
        })
    }
}

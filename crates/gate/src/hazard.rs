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

/// What one call has published. All of it is zero where a slot is free.
pub struct Published {
    pub(super) ranges: [AtomicU64; RANGES],
    /// 1 while the call holds everything.
    pub(super) holds_all: AtomicU32,
}

/// What the calls of a process have published, by slot, and the evictor's announcement.
pub struct Hazards<const SLOTS: usize> {
    pub(super) slots: [Published; SLOTS],
    /// Slots from here on have never been used.
    pub(super) peak: AtomicU32,
    /// Zero while there is no announcement.
    pub(super) announced: AtomicU64,
    /// Calls that hold everything because they found no slot.
    pub(super) crowd: AtomicU32,
}

/// The slot of a call, which whoever has the call has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotIndex(pub u32);

/// The side of a call.
impl<const SLOTS: usize> Hazards<SLOTS> {
    /// Publishes one more range of a call. When this returns, and until [`Hazards::release`], no
    /// evictor takes a page of it; those that were taken before come back at a touch and stay.
    pub fn publish(&self, index: SlotIndex, pages: Pages) {
        let Some(slot) = self.slots.get(index.0 as usize) else { return };
        let place = slot.ranges.iter().find(|range| range.load(Ordering::Relaxed) == NOTHING);
        let Some(place) = place else { return self.hold_all(index) };
        self.raise_peak(index);
        place.store(pages.0, Ordering::Release);
        fence_of_a_call();
        self.wait_while(|announced| announced.overlaps(pages));
    }

    /// Holds every page until [`Hazards::release`]: the call may use any.
    pub fn hold_all(&self, index: SlotIndex) {
        let Some(slot) = self.slots.get(index.0 as usize) else { return };
        self.raise_peak(index);
        slot.holds_all.store(1, Ordering::Release);
        fence_of_a_call();
        self.wait_while(|_| true);
    }

    /// Waits for as long as the evictor has announced pages of which this is true.
    fn wait_while(&self, clashes: impl Fn(Pages) -> bool) {
        for round in 0.. {
            match self.announced.load(Ordering::Acquire) {
                NOTHING => return,
                announced if !clashes(Pages(announced)) => return,
                _ => pause(round),
            }
        }
    }

    fn raise_peak(&self, index: SlotIndex) {
        if self.peak.load(Ordering::Relaxed) <= index.0 {
            self.peak.fetch_max(index.0 + 1, Ordering::Relaxed);
        }
    }

    /// Slots from this one on have never held anything.
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::Acquire)
    }

    /// Holds every page without a slot, until [`Hazards::leave_crowd`].
    pub fn join_crowd(&self) {
        self.crowd.fetch_add(1, Ordering::AcqRel);
        fence_of_a_call();
        self.wait_while(|_| true);
    }

    /// Ends a hold without a slot.
    pub fn leave_crowd(&self) {
        // It stays at zero where the child of a fork has forgotten a call to which it returns.
        let less = |count: u32| count.checked_sub(1);
        let _ = self.crowd.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    /// Forgets, in the child of a fork, holds without a slot and what the evictor was about to
    /// take: the child has neither of them. (The evictor stands still over a fork, or takes nothing
    /// of the child's.)
    pub fn forget_crowd(&self) {
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
    }
}

/// The side of the evictor, of which there is one at a time.
impl<const SLOTS: usize> Hazards<SLOTS> {
    /// Announces pages, takes those that no call holds by `take(page)`, and withdraws. Costs a
    /// load for each slot that was ever in use, and up to six more for each of them and page.
    pub fn evict(&self, pages: Pages, mut take: impl FnMut(u64)) {
        self.announced.store(pages.0, Ordering::Release);
        fence_of_the_evictor();
        let all_held = self.crowd.load(Ordering::Acquire) != 0
            || self.used().any(|slot| slot.holds_all.load(Ordering::Acquire) != 0);
        if !all_held {
            for page in pages.first()..pages.end() {
                if !self.holds(page) {
                    take(page);
                }
            }
        }
        self.announced.store(NOTHING, Ordering::Release);
    }

    fn used(&self) -> impl Iterator<Item = &Published> {
        self.slots.iter().take(self.peak() as usize)
    }

    fn holds(&self, page: u64) -> bool {
        self.used().any(|slot| {
            slot.ranges.iter().any(|range| match range.load(Ordering::Acquire) {
                NOTHING => false,
                word => (Pages(word).first()..Pages(word).end()).contains(&page),
            })
        })
    }
}

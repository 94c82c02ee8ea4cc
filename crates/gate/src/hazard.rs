//! Hazard slots: a call publishes the pages that the kernel will use, and an evictor leaves them
//! alone until the call is over.
//!
//! Dekker's pattern: a call publishes, fences, and looks at what the evictor has announced; the
//! evictor announces, fences, and looks at what calls have published. One of the two sees the
//! other. A call that sees an announcement waits for its end, and touches its pages only then, so
//! they come back and stay.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence_of_a_call, fence_of_the_evictor, pause};
use core::ops::Range;

/// Ranges of one call. A call that needs more holds what lies between some of them, and everything
/// where that is too much.
pub const RANGES: usize = 6;
/// Pages that a range may grow by, where a call has no further range: 16 MiB.
const BETWEEN_MAX: u64 = 4096;
/// Threads that may announce at once.
pub const ANNOUNCERS: usize = 2;
/// The word of no range.
const NOTHING: u64 = 0;
/// Bits of a range's word for its number of pages; the rest is its first page.
const COUNT_BITS: u32 = 24;
const MOST_PAGES: u64 = (1 << COUNT_BITS) - 1;
const PAGE_BITS: u32 = 12;
/// Bytes of a page.
pub const PAGE: u64 = 1 << PAGE_BITS;
/// Addresses of programs end here.
pub const ADDRESSES_END: u64 = 1 << 47;

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
        let last = address.checked_add(last).filter(|last| *last < ADDRESSES_END).ok_or(NoPages::Outside)?;
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

    /// These pages, others, and what lies between; and how many more those are.
    fn with(self, others: Pages) -> Option<(Pages, u64)> {
        let (first, end) = (self.first().min(others.first()), self.end().max(others.end()));
        let count = end - first;
        (count <= MOST_PAGES).then(|| (Pages(first << COUNT_BITS | count), count - (self.0 & MOST_PAGES)))
    }

    /// The part that lies within others.
    fn within(self, others: Pages) -> Option<Pages> {
        let (first, end) = (self.first().max(others.first()), self.end().min(others.end()));
        (first < end).then(|| Pages(first << COUNT_BITS | (end - first)))
    }
}

/// The range of a slot that grows least when it takes in others, and what it is then; none where
/// that would be too much.
fn nearest(slot: &Published, pages: Pages, most: u64) -> Option<(&AtomicU64, Pages)> {
    let grown = |range: &AtomicU64| Pages(range.load(Ordering::Relaxed)).with(pages);
    let place = slot.ranges.iter().min_by_key(|range| grown(range).map_or(u64::MAX, |(_, more)| more))?;
    grown(place).filter(|(_, more)| *more <= most).map(|(pages, _)| (place, pages))
}

/// What one call has published. All of it is zero where a slot is free.
pub struct Published {
    pub(super) ranges: [AtomicU64; RANGES],
    /// 1 while the call holds everything.
    pub(super) holds_all: AtomicU32,
    /// 1 while a call without a stack of the gate's has it.
    pub(super) is_lent: AtomicU32,
}

/// What the calls of a process have published, by slot, and the evictor's announcement.
pub struct Hazards<const SLOTS: usize> {
    pub(super) slots: [Published; SLOTS],
    /// Slots from here on have never been used.
    pub(super) peak: AtomicU32,
    /// For each announcer, zero while there is no announcement.
    pub(super) announced: [AtomicU64; ANNOUNCERS],
    /// Calls that hold everything because they found no slot.
    pub(super) crowd: AtomicU32,
}

/// Whether a slot had room for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The range is published.
    Yes,
    /// It is not.
    No,
}

/// The slot of a call, which whoever has the call has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotIndex(pub u32);

/// The side of a call.
impl<const SLOTS: usize> Hazards<SLOTS> {
    /// Publishes one more range of a call. When this returns, and until [`Hazards::release`], no
    /// evictor takes a page of it; those that were taken before come back at a touch and stay.
    pub fn publish(&self, index: SlotIndex, pages: Pages) {
        if self.publish_beside(index, pages, BETWEEN_MAX) == Room::No {
            self.hold_all(index);
        }
    }

    /// The same where the call has a further range, or one of its ranges grows by at most so many
    /// pages; else nothing is published.
    pub fn publish_beside(&self, index: SlotIndex, pages: Pages, most: u64) -> Room {
        let Some(slot) = self.slots.get(index.0 as usize) else { return Room::No };
        let free = slot.ranges.iter().find(|range| range.load(Ordering::Relaxed) == NOTHING);
        let Some((place, pages)) = free.map(|place| (place, pages)).or_else(|| nearest(slot, pages, most))
        else {
            return Room::No;
        };
        self.raise_peak(index);
        place.store(pages.0, Ordering::Release);
        fence_of_a_call();
        self.wait_while(|announced| announced.overlaps(pages));
        Room::Yes
    }

    /// Holds every page until [`Hazards::release`]: the call may use any.
    pub fn hold_all(&self, index: SlotIndex) {
        let Some(slot) = self.slots.get(index.0 as usize) else { return };
        self.raise_peak(index);
        slot.holds_all.store(1, Ordering::Release);
        fence_of_a_call();
        self.wait_while(|_| true);
    }

    /// Lends one of the slots from `first` on to a call, which looks for it from `hint` on. None:
    /// all are lent.
    pub fn borrow(&self, first: usize, hint: usize) -> Option<SlotIndex> {
        let lent = self.slots.get(first..)?;
        let places = (0..lent.len()).map(|step| (hint + step) % lent.len());
        let is_free = |place: &usize| {
            let is_lent = &lent[*place].is_lent;
            is_lent.load(Ordering::Relaxed) == 0
                && is_lent.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        places.into_iter().find(is_free).map(|place| SlotIndex((first + place) as u32))
    }

    /// Takes a slot back that [`Hazards::borrow`] has lent, and all that it holds.
    pub fn give_back(&self, index: SlotIndex) {
        self.release(index);
        if let Some(slot) = self.slots.get(index.0 as usize) {
            slot.is_lent.store(0, Ordering::Release);
        }
    }

    /// Takes back all slots that were lent but one, in the child of a fork: its parent has their
    /// calls.
    pub fn give_back_others(&self, own: Option<SlotIndex>) {
        for index in 0..self.peak() {
            let is_lent = |slot: &Published| slot.is_lent.load(Ordering::Relaxed) != 0;
            if own != Some(SlotIndex(index)) && self.slots.get(index as usize).is_some_and(is_lent) {
                self.give_back(SlotIndex(index));
            }
        }
    }

    /// Waits for as long as the evictor has announced pages of which this is true.
    fn wait_while(&self, clashes: impl Fn(Pages) -> bool) {
        for announced in &self.announced {
            for round in 0.. {
                match announced.load(Ordering::Acquire) {
                    NOTHING => break,
                    announced if !clashes(Pages(announced)) => break,
                    _ => pause(round),
                }
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
        self.announced.iter().for_each(|announced| announced.store(NOTHING, Ordering::Release));
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

/// Who announces: one thread at a time as each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcer {
    /// The first.
    First = 0,
    /// The second.
    Second = 1,
}

/// The side of the evictor.
impl<const SLOTS: usize> Hazards<SLOTS> {
    /// Announces pages that are about to be taken, or protected, until [`Hazards::withdraw`].
    /// Meanwhile no further call gets to use them. Costs a store and a fence.
    pub fn announce(&self, announcer: Announcer, pages: Pages) {
        self.announced[announcer as usize].store(pages.0, Ordering::Release);
        fence_of_the_evictor();
    }

    /// Calls `each` with the pages that calls hold, cut to these, which are announced, in no order
    /// and perhaps twice: all of them, where a call holds everything. Costs a load for each slot
    /// that was ever in use, and up to six more for each of them.
    pub fn for_held(&self, pages: Pages, mut each: impl FnMut(Pages)) {
        let all_held = self.crowd.load(Ordering::Acquire) != 0
            || self.used().any(|slot| slot.holds_all.load(Ordering::Acquire) != 0);
        if all_held {
            return each(pages);
        }
        for slot in self.used() {
            for range in &slot.ranges {
                match range.load(Ordering::Acquire) {
                    NOTHING => {}
                    word => Pages(word).within(pages).into_iter().for_each(&mut each),
                }
            }
        }
    }

    /// As [`Hazards::announce`], by addresses. What no program can have is not announced.
    pub fn announce_bytes(&self, announcer: Announcer, bytes: Range<usize>) {
        if let Ok(pages) = Pages::around(bytes.start as u64, bytes.len() as u64) {
            self.announce(announcer, pages);
        }
    }

    /// As [`Hazards::for_held`], by addresses of whole pages.
    pub fn for_held_bytes(&self, bytes: Range<usize>, mut each: impl FnMut(Range<usize>)) {
        let Ok(pages) = Pages::around(bytes.start as u64, bytes.len() as u64) else { return each(bytes) };
        self.for_held(pages, |held| each((held.first() * PAGE) as usize..(held.end() * PAGE) as usize));
    }

    /// Withdraws an announcement.
    pub fn withdraw(&self, announcer: Announcer) {
        self.announced[announcer as usize].store(NOTHING, Ordering::Release);
    }

    fn used(&self) -> impl Iterator<Item = &Published> {
        self.slots.iter().take(self.peak() as usize)
    }
}

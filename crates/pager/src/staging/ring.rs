//! The staging ring: folios wait in it, uncompressed, between leaving the program and their
//! write-back.
//!
//! The ring consists of berths of 64 KiB. Folios enter at one end by UFFDIO_MOVE and are written
//! back at the other, in order. In between they are the *inactive list*: a page that is touched
//! there goes back as hot, and a page that is not touched until its turn is cold. Berths are given
//! back to the system many at a time (1 MiB), because one invalidation of the TLBs costs the same
//! for a page and for a run of berths.
//!
//! The ring is registered with userfaultfd only as a target of moves: a hole in it reads as zeroes
//! instead of waiting for a handler, so the evictor may look at any berth. A forked child inherits
//! the ring, and its pages in staging stay valid there.

use crate::kernel::uffd::{Userfault, Watch};
use crate::units::{BLOCK, PAGE, PIECE, PIECE_PAGES, PieceAddr};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Release};
use folioswap_slots::SwapEntry;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Berths that are given back together where memory is not short: 1 MiB.
pub const RECYCLED_BERTHS: u64 = 16;

/// Berths of a huge page.
pub const HUGE_PAGE_BERTHS: u64 = (BLOCK / PIECE) as u64;

/// The most berths: 64 MiB.
pub const BERTHS_MAX: usize = 1024;

/// Index of a berth in the ring: 0 up to [`Staging::berth_count`], in the order of their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BerthIndex(u32);

impl BerthIndex {
    /// The berth with this index.
    pub const fn new(index: u32) -> Self {
        BerthIndex(index)
    }
    /// The index as a number.
    pub const fn raw(self) -> u32 {
        self.0
    }
    /// The berth that lies `berths` behind this one. The caller knows that the ring does not end
    /// before it.
    pub const fn plus(self, berths: u32) -> Self {
        BerthIndex(self.0 + berths)
    }
    /// The index into an array with an element for each berth.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The number of the ring's 2 MiB that contain the berth.
    const fn huge_page(self) -> usize {
        self.0 as usize / HUGE_PAGE_BERTHS as usize
    }
}

/// One berth: the piece of the program that it holds, the swap entry of each page (`None`: the page
/// is not here), and the pages that are clean.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Berth {
    /// The piece of the program that the pages come from.
    pub piece: PieceAddr,
    /// Swap entries of the pages in this berth.
    pub entries: [Option<SwapEntry>; PIECE_PAGES],
    /// Pages of the berth, one bit each, whose stored copy still stands for them: they need not be
    /// written.
    pub clean: u16,
    /// Pages that came to the berth (or were in the way there), one bit each: their memory stays
    /// until the berth is given back.
    pub came: u16,
}

/// The ring. All-zero is a valid ring without berths.
#[repr(C)]
pub struct Staging {
    base: usize,
    berth_count: u64,
    pushed: u64,
    written: u64,
    recycled: u64,
    /// Pages that came and have not been given back.
    held_pages: u64,
    berths: [Berth; BERTHS_MAX],
    /// 1: the 2 MiB from the berth on are a huge page, or were one when they came. The evictor
    /// writes the value; the handler reads it.
    is_huge: [AtomicU8; BERTHS_MAX / HUGE_PAGE_BERTHS as usize],
    /// True where single pages were put into the 2 MiB since all of them were empty last.
    has_table: [bool; BERTHS_MAX / HUGE_PAGE_BERTHS as usize],
}

impl Staging {
    /// Gives the ring its memory: `berth_count` berths (a multiple of [`HUGE_PAGE_BERTHS`]) at
    /// `base`, a multiple of 2 MiB.
    pub fn install(&mut self, base: NonNull<u8>, berth_count: u64) {
        debug_assert!(berth_count.is_multiple_of(HUGE_PAGE_BERTHS) && berth_count <= BERTHS_MAX as u64);
        debug_assert!((base.as_ptr() as usize).is_multiple_of(BLOCK));
        self.base = base.as_ptr() as usize;
        self.berth_count = berth_count;
    }

    /// Whether the ring has its memory.
    pub fn is_installed(&self) -> bool {
        self.berth_count != 0
    }
    /// The first address of the ring.
    pub fn base(&self) -> usize {
        self.base
    }
    /// The bytes of the ring.
    pub fn bytes(&self) -> usize {
        self.berth_count as usize * PIECE
    }
    /// Berths whose folios wait for their write-back.
    pub fn waiting(&self) -> u64 {
        self.pushed - self.written
    }
    /// Berths that hold memory.
    pub fn occupied(&self) -> u64 {
        self.pushed - self.recycled
    }
    /// Bytes of the pages in the ring, including pages that have left it but were not given back.
    pub fn held_bytes(&self) -> u64 {
        self.held_pages * PAGE as u64
    }
    /// The number of the oldest berth that waits, or of the next one that is filled.
    pub fn written(&self) -> u64 {
        self.written
    }
    /// The berth that has this number in the order of arrival.
    pub fn berth_of(&self, number: u64) -> BerthIndex {
        BerthIndex((number % self.berth_count) as u32)
    }
    /// The number of all berths.
    pub fn berth_count(&self) -> u64 {
        self.berth_count
    }

    /// The berth that is filled next; `None` when the ring is full.
    pub fn next_berth(&self) -> Option<BerthIndex> {
        (self.occupied() < self.berth_count).then(|| self.berth_of(self.pushed))
    }
    /// The same for a folio that will wait there: one berth stays free for folios that do not wait.
    pub fn next_berth_to_wait(&self) -> Option<BerthIndex> {
        self.next_berth().filter(|_| self.occupied() + 1 < self.berth_count)
    }
    /// Whether the ring has free berths for 2 MiB that begin where a huge page can.
    pub fn has_berths_for_huge_page(&self) -> bool {
        self.occupied() + self.until_huge_page() + HUGE_PAGE_BERTHS < self.berth_count
    }

    /// Whether this many berths are free side by side, from [`Staging::next_berth`] on.
    pub fn are_free(&self, berths: usize) -> bool {
        let berths = berths as u64;
        berths <= self.berth_count - self.occupied()
            && berths <= self.berth_count - self.pushed % self.berth_count
    }

    /// Berths until the next one that begins 2 MiB.
    fn until_huge_page(&self) -> u64 {
        self.pushed.next_multiple_of(HUGE_PAGE_BERTHS) - self.pushed
    }

    /// Leaves berths empty until the next one begins 2 MiB, where the kernel can keep a huge page.
    /// False: the ring has no free berths for a huge page.
    pub fn align_for_huge_page(&mut self, userfault: Userfault) -> bool {
        if !self.has_berths_for_huge_page() {
            return false;
        }
        for _ in 0..self.until_huge_page() {
            let berth = self.berth_of(self.pushed);
            self.berths[berth.index()] =
                Berth { piece: PieceAddr::containing(0), entries: [None; PIECE_PAGES], clean: 0, came: 0 };
            self.pushed += 1;
        }
        let first = self.berth_of(self.pushed);
        if self.has_table[first.huge_page()] {
            // The kernel splits a huge page that is moved to where a page table stands, even an
            // empty one. Linux (since 6.14) frees that table where all of its 2 MiB are given up.
            self.discard(userfault, first, HUGE_PAGE_BERTHS);
            self.has_table[first.huge_page()] = false;
        }
        true
    }
    /// Berths side by side from [`Staging::next_berth_to_wait`] on.
    pub fn berths_in_a_row(&self) -> usize {
        let until_full = (self.berth_count - self.occupied()).saturating_sub(1);
        until_full.min(self.berth_count - self.pushed % self.berth_count) as usize
    }
    /// The first address of a berth.
    pub fn address(&self, berth: BerthIndex) -> usize {
        self.base + berth.index() * PIECE
    }
    /// The contents of a berth, to be changed.
    pub fn berth_mut(&mut self, berth: BerthIndex) -> &mut Berth {
        &mut self.berths[berth.index()]
    }
    /// Accepts the pages that were put into [`Staging::next_berth`].
    pub fn push(&mut self) {
        self.held_pages += self.came_to(self.pushed);
        self.has_table[self.berth_of(self.pushed).huge_page()] = true;
        self.pushed += 1;
    }

    /// The berth whose write-back is due; `None` when nothing waits.
    pub fn oldest(&self) -> Option<BerthIndex> {
        (self.waiting() > 0).then(|| self.berth_of(self.written))
    }
    /// The berth that was filled last; `None` when nothing waits.
    pub fn newest(&self) -> Option<BerthIndex> {
        (self.waiting() > 0).then(|| self.berth_of(self.pushed - 1))
    }
    /// Takes the newest berth back, because its pages have left it: the next folio uses it again.
    pub fn take_back(&mut self) {
        self.pushed -= 1;
        self.held_pages -= self.came_to(self.pushed);
    }

    /// The number of pages that came to the berth with this number.
    fn came_to(&self, number: u64) -> u64 {
        self.berth(self.berth_of(number)).came.count_ones().into()
    }
    /// The berths that wait, the oldest first.
    pub fn waiting_berths(&self) -> impl Iterator<Item = BerthIndex> + use<> {
        let count = self.berth_count;
        (self.written..self.pushed).map(move |number| BerthIndex((number % count) as u32))
    }
    /// The contents of a berth.
    pub fn berth(&self, berth: BerthIndex) -> &Berth {
        &self.berths[berth.index()]
    }
    /// Records that the oldest berth has been written back.
    pub fn pop(&mut self) {
        self.written += 1;
    }

    /// Records that the 2 MiB from this berth on came as one huge page.
    pub fn set_huge_page(&mut self, berth: BerthIndex) {
        self.has_table[berth.huge_page()] = false;
        self.is_huge[berth.huge_page()].store(1, Release);
    }
    /// Whether 2 MiB that came as one huge page begin in this berth.
    pub fn is_huge_page(&self, berth: BerthIndex) -> bool {
        u64::from(berth.raw()).is_multiple_of(HUGE_PAGE_BERTHS)
            && self.is_huge[berth.huge_page()].load(Acquire) != 0
    }

    /// The number of berths that are at least given back together, where `waiting` berths may wait.
    /// Berths are due as soon as they hold the pages of [`RECYCLED_BERTHS`] full ones, since giving
    /// back costs the same whatever a berth holds; or when they are an eighth of the ring, or four
    /// times as many as [`RECYCLED_BERTHS`].
    pub fn recycled_together(&self, waiting: u64) -> u64 {
        let least = (waiting / 2).clamp(2, RECYCLED_BERTHS);
        let most = (self.berth_count / 8).min(4 * RECYCLED_BERTHS).max(least);
        let oldest = self.recycled..(self.recycled + most).min(self.written);
        let pages: u64 = oldest.map(|number| self.came_to(number)).sum();
        if pages >= least * PIECE_PAGES as u64 { 1 } else { most }
    }

    /// Gives the memory of berths that are written back to the system, when there are at least
    /// `least` of them; returns the bytes. The sequence is UNREGISTER, DONTNEED, REGISTER, because
    /// the descriptor reports remove events for registered memory. A huge page goes as a whole,
    /// after the last of its berths; a huge page that `keep` takes away (`keep` is told its
    /// address) has another use.
    pub fn recycle(
        &mut self,
        userfault: Userfault,
        least: u64,
        mut keep: impl FnMut(usize) -> bool,
    ) -> usize {
        if self.written - self.recycled < least.max(1) {
            return 0;
        }
        let mut bytes = 0;
        while self.written > self.recycled {
            let first = self.berth_of(self.recycled);
            let mut berths = (self.written - self.recycled).min(self.berth_count - u64::from(first.raw()));
            if self.is_huge_page(first) {
                if berths < HUGE_PAGE_BERTHS {
                    break;
                }
                berths = HUGE_PAGE_BERTHS;
                self.is_huge[first.huge_page()].store(0, Release);
                if keep(self.address(first)) {
                    self.held_pages -= self.pages_of_oldest(berths);
                    self.recycled += berths;
                    continue;
                }
            } else {
                let next_huge = (1..berths).find(|&further| self.is_huge_page(first.plus(further as u32)));
                berths = next_huge.unwrap_or(berths);
            }
            self.discard(userfault, first, berths);
            let pages = self.pages_of_oldest(berths);
            self.held_pages -= pages;
            self.recycled += berths;
            bytes += pages as usize * PAGE;
        }
        bytes
    }

    /// The pages of this many of the berths that are given back next.
    fn pages_of_oldest(&self, berths: u64) -> u64 {
        (self.recycled..self.recycled + berths).map(|number| self.came_to(number)).sum()
    }

    /// Empties a berth that holds no folio.
    pub fn empty(&mut self, userfault: Userfault, berth: BerthIndex) {
        self.discard(userfault, berth, 1);
    }

    fn discard(&mut self, userfault: Userfault, first: BerthIndex, berths: u64) {
        // SAFETY: every page of these berths has been written back or taken back (or never was a
        // page of the program's); our caller is the evictor, with no plan on offer, so no thread
        // puts pages here meanwhile.
        unsafe { empty_target(userfault, self.address(first), berths as usize * PIECE) };
    }
}

/// Gives the memory of a target of moves to the system: afterwards the range is certainly empty,
/// and a target again. The function does not return earlier, because a page in the way of a later
/// move to this range would be taken for the page that moves (`moves.rs`: `moved_after_all`).
///
/// # Safety
/// The range is a target of moves, and nothing in it is needed any more.
pub(crate) unsafe fn empty_target(userfault: Userfault, start: usize, bytes: usize) {
    // An advice on a registered range costs an event. The unregistration can fail where the process
    // has as many mappings as it may have; that does no harm.
    // SAFETY: the caller's.
    let _ = unsafe { userfault.unregister(start, bytes) };
    // SAFETY: the caller's.
    until_done(|| unsafe { madvise(start as *mut _, bytes, Advice::LinuxDontNeed) });
    until_done(|| userfault.register(start, bytes, Watch::MoveTarget));
}

/// Repeats an attempt that can fail only for want of memory in the kernel.
fn until_done(mut attempt: impl FnMut() -> Result<(), Errno>) {
    while attempt().is_err() {
        rustix::thread::sched_yield();
    }
}

#[cfg(test)]
mod tests;

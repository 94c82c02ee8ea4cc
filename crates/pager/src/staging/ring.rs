//! The staging area: where folios wait, uncompressed, between leaving the program and being written back.
//!
//! A ring of folio places of 64 KiB. Folios enter at one end by UFFDIO_MOVE and are written back at the other, in order;
//! in between they are the *inactive list*: a page that is touched there goes back as hot, and what is not touched until
//! its turn is cold. Places are given back to the system many at a time (1 MiB), because one invalidation of the
//! TLBs costs the same for a page and for a segment.
//!
//! The area is registered with userfaultfd only as a target of moves: a hole in it reads as zeroes instead of waiting
//! for a handler, so the evictor may look at any place. It is inherited by a forked child, whose pages in staging stay
//! valid there.

use crate::kernel::uffd::{Userfault, Watch};
use crate::units::{BLOCK, PAGE, PIECE, PIECE_PAGES};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Release};
use folioswap_slots::SwapEntry;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Berth places that are given back together, where memory is not short: 1 MiB.
pub const RECYCLED_BERTHS: u64 = 16;

/// Places of 2 MiB, one of the kernel's huge pages.
pub const HUGE_PAGE_BERTHS: u64 = (BLOCK / PIECE) as u64;

/// Most folio places: 64 MiB.
pub const BERTHS_MAX: usize = 1024;

/// One folio place: which 64 KiB of the program it holds, the swap entry of each page (`None`: not here), and which are clean.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Berth {
    /// Program address of the first page; a multiple of [`PIECE`].
    pub address: usize,
    /// Swap entries of the pages in this place.
    pub entries: [Option<SwapEntry>; PIECE_PAGES],
    /// Those of them, one bit each, whose stored copy still stands for them: they need not be written.
    pub clean: u16,
    /// Pages that came here (or stood in the way), one bit each: their memory stays until the place is given back.
    pub came: u16,
}

/// The ring. All-zero is a valid ring without places.
#[repr(C)]
pub struct Staging {
    base: usize,
    places: u64,
    pushed: u64,
    written: u64,
    recycled: u64,
    /// Pages that came and were not given back.
    held_pages: u64,
    berths: [Berth; BERTHS_MAX],
    /// 1: the 2 MiB are one of the kernel's huge pages, or were when they came. Written by the evictor; the handler reads it.
    whole: [AtomicU8; BERTHS_MAX / HUGE_PAGE_BERTHS as usize],
    /// Single pages were put there since all of the 2 MiB were empty.
    has_table: [bool; BERTHS_MAX / HUGE_PAGE_BERTHS as usize],
}

impl Staging {
    /// Gives the ring its memory: `places` folio places (a multiple of [`HUGE_PAGE_BERTHS`]) at `base`, a multiple of 2 MiB.
    pub fn install(&mut self, base: NonNull<u8>, places: u64) {
        debug_assert!(places.is_multiple_of(HUGE_PAGE_BERTHS) && places <= BERTHS_MAX as u64);
        debug_assert!((base.as_ptr() as usize).is_multiple_of(BLOCK));
        self.base = base.as_ptr() as usize;
        self.places = places;
    }

    /// Has it got its memory?
    pub fn is_installed(&self) -> bool {
        self.places != 0
    }
    /// First address.
    pub fn base(&self) -> usize {
        self.base
    }
    /// Bytes of the area.
    pub fn bytes(&self) -> usize {
        self.places as usize * PIECE
    }
    /// Folios that wait for their write-back.
    pub fn waiting(&self) -> u64 {
        self.pushed - self.written
    }
    /// Berth places that hold memory.
    pub fn occupied(&self) -> u64 {
        self.pushed - self.recycled
    }
    /// Bytes of the pages in the area, those that have left it but were not given back included.
    pub fn held_bytes(&self) -> u64 {
        self.held_pages * PAGE as u64
    }
    /// Number of the oldest folio that waits, or of the next that comes.
    pub fn written(&self) -> u64 {
        self.written
    }
    /// The place of a folio by its number.
    pub fn berth_of(&self, number: u64) -> u32 {
        (number % self.places) as u32
    }
    /// All places.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// The place that the next folio will take; `None` when the ring is full.
    pub fn next_berth(&self) -> Option<u32> {
        (self.occupied() < self.places).then(|| (self.pushed % self.places) as u32)
    }
    /// The same for a folio that will wait there: one place stays free for those that do not.
    pub fn next_berth_to_wait(&self) -> Option<u32> {
        self.next_berth().filter(|_| self.occupied() + 1 < self.places)
    }
    /// Is there room for 2 MiB that begin where a huge page can?
    pub fn has_berths_for_huge_page(&self) -> bool {
        self.occupied() + self.until_huge_page() + HUGE_PAGE_BERTHS < self.places
    }

    /// Places until the next one that begins 2 MiB.
    fn until_huge_page(&self) -> u64 {
        self.pushed.next_multiple_of(HUGE_PAGE_BERTHS) - self.pushed
    }

    /// Leaves places empty until the next one begins 2 MiB, of which the kernel can keep a huge page. False: there is no room for one.
    pub fn align_for_huge_page(&mut self, userfault: Userfault) -> bool {
        if !self.has_berths_for_huge_page() {
            return false;
        }
        for _ in 0..self.until_huge_page() {
            let place = (self.pushed % self.places) as usize;
            self.berths[place] = Berth { address: 0, entries: [None; PIECE_PAGES], clean: 0, came: 0 };
            self.pushed += 1;
        }
        let first = (self.pushed % self.places) as u32;
        if self.has_table[first as usize / HUGE_PAGE_BERTHS as usize] {
            // A huge page that is moved to where a page table stands is split, be that as empty as it may. Linux (since 6.14) frees it
            // where all of its 2 MiB are given up.
            self.discard(userfault, first, HUGE_PAGE_BERTHS);
            self.has_table[first as usize / HUGE_PAGE_BERTHS as usize] = false;
        }
        true
    }
    /// Places side by side from [`Staging::next_berth_to_wait`] on.
    pub fn berths_in_a_row(&self) -> usize {
        let until_full = (self.places - self.occupied()).saturating_sub(1);
        until_full.min(self.places - self.pushed % self.places) as usize
    }
    /// First address of a place.
    pub fn address(&self, place: u32) -> usize {
        self.base + place as usize * PIECE
    }
    /// The folio in a place.
    pub fn berth_mut(&mut self, place: u32) -> &mut Berth {
        &mut self.berths[place as usize]
    }
    /// Accepts what was put into [`Staging::next_berth`].
    pub fn push(&mut self) {
        self.held_pages += self.came_to(self.pushed);
        self.has_table[(self.pushed % self.places / HUGE_PAGE_BERTHS) as usize] = true;
        self.pushed += 1;
    }

    /// The place whose write-back is due; `None` when nothing waits.
    pub fn oldest(&self) -> Option<u32> {
        (self.waiting() > 0).then(|| (self.written % self.places) as u32)
    }
    /// The place of the folio that came last; `None` when nothing waits.
    pub fn newest(&self) -> Option<u32> {
        (self.waiting() > 0).then(|| ((self.pushed - 1) % self.places) as u32)
    }
    /// The newest folio is not in its place any more, which the next one takes.
    pub fn take_back(&mut self) {
        self.pushed -= 1;
        self.held_pages -= self.came_to(self.pushed);
    }

    /// Pages of the folio with this number.
    fn came_to(&self, number: u64) -> u64 {
        self.berth(self.berth_of(number)).came.count_ones().into()
    }
    /// The places of all folios that wait, the oldest first.
    pub fn waiting_berths(&self) -> impl Iterator<Item = u32> + use<> {
        let places = self.places;
        (self.written..self.pushed).map(move |number| (number % places) as u32)
    }
    /// The folio in a place.
    pub fn berth(&self, place: u32) -> &Berth {
        &self.berths[place as usize]
    }
    /// The oldest folio has been written back.
    pub fn pop(&mut self) {
        self.written += 1;
    }

    /// The 2 MiB from this place on came as one huge page.
    pub fn set_huge_page(&mut self, place: u32) {
        self.has_table[place as usize / HUGE_PAGE_BERTHS as usize] = false;
        self.whole[place as usize / HUGE_PAGE_BERTHS as usize].store(1, Release);
    }
    /// Do 2 MiB begin in this place that came as one huge page?
    pub fn is_huge_page(&self, place: u32) -> bool {
        u64::from(place).is_multiple_of(HUGE_PAGE_BERTHS)
            && self.whole[place as usize / HUGE_PAGE_BERTHS as usize].load(Acquire) != 0
    }

    /// How many folios are given back together at least, where so many may wait: as soon as they hold the pages of [`RECYCLED_BERTHS`] full
    /// ones, since giving back costs the same whatever a place holds; or are an eighth of the ring, or four times as many as those.
    pub fn recycled_together(&self, waiting: u64) -> u64 {
        let least = (waiting / 2).clamp(2, RECYCLED_BERTHS);
        let most = (self.places / 8).min(4 * RECYCLED_BERTHS).max(least);
        let oldest = self.recycled..(self.recycled + most).min(self.written);
        let pages: u64 = oldest.map(|number| self.came_to(number)).sum();
        if pages >= least * PIECE_PAGES as u64 { 1 } else { most }
    }

    /// Gives the memory of folios that are written back to the system, when there are at least `least` of them; returns
    /// the bytes. The descriptor's remove events make UNREGISTER, DONTNEED, REGISTER the way. Huge pages go as a whole, after the last of
    /// their folios; those that `keep` takes away (it is told their address) have another use.
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
            let first = (self.recycled % self.places) as u32;
            let mut folios = (self.written - self.recycled).min(self.places - u64::from(first));
            if self.is_huge_page(first) {
                if folios < HUGE_PAGE_BERTHS {
                    break;
                }
                folios = HUGE_PAGE_BERTHS;
                self.whole[first as usize / HUGE_PAGE_BERTHS as usize].store(0, Release);
                if keep(self.address(first)) {
                    self.held_pages -= self.pages_of_oldest(folios);
                    self.recycled += folios;
                    continue;
                }
            } else {
                let next_whole = (1..folios).find(|&further| self.is_huge_page(first + further as u32));
                folios = next_whole.unwrap_or(folios);
            }
            self.discard(userfault, first, folios);
            let pages = self.pages_of_oldest(folios);
            self.held_pages -= pages;
            self.recycled += folios;
            bytes += pages as usize * PAGE;
        }
        bytes
    }

    /// Pages of so many of the folios that are to be given back next.
    fn pages_of_oldest(&self, folios: u64) -> u64 {
        (self.recycled..self.recycled + folios).map(|number| self.came_to(number)).sum()
    }

    /// Empties a place that no folio has.
    pub fn empty(&mut self, userfault: Userfault, place: u32) {
        self.discard(userfault, place, 1);
    }

    fn discard(&mut self, userfault: Userfault, first: u32, folios: u64) {
        // SAFETY: every page of these places has been written back or taken back (or never was a page of the program's); our caller is the
        // evictor, with no plan on offer, so nobody puts pages here meanwhile.
        unsafe { empty_target(userfault, self.address(first), folios as usize * PIECE) };
    }
}

/// Gives the memory of a target of moves to the system: afterwards it is certainly empty, and a target again. Does not return before that
/// is so: what stood in the way of a page that is moved here later would be taken for that page (`moves.rs`: `moved_after_all`).
///
/// # Safety
/// The range is a target of moves, and nothing in it is needed any more.
pub(crate) unsafe fn empty_target(userfault: Userfault, start: usize, bytes: usize) {
    // An advice on a registered range costs an event. It is no harm where the process has as many mappings as it may have, and this
    // cannot be done.
    // SAFETY: the caller's.
    let _ = unsafe { userfault.unregister(start, bytes) };
    // SAFETY: the caller's.
    until_done(|| unsafe { madvise(start as *mut _, bytes, Advice::LinuxDontNeed) });
    until_done(|| userfault.register(start, bytes, Watch::MoveTarget));
}

/// For what cannot fail but for want of memory in the kernel.
fn until_done(mut attempt: impl FnMut() -> Result<(), Errno>) {
    while attempt().is_err() {
        rustix::thread::sched_yield();
    }
}

#[cfg(test)]
mod tests;

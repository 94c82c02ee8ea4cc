//! Clean copies: a page that was brought back for a read keeps its stored copy, and leaves again without being compressed
//! or written. (What comes as a huge page keeps none: it cannot come protected; `whole.rs`.)
//!
//! Such a page is mapped write-protected (`UFFDIO_COPY_MODE_WP`) and its word says `Clean`. The first write to it is a
//! fault: the handler marks it `Present`, frees the entry, and only then lifts the protection. The evictor claims a cold
//! one (`Isolated`), asks the kernel whether it is *still* protected, and moves it to staging if so (`isolate.rs`). There it waits in the
//! swap cache like any other page, and has its second chance there: nobody tells us otherwise that it is touched. When its turn comes
//! it is not written (`write_back.rs`).
//!
//! The question to the kernel is what makes a lost update impossible, whatever the word says: while a fork freezes the words
//! protections are lifted without a change of them (in the parent, and by the parent in the child), and both find out here.
//! Nobody lifts a protection between the answer and the move: the handler does not touch what is `Isolated`, and no fork's
//! window is open while the evictor holds the gate. And nobody protects a clean page later than it was filled: what is
//! protected before a fork (`shared.rs`) is everything but that.

use crate::engine::Engine;
use crate::kernel::pagemap::Now;
use crate::units::{PIECE_PAGES, Pages};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::devices::{DEVICES_MAX, DeviceIo, DeviceUsage};
use folioswap_group::segment::Scope;
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::Block;
use folioswap_slots::{DeviceMask, FolioId, Shadow, SwapEntry};
use rustix::io::Errno;

/// Bit of [`Engine::swap_full`] for the compressed store; a shared device has that of its number.
const STORE_FULL: u64 = 1 << 63;

const _: () = assert!(DEVICES_MAX < 63);

/// A block's [`Block::history_rewrites`]: what a write fault on a clean page adds, what a clean page that left unchanged and
/// a swap-in that kept nothing take away, and from where on nothing is kept. A write fault costs about as much as the
/// compression of a few pages.
pub(crate) const REWRITTEN: u8 = 16;

const LEFT_CLEAN: u8 = 4;

pub(crate) const NOTHING_KEPT: u8 = 1;

pub(crate) const KEEP_NOTHING: u8 = 64;

pub(crate) const REWRITES_MAX: u8 = 128;

/// What became of clean pages that were claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Certainly unchanged, and in the swap cache from now on.
    pub(crate) unchanged: Pages,
    /// Written to although the word said that they were clean.
    pub(crate) written: Pages,
}

impl Engine {
    /// A page is clean no longer, if its word is still `clean`: it is `next`, and its copy is freed.
    pub(crate) fn end_clean(
        &self,
        block: &Block,
        index: usize,
        clean: PageWord,
        next: Option<PageWord>,
    ) -> bool {
        let (Some(next), Some(entry)) = (next, clean.entry()) else { return false };
        let ended = block.replace(index, clean, next).is_ok();
        if ended {
            self.put_copy(entry);
        }
        ended
    }

    /// A clean page's entry, which nothing refers to any more.
    pub(crate) fn put_copy(&self, entry: SwapEntry) {
        self.counts.clean_pages.fetch_sub(1, Relaxed);
        self.space.put(entry, 1);
    }

    /// Finds out on which devices space is so short that what is in memory keeps no copy there (the kernel's
    /// `vm_swap_full`: more than half used). What the limit counts besides memory it takes from the memory: in scope total
    /// the compressed store counts as full from an eighth of the limit on. Not a store that relatives share: giving up a copy
    /// frees nothing there, and makes pages of the store this process's own by writing to them. Evictor.
    pub(crate) fn look_at_swap_space(&self) {
        let (segment, stats) = (self.segment(), self.space.slots().stats());
        let memory_full = segment.scope() == Scope::Total && !self.shares_memory() && self.store_exceeds(8);
        let store_full = memory_full || stats.inuse > stats.slots / 2;
        let mut full = if store_full { STORE_FULL } else { 0 };
        for (number, (device, entry)) in
            segment.devices().enumerate().filter(|(_, (device, _))| device.clusters > 0)
        {
            // Where reading costs as little as copying, a copy is not worth its place (spec §6, phase II); from a device that leaves it would
            // have to go on.
            let keeps_none = device.io == DeviceIo::Synchronous
                || entry.usage() != DeviceUsage::InUse
                || device.kind.is_in_memory() && memory_full
                || entry.clusters_used.load(Relaxed) > device.clusters / 2;
            full |= u64::from(keeps_none) << number;
        }
        self.counts.swap_full.store(full, Relaxed);
    }

    /// Is there space for a copy of what is in memory, on the device that holds it?
    pub(crate) fn has_space_for_copy(&self, entry: SwapEntry) -> bool {
        let full = self.counts.swap_full.load(Relaxed);
        full == 0
            || match self.space.file_slot(entry) {
                Some(slot) => {
                    let device = self.space.shared_devices().of_slot(slot);
                    device.is_some_and(|device| full >> device.index() & 1 == 0)
                }
                None => full & STORE_FULL == 0 || !self.space.is_in_zram(entry),
            }
    }

    /// Should a page that was touched by itself, and not read along with others, give up its copy, so that it goes to the compressed
    /// store when it leaves? It would go back to a slow device as soon as it leaves, ahead of all that is in the fast one. Not where
    /// relatives share the copy: a child that reads what its parent swapped out would store all of it once more.
    pub(crate) fn goes_to_store_next(&self, entry: SwapEntry) -> bool {
        let devices = DeviceMask::from_bits(self.counts.refilled_from.load(Relaxed));
        !devices.is_empty()
            && !self.shares_memory()
            && self
                .space
                .file_slot(entry)
                .and_then(|slot| self.space.shared_devices().of_slot(slot))
                .is_some_and(|device| devices.contains(device))
    }

    /// The clock passes a hot clean page: it is cooled, and where space is short it keeps no copy. Evictor.
    pub(crate) fn pass_clean(&self, block: &Block, index: usize, word: PageWord, entry: SwapEntry) {
        let Some(cooled) = word.cooled() else { return };
        if self.has_space_for_copy(entry) {
            let _ = block.replace(index, word, cooled);
        } else {
            self.give_up_clean(block, index, word);
        }
    }

    /// A clean page loses its copy; it stays in memory, and protected until it is written. Evictor, under the gate.
    pub(crate) fn give_up_clean(&self, block: &Block, index: usize, word: PageWord) {
        let next = word.copy_given_up().map(|present| present.cooled().unwrap_or(present));
        self.end_clean(block, index, word, next);
    }

    /// Where what is read is usually written soon after: the clean pages on both sides of `index`, which is none any more, lose their
    /// copies too, within its piece. Returns the run, whose protection is the caller's to lift. Handler.
    pub(crate) fn give_up_around(&self, block: &Block, index: usize) -> Range<usize> {
        let piece = index - index % PIECE_PAGES;
        let give_up = |page: usize| {
            let word = block.word(page);
            self.end_clean(block, page, word, word.copy_given_up())
        };
        let first = (piece..index).rev().take_while(|&page| give_up(page)).last().unwrap_or(index);
        let last = (index + 1..piece + PIECE_PAGES).take_while(|&page| give_up(page)).last().unwrap_or(index);
        first..last + 1
    }

    /// Of clean pages that the caller has claimed (`old` has the words of before), and of which the kernel says `now`: which are unchanged.
    /// Adds those to the swap cache as part of `folio`. Evictor, under the gate and the move lock.
    ///
    /// The kernel must be asked after the claim: as long as the words said anything else, the handler could lift the protection. Without an
    /// answer nothing is proven, and nothing is moved.
    pub(crate) fn cache_copies(
        &self,
        claimed: Pages,
        now: Now,
        old: &[PageWord; PIECE_PAGES],
        folio: FolioId,
    ) -> Copies {
        if claimed == 0 {
            return Copies::default();
        }
        let mut unchanged = claimed & now.protected;
        for (page, word) in old.iter().enumerate() {
            let cached = || word.entry().is_some_and(|entry| self.space.enter_cache(entry, folio));
            if unchanged >> page & 1 != 0 && !cached() {
                unchanged &= !(1 << page);
            }
        }
        Copies { unchanged, written: claimed & now.present & !now.protected }
    }

    /// The words of claimed clean pages say what became of them (`moved`: they are in staging): the rest is accounted for. What
    /// has moved is in the swap cache until its turn comes, like everything else there.
    pub(crate) fn settle_copies(
        &self,
        block: &Block,
        copies: Copies,
        old: &[PageWord; PIECE_PAGES],
        moved: Pages,
    ) {
        let mut left = 0;
        for (page, word) in old.iter().enumerate() {
            let Some(entry) = word.entry() else { continue };
            if copies.written >> page & 1 != 0 {
                self.put_copy(entry);
            } else if copies.unchanged >> page & 1 == 0 {
                continue;
            } else if moved >> page & 1 != 0 {
                self.space.note_left_clean(entry);
                left += 1;
            } else {
                // It stays in memory: nobody will ask how long it was away.
                self.space.leave_cache(entry, 1, Shadow::EMPTY);
            }
        }
        if left > 0 {
            self.counts.clean_pages.fetch_sub(u64::from(left), Relaxed);
            let rewrites = block.history_rewrites.load(Relaxed);
            block.history_rewrites.store(rewrites.saturating_sub(LEFT_CLEAN * left), Relaxed);
        }
    }
}

/// An event waits, which has to be read first, or the kernel has no memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventWaits;

impl Engine {
    /// Lifts the protection of a range of which nothing stored depends, and wakes who waits there.
    ///
    /// # Errors
    /// [`EventWaits`]: nothing was done.
    pub(crate) fn unprotect_and_wake(&self, address: usize, bytes: usize) -> Result<(), EventWaits> {
        match self.userfault().unprotect(address, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN | Errno::NOMEM) => Err(EventWaits),
            // The mapping is gone: let the thread look for itself.
            Err(_) => {
                self.userfault().wake(address, bytes);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;

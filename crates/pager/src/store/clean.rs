//! Clean copies: a page that was brought back for a read keeps its stored copy, and leaves again
//! without being compressed or written. A page that comes as part of a huge page keeps none,
//! because a huge page cannot come protected (`fault/huge_page.rs`).
//!
//! A clean page is mapped write-protected (`UFFDIO_COPY_MODE_WP`) and its word says `Clean`. The
//! first write to it is a fault: the handler marks it `Present`, frees the entry, and only then
//! lifts the protection. The evictor claims a cold one (`Isolated`), asks the kernel whether it is
//! *still* protected, and moves it to staging if so (`evict/isolate.rs`). There it waits in the
//! swap cache like any other page, and has its second chance there, because nothing else tells us
//! that it is touched. When its turn comes it is not written (`write_back.rs`).
//!
//! The question to the kernel makes a lost update impossible, whatever the word says: while a fork
//! freezes the words, protections are lifted without a change of them (in the parent, and by the
//! parent in the child), and both find out here. No thread lifts a protection between the answer
//! and the move: the handler does not touch a page that is `Isolated`, and no fork freeze exists
//! while the evictor holds the gate. And no thread protects a clean page later than it was filled:
//! the protection before a fork (`evict/sharing.rs`) covers everything but clean pages.

use crate::engine::Engine;
use crate::kernel::pagemap::Now;
use crate::units::{PIECE_PAGES, PageInBlock, Pages};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::decisions::Scope;
use folioswap_group::devices::{DEVICES_MAX, DeviceIo, DeviceUsage};
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::Block;
use folioswap_slots::{DeviceMask, FolioId, Shadow, SwapEntry};
use rustix::io::Errno;

/// Bit of [`Engine::swap_full`] for the compressed store; a shared device has the bit of its
/// number.
const STORE_FULL: u64 = 1 << 63;

const _: () = assert!(DEVICES_MAX < 63);

/// Steps and limits of a block's [`Block::history_rewrites`]: what a write fault on a clean page
/// adds, what a clean page that left unchanged and a swap-in that kept nothing take away, and the
/// value from which on nothing is kept. A write fault costs about as much as the compression of a
/// few pages.
pub(crate) const REWRITTEN: u8 = 16;

const LEFT_CLEAN: u8 = 4;

pub(crate) const NOTHING_KEPT: u8 = 1;

pub(crate) const KEEP_NOTHING: u8 = 64;

pub(crate) const REWRITES_MAX: u8 = 128;

/// The outcome for clean pages that were claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Certainly unchanged, and in the swap cache from now on.
    pub(crate) unchanged: Pages,
    /// Written to although the word said that they were clean.
    pub(crate) written: Pages,
}

impl Engine {
    /// Ends the cleanness of a page, if its word is still `clean`: the word becomes `next`, and the
    /// copy is freed.
    pub(crate) fn end_clean(
        &self,
        block: &Block,
        index: PageInBlock,
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

    /// Frees a clean page's entry, which nothing refers to any more.
    pub(crate) fn put_copy(&self, entry: SwapEntry) {
        self.counts.clean_pages.fetch_sub(1, Relaxed);
        self.space.put(entry, 1);
    }

    /// Finds out on which devices space is so short that pages in memory keep no copy there (the
    /// kernel's `vm_swap_full`: more than half used). In scope total the limit counts the store
    /// too, which leaves less for memory, so there the compressed store counts as full from an
    /// eighth of the limit on. A store that relatives share is excepted: giving up a copy frees
    /// nothing there, and writing to pages of the store makes them this process's own. Evictor
    /// only.
    pub(crate) fn look_at_swap_space(&self) {
        let (decisions, stats) = (self.decisions(), self.space.slots().stats());
        let memory_full = decisions.scope() == Scope::Total && !self.shares_memory() && self.store_exceeds(8);
        let store_full = memory_full || stats.inuse > stats.slots / 2;
        let mut full = if store_full { STORE_FULL } else { 0 };
        for (number, (device, entry)) in
            decisions.devices().enumerate().filter(|(_, (device, _))| device.clusters > 0)
        {
            // Where reading costs as little as copying, a copy is not worth its space (spec §6,
            // phase II); from a device that leaves, the copy would have to go on.
            let keeps_none = device.io == DeviceIo::Synchronous
                || entry.usage() != DeviceUsage::InUse
                || device.kind.is_in_memory() && memory_full
                || entry.clusters_used() > device.clusters / 2;
            full |= u64::from(keeps_none) << number;
        }
        self.counts.swap_full.store(full, Relaxed);
    }

    /// Whether the device that holds the copy of a page in memory has space to keep it.
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

    /// Whether a page that was touched by itself, and not read along with others, is to give up its
    /// copy, so that it goes to the compressed store when it leaves. With its copy it would go back
    /// to a slow device as soon as it leaves, ahead of all pages in the fast one. The answer is no
    /// where relatives share the copy: a child that reads the pages that its parent swapped out
    /// would store all of them once more.
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

    /// Cools a hot clean page that the clock passes; where space is short, the page keeps no copy.
    /// Evictor only.
    pub(crate) fn pass_clean(&self, block: &Block, index: PageInBlock, word: PageWord, entry: SwapEntry) {
        let Some(cooled) = word.cooled() else { return };
        if self.has_space_for_copy(entry) {
            let _ = block.replace(index, word, cooled);
        } else {
            self.give_up_clean(block, index, word);
        }
    }

    /// Takes the copy from a clean page, which stays in memory, and protected until it is written.
    /// The caller is the evictor and holds the gate.
    pub(crate) fn give_up_clean(&self, block: &Block, index: PageInBlock, word: PageWord) {
        let next = word.copy_given_up().map(|present| present.cooled().unwrap_or(present));
        self.end_clean(block, index, word, next);
    }

    /// Takes the copies from the clean pages on both sides of `index`, within its piece, because
    /// pages read there are usually written soon after. The page at `index` is not clean any more.
    /// Returns the run, whose protection the caller lifts. Handler only.
    pub(crate) fn give_up_around(&self, block: &Block, index: PageInBlock) -> Range<usize> {
        let (piece, index) = (index.piece_start().get(), index.get());
        let give_up = |page: &usize| {
            let page = PageInBlock::new(*page);
            let word = block.word(page);
            self.end_clean(block, page, word, word.copy_given_up())
        };
        let first = (piece..index).rev().take_while(give_up).last().unwrap_or(index);
        let last = (index + 1..piece + PIECE_PAGES).take_while(give_up).last().unwrap_or(index);
        first..last + 1
    }

    /// Finds out which of the `claimed` clean pages are unchanged, and adds those to the swap cache
    /// as part of `folio`. `old` has their words from before the claim, `now` the kernel's answer.
    /// The caller is the evictor and holds the gate and the move lock.
    ///
    /// The kernel must be asked after the claim: as long as the words said anything else, the
    /// handler could lift the protection. Without an answer nothing is proven, and nothing is
    /// moved.
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

    /// Accounts for claimed clean pages whose words already say their outcome; `moved` are those in
    /// staging. A moved page is in the swap cache until its turn comes, like every other page
    /// there.
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
                // It stays in memory, so no fault will ask how long it was away.
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

/// An event waits and has to be read first, or the kernel has no memory now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventWaits;

impl Engine {
    /// Lifts the protection of a range on which nothing stored depends, and wakes the threads that
    /// wait there.
    ///
    /// # Errors
    /// [`EventWaits`]: nothing was done.
    pub(crate) fn unprotect_and_wake(&self, address: usize, bytes: usize) -> Result<(), EventWaits> {
        match self.userfault().unprotect(address, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN | Errno::NOMEM) => Err(EventWaits),
            // The mapping is gone: the woken thread finds out for itself.
            Err(_) => {
                self.userfault().wake(address, bytes);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;

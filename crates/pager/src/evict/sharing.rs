//! Memory that relatives share after a fork is write-protected, so that each write to it is a fault
//! that can wait for memory.
//!
//! The kernel copies a shared page for the first process that writes to it, and tells nobody: at
//! full speed a process and its children could double the memory of the group before the next
//! measurement. So before a fork all registered memory is protected, which the child inherits, and
//! each first write comes to the handler of the process that writes. The handler waits while the
//! group is at its limit, adds the page to the group's charge, and lifts the protection. Where the
//! page turns out to be this process's own (its relatives have ended), nothing is charged. A fork
//! that found room for copies of everything protects nothing; when that room is gone, the memory
//! that relatives share by then is protected, and nothing else.
//!
//! A protection that is set later than the page was filled proves nothing of a stored copy. So
//! `Clean` pages are passed over: such a page is protected from its first moment on, or it was
//! written to in a fork's freeze and must be found unprotected (`store/clean.rs`). Memory that must
//! stay resident is passed over too: the kernel writes there where no fault can be served.
//!
//! The zero page is shared in the same sense, by everybody: a page that a program has read before
//! it is registered (it may have read all of a large mapping, at no cost) becomes a page of its own
//! at the first write, without a fault that the handler sees. So zero pages are protected when they
//! are registered; pages that are read afterwards are filled by the handler and are no zero pages.

use crate::engine::Engine;
use crate::engine::holds::By;
use crate::kernel::pagemap;
use crate::kernel::uffd::Userfault;
use crate::units::{BLOCK, BlockAddr, PIECE, PIECE_PAGES, PageAddr, PieceAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_policy::page::PageState;
use rustix::io::Errno;

/// How often a protection is tried while an event waits.
const PROTECT_ATTEMPTS: u32 = 1000;

/// The pages that are to be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToProtect {
    /// Everything, before a fork, which shares all of it.
    All,
    /// Only pages that another process maps too, some time after a fork.
    Shared,
}

/// The bytes of pages that a process gets of its own when it writes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnPages {
    /// In place of the zero page.
    zero: usize,
    /// In place of pages that relatives share.
    shared: usize,
}

impl Engine {
    /// So many bytes of this process's memory are not shared any more, or may not be.
    pub(crate) fn end_sharing(&self, bytes: usize) {
        self.member().sharing.end(&self.segment().header, bytes as u64);
    }

    /// The cost of a write to the pages of `start..end`, all of which are shared.
    pub(crate) fn cost_of_own_pages(&self, start: usize, end: usize) -> OwnPages {
        let mut regions = [pagemap::EMPTY; PIECE_PAGES];
        let scan = pagemap::zero_pages(self.descriptors.pagemap.load(Relaxed), start, end, &mut regions);
        let found = &regions[..scan.map_or(0, |scan| scan.regions)];
        let zero = found.iter().map(|region| (region.end - region.start) as usize).sum::<usize>();
        OwnPages { zero, shared: (end - start).saturating_sub(zero) }
    }

    /// Charges pages that may be written to now.
    pub(crate) fn charge_own_pages(&self, pages: OwnPages) {
        // No measurement counted the zero page; pages that relatives share were counted, and
        // discounted.
        self.member().charge_bytes.fetch_add(pages.zero as u64, Relaxed);
        if pages.shared > 0 {
            self.end_sharing(pages.shared);
        }
    }

    /// Whether a write to the page would cost a page of memory. Also true where nothing is known of
    /// it.
    pub(crate) fn is_shared(&self, page: PageAddr) -> bool {
        self.pages_now(page, 1).exclusive == 0
    }

    /// Protects the zero pages of `start..end`, which is registered. The caller is the evictor,
    /// outside of a fork's freeze and without the move lock, or a handler that has just adopted a
    /// forked child, whose program stands still.
    pub(crate) fn protect_zero_pages(&self, start: usize, end: usize) {
        let mut regions = [pagemap::EMPTY; 16];
        let mut from = start;
        while from < end {
            let pagemap = self.descriptors.pagemap.load(Relaxed);
            let Ok(scan) = pagemap::zero_pages(pagemap, from, end, &mut regions) else { return };
            for region in &regions[..scan.regions] {
                self.protect_pages(region.start as usize, region.end as usize, ToProtect::All);
            }
            if scan.end <= from {
                return;
            }
            from = scan.end;
        }
    }

    /// Protects the registered and present pages that `what` names. The caller is the evictor,
    /// between two batches and outside of a fork's freeze.
    pub(crate) fn protect_registered(&self, what: ToProtect) {
        let mut from = 0;
        loop {
            let range = {
                let _events_wait = self.locks.moves.lock();
                self.mappings.registered.next(from)
            };
            let Some(range) = range else { return };
            self.protect_pages(range.start.max(from), range.end, what);
            from = range.end;
        }
    }

    /// Protects a range, but for clean pages and those that must stay resident.
    fn protect_pages(&self, mut start: usize, end: usize, what: ToProtect) {
        while start < end {
            let block_end = end.min(BlockAddr::containing(start).end());
            self.protect_in_block(start, block_end, what);
            start = block_end;
        }
    }

    /// Protects the memory that a child made by a bare clone(2) has just inherited, as far as this
    /// process knows it. The caller holds the move lock.
    pub(crate) fn protect_in_child(&self, child: Userfault) {
        for range in self.mappings.registered.iter() {
            let mut start = range.start;
            while start < range.end {
                let piece = PieceAddr::containing(start);
                let kept = self.kept_pages(piece);
                let end = range.end.min(piece.end());
                if kept == 0 {
                    // This is best effort: pages that the child writes unprotected are counted when
                    // the supervisor finds it.
                    let _ = child.protect(start, end - start);
                }
                start = end;
            }
        }
    }

    /// Protects the part `start..end` of a block, but for clean pages and those that must stay
    /// resident.
    fn protect_in_block(&self, start: usize, end: usize, what: ToProtect) {
        let at = BlockAddr::containing(start);
        let block = self.table.block(at);
        let mut now = [pagemap::Now::default(); BLOCK / PIECE];
        if what == ToProtect::Shared {
            let pagemap = self.descriptors.pagemap.load(Relaxed);
            // Without an answer nothing is known to be this process's own.
            let _ = pagemap::pieces(pagemap, at.raw(), &mut now);
        }
        let mut run = start;
        let mut page = PageAddr::containing(start);
        while page.raw() < end {
            let piece = page.piece();
            let passed_over = self.kept_pages(piece) | now[piece.number() % now.len()].exclusive;
            let piece_end = end.min(piece.end());
            while page.raw() < piece_end {
                let is_clean = block
                    .is_some_and(|block| matches!(block.word(page.index()).state(), PageState::Clean(..)));
                if is_clean || passed_over >> page.in_piece() & 1 != 0 {
                    self.protect(run, page.raw());
                    run = page.end();
                }
                page = page.plus(1);
            }
        }
        self.protect(run, end);
    }

    fn protect(&self, start: usize, end: usize) {
        // The handler reads an event that nobody has read yet. A forked child's handler, which
        // adopts its inheritance, reads none meanwhile; pages that are left unprotected then are
        // counted at the next measurement.
        for _ in 0..PROTECT_ATTEMPTS {
            let mut is_refused = false;
            self.for_free(By::Protector, start, end, |free| {
                is_refused |=
                    self.userfault().protect(free.start, free.end - free.start) == Err(Errno::AGAIN);
            });
            if !is_refused {
                return;
            }
            rustix::thread::sched_yield();
        }
    }
}

#[cfg(test)]
mod tests;

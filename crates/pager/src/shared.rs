//! What relatives share after a fork: write-protected, so that each write to it is a fault that can wait for memory.
//!
//! The kernel makes a copy of a shared page for whoever writes to it first, without a word to anybody: at its full speed a
//! process and its children could double what the group holds before the next measurement. So before a fork everything that
//! is registered is protected, which the child inherits, and each first write comes to the handler of the process that
//! writes. It waits while the group is at its limit, adds the page to what the group is charged, and lifts the protection.
//! Where the page turns out to be this process's own (its relatives have ended), nothing is charged.
//!
//! A protection that is set later than the page was filled proves nothing of a stored copy. So what is `Clean` is passed
//! over: it is protected from its first moment on, or it was written to in a fork's window and must be found
//! unprotected (`clean.rs`). What must stay resident is passed over too: the kernel writes there where no fault can be served.

use crate::engine::Engine;
use crate::handler::{Fault, Handler};
use crate::isolate::page_index;
use crate::staging::{FOLIO, FOLIO_PAGES};
use crate::uffd::{Access, Userfault};
use folioswap_core::page::PageState;
use folioswap_core::page_table::{BLOCK, Block, PAGE};
use folioswap_group::counters::Counter;
use rustix::io::Errno;

impl Engine {
    /// So many bytes of this process's memory are not shared any more, or may not be.
    pub(crate) fn end_sharing(&self, bytes: usize) {
        self.member().sharing.end(&self.segment().header, bytes as u64);
    }

    /// Would a write to the page cost a page of memory? (Also true where nothing is known of it.)
    pub(crate) fn is_shared(&self, address: usize) -> bool {
        self.fork.has_relatives() && self.pages_now(address, 1).exclusive == 0
    }

    /// Protects what is registered and present. Evictor, between two batches and outside of a fork's window.
    pub(crate) fn protect_shared(&self) {
        let mut from = 0;
        loop {
            let range = {
                let _events_wait = self.move_lock.lock();
                // SAFETY: the set is used under the move lock.
                unsafe { &*self.registered.get() }.next(from)
            };
            let Some(range) = range else { return };
            let mut start = range.start.max(from);
            while start < range.end {
                let end = range.end.min((start & !(BLOCK - 1)) + BLOCK);
                self.protect_in_block(start, end);
                start = end;
            }
            from = range.end;
        }
    }

    /// Protects what a child made by a bare clone(2) has just inherited, as far as this process knows it. Under the move lock.
    pub(crate) fn protect_in_child(&self, child: Userfault) {
        // SAFETY: the set is used under the move lock.
        for range in unsafe { &*self.registered.get() }.as_slice() {
            let mut start = range.start;
            while start < range.end {
                let piece = start & !(FOLIO - 1);
                let kept = self.kept_pages(piece);
                let end = range.end.min(piece + FOLIO);
                if kept == 0 {
                    // Best effort: what it writes unprotected is counted when the supervisor finds it.
                    let _ = child.protect(start, end - start);
                }
                start = end;
            }
        }
    }

    /// The part of a block that is `start..end`: all but what is clean and what must stay resident.
    fn protect_in_block(&self, start: usize, end: usize) {
        let block = self.table.block(start);
        let mut run = start;
        let mut address = start;
        while address < end {
            let piece = address & !(FOLIO - 1);
            let kept = self.kept_pages(piece);
            let last = end.min(piece + FOLIO);
            while address < last {
                let is_clean = block.is_some_and(|block| {
                    matches!(block.word(page_index(address)).state(), PageState::Clean(..))
                });
                if is_clean || kept >> ((address - piece) / PAGE) & 1 != 0 {
                    self.protect(run, address);
                    run = address + PAGE;
                }
                address += PAGE;
            }
        }
        self.protect(run, end);
    }

    fn protect(&self, start: usize, end: usize) {
        // An event that nobody has read yet: the handler reads it.
        while start < end && self.userfault().protect(start, end - start) == Err(Errno::AGAIN) {
            rustix::thread::sched_yield();
        }
    }
}

impl Handler {
    /// Must this fault wait while there is no memory?
    pub(crate) fn needs_memory(&self, fault: &Fault) -> bool {
        fault.access != Access::WriteProtected || self.engine.is_shared(fault.address & !(PAGE - 1))
    }

    /// A write to a page that is protected and not clean. Those around it that are this process's own come with it, and
    /// where writes go on from page to page the shared ones that come next. True: resolved.
    pub(crate) fn write_to_protected(&mut self, block: &Block, address: usize) -> bool {
        let engine = self.engine;
        let piece = address & !(FOLIO - 1);
        let at = (address - piece) / PAGE;
        let now = engine.pages_now(piece, FOLIO_PAGES);
        let base = page_index(piece);
        let plain = |page: usize| {
            let state = block.word(base + page).state();
            now.protected >> page & 1 != 0
                && matches!(state, PageState::Present(_) | PageState::Removed { .. })
        };
        let exclusive = |page: usize| now.exclusive >> page & 1 != 0;
        let (mut first, mut end, mut charged) = (at, at + 1, 0);
        if !engine.fork.has_relatives() || exclusive(at) {
            while first > 0 && plain(first - 1) && exclusive(first - 1) {
                first -= 1;
            }
            while end < FOLIO_PAGES && plain(end) && exclusive(end) {
                end += 1;
            }
        } else {
            let window = engine.window(block, address);
            let run = window.run(at, FOLIO_PAGES, |page| plain(page) && !exclusive(page));
            (first, end) = (run.start, run.end);
            charged = end - first;
            block.history.remember(base + first, base + end, window.order);
        }
        let resolved = self.unprotect_run(piece + first * PAGE, (end - first) * PAGE);
        if resolved && charged > 0 {
            engine.end_sharing(charged * PAGE);
            engine.figures().add(Counter::MinorFaults, 1);
        }
        resolved
    }
}

//! Events: the changes that the program makes to its mappings, as the kernel reports them, applied
//! to the page words.
//!
//! Everything here runs in the handler thread under the move lock: no page is being moved out, and
//! every later move sees the effects.

use crate::engine::Engine;
use crate::engine::ending::certainly_taken;
use crate::engine::words::pages_within;
use crate::fault::handler::Handler;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::maps;
use crate::kernel::ranges::Range;
use crate::kernel::uffd::{Event, Message, Userfault};
use crate::store::freeing::Freeing;
use crate::units::{BlockAddr, PAGE, PageInBlock};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::protocol::{Ending, ProcFile};
use folioswap_policy::page::{PageState, PageWord};
use folioswap_policy::page_table::Block;
use rustix::io::Errno;

/// How often the descriptor of a forked child is asked for again when no descriptor is free, and
/// after which time.
const READ_ATTEMPTS: u32 = 200;

const READ_AGAIN_NS: u64 = 500_000;

impl Handler {
    /// Reads messages without waiting; returns how many. If no descriptor is free for that of a
    /// fork, spare ones are given up.
    pub(crate) fn read_some(&mut self, userfault: Userfault, messages: &mut [Message]) -> usize {
        self.obtain(|| userfault.read(messages))
    }

    /// Asks for an answer that takes a descriptor, and without which no page can be served. If no
    /// descriptor is free, spare ones are given up; without an answer this process ends.
    pub(crate) fn obtain<T>(&mut self, mut ask: impl FnMut() -> Result<T, Errno>) -> T {
        let mut attempts = 0;
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(_)
                    if self.placement.spare_descriptor()
                        || self.ticks.give_up()
                        || self.reads.give_up_ring() => {}
                // The evictor, which has the same table, may have a file open just now; the event
                // stays where it is.
                Err(_) if attempts < READ_ATTEMPTS => {
                    attempts += 1;
                    futex::wait(&AtomicU32::new(0), 0, READ_AGAIN_NS, Sharing::Private);
                }
                Err(errno) => {
                    self.engine.report_failure(errno);
                    self.engine.kill_program();
                }
            }
        }
    }

    /// Calls `each` with the ranges of this process that a child made now does not find, or finds
    /// empty. More than one call may be for a range.
    ///
    /// The kernel is asked, since the advice may have come by a system call that nothing of ours
    /// saw, and holds for the mapping wherever it moves and however it grows.
    pub(crate) fn for_not_inherited(&mut self, mut each: impl FnMut(Range)) {
        let mut buffer = [0; 8192];
        let engine = self.engine;
        self.obtain(|| {
            engine.with_file(ProcFile::Smaps, |file| maps::not_inherited(file, &mut buffer, &mut each))
        });
    }

    /// Applies an event. The caller holds the move lock, outside of a fork freeze.
    pub(crate) fn process(&mut self, event: Event) {
        let engine = self.engine;
        // Slots may get another owner.
        self.reads.forget_all();
        match event {
            Event::Remove { start, end } => {
                self.forget_trigger(start, end);
                engine.remove_pages(start, end);
            }
            Event::Unmap { start, end } => {
                self.forget_trigger(start, end);
                self.unmapped.note(start, end);
                engine.unmap_pages(start, end);
            }
            Event::Remap { from, to, bytes } => {
                self.forget_trigger(from, from + bytes);
                self.remap(from, to, bytes);
            }
            Event::Fork { child } => self.adopt_raw_child(child),
            Event::Fault { .. } | Event::Unknown => {}
        }
    }

    /// Moves the page words of a mapping that moved. Pages that wait in staging are written back
    /// first, since a berth is found by the low bits of the address.
    fn remap(&mut self, from: usize, to: usize, bytes: usize) {
        let engine = self.engine;
        self.write_back_range(from, from + bytes);
        engine.move_words(from, to, bytes);
    }

    /// Writes back every page of the range that waits in staging.
    pub(crate) fn write_back_range(&mut self, start: usize, end: usize) {
        let engine = self.engine;
        let _evictor_waits = engine.locks.write_back.lock();
        let scratch = &mut self.scratch;
        engine.table.for_blocks(start, end, |base, block| {
            for index in pages_within(base, start, end) {
                let word = block.word(index);
                if let PageState::Leaving(entry) = word.state()
                    && !engine.write_back_page(scratch, block, index, word, entry)
                {
                    engine.end(Ending::NotStored, None);
                }
            }
        });
    }
}

impl Engine {
    /// Moves the page words and the registration of a mapping that moved; no page of it is in
    /// staging.
    pub(crate) fn move_words(&self, from: usize, to: usize, bytes: usize) {
        crate::engine::words::move_words(self, &self.table, from, to, bytes);
        // Our caller holds the move lock, or is a child's only thread.
        let registered = &self.mappings.registered;
        if !self.calls_hold() {
            registered.forget(from, from + bytes);
        }
        // Else an unmapping is to say that it is gone: with MREMAP_DONTUNMAP it stays registered.
        let _ = registered.insert(to, to + bytes);
    }

    /// Applies a removal: the program gave up the contents of the range, which stays mapped.
    pub(crate) fn remove_pages(&self, start: usize, end: usize) {
        let epoch = self.mappings.epoch.load(Relaxed);
        // A page that is present must not be taken before it is zapped, even where no word was ever
        // needed.
        let mut regions = [crate::kernel::pagemap::EMPTY; 16];
        let mut address = start;
        while address < end {
            let pagemap = self.descriptors.pagemap.load(Relaxed);
            match crate::kernel::pagemap::present(pagemap, address, end, &mut regions) {
                Ok(scan) if scan.end > address => {
                    for region in &regions[..scan.regions] {
                        self.embedded.went((region.end - region.start) / PAGE as u64);
                        self.make_blocks(region.start as usize, region.end as usize);
                    }
                    address = scan.end;
                }
                // The kernel does not answer (it had no memory for that): all of these 2 MiB may be
                // present.
                _ => {
                    self.make_blocks(address, address + 1);
                    address = BlockAddr::containing(address).end();
                }
            }
        }
        self.table.for_blocks(start, end, |base, block| {
            self.remove_in_block(block, pages_within(base, start, end), |word| word.remove(epoch));
        });
    }

    /// Makes words for all of the range. Without memory for them no page of it would be safe: then
    /// this process ends.
    fn make_blocks(&self, start: usize, end: usize) {
        let mut block = BlockAddr::containing(start);
        while block.raw() < end {
            certainly_taken(self, || self.table.block_or_insert(block, self.arena));
            block = block.plus(1);
        }
    }

    /// Applies an unmapping: the range is no longer mapped.
    pub(crate) fn unmap_pages(&self, start: usize, end: usize) {
        self.forget_words(start, end);
        self.mappings.registered.forget(start, end);
        let _guard = self.locks.kept.lock();
        // A full set keeps all of the range: memory mapped there later stays resident, and so do
        // the stacks around it.
        let _ = self.said.kept.remove(start, end);
        if self.said.huge_advised.load(Relaxed) != 0 {
            let _ = self.said.huge_pages.remove(start, end);
            let _ = self.said.no_huge_pages.remove(start, end);
        }
    }

    /// Gives up what the pages of a range have elsewhere, and all that is known of them. The caller
    /// holds the move lock, and is the handler, or has it outside.
    pub(crate) fn forget_words(&self, start: usize, end: usize) {
        self.table.for_blocks(start, end, |base, block| {
            self.remove_in_block(block, pages_within(base, start, end), emptied);
            if start <= base.raw() && base.end() <= end {
                self.table.recycle(base);
            }
        });
    }

    /// Gives up what a page had that is not present: a guard stands there. It takes no lock, since
    /// each word changes by itself.
    pub(crate) fn forget_page(&self, block: &Block, index: PageInBlock) {
        self.remove_in_block(block, core::iter::once(index), emptied);
    }

    fn remove_in_block(
        &self,
        block: &Block,
        pages: impl Iterator<Item = PageInBlock>,
        next: impl Fn(PageWord) -> Option<PageWord>,
    ) {
        let mut freeing = Freeing::new(self);
        for index in pages {
            loop {
                let word = block.word(index);
                let Some(removed) = next(word) else { break };
                if block.replace(index, word, removed).is_err() {
                    continue;
                }
                match word.state() {
                    PageState::Stored(entry) => {
                        freeing.put(entry);
                        self.note_returned(1);
                    }
                    PageState::Clean(entry, _) => {
                        self.counts.clean_pages.fetch_sub(1, Relaxed);
                        freeing.put(entry);
                    }
                    // The evictor frees the entry when its write-back finds the page gone.
                    PageState::Leaving(_) => self.note_returned(1),
                    _ => {}
                }
                break;
            }
        }
    }
}

/// The word of a page that has nothing any more, and is not present; `None`: nothing is to change.
fn emptied(word: PageWord) -> Option<PageWord> {
    word.remove(0).map(|_| PageWord::PRESENT)
}

#[cfg(test)]
mod tests;

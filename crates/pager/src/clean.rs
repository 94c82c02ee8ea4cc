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
use crate::handler::Handler;
use crate::isolate::{Pages, page_index};
use crate::pagemap::Now;
use crate::staging::{FOLIO, FOLIO_PAGES};
use crate::uffd::Access;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_group::devices::{DEVICES_MAX, DeviceIo, DeviceUsage};
use folioswap_group::segment::Scope;
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::{Block, PAGE};
use folioswap_slots::{DeviceMask, FolioId, Shadow, SwapEntry};
use rustix::io::Errno;

/// Bit of [`Engine::swap_full`] for the compressed store; a shared device has that of its number.
const STORE_FULL: u64 = 1 << 63;
const _: () = assert!(DEVICES_MAX < 63);

/// A block's [`Block::history_rewrites`]: what a write fault on a clean page adds, what a clean page that left unchanged and
/// a swap-in that kept nothing take away, and from where on nothing is kept. A write fault costs about as much as the
/// compression of a few pages.
const REWRITTEN: u8 = 16;
const LEFT_CLEAN: u8 = 4;
const NOTHING_KEPT: u8 = 1;
const KEEP_NOTHING: u8 = 64;
const REWRITES_MAX: u8 = 128;

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
    fn end_clean(&self, block: &Block, index: usize, clean: PageWord, next: Option<PageWord>) -> bool {
        let (Some(next), Some(entry)) = (next, clean.entry()) else { return false };
        let ended = block.replace(index, clean, next).is_ok();
        if ended {
            self.put_copy(entry);
        }
        ended
    }

    /// A clean page's entry, which nothing refers to any more.
    pub(crate) fn put_copy(&self, entry: SwapEntry) {
        self.clean_pages.fetch_sub(1, Relaxed);
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
        self.swap_full.store(full, Relaxed);
    }

    /// Is there space for a copy of what is in memory, on the device that holds it?
    fn has_space_for_copy(&self, entry: SwapEntry) -> bool {
        let full = self.swap_full.load(Relaxed);
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
    fn goes_to_store_next(&self, entry: SwapEntry) -> bool {
        let devices = DeviceMask::from_bits(self.refilled_from.load(Relaxed));
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
    fn give_up_around(&self, block: &Block, index: usize) -> Range<usize> {
        let piece = index - index % FOLIO_PAGES;
        let give_up = |page: usize| {
            let word = block.word(page);
            self.end_clean(block, page, word, word.copy_given_up())
        };
        let first = (piece..index).rev().take_while(|&page| give_up(page)).last().unwrap_or(index);
        let last = (index + 1..piece + FOLIO_PAGES).take_while(|&page| give_up(page)).last().unwrap_or(index);
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
        old: &[PageWord; FOLIO_PAGES],
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
        old: &[PageWord; FOLIO_PAGES],
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
            self.clean_pages.fetch_sub(u64::from(left), Relaxed);
            let rewrites = block.history_rewrites.load(Relaxed);
            block.history_rewrites.store(rewrites.saturating_sub(LEFT_CLEAN * left), Relaxed);
        }
    }
}

impl Handler {
    /// Which pages of a window, bit by bit, keep their stored copy when they come back: those that were only read, unless
    /// what is read here is usually written soon after, or space is short, or (for a single page, order 0) the store is the better
    /// place. What must stay resident keeps none, since the
    /// kernel may write there where no fault can be served. `stored` gives the entry of a page that is stored.
    pub(crate) fn copies_to_keep(
        &self,
        access: Access,
        block: &Block,
        (base, order): (usize, u8),
        stored: impl Fn(usize) -> Option<SwapEntry>,
    ) -> Pages {
        if access != Access::Read {
            return 0;
        }
        let rewrites = block.history_rewrites.load(Relaxed);
        if rewrites >= KEEP_NOTHING {
            block.history_rewrites.store(rewrites - NOTHING_KEPT, Relaxed);
            return 0;
        }
        let mut keep = 0;
        for page in 0..FOLIO_PAGES {
            let has_space = stored(page).is_some_and(|entry| {
                self.engine.has_space_for_copy(entry) && (order > 0 || !self.engine.goes_to_store_next(entry))
            });
            keep |= Pages::from(has_space) << page;
        }
        if keep != 0 {
            let piece = base & !(FOLIO - 1);
            keep &= !(self.engine.kept_pages(piece) >> ((base - piece) / PAGE));
        }
        keep
    }

    /// A fault on a page that is clean as far as we know. True: resolved.
    pub(crate) fn serve_clean(
        &mut self,
        block: &Block,
        address: usize,
        word: PageWord,
        access: Access,
    ) -> bool {
        let engine = self.engine;
        let index = page_index(address);
        if access != Access::WriteProtected {
            // It was missing when the fault was raised; another thread's fault has brought it in, most likely.
            if engine.pages_now(address, 1).present == 0 {
                if let (Some(stored), Some(entry)) = (word.missed(), word.entry())
                    && block.replace(index, word, stored).is_ok()
                {
                    engine.space.note_left_clean(entry);
                    engine.clean_pages.fetch_sub(1, Relaxed);
                    engine.note_gone(1);
                }
                return false;
            }
            if access == Access::Read {
                engine.userfault().wake(address, PAGE);
                return true;
            }
        }
        if engine.end_clean(block, index, word, word.dirtied()) {
            let rewrites = block.history_rewrites.load(Relaxed).saturating_add(REWRITTEN).min(REWRITES_MAX);
            block.history_rewrites.store(rewrites, Relaxed);
            if engine.fork.has_relatives() {
                let shared = engine.is_shared(address);
                let resolved = self.unprotect_run(address, PAGE);
                if resolved && shared {
                    engine.end_sharing(PAGE);
                }
                return resolved;
            }
            let given_up =
                if rewrites >= KEEP_NOTHING { engine.give_up_around(block, index) } else { index..index + 1 };
            return self.unprotect_run(address - (index - given_up.start) * PAGE, given_up.len() * PAGE);
        }
        // The evictor was faster with this word: look at it again.
        false
    }

    /// Nothing stored depends on these pages: they may be written. True: resolved.
    pub(crate) fn unprotect_run(&mut self, address: usize, bytes: usize) -> bool {
        let lifted = self.engine.unprotect_and_wake(address, bytes);
        if lifted.is_err() {
            rustix::thread::sched_yield();
            self.read_messages();
        }
        lifted.is_ok()
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

/// What clean copies rest on in the kernel.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::Candidates;
    use crate::demote::Pieces;
    use crate::pagemap;
    use crate::test_memory::{clean_piece, map, moving_engine, userfault, word_at};
    use crate::uffd::{Event, Message, Userfault, Watch};
    use crate::write_back::Tier;
    use folioswap_devices::Scratch;
    use folioswap_group::counters::Counter;
    use folioswap_policy::page::{Heat, PageState};
    use rustix::fs::{Mode, OFlags};
    use rustix::mm::MremapFlags;
    use std::os::fd::IntoRawFd;

    struct Memory {
        userfault: Userfault,
        pagemap: i32,
        program: usize,
        target: usize,
    }

    /// `None` where userfaultfd is not allowed.
    fn memory() -> Option<Memory> {
        let userfault = userfault()?;
        let pagemap =
            rustix::fs::open("/proc/self/pagemap", OFlags::RDONLY, Mode::empty()).unwrap().into_raw_fd();
        let (program, target) = (map(FOLIO), map(FOLIO));
        userfault.register(program, FOLIO, Watch::Program).unwrap();
        userfault.register(target, FOLIO, Watch::MoveTarget).unwrap();
        let contents = [[7u8; PAGE]; FOLIO_PAGES];
        // SAFETY: the source is on our stack.
        unsafe {
            userfault.copy_protected(program, contents.as_ptr().cast(), 8 * PAGE).unwrap();
            userfault.copy(program + 8 * PAGE, contents.as_ptr().cast(), 4 * PAGE).unwrap();
        }
        Some(Memory { userfault, pagemap, program, target })
    }

    impl Memory {
        fn now(&self) -> pagemap::Now {
            pagemap::now(self.pagemap, self.program, FOLIO_PAGES).unwrap()
        }
    }

    #[test]
    fn the_kernel_tells_what_is_protected() {
        let Some(memory) = memory() else { return };
        assert_eq!(
            memory.now(),
            pagemap::Now { present: 0xfff, protected: 0xff, exclusive: 0xfff, ..pagemap::Now::default() }
        );
        memory.userfault.unprotect(memory.program + 2 * PAGE, PAGE).unwrap();
        // Nothing is there: nothing happens.
        memory.userfault.unprotect(memory.program + 14 * PAGE, PAGE).unwrap();
        assert_eq!(
            memory.now(),
            pagemap::Now { present: 0xfff, protected: 0xfb, exclusive: 0xfff, ..pagemap::Now::default() }
        );
    }

    #[test]
    fn a_write_to_a_protected_page_waits_and_says_so() {
        let Some(memory) = memory() else { return };
        let place = memory.program + 3 * PAGE;
        let writer = std::thread::spawn(move || {
            // SAFETY: mapped above.
            unsafe { (place as *mut u8).write_volatile(9) }
        });
        let mut messages = [Message::EMPTY];
        while memory.userfault.read(&mut messages) == Ok(0) {
            std::thread::yield_now();
        }
        let Event::Fault { address, access, .. } = messages[0].event() else { panic!("not a fault") };
        assert_eq!((address & !(PAGE - 1), access), (place, Access::WriteProtected));
        assert_eq!(memory.now().protected, 0xff);
        // SAFETY: as above.
        assert_eq!(unsafe { (place as *const u8).read_volatile() }, 7);
        memory.userfault.unprotect(place, PAGE).unwrap();
        writer.join().unwrap();
        assert_eq!(memory.now().protected, 0xf7);
        // SAFETY: as above.
        assert_eq!(unsafe { (place as *const u8).read_volatile() }, 9);
    }

    #[test]
    fn protected_pages_can_be_moved_and_come_back_unprotected_or_not_as_asked() {
        let Some(memory) = memory() else { return };
        // SAFETY: both ranges are ours.
        unsafe { memory.userfault.move_pages(memory.target, memory.program, 8 * PAGE).unwrap() };
        assert_eq!(
            memory.now(),
            pagemap::Now { present: 0xf00, protected: 0, exclusive: 0xf00, ..pagemap::Now::default() }
        );
        let zeroes = [0u8; PAGE];
        // SAFETY: the source is on our stack; the target is mapped.
        unsafe {
            memory.userfault.copy(memory.program, zeroes.as_ptr(), PAGE).unwrap();
            assert_eq!((memory.target as *const u8).read_volatile(), 7);
        }
        assert_eq!(memory.now().protected, 0);
    }

    #[test]
    fn a_mapping_that_moves_keeps_its_protection() {
        let Some(mut memory) = memory() else { return };
        let (userfault, from, to) = (memory.userfault, memory.program, map(FOLIO));
        let mover = std::thread::spawn(move || {
            // SAFETY: both ranges are ours.
            let moved = unsafe {
                let flags = MremapFlags::MAYMOVE;
                rustix::mm::mremap_fixed(from as *mut _, FOLIO, FOLIO, flags, to as *mut _)
            };
            moved.unwrap() as usize
        });
        let mut messages = [Message::EMPTY; 4];
        while !mover.is_finished() {
            let _ = userfault.read(&mut messages);
            std::thread::yield_now();
        }
        memory.program = mover.join().unwrap();
        assert_eq!((memory.program, memory.now().protected), (to, 0xff));
    }

    fn states(engine: &Engine, start: usize) -> [PageState; FOLIO_PAGES] {
        let block = engine.table.block(start).unwrap();
        core::array::from_fn(|page| block.word(page_index(start) + page).state())
    }

    #[test]
    fn what_is_clean_waits_in_the_swap_cache_and_is_not_written() {
        let Some(engine) = moving_engine() else { return };
        let (start, entries) = clean_piece(engine);
        assert_eq!(engine.isolate(start, Candidates::ALL_CLEAN).moved, Pages::MAX);
        assert_eq!(states(engine, start), entries.map(PageState::Leaving));
        assert!(entries.iter().all(|&entry| engine.staging_place(entry) == Some(0)));
        // One is touched meanwhile: its word is the handler's, its entry the evictor's.
        let block = engine.table.block(start).unwrap();
        block.set(page_index(start) + 3, PageWord::PRESENT_HOT);
        engine.note_returned(1);
        let tier = Tier::Store(DeviceMask::NONE);
        let left = engine.write_back_oldest(&mut Scratch::new(), tier, Pieces::Any, 1);
        assert_eq!(left.unwrap().pages, FOLIO_PAGES as u64 - 1);
        let now = states(engine, start);
        for (page, entry) in entries.into_iter().enumerate().filter(|&(page, _)| page != 3) {
            assert_eq!(now[page], PageState::Stored(entry));
        }
        let counter = |counter| engine.figures().counter(counter);
        assert_eq!((counter(Counter::PagesOut), counter(Counter::StolenClean)), (0, 15));
        assert_eq!(engine.validate(), Ok(15), "the entry of what was touched is free");
    }

    #[test]
    fn what_was_written_behind_its_word_stays_and_loses_its_copy() {
        let Some(engine) = moving_engine() else { return };
        let (start, entries) = clean_piece(engine);
        engine.userfault().unprotect(start + 2 * PAGE, 3 * PAGE).unwrap();
        assert_eq!(engine.isolate(start, Candidates::ALL_CLEAN).moved, !0b1_1100);
        let now = states(engine, start);
        assert!(now[2..5].iter().all(|&state| state == PageState::Present(Heat::Hot)));
        assert_eq!((now[1], now[5]), (PageState::Leaving(entries[1]), PageState::Leaving(entries[5])));
        assert_eq!((word_at(start + 2 * PAGE) as u8, engine.clean_pages.load(Relaxed)), (3, 0));
        assert_eq!(engine.validate(), Ok(13));
    }

    #[test]
    fn where_all_is_rewritten_the_pages_around_lose_their_copies_too() {
        let Some(engine) = moving_engine() else { return };
        let (start, entries) = clean_piece(engine);
        let (block, base) = (engine.table.block(start).unwrap(), page_index(start));
        // The one that is written, and one on either side at which the run ends.
        for page in [2, 6, 9] {
            block.set(base + page, PageWord::PRESENT_HOT);
            engine.put_copy(entries[page]);
        }
        assert_eq!(engine.give_up_around(block, base + 6), base + 3..base + 9);
        let is_clean = |state: &PageState| matches!(state, PageState::Clean(..));
        assert_eq!(states(engine, start).iter().filter(|state| is_clean(state)).count(), 8);
        assert_eq!(engine.give_up_around(block, base + 2), base..base + 3);
        assert_eq!(engine.give_up_around(block, base + 9), base + 9..base + 16);
        assert_eq!(engine.validate(), Ok(0));
    }
}

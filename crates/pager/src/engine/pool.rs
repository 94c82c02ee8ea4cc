//! Huge pages that have been written back, kept for their next use.
//!
//! A huge page that left the program as a whole is empty when its last folio is written back. If it
//! were given to the system, it would have to be found, cleared and counted anew for the next first
//! touch. Here the evictor clears it, beside the program, and the handler moves it to the address
//! where it is wanted (2 us for 2 MiB, where 32 faults that fill 64 KiB each take 700).
//!
//! There are few huge pages in the pool, only while a thread asks for them, and they count towards
//! the limit like all of the process's memory. A forked child finds none (MADV_WIPEONFORK), because
//! shared pages could not be moved.

use crate::engine::Engine;
use crate::kernel::uffd::Watch;
use crate::kernel::{pagemap, sys};
use crate::staging::ring::empty_target;
use crate::units::{BLOCK, BlockAddr};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};
use folioswap_group::decisions::Scope;
use rustix::mm::{Advice, madvise};

/// The most huge pages of a process that wait: 16 MiB.
const SLOTS_MAX: usize = 8;

/// The part of the limit that the huge pages of a process may take, where that is at least one
/// page; those of all members together may take no more, where each has more than one. From 128 MiB
/// on, where huge pages begin to be used, that is four: the one at hand, and three ahead of a walk.
const LIMIT_PART: u64 = 16;

/// The same for one process where the limit counts the store too, which leaves the program less.
const LIMIT_PART_OF_TOTAL: u64 = 64;

/// The part of the process's evictable memory that is given up at most to make headroom for more
/// huge pages.
const RESIDENT_PART: u64 = 8;

/// After this many looks of the evictor in which no thread asked, the huge pages are given to the
/// system.
const IDLE_LOOKS: u32 = 3;

/// Looks during which the system is not asked again for a huge page, after it had none.
const BARREN_LOOKS: u32 = 10;

/// The states of a pool page. [`BUSY`] belongs to the thread that took it.
const EMPTY: u8 = 0;

const USED: u8 = 1;

const CLEARED: u8 = 2;

const BUSY: u8 = 3;

/// The evictor is to empty the pool page.
const SPOILED: u8 = 4;

/// The pool. All-zero: it has no pages.
#[repr(C)]
pub(crate) struct Pool {
    base: AtomicUsize,
    slots: AtomicU32,
    states: [AtomicU8; SLOTS_MAX],
    /// Looks left until huge pages that no thread asks for are given to the system.
    wanted: AtomicU32,
    /// Looks left until the system is asked for a huge page again.
    barren: AtomicU32,
}

/// A huge page of the pool, in the hands of the thread that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    slot: usize,
    /// Its address: 2 MiB, aligned.
    pub(crate) address: usize,
}

/// The use for which a huge page is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// A first touch: the huge page holds zeroes.
    FirstTouch,
    /// A swap-in, which fills the huge page: its content may be anything.
    SwapIn,
}

/// The reason why there is no huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHugePage {
    /// The group is charged so much that one more would be too many.
    NotCharged,
    /// The system has none, or all pages of the pool are in use.
    NoMemory,
}

/// The evictor's work for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prepared {
    /// No work that takes memory.
    Nothing,
    /// The system has given a huge page.
    FromSystem,
}

impl Pool {
    /// The states of the pool pages that exist.
    fn all(&self) -> &[AtomicU8] {
        &self.states[..self.slots.load(Acquire) as usize]
    }

    fn change(&self, from: u8, to: u8) -> Option<Taken> {
        let slot =
            self.all().iter().position(|state| state.compare_exchange(from, to, AcqRel, Relaxed).is_ok())?;
        Some(Taken { slot, address: self.base.load(Relaxed) + slot * BLOCK })
    }

    fn leave(&self, taken: Taken, state: u8) {
        self.states[taken.slot].store(state, Release);
    }

    /// The number of huge pages that the pool can hold.
    pub(crate) fn slots(&self) -> usize {
        self.all().len()
    }

    /// The bytes of huge pages that wait.
    pub(crate) fn bytes(&self) -> u64 {
        let holds = |state: &&AtomicU8| state.load(Relaxed) != EMPTY;
        (self.all().iter().filter(holds).count() * BLOCK) as u64
    }

    /// The first address and the bytes of the pool; no bytes before it is made.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.base.load(Relaxed), self.slots() * BLOCK)
    }

    /// Sets the state in which the system had no huge page.
    #[cfg(test)]
    pub(crate) fn pretend_barren(&self) {
        self.barren.store(BARREN_LOOKS, Relaxed);
    }

    /// Forgets the pool's pages in a child: no page is there, and no thread has asked.
    pub(crate) fn forget(&self) {
        self.states.iter().for_each(|state| state.store(EMPTY, Relaxed));
        self.wanted.store(0, Relaxed);
        self.barren.store(0, Relaxed);
    }
}

impl Engine {
    /// Makes the pool, if the group's limit is large enough for one. Evictor, once.
    pub(crate) fn make_pool(&self, limit: u64) {
        if !self.affords_huge_pages() {
            return;
        }
        let part = match self.decisions().scope() {
            Scope::Resident => LIMIT_PART,
            Scope::Total => LIMIT_PART_OF_TOTAL,
        };
        let slots = (limit / part / BLOCK as u64).clamp(1, SLOTS_MAX as u64) as usize;
        let bytes = slots * BLOCK;
        let Some(base) = self.arena.move_target(bytes) else { return };
        let start = base.as_ptr();
        // SAFETY: a mapping of our own, in which nothing is yet.
        let advised = unsafe {
            madvise(start.cast(), bytes, Advice::LinuxHugepage)
                .and_then(|()| madvise(start.cast(), bytes, Advice::LinuxWipeOnFork))
        };
        if advised.is_ok() && self.userfault().register(start as usize, bytes, Watch::MoveTarget).is_ok() {
            self.pool.base.store(start as usize, Relaxed);
            self.pool.slots.store(slots as u32, Release);
        }
    }

    /// Takes a huge page for the program. Handler.
    ///
    /// # Errors
    /// [`NoHugePage`]: there is none now.
    pub(crate) fn take_huge_page(&self, purpose: For) -> Result<Taken, NoHugePage> {
        let pool = &self.pool;
        pool.wanted.store(IDLE_LOOKS, Relaxed);
        let kept = match purpose {
            For::FirstTouch => {
                pool.change(CLEARED, BUSY).or_else(|| pool.change(USED, BUSY).inspect(|&used| clear(used)))
            }
            For::SwapIn => pool.change(USED, BUSY).or_else(|| pool.change(CLEARED, BUSY)),
        };
        kept.map_or_else(|| self.huge_page_from_system(self.headroom()), Ok)
    }

    /// The bytes of huge pages that are asked for and not there, though the system may have them:
    /// evictions make headroom for as much more, so that a walk finds the next ones before it has
    /// to wait for each. Cost: a look at all members.
    pub(crate) fn missing_huge_page_bytes(&self) -> u64 {
        let pool = &self.pool;
        if pool.wanted.load(Relaxed) == 0 || pool.barren.load(Relaxed) > 0 {
            return 0;
        }
        let most = ((pool.slots() * BLOCK) as u64).min(self.most_kept());
        let part = self.member().evictable_bytes.load(Relaxed) / RESIDENT_PART;
        most.saturating_sub(pool.bytes()).min(part) / BLOCK as u64 * BLOCK as u64
    }

    /// The most bytes of huge pages that this process keeps, so that all members together keep no
    /// more than their part of the limit.
    fn most_kept(&self) -> u64 {
        let members = self.group().live_members().count().max(1) as u64;
        (self.bound().limit / LIMIT_PART / members).max(BLOCK as u64)
    }

    /// Bytes that the group may still take before it exceeds its limit by more than a huge page,
    /// which is a fraction of the grace.
    pub(crate) fn headroom(&self) -> u64 {
        let bound = self.bound();
        bound.limit.saturating_add(BLOCK as u64).saturating_sub(bound.charge)
    }

    /// Takes a huge page of zeroes from the system, where the system has one and there is headroom
    /// for it.
    fn huge_page_from_system(&self, room: u64) -> Result<Taken, NoHugePage> {
        let pool = &self.pool;
        if room < BLOCK as u64 {
            return Err(NoHugePage::NotCharged);
        }
        if pool.barren.load(Relaxed) > 0 {
            return Err(NoHugePage::NoMemory);
        }
        // An empty page table is left where single pages were moved away, and there is no huge page
        // under it: giving up all of its 2 MiB frees it.
        for _ in 0..2 {
            let empty = pool.change(EMPTY, BUSY).ok_or(NoHugePage::NoMemory)?;
            // SAFETY: a pool page of ours, which holds nothing.
            let made = unsafe { madvise(empty.address as *mut _, BLOCK, Advice::LinuxPopulateWrite) };
            if made.is_ok() && pagemap::is_huge(self.descriptors.pagemap.load(Relaxed), empty.address) {
                self.member().charge_bytes.fetch_add(BLOCK as u64, Relaxed);
                return Ok(empty);
            }
            // Single pages are of no use here.
            self.give_up_huge_page(empty);
        }
        pool.barren.store(BARREN_LOOKS, Relaxed);
        Err(NoHugePage::NoMemory)
    }

    /// Asks for a huge page. Returns whether there is one, or headroom to take one from the system,
    /// and below the limit headroom for this many bytes besides.
    pub(crate) fn ask_for_huge_page_and(&self, bytes: u64) -> bool {
        self.pool.wanted.store(IDLE_LOOKS, Relaxed);
        let waits = |state: &AtomicU8| matches!(state.load(Relaxed), USED | CLEARED);
        let more = if self.pool.all().iter().any(waits) { 0 } else { BLOCK as u64 };
        let bound = self.bound();
        bound.charge.saturating_add(more + bytes) <= bound.limit
    }

    /// Records that the huge page has been moved to this block of the program.
    pub(crate) fn huge_page_has_moved(&self, taken: Taken, to: BlockAddr) {
        if pagemap::is_huge(self.descriptors.pagemap.load(Relaxed), to.raw()) {
            self.pool.leave(taken, EMPTY);
        } else {
            // A page table stood there: the kernel moved single pages, and their own page table is
            // left in the pool page.
            self.give_up_huge_page(taken);
        }
    }

    /// Puts back a huge page that was not used after all; its content is not known.
    pub(crate) fn put_huge_page_back(&self, taken: Taken) {
        self.pool.leave(taken, USED);
    }

    /// Puts back a huge page that was taken for a first touch, and still holds zeroes.
    pub(crate) fn put_cleared_back(&self, taken: Taken) {
        self.pool.leave(taken, CLEARED);
    }

    /// Gives up a huge page of which a part may have been moved: the rest goes to the system. Where
    /// the handler asks for this, it happens at the evictor's next look: where the process has as
    /// many mappings as it may have, giving the memory up raises an event, which the handler (or
    /// the thread that serves in its stead) would have to read.
    pub(crate) fn give_up_huge_page(&self, taken: Taken) {
        if self.embedded.serves_signals() || self.threads.handler.load(Relaxed) == sys::gettid() {
            self.pool.leave(taken, SPOILED);
        } else {
            self.empty_huge_page(taken);
        }
    }

    fn empty_huge_page(&self, taken: Taken) {
        // SAFETY: a page of the pool, which is a target of moves, and which we have taken; nothing
        // in it is needed.
        unsafe { empty_target(self.userfault(), taken.address, BLOCK) };
        self.pool.leave(taken, EMPTY);
    }

    /// Keeps a huge page of staging, at `address`, whose folios are all written back, for the store
    /// to grow into or for the program, if either wants one. False: the huge page is still there.
    /// Evictor.
    pub(crate) fn keep_huge_page(&self, address: usize) -> bool {
        let pagemap = self.descriptors.pagemap.load(Relaxed);
        if !pagemap::is_huge(pagemap, address) {
            return false;
        }
        if self.arena.keep_as_chunk(self.userfault(), pagemap, address) {
            return true;
        }
        if self.pool.wanted.load(Relaxed) == 0 {
            return false;
        }
        if self.pool.bytes() + BLOCK as u64 > self.most_kept() {
            return false;
        }
        let Some(slot) = self.pool.change(EMPTY, BUSY) else { return false };
        // SAFETY: nothing at the source is needed any more, and the target is an empty pool page of
        // ours.
        match unsafe { self.userfault().move_pages(slot.address, address, BLOCK) } {
            // A pool page is not kept if it still had the page table of a huge page that was moved
            // on in parts: the kernel splits a huge page that comes there, and a thread that took
            // it from the pool would get single pages, as would all later ones.
            Ok(()) if !pagemap::is_huge(pagemap, slot.address) => {
                self.give_up_huge_page(slot);
                true
            }
            Ok(()) => {
                self.pool.leave(slot, USED);
                true
            }
            Err(_) => {
                self.give_up_huge_page(slot);
                false
            }
        }
    }

    /// Clears one huge page that waits for that; where one is wanted and none is left, and `room`
    /// bytes may be taken, gets one from the system. Evictor.
    pub(crate) fn prepare_huge_page(&self, room: u64) -> Prepared {
        let pool = &self.pool;
        while let Some(spoiled) = pool.change(SPOILED, BUSY) {
            self.empty_huge_page(spoiled);
        }
        if pool.wanted.load(Relaxed) == 0 || pool.all().iter().any(|state| state.load(Relaxed) == CLEARED) {
            return Prepared::Nothing;
        }
        if let Some(used) = pool.change(USED, BUSY) {
            clear(used);
            pool.leave(used, CLEARED);
        } else if let Ok(fresh) = self.huge_page_from_system(room) {
            pool.leave(fresh, CLEARED);
            return Prepared::FromSystem;
        }
        Prepared::Nothing
    }

    /// Gives huge pages that no thread asks for to the system. Evictor, now and then.
    pub(crate) fn look_at_pool(&self) {
        let (wanted, barren) = (self.pool.wanted.load(Relaxed), self.pool.barren.load(Relaxed));
        self.pool.barren.store(barren.saturating_sub(1), Relaxed);
        if wanted > 0 {
            self.pool.wanted.store(wanted - 1, Relaxed);
            return;
        }
        self.arena.chunks().give_up_waiting();
        for state in [USED, CLEARED, SPOILED] {
            while let Some(idle) = self.pool.change(state, BUSY) {
                self.empty_huge_page(idle);
            }
        }
    }
}

fn clear(taken: Taken) {
    // SAFETY: a pool page that we have taken, which holds a huge page.
    unsafe { (taken.address as *mut u8).write_bytes(0, BLOCK) };
}

#[cfg(test)]
mod tests;

//! Every invariant between page words, slots, stores and counts, checked while the program runs.
//! For tests: the group asks for it (`run --validate`).
//!
//! The evictor checks under `locks.gate` with the handler outside of its rounds: nobody is half way
//! through anything, so everything must agree exactly. The pages that a handler holds for children
//! of a bare clone(2) are in tables of their own and not counted here; then only the other
//! direction is checked, that each word's slot is used. Of an entry that duplicates hold
//! (`embed/duplicate.rs`) each holder counts its part.

use crate::engine::Engine;
use crate::engine::threads::Life;
use crate::evict::evictor::Evictor;
use crate::kernel::futex::{self, Guard, Sharing};
use crate::kernel::sys;
use crate::staging::ring::BerthIndex;
use crate::staging::staged_folio::StagedFolio;
use crate::units::{ADDRESS_END, PageAddr, PageInBlock};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{Invariant, Kind, Note};
use folioswap_policy::page::PageState;
use folioswap_slots::{SlotWord, SwapEntry};
use folioswap_space::space::validate::{Broken, Held};

/// The time between two checks, and the least part of it that is left to everything else.
const INTERVAL_NS: u64 = 50_000_000;

const COST_DIVISOR: u64 = 20;

/// Looks at the handler's lock before the check is put off: a thread that yields more often gives
/// up much of its time.
const TRIES: u32 = 50;

/// The longest time for which the handler then leaves its lock alone: more than the evictor sleeps
/// between two rounds.
const HANDLER_PAUSES_NS: u64 = 3_000_000;

/// How many milliseconds a program that ends waits for its last check, at most.
const LAST_WAITS: u32 = 2000;

/// An invariant that does not hold, and the figure or address that belongs to it.
type Violation = (Invariant, u64);

/// The count of an entry: divisible by every number of holders up to 16, each of which counts its
/// part.
const ENTRY: u64 = 720_720;

/// The pages and entries that words and staging name; entries in parts of [`ENTRY`].
#[derive(Default)]
struct Tally {
    /// Pages out: in staging, or stored.
    out: u64,
    /// Pages in the program with a stored copy that still stands for them.
    clean: u64,
    /// Entries that are named. Among them are those in staging whose page was taken back: the
    /// evictor frees them when their turn comes.
    entries: u64,
    same_filled: u64,
    in_zram: u64,
    in_file: u64,
    /// Some entry has more holders than can be counted so.
    is_inexact: bool,
}

impl Tally {
    /// Counts one of so many holders of an entry.
    fn count(&mut self, held: Held, holders: u64) {
        self.is_inexact |= !ENTRY.is_multiple_of(holders);
        let part = ENTRY / holders;
        self.entries += part;
        match held {
            Held::Nowhere => {}
            Held::SameFilled => self.same_filled += part,
            Held::Zram => self.in_zram += part,
            Held::File => self.in_file += part,
        }
    }
}

impl Engine {
    /// Checks everything; returns the slots in use. The caller is the evictor, under the gate, with
    /// the handler outside of its rounds. Cost: a walk of all tables, some ten nanoseconds per page
    /// that is out.
    ///
    /// # Errors
    /// The first violation found.
    pub(crate) fn validate(&self) -> Result<u64, Violation> {
        let report = self.space.validate().map_err(|broken| match broken {
            Broken::Slots => (Invariant::Slots, 0),
            Broken::Store(invalid) => (Invariant::Store, invalid.number()),
            Broken::Ages(counted) => (Invariant::Ages, counted),
        })?;
        let mut tally = Tally::default();
        let mut found = Ok(());
        self.table.for_blocks_while(0, ADDRESS_END, |base, block| {
            for index in PageInBlock::all() {
                found = self.validate_word(base.page(index), block.word(index).state(), &mut tally);
                if found.is_err() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        found?;
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        let staging = unsafe { &*self.staging.get() };
        for berth in staging.waiting_berths() {
            let folio = staging.berth(berth);
            for (page, entry) in folio.entries.iter().enumerate() {
                let Some(entry) = *entry else { continue };
                if self.state_of(folio.piece.page(page)) != PageState::Leaving(entry) {
                    let holders = match self.space.slots().word(entry) {
                        SlotWord::Cached { count, .. } | SlotWord::Shadow { count, .. } => count.max(1),
                        _ => 1,
                    };
                    tally.count(self.space.held(entry), holders);
                }
            }
        }
        let said = self.counts.swapped_pages.load(Relaxed);
        if said != tally.out {
            return Err((Invariant::PagesOut, said));
        }
        let said = self.counts.clean_pages.load(Relaxed);
        if said != tally.clean {
            return Err((Invariant::CleanPages, said));
        }
        if self.children.raw.load(Relaxed) != 0 || tally.is_inexact {
            return Ok(report.inuse);
        }
        if report.inuse * ENTRY != tally.entries {
            return Err((Invariant::Unreachable, report.inuse.wrapping_sub(tally.entries / ENTRY)));
        }
        let stat = self.space.mm_stat();
        if stat.objects * ENTRY != tally.in_zram || stat.same_pages * ENTRY != tally.same_filled {
            return Err((Invariant::StoreContents, stat.objects));
        }
        let used = self.space.file_space().used_slots();
        if used * ENTRY != tally.in_file {
            return Err((Invariant::FileContents, used));
        }
        Ok(report.inuse)
    }

    fn state_of(&self, page: PageAddr) -> PageState {
        let present = folioswap_policy::page::PageWord::PRESENT;
        self.table.block(page).map_or(present, |block| block.word(page.index())).state()
    }

    fn validate_word(&self, page: PageAddr, state: PageState, tally: &mut Tally) -> Result<(), Violation> {
        let alone = self.children.raw.load(Relaxed) == 0 && !self.embedded.has_duplicates();
        let holders_of = |count: u64| (if alone { count == 1 } else { count >= 1 }).then_some(count);
        match state {
            PageState::Present(_) | PageState::Removed { .. } => return Ok(()),
            PageState::Isolated(_) | PageState::Returning(_) | PageState::Filling => {
                return Err((Invariant::HalfWay, page.raw() as u64));
            }
            PageState::Leaving(entry) => {
                let found = match self.space.slots().word(entry) {
                    SlotWord::Cached { folio, count, .. } => {
                        holders_of(count).map(|holders| (StagedFolio::of(folio).berth_of(entry), holders))
                    }
                    _ => None,
                };
                let found = found.filter(|&(berth, _)| self.waits_in_staging(berth, page, entry));
                let Some((_, holders)) = found else {
                    return Err((Invariant::WordWithoutSlot, page.raw() as u64));
                };
                tally.count(self.space.held(entry), holders);
            }
            PageState::Stored(entry) | PageState::Clean(entry, _) => {
                let holders = match self.space.slots().word(entry) {
                    SlotWord::Shadow { shadow, .. } if !self.workingset.is_sound(shadow) => {
                        return Err((Invariant::Shadow, page.raw() as u64));
                    }
                    SlotWord::Shadow { count, .. } => holders_of(count),
                    // Another holder's page was clean and waits in staging.
                    SlotWord::Cached { count, .. } if count > 1 => holders_of(count),
                    _ => None,
                };
                let Some(holders) = holders else {
                    return Err((Invariant::WordWithoutSlot, page.raw() as u64));
                };
                let held = self.space.held(entry);
                if held == Held::Nowhere {
                    return Err((Invariant::Nowhere, page.raw() as u64));
                }
                tally.count(held, holders);
            }
        }
        let count = if matches!(state, PageState::Clean(..)) { &mut tally.clean } else { &mut tally.out };
        *count += 1;
        Ok(())
    }

    fn waits_in_staging(&self, berth: BerthIndex, page: PageAddr, entry: SwapEntry) -> bool {
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        let staging = unsafe { &*self.staging.get() };
        staging.waiting_berths().any(|waiting| waiting == berth) && {
            let folio = staging.berth(berth);
            folio.piece == page.piece() && folio.entries[page.in_piece()] == Some(entry)
        }
    }

    /// Checks everything once more when the program ends (a thread of it says so), if the group
    /// wants that, and waits for it.
    pub fn validate_at_exit(&self) {
        if self.life() != Life::Running || !self.is_ours() || !self.wants_validation() {
            return;
        }
        self.validation_wanted.store(1, Release);
        self.wake_evictor();
        for _ in 0..LAST_WAITS {
            if self.validation_wanted.load(Acquire) == 0 {
                return;
            }
            futex::wait(&self.validation_wanted, 1, 1_000_000, Sharing::Private);
        }
    }

    fn wants_validation(&self) -> bool {
        self.decisions().wants_validation()
    }
}

impl Engine {
    /// The handler's lock, for the evictor, which does not wait for it: the handler may wait for
    /// memory in its round, and so for the evictor. Without it the handler makes way before its
    /// next round.
    pub(crate) fn handler_outside(&self) -> Option<Guard<'_>> {
        let outside = (0..TRIES).find_map(|_| {
            self.locks.serve.try_lock().or_else(|| {
                rustix::thread::sched_yield();
                None
            })
        });
        self.threads.evictor_waits.store(u32::from(outside.is_none()), Release);
        if outside.is_some() {
            futex::wake(&self.threads.evictor_waits, Sharing::Private);
        }
        outside
    }

    /// Lets an evictor that waits for the handler's lock have it. The caller is the handler,
    /// between two rounds.
    pub(crate) fn make_way_for_evictor(&self) {
        if self.threads.evictor_waits.load(Acquire) != 0 {
            futex::wait(&self.threads.evictor_waits, 1, HANDLER_PAUSES_NS, Sharing::Private);
            self.threads.evictor_waits.store(0, Relaxed);
        }
    }
}

impl Evictor {
    /// Checks everything if the group wants that and it is time. The caller holds the gate.
    pub(crate) fn validate_if_due(&mut self) {
        let engine = self.engine;
        let wanted = engine.validation_wanted.load(Acquire);
        let next = if wanted == 0 { self.upkeep.validation_next_ns } else { 0 };
        if !engine.wants_validation() || sys::now_ns() < next {
            return;
        }
        let Some(_handler_waits) = engine.handler_outside() else { return };
        let begun = sys::now_ns();
        match engine.validate() {
            // An empty space proves nothing.
            Ok(0) => {}
            Ok(_) => engine.figures().add(Counter::Validations, 1),
            Err((invariant, detail)) => {
                engine.figures().add(Counter::Violations, 1);
                engine.tell(Kind::Note, [Note::Violation as u64, invariant as u64, detail], None);
            }
        }
        let now = sys::now_ns();
        // The first check comes as soon as a page is out.
        if engine.counts.swapped_pages.load(Relaxed) > 0 {
            self.upkeep.validation_next_ns = now + INTERVAL_NS.max((now - begun) * COST_DIVISOR);
        }
        if wanted != 0 {
            engine.validation_wanted.store(0, Release);
            let word = &engine.validation_wanted;
            let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

#[cfg(test)]
mod tests;

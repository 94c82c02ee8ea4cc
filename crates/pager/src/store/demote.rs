//! Demotion: the pages stored longest ago in the compressed store go on to a slower device, when
//! the store is larger than its share of the limit, or when nothing else is left to give.
//!
//! The evictor goes round the page words; it reads a stored page of an old generation, writes it to
//! a slot of a shared device, and replaces its location. Pages that lie together and were stored at
//! about the same time thus come to lie together on the device, and are read together later. The
//! entry does not change, and neither does the page word: a fault that comes meanwhile finds one
//! location or the other, under the location's lock.

use crate::engine::Engine;
use crate::units::{ADDRESS_END, PageInBlock};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{Medium, Page};
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageState;
use folioswap_slots::{DeviceMask, SwapEntry};
use folioswap_space::relocation::DEMOTED_MAX;
use folioswap_space::space::WriteError;
use folioswap_space::space::ages::Generation;

/// The most pages written together: 512 KiB.
pub(crate) const RUN_PAGES: usize = Medium::File.batch_pages() as usize;

const _: () = assert!(RUN_PAGES <= DEMOTED_MAX);

/// Blocks looked at in one step, so that neither a fork nor the look at new mappings waits long.
const BLOCKS_AT_ONCE: usize = 16;

/// A round that found fewer pages than this was not worth its cost: the next round takes younger
/// pages too.
const ROUND_PAGES_MIN: u64 = 64;

/// Page-aligned workspace for one run.
#[repr(C, align(4096))]
struct DemotionRun {
    pages: [Page; RUN_PAGES],
    decoder: Decoder,
}

/// How far demotion is on its way round. A fork may lose it without harm.
pub(crate) struct Demotion {
    hand: usize,
    /// Pages of this generation and of older ones go.
    up_to: Generation,
    /// Pages demoted since the hand was at the start.
    this_round: u64,
}

impl Demotion {
    /// Demotion with the hand at the start.
    pub(crate) const fn new() -> Self {
        Demotion { hand: 0, up_to: Generation::from_raw(0), this_round: 0 }
    }
}

/// How pages that are to be written together go where the devices have no such run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemotionUnits {
    /// They wait, because further clusters may be granted.
    Whole,
    /// They are written in smaller units, down to single pages, because no run of slots is left
    /// (the kernel's split and fallback to order 0, spec §2.7).
    Any,
}

/// The outcome of a step of demotion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demoted {
    /// Pages whose bytes are on a shared device now.
    pub(crate) pages: u64,
    /// The reason why it could not go on.
    pub(crate) stopped: Option<WriteError>,
}

/// Where a run goes.
#[derive(Clone, Copy)]
pub(crate) struct Below {
    /// The devices, one of which takes it.
    pub(crate) devices: DeviceMask,
    /// Whether it may be written in smaller units.
    pub(crate) pieces: DemotionUnits,
}

/// Pages on their way to a shared device.
struct Collected<'r> {
    entries: [Option<SwapEntry>; RUN_PAGES],
    count: usize,
    run: &'r mut DemotionRun,
    below: Below,
}

impl Collected<'_> {
    /// Writes the collected pages. Breaks off when the devices have no space.
    fn flush(&mut self, engine: &Engine, demoted: &mut Demoted) -> ControlFlow<()> {
        let count = core::mem::take(&mut self.count);
        let (mut done, mut piece) = (0, RUN_PAGES);
        while done < count {
            let entries = &self.entries[done..count.min(done + piece)];
            let DemotionRun { pages, decoder } = &mut *self.run;
            match engine.space.demote_run(entries, decoder, &mut pages[..entries.len()], self.below.devices) {
                Ok(pages) => {
                    demoted.pages += pages;
                    done += entries.len();
                }
                Err(WriteError::NoSlots | WriteError::OrderNotTaken)
                    if self.below.pieces == DemotionUnits::Any && piece > 1 =>
                {
                    piece = (piece / 4).max(1);
                }
                Err(error) => {
                    engine.tell_of_failure(error);
                    demoted.stopped = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl Engine {
    /// Demotes up to about `most` pages, the oldest first, and no more than one run of them while a
    /// thread waits for the evictor's look at the mappings. The caller is the evictor and holds the
    /// gate. Cost: some nanoseconds for each page word that the hand passes, over at most 32 MiB of
    /// the program; about 6 µs for each demoted page.
    pub(crate) fn demote(&self, demotion: &mut Demotion, most: u64, below: Below) -> Demoted {
        let mut demoted = Demoted::default();
        let Some(oldest) = self.space.ages().oldest() else { return demoted };
        if demotion.up_to.is_older_than(oldest) {
            demotion.up_to = oldest;
        }
        let Some(run) = self.demotion_workspace() else { return demoted };
        let mut collected = Collected { entries: [None; RUN_PAGES], count: 0, run, below };
        let together = RUN_PAGES.min(most as usize);
        let (mut blocks, mut hand, up_to) = (0, 0, demotion.up_to);
        self.table.for_blocks_while(demotion.hand, ADDRESS_END, |base, block| {
            hand = base.raw();
            if demoted.pages + collected.count as u64 >= most || blocks == BLOCKS_AT_ONCE {
                return ControlFlow::Break(());
            }
            blocks += 1;
            for index in PageInBlock::all() {
                if let PageState::Stored(entry) = block.word(index).state()
                    && self.space.generation(entry).is_some_and(|age| !up_to.is_older_than(age))
                {
                    collected.entries[collected.count] = Some(entry);
                    collected.count += 1;
                    if collected.count == together {
                        collected.flush(self, &mut demoted)?;
                        if demoted.pages >= most || self.mappings.scan_wanted.load(Relaxed) != 0 {
                            return ControlFlow::Break(());
                        }
                    }
                }
            }
            hand = 0;
            ControlFlow::Continue(())
        });
        if demoted.stopped.is_none() {
            let _ = collected.flush(self, &mut demoted);
        }
        self.figures().add(Counter::FilePagesOut, demoted.pages);
        demotion.hand = hand;
        demotion.this_round += demoted.pages;
        if hand == 0 && demoted.stopped.is_none() {
            let found = core::mem::take(&mut demotion.this_round);
            let younger = demotion.up_to.next();
            let all = self.space.ages().young().is_older_than(younger);
            demotion.up_to = if found < ROUND_PAGES_MIN && !all { younger } else { oldest };
        }
        demoted
    }

    /// The evictor's workspace for the pages of a run, for another use while nothing is demoted.
    pub(crate) fn run_room(&self) -> Option<&'static mut [Page]> {
        self.demotion_workspace().map(|run| &mut run.pages[..])
    }

    /// The evictor's workspace for a run; `None` without memory. It becomes resident on its first
    /// use, and a forked child inherits it.
    fn demotion_workspace(&self) -> Option<&'static mut DemotionRun> {
        let mut room = self.arena.room(&self.workspaces.demotion)?;
        // SAFETY: all-zero is a valid run; the workspace is the evictor's alone, and its only
        // caller ends one use before the next.
        Some(unsafe { room.as_mut() })
    }
}

#[cfg(test)]
mod tests;

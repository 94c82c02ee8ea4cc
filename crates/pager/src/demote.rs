//! Demotion: what was stored longest ago in the compressed store goes on to a slower device, when the store is larger than its
//! share of the limit, or when nothing else is left to give.
//!
//! The evictor goes round the page words; a stored page of an old generation is read, written to a slot of a shared device, and
//! its location replaced. Pages that lie together and were stored at about the same time so come to lie together in the file, and
//! are read together later. The entry does not change, and neither does the page word: a fault that comes meanwhile finds one
//! location or the other, under the location's lock.

use crate::engine::Engine;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{Medium, Page};
use folioswap_group::counters::Counter;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::{BLOCK, PAGE};
use folioswap_slots::{DeviceMask, SwapEntry};
use folioswap_space::relocation::DEMOTED_MAX;
use folioswap_space::space::WriteError;
use folioswap_space::space::ages::Generation;

/// Pages that are written together at most: 512 KiB.
pub(crate) const RUN_PAGES: usize = Medium::File.batch_pages() as usize;
const _: () = assert!(RUN_PAGES <= DEMOTED_MAX);
/// Blocks looked at in one step, so that neither a fork nor the look at new mappings waits long.
const BLOCKS_AT_ONCE: usize = 16;
/// A round that found fewer pages than this was not worth its way: the next takes younger ones too.
const ROUND_PAGES_MIN: u64 = 64;

/// Page-aligned room for one run.
#[repr(C, align(4096))]
struct Run {
    pages: [Page; RUN_PAGES],
    decoder: Decoder,
}

/// Where demotion is on its way round. Lost without harm at a fork.
pub(crate) struct Demotion {
    hand: usize,
    /// Pages of this generation and of older ones go.
    up_to: Generation,
    /// Demoted since the hand was at the start.
    this_round: u64,
}

impl Demotion {
    /// At the start.
    pub(crate) const fn new() -> Self {
        Demotion { hand: 0, up_to: Generation::from_raw(0), this_round: 0 }
    }
}

/// What becomes of pages that are to be written together when the devices have no such run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// They wait: there may be room to be asked for.
    Whole,
    /// They are written in smaller pieces, down to single pages: no run of slots is left (the kernel's split and fallback to order 0, spec §2.7).
    Any,
}

/// What a step of demotion achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demoted {
    /// Pages whose bytes are on a shared device now.
    pub(crate) pages: u64,
    /// Why it could not go on.
    pub(crate) stopped: Option<WriteError>,
}

/// Where a run goes.
#[derive(Clone, Copy)]
pub(crate) struct Below {
    /// To one of these devices.
    pub(crate) devices: DeviceMask,
    /// As a whole or not.
    pub(crate) pieces: Pieces,
}

/// Pages on their way to the file.
struct Collected<'r> {
    entries: [Option<SwapEntry>; RUN_PAGES],
    count: usize,
    run: &'r mut Run,
    below: Below,
}

impl Collected<'_> {
    /// Writes what is collected. Breaks off when there is no room.
    fn flush(&mut self, engine: &Engine, demoted: &mut Demoted) -> ControlFlow<()> {
        let count = core::mem::take(&mut self.count);
        let (mut done, mut piece) = (0, RUN_PAGES);
        while done < count {
            let entries = &self.entries[done..count.min(done + piece)];
            let Run { pages, decoder } = &mut *self.run;
            match engine.space.demote_run(entries, decoder, &mut pages[..entries.len()], self.below.devices) {
                Ok(pages) => {
                    demoted.pages += pages;
                    done += entries.len();
                }
                Err(WriteError::NoSlots | WriteError::OrderNotTaken)
                    if self.below.pieces == Pieces::Any && piece > 1 =>
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
    /// Demotes up to about `most` pages, the oldest first, and no more than a run of them while somebody waits for the evictor's look
    /// at the mappings. Evictor only, under the gate. Cost: some nanoseconds for each page word that the hand passes, of at most 32 MiB
    /// of the program; about 6 µs for a page that is demoted.
    pub(crate) fn demote(&self, demotion: &mut Demotion, most: u64, below: Below) -> Demoted {
        let mut demoted = Demoted::default();
        let Some(oldest) = self.space.ages().oldest() else { return demoted };
        if demotion.up_to.is_older_than(oldest) {
            demotion.up_to = oldest;
        }
        let Some(run) = self.demotion_room() else { return demoted };
        let mut collected = Collected { entries: [None; RUN_PAGES], count: 0, run, below };
        let together = RUN_PAGES.min(most as usize);
        let (mut blocks, mut hand, up_to) = (0, 0, demotion.up_to);
        self.table.for_blocks_while(demotion.hand, 1 << 47, |base, block| {
            hand = base;
            if demoted.pages + collected.count as u64 >= most || blocks == BLOCKS_AT_ONCE {
                return ControlFlow::Break(());
            }
            blocks += 1;
            for index in 0..BLOCK / PAGE {
                if let PageState::Stored(entry) = block.word(index).state()
                    && self.space.generation(entry).is_some_and(|age| !up_to.is_older_than(age))
                {
                    collected.entries[collected.count] = Some(entry);
                    collected.count += 1;
                    if collected.count == together {
                        collected.flush(self, &mut demoted)?;
                        if demoted.pages >= most || self.scan_wanted.load(Relaxed) != 0 {
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

    /// The evictor's room for the pages of a run, for who has another use for it while nothing is demoted.
    pub(crate) fn run_room(&self) -> Option<&'static mut [Page]> {
        self.demotion_room().map(|run| &mut run.pages[..])
    }

    /// The evictor's room for a run; `None` without memory. It becomes resident when it is used, and a forked child inherits it.
    fn demotion_room(&self) -> Option<&'static mut Run> {
        let mut room = self.arena.room(&self.demotion_room)?;
        // SAFETY: all-zero is a valid run; it is the evictor's alone, and its only caller ends the use before the next.
        Some(unsafe { room.as_mut() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory;
    use folioswap_group::devices::{DeviceDescription, DeviceIo, DeviceKind};
    use folioswap_slots::DeviceId;
    use std::os::fd::AsRawFd;
    use std::vec::Vec;

    const PROGRAM: usize = 0x7000_0000_0000;
    const FILE: DeviceId = DeviceId::new(0).unwrap();
    const CLUSTERS: u32 = 4;
    const BELOW: Below = Below { devices: DeviceMask::only(FILE), pieces: Pieces::Whole };

    /// An engine with a file, none of whose clusters it has yet.
    fn engine() -> (&'static Engine, std::fs::File) {
        let engine = test_memory::engine();
        let descriptor = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
        let description = DeviceDescription { kind, priority: 0, io, first_cluster: 0, clusters: CLUSTERS };
        engine.space.shared_devices().set(FILE, description, descriptor.as_raw_fd());
        (engine, descriptor.into())
    }

    fn grant(engine: &Engine) {
        engine.space.file_space().add((0..CLUSTERS).map(|number| (number, FILE)));
    }

    /// Stores pages at these places of the program (in pages), in this order.
    fn store(engine: &Engine, places: impl IntoIterator<Item = usize>) -> Vec<SwapEntry> {
        let stored = |place: usize| {
            let mut page = [0; PAGE];
            page[..8].copy_from_slice(&(place + 1).to_le_bytes());
            test_memory::store_page(engine, PROGRAM + place * PAGE, &page)
        };
        places.into_iter().map(stored).collect()
    }

    fn are_on_file(engine: &Engine, entries: &[SwapEntry]) -> bool {
        entries.iter().all(|&entry| engine.space.is_on_file(entry))
    }

    #[test]
    fn the_oldest_goes_first_wherever_it_lies() {
        let (engine, _file) = engine();
        grant(engine);
        // The second half of the memory was stored first.
        let old = store(engine, 1024..1280);
        let new = store(engine, 0..768);
        let mut demotion = Demotion::new();
        let mut pages = 0;
        while pages < 256 {
            let demoted = engine.demote(&mut demotion, 64, BELOW);
            assert_eq!((demoted.pages, demoted.stopped), (64, None));
            pages += 64;
        }
        assert!(are_on_file(engine, &old));
        assert!(new.iter().all(|&entry| engine.space.is_in_zram(entry)));
        // Then younger ones, and at last nothing.
        for _ in 0..64 {
            pages += engine.demote(&mut demotion, 128, BELOW).pages;
        }
        assert_eq!(pages, 1024);
        assert!(are_on_file(engine, &new));
        assert_eq!(engine.demote(&mut demotion, 64, BELOW), Demoted::default());
        assert_eq!(engine.figures().counter(Counter::FilePagesOut), 1024);
    }

    #[test]
    fn it_makes_way_for_who_waits_after_a_run() {
        let (engine, _file) = engine();
        grant(engine);
        let entries = store(engine, 0..512);
        engine.scan_wanted.store(1, Relaxed);
        assert_eq!(engine.demote(&mut Demotion::new(), 512, BELOW).pages, RUN_PAGES as u64);
        assert!(are_on_file(engine, &entries[..RUN_PAGES]));
    }

    #[test]
    fn without_a_run_of_slots_it_stops_or_goes_on_in_pieces() {
        let (engine, _file) = engine();
        let entries = store(engine, 0..256);
        let mut demotion = Demotion::new();
        let stopped = Demoted { pages: 0, stopped: Some(WriteError::NoSlots) };
        assert_eq!(engine.demote(&mut demotion, 128, BELOW), stopped);
        grant(engine);
        // Every second slot is used.
        let files = engine.space.file_space();
        let slots: Vec<_> = core::iter::from_fn(|| files.allocate(1, DeviceMask::ALL)).collect();
        slots.iter().step_by(2).for_each(|&slot| files.free(slot));
        assert_eq!(engine.demote(&mut demotion, 128, BELOW), stopped);
        let pieces = Below { pieces: Pieces::Any, ..BELOW };
        assert_eq!(engine.demote(&mut demotion, 16, pieces), Demoted { pages: 16, stopped: None });
        assert!(are_on_file(engine, &entries[..16]) && !engine.space.is_on_file(entries[16]));
    }

    #[test]
    fn a_step_passes_a_bounded_part_of_the_program() {
        let (engine, _file) = engine();
        grant(engine);
        let block_pages = BLOCK / PAGE;
        let entries = store(engine, (0..BLOCKS_AT_ONCE + 1).map(|block| block * block_pages));
        let mut demotion = Demotion::new();
        assert_eq!(engine.demote(&mut demotion, 64, BELOW).pages, BLOCKS_AT_ONCE as u64);
        assert!(!engine.space.is_on_file(entries[BLOCKS_AT_ONCE]));
        assert_eq!(engine.demote(&mut demotion, 64, BELOW).pages, 1);
    }
}

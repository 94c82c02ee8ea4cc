//! Demotion: when nothing of the program is left to take and the compressed store itself fills the limit, its pages go on
//! to a shared device.
//!
//! The evictor goes round the page words; a stored page whose location is in the compressed store is read, written to a
//! slot of a shared device, and its location replaced. The entry does not change, and neither does the page word: a
//! fault that comes meanwhile finds one location or the other, under the location's lock.

use crate::engine::Engine;
use crate::staging::FOLIO_PAGES;
use core::ops::ControlFlow;
use folioswap_core::page::PageState;
use folioswap_core::page_table::{BLOCK, PAGE};
use folioswap_devices::Page;
use folioswap_group::counters::Counter;
use folioswap_slots::{DeviceMask, SwapEntry};

/// Page-aligned room for one run.
#[repr(C, align(4096))]
pub(crate) struct Run([Page; FOLIO_PAGES]);

impl Run {
    pub(crate) const fn new() -> Self {
        Run([[0; PAGE]; FOLIO_PAGES])
    }
}

/// What a round of demotion achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demoted {
    /// Pages whose bytes are on a shared device now.
    pub(crate) pages: u64,
    /// Where the next round goes on; 0 when the round came to the end.
    pub(crate) hand: usize,
    /// The shared devices have no granted room.
    pub(crate) wants_clusters: bool,
}

impl Engine {
    /// Demotes up to `most` pages to one of `devices`, beginning with the block at `hand`. Evictor only, under the gate.
    pub(crate) fn demote(&self, hand: usize, most: u64, run: &mut Run, devices: DeviceMask) -> Demoted {
        let mut demoted = Demoted { pages: 0, hand: 0, wants_clusters: false };
        let mut entries = [None; FOLIO_PAGES];
        let mut count = 0;
        let mut flush =
            |entries: &mut [Option<SwapEntry>; FOLIO_PAGES], count: &mut usize, demoted: &mut Demoted| {
                let (taken, pages) = (core::mem::take(count), &mut run.0);
                if taken == 0 {
                    return ControlFlow::Continue(());
                }
                match self.space.demote_run(&entries[..taken], &mut pages[..taken], devices) {
                    Ok(pages) => {
                        demoted.pages += pages;
                        ControlFlow::Continue(())
                    }
                    Err(_) => {
                        demoted.wants_clusters = true;
                        ControlFlow::Break(())
                    }
                }
            };
        self.table.for_blocks_while(hand, 1 << 47, |base, block| {
            demoted.hand = base;
            if demoted.pages >= most {
                return ControlFlow::Break(());
            }
            for index in 0..BLOCK / PAGE {
                if let PageState::Stored(entry) = block.word(index).state()
                    && self.space.is_in_zram(entry)
                {
                    entries[count] = Some(entry);
                    count += 1;
                    if count == FOLIO_PAGES {
                        flush(&mut entries, &mut count, &mut demoted)?;
                    }
                }
            }
            flush(&mut entries, &mut count, &mut demoted)?;
            demoted.hand = base + BLOCK;
            ControlFlow::Continue(())
        });
        self.figures().add(Counter::FilePagesOut, demoted.pages);
        if demoted.pages < most && !demoted.wants_clusters {
            demoted.hand = 0;
        }
        demoted
    }
}

//! Serving one fault: find the page, bring it back with the pages that should come along
//! (`readahead.rs`), account for it.

use crate::engine::Engine;
use crate::fault::handler::{Handler, Interruptions};
use crate::fault::queue::Fault;
use crate::kernel::uffd::Access;
use crate::units::{PAGE, PIECE_ORDER, PageAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::{FileError, FileSlot};
use folioswap_group::counters::Counter;
use folioswap_group::protocol::{Kind, Lost, Note};
use folioswap_policy::history::Window;
use folioswap_policy::page::PageState;
use folioswap_policy::page_table::Block;
use folioswap_slots::SwapEntry;
use folioswap_space::space::ReadError;

impl Engine {
    /// Why the page of this entry cannot be had.
    pub(crate) fn why_lost(&self, entry: SwapEntry, why: ReadError) -> Lost {
        let slot = self.space.file_slot(entry).map(FileSlot::raw);
        match (why, slot) {
            (ReadError::Corrupt, None) => Lost::Corrupt,
            (ReadError::Corrupt, Some(slot)) => Lost::CorruptOnDevice { slot },
            (ReadError::File(FileError::Read { errno, .. }), Some(slot)) => {
                Lost::Unreadable { slot, errno: errno.raw_os_error() as u16 }
            }
            (ReadError::File(_), Some(slot)) => Lost::Unreadable { slot, errno: 0 },
            (ReadError::File(_) | ReadError::Missing, _) => Lost::Missing,
        }
    }

    /// Counts a poisoned page of the program, or of a child that the program serves, and has the
    /// supervisor name it.
    pub(crate) fn tell_poisoned(&self, address: PageAddr, lost: Lost) {
        self.figures().add(Counter::Poisoned, 1);
        self.tell(Kind::Note, [Note::Poisoned as u64, address.raw() as u64, lost.pack()], None);
    }

    /// Counts pages that went back into the program.
    pub(crate) fn note_returned(&self, pages: u64) {
        self.counts.swapped_pages.fetch_sub(pages, Relaxed);
    }
    /// Counts pages that left the program.
    pub(crate) fn note_gone(&self, pages: u64) {
        self.counts.swapped_pages.fetch_add(pages, Relaxed);
    }
}

impl Handler {
    /// Resolves a fault of this process.
    pub(crate) fn serve(&mut self, fault: Fault) {
        let engine = self.engine;
        let address = fault.page;
        if fault.access == Access::WriteProtected {
            engine.figures().add(Counter::WriteProtectFaults, 1);
        }
        if self.pass_trigger(&fault) {
            return;
        }
        loop {
            // Messages may have been read since the fault was, by the last attempt too.
            if self.is_gone(&fault) {
                engine.userfault().wake(address.raw(), PAGE);
                return;
            }
            let Some(block) = engine.table.block_or_insert(address, engine.arena) else {
                engine.userfault().wake(address.raw(), PAGE);
                return;
            };
            if fault.access != Access::WriteProtected {
                engine.note_page_table(block, address);
            }
            let word = block.word(address.index());
            let done = match word.state() {
                // The evictor is between marking and moving: its section takes some tens of
                // microseconds.
                PageState::Isolated(_) => {
                    drop(engine.locks.moves.lock());
                    false
                }
                PageState::Clean(..) => self.serve_clean(block, address, word, fault.access),
                // The page is shared after a fork, or protected for a reason that is gone, or
                // missing itself; in the last case the thread faults anew.
                _ if fault.access == Access::WriteProtected => self.write_to_protected(block, address),
                PageState::Leaving(_) | PageState::Stored(_) => {
                    let window = self.window(block, address);
                    let resolved = self.swap_in(block, address, fault.access, window);
                    if resolved {
                        self.bring_blocks_ahead(address, fault.access, window);
                    }
                    resolved
                }
                PageState::Present(_) | PageState::Removed { .. } => {
                    let window = self.window(block, address);
                    let resolved = self.first_touch(block, address, window);
                    if resolved {
                        self.bring_blocks_ahead(address, fault.access, window);
                    }
                    resolved
                }
                // Only this thread sets these states, and it has ended each before it serves
                // another fault.
                PageState::Returning(_) | PageState::Filling => {
                    engine.userfault().wake(address.raw(), PAGE);
                    true
                }
            };
            if done {
                return;
            }
        }
    }

    /// The pages that a fault at `address`, in `block`, should bring in, as the block's history
    /// advises; in the middle of another window no more than a piece.
    fn window(&self, block: &Block, address: PageAddr) -> Window {
        let window = self.engine.window(block, address);
        match self.swapin.interruptions {
            Interruptions::Few(_) => window,
            Interruptions::None => Window { order: window.order.min(PIECE_ORDER), ..window },
        }
    }

    /// Charges this many pages, which were filled in the program one by one. They also pace the
    /// rows that leave.
    pub(crate) fn note_came(&mut self, pages: u64) {
        self.engine.member().charge_bytes.fetch_add(pages * PAGE as u64, Relaxed);
        self.engine.embedded.came(pages);
        self.pages_to_next_row = self.pages_to_next_row.saturating_sub(pages);
    }
}

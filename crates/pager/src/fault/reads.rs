//! Reads from files that go on while other faults are served.
//!
//! Where several threads of the program fault, the read for a fault whose page is on a file is
//! begun, and the fault waits in the queue; the faults behind it are served meanwhile, and reads of
//! several overlap. The pages arrive in buffers of the handler's own, and change nothing. When they
//! are there the fault is served as always (`bring.rs`), and finds the bytes here instead of asking
//! the device.
//!
//! The pages that are read ahead around a fault (`read_around.rs`) stand in such buffers too,
//! without a fault: the other pages of a read stay when one is taken, and the oldest read makes
//! space for a new one.
//!
//! A read is forgotten as soon as anything happens by which its slots may get another owner: an
//! event of the program's, a fork freeze, a page of the read that comes back by another way, a
//! stale copy that the evictor frees. The checksum is the second line.

use crate::engine::Engine;
use crate::fault::handler::Handler;
use crate::fault::queue::{Attempt, Fault};
use crate::fault::reading::{Purpose, Reading, State, Taken};
use crate::kernel::filter;
use crate::kernel::sys;
use crate::kernel::uffd::Access;
use crate::units::{PAGE, PIECE_PAGES, PageAddr, PageInBlock, Pages};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Acquire;
use folioswap_devices::read_ring::{ReadRing, RingMemory};
use folioswap_devices::{FileSlot, Page};
use folioswap_group::counters::Counter;
use folioswap_nbd::link::READS_MAX;
use folioswap_policy::page::PageState;
use folioswap_policy::readahead::SwapinReadahead;
use rustix::fd::{AsFd, BorrowedFd};

/// The most reads for faults that go on at a time.
const READS: usize = 8;

/// The most reads ahead that are kept; their pages stand behind those of the reads for faults.
const AHEAD: usize = 16;

/// The most pages of one read ahead.
pub(crate) const AHEAD_PAGES: usize = 8;

const _: () = assert!(READS + AHEAD <= READS_MAX);

/// The reads that the ring is made for: a power of two.
const RING_READS: usize = (READS + AHEAD).next_power_of_two();

/// Faults of one thread in a row after which it counts as alone.
const ALONE_FAULTS: u32 = 64;

/// How long the pages of a read are kept if its buffer is needed.
const WANTED_NS: u64 = 50_000_000;

/// Page-aligned buffers for the pages that are read.
#[repr(C, align(4096))]
struct ReadBuffers {
    for_faults: [[Page; PIECE_PAGES]; READS],
    ahead: [[Page; AHEAD_PAGES]; AHEAD],
}

/// The memory of a handler's reads.
#[repr(C)]
struct Memory {
    ring: RingMemory,
    buffers: ReadBuffers,
}

impl ReadBuffers {
    /// The pages of reading `index`.
    fn pages(&self, index: usize) -> &[Page] {
        match index.checked_sub(READS) {
            None => &self.for_faults[index],
            Some(ahead) => &self.ahead[ahead],
        }
    }
    fn pages_mut(&mut self, index: usize) -> &mut [Page] {
        match index.checked_sub(READS) {
            None => &mut self.for_faults[index],
            Some(ahead) => &mut self.ahead[ahead],
        }
    }
}

/// The means that the kernel grants for reads that overlap.
enum Means {
    /// The kernel was not asked yet.
    Unknown,
    Ring(ReadRing, &'static mut ReadBuffers),
    /// There is no ring: each read waits for its end.
    None,
}

/// The reads of one handler.
pub(crate) struct Reads {
    means: Means,
    readings: [Reading; READS + AHEAD],
    /// Chooses how much is read ahead.
    pub(crate) readahead: SwapinReadahead,
    last_thread: u32,
    /// Faults left until the threads that fault count as one.
    several: u32,
}

impl Reads {
    pub(crate) const fn new() -> Self {
        let mut readings = [Reading::free(Purpose::Fault); READS + AHEAD];
        let mut place = READS;
        while place < readings.len() {
            readings[place] = Reading::free(Purpose::Ahead);
            place += 1;
        }
        let readahead = SwapinReadahead::new();
        Reads { means: Means::Unknown, readings, readahead, last_thread: 0, several: 0 }
    }

    /// Notes that a thread faults.
    pub(crate) fn note_thread(&mut self, thread: u32) {
        if self.last_thread != thread {
            self.several = if self.last_thread == 0 { 0 } else { ALONE_FAULTS };
            self.last_thread = thread;
        } else {
            self.several = self.several.saturating_sub(1);
        }
    }

    /// Whether faults of several threads have interleaved lately.
    pub(crate) fn several_threads_fault(&self) -> bool {
        self.several > 0
    }

    /// Makes the ring now: a handler may not any more when it is confined.
    pub(crate) fn prepare(&mut self, engine: &Engine) {
        self.means = Means::of(engine);
    }

    /// A descriptor that becomes readable when a read has ended; `None` while nothing is read.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.means {
            Means::Ring(ring, _) if ring.under_way() > 0 => Some(ring.as_fd()),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn has_means(&self) -> bool {
        !matches!(self.means, Means::None)
    }

    /// Gives the ring up for good, if there is one: each read waits for its end from now on.
    /// Returns true if that has freed a descriptor.
    pub(crate) fn give_up_ring(&mut self) -> bool {
        // Reads under way may still end in the buffers, but nobody looks at those any more.
        self.forget_all();
        matches!(core::mem::replace(&mut self.means, Means::None), Means::Ring(..))
    }

    /// Takes note of the reads that have ended.
    pub(crate) fn collect(&mut self) {
        let Means::Ring(ring, _) = &mut self.means else { return };
        while let Some(ended) = ring.ended() {
            let Some(reading) = self.readings.get_mut(ended.tag as usize) else { continue };
            reading.state = match reading.state {
                State::UnderWay if ended.read == Ok(reading.count * PAGE) => State::There,
                State::UnderWay if reading.purpose == Purpose::Fault => State::Failed,
                _ => State::Free,
            };
        }
    }

    /// Forgets all reads, under way or ended: none of them is of use any more.
    pub(crate) fn forget_all(&mut self) {
        self.readings.iter_mut().for_each(Reading::forget);
    }

    /// Copies the bytes of these slots if they are there. Afterwards neither they nor anything else
    /// that was read of these slots is there.
    pub(crate) fn take(&mut self, engine: &Engine, first: FileSlot, pages: &mut [Page]) -> Option<Taken> {
        let mut taken = None;
        let stale_copies = engine.counts.stale_copies.load(Acquire);
        let Means::Ring(_, room) = &self.means else { return None };
        for (index, reading) in self.readings.iter_mut().enumerate() {
            if reading.state == State::Free || !reading.touches(first, pages.len()) {
                continue;
            }
            let is_good = reading.state == State::There && reading.stale_copies == stale_copies;
            if is_good && reading.holds(first, pages.len()) {
                let at = (first.raw() - reading.first) as usize;
                pages.copy_from_slice(&room.pages(index)[at..at + pages.len()]);
                let (purpose, awaited_ns) = (reading.purpose, reading.awaited_ns);
                let waited_since_ns = match purpose {
                    Purpose::Fault => Some(reading.began_ns),
                    Purpose::Ahead => Some(awaited_ns).filter(|&since| since != 0),
                };
                taken = Some(Taken { purpose, waited_since_ns });
            }
            reading.give_up(first, pages.len());
        }
        taken
    }

    /// How many of these slots, from the first on, can be taken from reads ahead.
    pub(crate) fn read_ahead(&self, first: FileSlot, count: usize) -> usize {
        let there = |reading: &&Reading| reading.purpose == Purpose::Ahead && reading.state == State::There;
        let most = |reading: &Reading| (1..=count).take_while(|&count| reading.holds(first, count)).count();
        self.readings.iter().filter(there).map(most).max().unwrap_or(0)
    }

    /// Whether this slot is in a buffer, or about to be, for a fault that may follow.
    pub(crate) fn is_ahead(&self, slot: FileSlot) -> bool {
        self.readings.iter().any(|reading| reading.purpose == Purpose::Ahead && reading.holds(slot, 1))
    }

    /// Begins to read ahead the `wanted` ones of at most [`AHEAD_PAGES`] consecutive slots, which
    /// were found at that count of stale copies. The oldest read ahead makes space. Returns false
    /// if there is no ring, or if all buffers are being read into.
    pub(crate) fn begin_ahead(
        &mut self,
        engine: &Engine,
        first: FileSlot,
        (count, wanted): (usize, Pages),
        stale_copies: u32,
    ) -> bool {
        let ahead = || READS..READS + AHEAD;
        let place = ahead().find(|&place| self.readings[place].state == State::Free).or_else(|| {
            ahead()
                .filter(|&place| self.readings[place].state == State::There)
                .min_by_key(|&place| self.readings[place].began_ns)
        });
        place.is_some_and(|place| self.begin_in(engine, place, first, (count, wanted), stale_copies))
    }

    /// Begins to read these slots, which were found at that count of stale copies. Returns false if
    /// there is no ring, or no free buffer.
    fn begin(&mut self, engine: &Engine, first: FileSlot, count: usize, stale_copies: u32) -> bool {
        let for_faults = &mut self.readings[..READS];
        let Some(index) = for_faults.iter().position(|reading| reading.state == State::Free) else {
            // The threads that wanted the oldest reads may be gone.
            let oldest_ns = sys::now_ns().saturating_sub(WANTED_NS);
            let ended = |reading: &&mut Reading| matches!(reading.state, State::There | State::Failed);
            let old = for_faults.iter_mut().filter(ended).filter(|reading| reading.began_ns < oldest_ns);
            old.for_each(Reading::forget);
            return false;
        };
        let begun = self.begin_in(engine, index, first, (count, Pages::MAX), stale_copies);
        if begun {
            engine.figures().add(Counter::FileReadsOverlapped, 1);
        }
        begun
    }

    /// Begins to read slots into a buffer that is free, or whose pages nobody wants any more.
    fn begin_in(
        &mut self,
        engine: &Engine,
        index: usize,
        first: FileSlot,
        (count, wanted): (usize, Pages),
        stale_copies: u32,
    ) -> bool {
        if matches!(self.means, Means::Unknown) {
            self.means = Means::of(engine);
        }
        let Means::Ring(ring, room) = &mut self.means else { return false };
        let place = NonNull::from(&mut room.pages_mut(index)[..count]).cast();
        // SAFETY: the buffers are mapped for ever, and nobody uses this reading's part of them
        // before its state says `There`.
        let begun =
            unsafe { engine.space.begin_read(ring, first, place, count * PAGE, index as u64) }.is_ok();
        if begun {
            let began_ns = sys::now_ns();
            let (state, first, purpose) = (State::UnderWay, first.raw(), self.readings[index].purpose);
            self.readings[index] =
                Reading { purpose, state, first, count, wanted, began_ns, awaited_ns: 0, stale_copies };
        }
        begun
    }
}

impl Means {
    fn of(engine: &Engine) -> Self {
        // No filter is known that lets these calls pass for the pager, and a filter may kill a
        // process that makes others.
        if filter::is_filtered() {
            return Means::None;
        }
        let Some(mut memory) = engine.arena.room::<Memory>(&engine.workspaces.reads) else {
            return Means::None;
        };
        // SAFETY: all-zero memory is valid; it is the handler's alone, which asks once. A forked
        // child's handler has a copy of its own.
        let Memory { ring, buffers } = unsafe { memory.as_mut() };
        ReadRing::new(RING_READS as u32, ring).map_or(Means::None, |ring| Means::Ring(ring, buffers))
    }
}

impl Engine {
    /// The slot on a file of the page at `address`, and the consecutive ones that would be read for
    /// a fault there.
    fn slots_to_read(&self, address: PageAddr) -> Option<(FileSlot, FileSlot, usize)> {
        let block = self.table.block(address)?;
        let index = address.index().get();
        let slot_of = |index: usize| match block.word(PageInBlock::new(index)).state() {
            PageState::Stored(entry) => self.space.file_slot(entry).map(FileSlot::raw),
            _ => None,
        };
        let own = slot_of(index)?;
        let own_slot = FileSlot::new(own)?;
        if self.space.shared_devices().is_synchronous(own_slot) {
            return None;
        }
        let window = (1usize << self.window(block, address).order).min(PIECE_PAGES);
        let first = index & !(window - 1);
        let before = (1..=index - first)
            .take_while(|&back| own >= back as u64 && slot_of(index - back) == Some(own - back as u64))
            .count();
        let after = (1..first + window - index)
            .take_while(|&ahead| slot_of(index + ahead) == Some(own + ahead as u64))
            .count();
        Some((own_slot, FileSlot::new(own - before as u64)?, before + 1 + after))
    }
}

impl Handler {
    /// Whether this fault must wait for its page to be read from a file. Begins the read where
    /// several threads fault; once, so that nobody can keep a fault waiting by having its read
    /// forgotten again and again.
    pub(crate) fn is_being_read(&mut self, fault: &Fault) -> bool {
        if fault.access == Access::WriteProtected
            || self.is_urgent(fault.thread)
            || self.queue.has_forgotten()
        {
            return false;
        }
        let stale_copies = self.engine.counts.stale_copies.load(Acquire);
        let Some((own, first, count)) = self.engine.slots_to_read(fault.page) else {
            return false;
        };
        let ahead = |reading: &&mut Reading| reading.purpose == Purpose::Ahead && reading.holds(own, 1);
        if let Some(reading) = self.reads.readings.iter_mut().find(ahead) {
            if reading.awaited_ns == 0 && reading.state == State::UnderWay {
                reading.awaited_ns = sys::now_ns();
            }
            return reading.state == State::UnderWay;
        }
        match self.reads.readings.iter().find(|reading| reading.holds(first, count)) {
            Some(reading) => reading.state == State::UnderWay,
            None => {
                fault.attempt == Attempt::First
                    && (self.reads.several_threads_fault()
                        || self.engine.space.shared_devices().is_remote(own))
                    && self.reads.begin(self.engine, first, count, stale_copies)
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! What an embedder has managed: it names ranges, and the evictor does what is to be done with them; and how much of them is resident.

use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::futex::{self, Lock, Sharing};
use crate::isolate::page_index;
use crate::pagemap;
use crate::staging::FOLIO;
use crate::sys;
use crate::uffd::Watch;
use core::ops::ControlFlow;
use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use folioswap_core::page::PageState;
use folioswap_core::page_table::{BLOCK, PAGE};
use folioswap_core::reclaim::watermarks::Watermarks;
use folioswap_group::counters::Gauge;
use rustix::io::Errno;

/// What an embedder can ask for a range of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// It is managed from now on: private anonymous memory, writable. Where it is managed already, nothing changes.
    Manage = 1,
    /// It stays resident as far as it is, or comes back, from now on.
    Keep = 2,
    /// The opposite of [`Command::Keep`].
    Release = 3,
}

const NOTHING: u32 = 0;
const DONE: u32 = 4;

/// One command at a time. All-zero: none.
#[repr(C)]
pub(crate) struct Commands {
    serialised: Lock,
    /// [`Command`] as a number, or one of the constants above; also a futex.
    state: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    errno: AtomicI32,
}

/// Between two looks at the commands' answer by who waits for it.
const LOOK_NS: u64 = 100_000_000;
/// Between two counts of what is resident, at least, and how many times longer than the last one took.
const COUNT_NS: u64 = 200_000_000;
const COUNT_PACE: u64 = 50;

impl Engine {
    /// Has the evictor follow a command for the whole pages of `start..end`, and waits until it did: until its present
    /// batch is over. Any thread of the embedder.
    ///
    /// # Errors
    /// Of [`Command::Manage`]: NOMEM, where the system allows no further mapping, or 16384 ranges are managed; BUSY, where another userfaultfd
    /// has the range. CHILD in a forked child, for which nobody works.
    pub fn command(&self, command: Command, start: usize, end: usize) -> Result<(), Errno> {
        if !self.is_ours() {
            return Err(Errno::CHILD);
        }
        let commands = &self.embedded.commands;
        let _one_at_a_time = commands.serialised.lock();
        commands.start.store(start, Relaxed);
        commands.end.store(end, Relaxed);
        commands.state.store(command as u32, Release);
        futex::post(&self.member().wake, Sharing::Shared);
        while commands.state.load(Acquire) != DONE {
            futex::wait(&commands.state, command as u32, LOOK_NS, Sharing::Private);
        }
        commands.state.store(NOTHING, Relaxed);
        match commands.errno.load(Relaxed) {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    /// Does what is asked. Evictor, under the gate, staging being ready or not.
    pub(crate) fn follow_command(&self) {
        let commands = &self.embedded.commands;
        let command = match commands.state.load(Acquire) {
            1 => Command::Manage,
            2 => Command::Keep,
            3 => Command::Release,
            _ => return,
        };
        let (start, end) = (commands.start.load(Relaxed), commands.end.load(Relaxed));
        let result = match command {
            Command::Manage => self.manage(start, end),
            Command::Keep | Command::Release => {
                let _guard = self.kept_lock.lock();
                // SAFETY: under its lock.
                let kept = unsafe { &mut *self.kept.get() };
                let changed = match command {
                    Command::Keep => kept.insert(start, end),
                    _ => kept.remove(start, end),
                };
                changed.map_err(|_| Errno::NOMEM)
            }
        };
        commands.errno.store(result.map_or_else(|errno| errno.raw_os_error(), |()| 0), Relaxed);
        commands.state.store(DONE, Release);
        futex::wake(&commands.state, Sharing::Private);
    }

    fn manage(&self, start: usize, end: usize) -> Result<(), Errno> {
        if !self.is_engaged() {
            return Err(Errno::NOMEM);
        }
        let _events_wait = self.move_lock.lock();
        // SAFETY: the set is used under the move lock.
        let registered = unsafe { &mut *self.registered.get() };
        self.userfault().register(start, end - start, Watch::Program)?;
        if registered.insert(start, end).is_err() {
            // SAFETY: nothing of it was ever swapped out, or it would be in the set.
            let _ = unsafe { self.userfault().unregister(start, end - start) };
            return Err(Errno::NOMEM);
        }
        Ok(())
    }

    /// Calls `touch` with each page of `start..end` that is away, in order: it touches it. Ends where the limit is near.
    pub fn for_pages_away(&self, start: usize, end: usize, mut touch: impl FnMut(usize)) {
        self.table.for_blocks_while(start, end, |first, block| {
            for address in (first.max(start)..end.min(first + BLOCK)).step_by(PAGE) {
                let state = block.word(page_index(address)).state();
                if matches!(state, PageState::Stored(_) | PageState::Leaving(_)) {
                    let bound = self.bound();
                    if bound.charge >= Watermarks::of(bound.limit).low {
                        return ControlFlow::Break(());
                    }
                    touch(address);
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Resident pages of what is managed, asked of the kernel. Cost: about 5 ns for each.
    fn count_managed(&self) -> i64 {
        let pagemap = self.descriptors.pagemap.load(Relaxed);
        let mut regions = [pagemap::EMPTY; 64];
        let (mut pages, mut from) = (0, 0);
        loop {
            let range = {
                let _events_wait = self.move_lock.lock();
                // SAFETY: the set is used under the move lock.
                unsafe { &*self.registered.get() }.next(from)
            };
            let Some(range) = range else { return pages };
            from = from.max(range.start);
            let Ok(scan) = pagemap::present(pagemap, from, range.end, &mut regions) else { return pages };
            let found = regions[..scan.regions].iter();
            pages += found.map(|region| (region.end - region.start) as i64 / PAGE as i64).sum::<i64>();
            from = if scan.end > from { scan.end } else { range.end };
        }
    }
}

impl Evictor {
    /// What an embedder's limit counts, in bytes: managed memory, what waits in staging, spare huge pages, store and tables.
    pub(crate) fn measure_managed(&mut self, now: u64) -> u64 {
        let engine = self.engine;
        let embedded = &engine.embedded;
        if now >= self.count_next_ns {
            let before = embedded.managed_pages();
            let counted = engine.count_managed();
            embedded.correct(counted - before);
            let done = sys::now_ns();
            self.count_next_ns = done + ((done - now) * COUNT_PACE).max(COUNT_NS);
        }
        // SAFETY: the evictor alone uses the ring outside of the write-back lock's sections.
        let staged = unsafe { &*engine.staging.get() }.occupied() * FOLIO as u64;
        engine.managed_bytes() + staged + engine.pool.bytes() + engine.own_bytes()
    }

    /// The gauge is what the embedder has, without the engine's own.
    pub(crate) fn publish_managed(&self) {
        self.engine.figures().set(Gauge::Resident, self.engine.managed_bytes());
    }
}

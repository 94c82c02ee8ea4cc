//! The managed memory of an embedder: it names ranges, and the evictor follows its commands about
//! them. The resident pages of these ranges are counted here.

use crate::engine::Engine;
use crate::engine::words::pages_within;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::pagemap;
use crate::kernel::uffd::Watch;
use crate::units::PAGE;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_policy::page::PageState;
use folioswap_policy::reclaim::watermarks::Watermarks;
use rustix::io::Errno;

/// The commands for a range of whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// The range is managed from now on: private anonymous memory, writable. Where it is managed
    /// already, nothing changes.
    Manage = 1,
    /// The range stays resident as far as it is, or comes back, from now on.
    Keep = 2,
    /// Undoes [`Command::Keep`].
    Release = 3,
}

const NOTHING: u32 = 0;

const DUPLICATE: u32 = 4;

const DONE: u32 = 5;

/// Time between two looks of a waiting thread at the answer to its command.
const LOOK_NS: u64 = 100_000_000;

/// The same for a command that the evictor may have put off, because it has to wait for the
/// handler.
const LOOK_AGAIN_NS: u64 = 1_000_000;

impl Engine {
    /// Makes the evictor follow a command for the whole pages of `start..end`, and waits until
    /// it did: until its present batch is over. Any thread of the embedder may call it.
    ///
    /// # Errors
    /// From [`Command::Manage`]: NOMEM, where the system allows no further mapping, or 65536 ranges
    /// are managed; BUSY, where another userfaultfd has the range. CHILD in a forked child, which
    /// has no evictor.
    pub fn command(&self, command: Command, start: usize, end: usize) -> Result<(), Errno> {
        self.ask(command as u32, start, end, 0).map(|_| ())
    }

    /// Makes the managed memory from `target` on, which was never touched, a copy-on-write
    /// duplicate of the `bytes` from `source` on; all are multiples of the page size. Any thread of
    /// the embedder may call it.
    ///
    /// Stored pages are held once more, pages in memory are copied, whatever the limit; a page that
    /// changes meanwhile is copied as it was at some moment. Returns how many bytes were done, from
    /// the first on: a page on its way to or from a device ends the call, which must then be made
    /// again for the rest.
    ///
    /// Cost: 0.1 µs for a page that is stored. Up to 16 MiB are done at a time, and faults wait as
    /// long.
    ///
    /// # Errors
    /// NOMEM: the system has no memory for a table or a page; the bytes done so far stay. CHILD in
    /// a forked child.
    pub fn duplicate(&self, source: usize, target: usize, bytes: usize) -> Result<usize, Errno> {
        self.ask(DUPLICATE, source, source + bytes, target)
    }

    /// Leaves a command for the evictor and waits for the answer.
    fn ask(&self, command: u32, start: usize, end: usize, target: usize) -> Result<usize, Errno> {
        if !self.is_ours() {
            return Err(Errno::CHILD);
        }
        let commands = &self.embedded.commands;
        let _one_at_a_time = commands.serialised.lock();
        commands.start.store(start, Relaxed);
        commands.end.store(end, Relaxed);
        commands.target.store(target, Relaxed);
        commands.state.store(command, Release);
        self.wake_evictor();
        let look_ns = if command == DUPLICATE { LOOK_AGAIN_NS } else { LOOK_NS };
        while commands.state.load(Acquire) != DONE {
            futex::wait(&commands.state, command, look_ns, Sharing::Private);
            if command == DUPLICATE && commands.state.load(Acquire) == DUPLICATE {
                self.wake_evictor();
            }
        }
        commands.state.store(NOTHING, Relaxed);
        match commands.errno.load(Relaxed) {
            0 => Ok(commands.target.load(Relaxed)),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    /// Follows a command. Called by the evictor under the gate, whether staging is ready or not.
    pub(crate) fn follow_command(&self) {
        let commands = &self.embedded.commands;
        let command = commands.state.load(Acquire);
        let (start, end) = (commands.start.load(Relaxed), commands.end.load(Relaxed));
        let result = match command {
            1 => self.manage(start, end),
            2 => self.keep(Command::Keep, start, end),
            3 => self.keep(Command::Release, start, end),
            DUPLICATE => {
                // The command is put off where the handler does not make way: it may wait for
                // memory, that is, for the evictor.
                let Some(_handler_waits) = self.handler_outside() else { return };
                let (done, result) = self.duplicate_step(start, commands.target.load(Relaxed), end - start);
                commands.target.store(done, Relaxed);
                result
            }
            _ => return,
        };
        commands.errno.store(result.map_or_else(|errno| errno.raw_os_error(), |()| 0), Relaxed);
        commands.state.store(DONE, Release);
        futex::wake(&commands.state, Sharing::Private);
    }

    fn keep(&self, command: Command, start: usize, end: usize) -> Result<(), Errno> {
        let _guard = self.locks.kept.lock();
        let kept = &self.said.kept;
        let changed = match command {
            Command::Keep => kept.insert(start, end),
            _ => kept.remove(start, end),
        };
        changed.map_err(|_| Errno::NOMEM)
    }

    fn manage(&self, start: usize, end: usize) -> Result<(), Errno> {
        if !self.is_engaged() {
            return Err(Errno::NOMEM);
        }
        let _events_wait = self.locks.moves.lock();
        let registered = &self.mappings.registered;
        self.userfault().register(start, end - start, Watch::Program)?;
        if registered.insert(start, end).is_err() {
            // SAFETY: no page of it was ever swapped out, or the range would be in the set.
            let _ = unsafe { self.userfault().unregister(start, end - start) };
            return Err(Errno::NOMEM);
        }
        Ok(())
    }

    /// Calls `touch` with each page of `start..end` that is away or on its way back, in order;
    /// `touch` touches the page and so waits for it. Ends where the limit is near.
    pub fn for_pages_away(&self, start: usize, end: usize, mut touch: impl FnMut(usize)) {
        self.table.for_blocks_while(start, end, |first, block| {
            for index in pages_within(first, start, end) {
                let state = block.word(index).state();
                if matches!(state, PageState::Stored(_) | PageState::Leaving(_) | PageState::Returning(_)) {
                    let bound = self.bound();
                    if bound.charge >= Watermarks::of(bound.limit).low {
                        return ControlFlow::Break(());
                    }
                    touch(first.page(index).raw());
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Returns the number of resident managed pages, asked of the kernel. Cost: about 5 ns for
    /// each.
    pub(crate) fn count_managed(&self) -> i64 {
        let pagemap = self.descriptors.pagemap.load(Relaxed);
        let mut regions = [pagemap::EMPTY; 64];
        let (mut pages, mut from) = (0, 0);
        loop {
            let range = {
                let _events_wait = self.locks.moves.lock();
                self.mappings.registered.next(from)
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

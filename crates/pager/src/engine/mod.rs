//! One process's engine: everything that the pager threads share, in memory of its own.
//!
//! A forked child inherits all of it by copy-on-write at the same addresses; `Engine::reset_in_child` makes it the
//! child's.
//!
//! Locks, in the order in which they may be taken: `locks.gate`, `locks.moves`, `locks.write_back`. None is held while waiting for
//! an event to be read, and the reader of events never takes `locks.gate`.

pub mod account;
pub mod advices;
pub mod arena;
pub mod chunks;
pub mod commands;
pub mod company;
pub mod due;
pub mod embedded;
pub mod ending;
pub mod folio_sizes;
pub mod fork_state;
pub mod join;
pub mod link;
pub mod placement;
pub mod plans;
pub mod pool;
pub mod raw_tables;
pub mod requests;
pub(crate) mod ring_turn;
pub mod shares;
pub mod tracing;
pub mod words;
pub mod workingset;

use crate::engine::advices::Advices;
use crate::engine::arena::{Arena, Heirs};
use crate::engine::embedded::Embedded;
use crate::engine::fork_state::ForkState;
use crate::engine::placement::NO_CPU;
use crate::engine::plans::Plans;
use crate::engine::pool::Pool;
use crate::engine::raw_tables::RawTables;
use crate::engine::requests::{Request, Requests};
use crate::engine::shares::Shares;
use crate::kernel::futex::{self, Lock, Sharing};
use crate::kernel::ranges::Ranges;
use crate::kernel::thread::STACK_BYTES;
use crate::kernel::uffd::Userfault;
use crate::kernel::{pagemap, sys};
use crate::staging::ring::Staging;
use crate::units::PAGE;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use folioswap_group::counters::Figures;
use folioswap_group::segment::{CLUSTER_BYTES, Faulting, Member, Segment};
use folioswap_policy::around::Around;
use folioswap_policy::memory::Memory;
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::PageTable;
use folioswap_policy::reclaim::store_share::{Costs, Distances};
use folioswap_policy::reclaim::workingset::Workingset;
use folioswap_space::space::{NoMemory, Space};
use folioswap_trace::{Ring, Tracer};
use rustix::io::Errno;

// Zeroed memory is a table of present pages, and a cluster is what the slots room says it is.
const _: () = assert!(PageWord::PRESENT.bits() == 0);

const _: () = assert!(CLUSTER_BYTES == 512 * PAGE as u64);

/// How far the pager threads have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Life {
    /// The handler thread has not finished its preparations.
    Starting = 0,
    /// Faults are served; memory is evicted when the group is over its limit.
    Running = 1,
    /// This process could not join the group: it runs without us, and nothing of it was ever swapped out.
    Unmanaged = 2,
}

/// Longest name of a group's socket.
pub const GROUP_NAME_MAX: usize = 96;

/// Descriptors in the table of the pager threads. -1: none.
#[repr(C)]
pub struct Descriptors {
    pub(crate) userfault: AtomicI32,
    pub(crate) maps: AtomicI32,
    pub(crate) pagemap: AtomicI32,
    pub(crate) statm: AtomicI32,
    pub(crate) control: AtomicI32,
}

impl Descriptors {
    fn forget(&self) {
        let Descriptors { userfault, maps, pagemap, statm, control } = self;
        for place in [userfault, maps, pagemap, statm, control] {
            place.store(-1, Relaxed);
        }
    }
}

/// The locks of an engine, in the order in which they may be taken: `gate`, `serve`, `moves`, `write_back`, `kept`.
///
/// None is held while waiting for an event to be read, and the reader of events never takes `gate`.
#[repr(C)]
pub struct Locks {
    /// Held by the evictor for a batch, and by a fork from its preparation until the child is on its own.
    pub(crate) gate: Lock,
    /// Held around isolate + move, and around the reading and processing of events: a move happens either wholly
    /// before an event or sees its effects.
    pub(crate) moves: Lock,
    /// Held while a berth of staging is written back, or while the reader of events takes its pages over.
    pub(crate) write_back: Lock,
    /// Held by the handler thread for a round of messages: its holder knows that the handler changes nothing.
    pub(crate) serve: Lock,
    /// Protects [`Said`]. Taken by the pager threads alone.
    pub(crate) kept: Lock,
}

impl Locks {
    /// Opens all of them, whoever held them. In a forked child, before any other thread exists in it.
    fn reset(&self) {
        let Locks { gate, moves, write_back, serve, kept } = self;
        for lock in [gate, moves, write_back, serve, kept] {
            lock.reset();
        }
    }
}

/// The two pager threads of a process.
#[repr(C)]
pub struct Threads {
    /// The evictor's thread id: its own faults never wait for memory.
    pub(crate) evictor: AtomicU32,
    /// The handler's thread id.
    pub(crate) handler: AtomicU32,
    pub(crate) handler_stack: AtomicUsize,
    pub(crate) evictor_stack: AtomicUsize,
    /// The CPU of the thread whose faults the handler serves there; `NO_CPU` when it follows none.
    pub(crate) faulting_cpu: AtomicU32,
    /// 1: the evictor waits for the handler's lock (a futex).
    pub(crate) evictor_waits: AtomicU32,
    /// [`Life`] as a number; also a futex.
    pub(crate) life: AtomicU32,
    /// The process that this copy of the engine belongs to; a child made by a bare clone(2) has a copy that is
    /// nobody's.
    owner: AtomicU32,
}

/// The group that the process belongs to.
#[repr(C)]
pub struct Membership {
    /// The group's segment; null until the handler has joined.
    pub(crate) segment: AtomicPtr<Segment>,
    /// The index of this process's member there.
    pub(crate) member: AtomicU32,
    pub(crate) group_name: [u8; GROUP_NAME_MAX],
    pub(crate) group_name_length: usize,
    agent_path: [u8; GROUP_NAME_MAX],
    agent_path_length: usize,
}

/// Children made by a bare clone(2), which this process serves.
#[repr(C)]
pub struct ServedChildren {
    /// How many there are now.
    pub(crate) raw: AtomicU32,
    /// Bytes of the engine's own memory that may still be shared with the youngest of them.
    pub(crate) shared_bytes: AtomicU64,
    /// The page tables of what they hold.
    pub(crate) tables: RawTables,
}

/// Addresses of work spaces that are made when they are first needed; 0 before.
#[repr(C)]
pub struct Workspaces {
    /// The evictor's, for pages that are demoted together.
    pub(crate) demotion: AtomicUsize,
    /// The evictor's, for recompression.
    pub(crate) recompression: AtomicUsize,
    /// The handler's, for pages that are read while it serves others.
    pub(crate) reads: AtomicUsize,
}

/// Where this process's allocations and frees are recorded, and with what; null without `--trace`.
#[repr(C)]
pub struct Recording {
    pub(crate) ring: AtomicPtr<Ring>,
    pub(crate) tracer: AtomicPtr<Tracer>,
}

/// What the program said of its memory. The sets are protected by [`Locks::kept`].
#[repr(C)]
pub struct Said {
    /// Ranges that must stay resident (thread control blocks, stacks).
    pub(crate) kept: UnsafeCell<Ranges>,
    /// Ranges for which it wants huge pages.
    pub(crate) huge_pages: UnsafeCell<Ranges>,
    /// Ranges for which it wants none.
    pub(crate) no_huge_pages: UnsafeCell<Ranges>,
    /// 1 once it has said either.
    pub(crate) huge_advised: AtomicU32,
}

/// The program's mappings, as far as the engine manages them.
#[repr(C)]
pub struct Mappings {
    /// The registered ranges. Protected by [`Locks::moves`].
    pub(crate) registered: UnsafeCell<Ranges>,
    /// 0 until memory is registered with userfaultfd for the first time.
    pub(crate) engaged: AtomicU32,
    /// Raised by a thread that has mapped memory and wants it looked at before it is touched.
    pub(crate) scan_wanted: AtomicU32,
    /// Counts the evictor's looks at the mappings (a futex).
    pub(crate) scans: AtomicU32,
    /// The time at which the last look ended.
    pub(crate) scanned_ns: AtomicU64,
    /// Bytes in small pieces that the program has mapped, or made accessible, since the last look began.
    pub(crate) small_mapped: AtomicUsize,
    /// Epoch of removals, a second long or longer; see [`Engine::pass_epoch`].
    pub(crate) epoch: AtomicU32,
}

/// Counts of pages and of devices.
#[repr(C)]
pub struct Counts {
    /// Pages swapped out now.
    pub(crate) swapped_pages: AtomicU64,
    /// Pages in the program's memory that keep their stored copy ([`folioswap_policy::page::PageState::Clean`]).
    pub(crate) clean_pages: AtomicU64,
    /// Devices on which space is short, as the evictor found them (`look_at_swap_space`).
    pub(crate) swap_full: AtomicU64,
    /// Devices whose pages, touched one by one, keep no copy there and go to the compressed store when they leave
    /// (`tiers.rs`).
    pub(crate) refilled_from: AtomicU32,
    /// Stored copies that the evictor has found stale and freed.
    pub(crate) stale_copies: AtomicU32,
}

/// The engine. Made once per process image by [`Engine::create`]; lives as long as the process.
pub struct Engine {
    /// Its memory.
    pub(crate) arena: &'static Arena,
    /// Page words.
    pub(crate) table: PageTable,
    /// Swap entries and the devices behind them.
    pub(crate) space: Space<'static, Arena>,
    pub(crate) locks: Locks,
    pub(crate) threads: Threads,
    pub(crate) membership: Membership,
    pub(crate) descriptors: Descriptors,
    pub(crate) mappings: Mappings,
    pub(crate) said: Said,
    pub(crate) counts: Counts,
    /// Children by a bare clone(2).
    pub(crate) children: ServedChildren,
    pub(crate) fork: ForkState,
    /// The staging ring; see [`ring_turn::RingTurn`] for who may use it.
    pub(crate) staging: UnsafeCell<Staging>,
    /// Who writes what of staging back.
    pub(crate) shares: Shares,
    /// What the handler is to take out of the program.
    pub(crate) plans: Plans,
    /// Huge pages that wait for their next use.
    pub(crate) pool: Pool,
    /// Whether it is worth bringing back what lies around a page.
    pub(crate) around: Around,
    /// How long pages that come back were away.
    pub(crate) workingset: Workingset,
    /// The same, and what it cost, for the size of the compressed store.
    pub(crate) distances: Distances,
    pub(crate) costs: Costs,
    pub(crate) requests: Requests,
    /// What the program's threads wait to have done with their memory.
    pub(crate) advices: Advices,
    /// What an embedder has said, and how far it is; all-zero where the program is not ours.
    pub(crate) embedded: Embedded,
    /// Raised by a thread of the program that ends it: every invariant is to be checked once more (a futex).
    pub(crate) validation_wanted: AtomicU32,
    pub(crate) workspaces: Workspaces,
    pub(crate) recording: Recording,
}

// SAFETY: the UnsafeCells are used under the locks named beside them (staging: by the evictor, or whoever holds
// its plan, or with `locks.write_back` held and the evictor outside its write-back).
unsafe impl Sync for Engine {}

/// The engine could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// The system gives no memory.
    NoMemory,
    /// The group's name is longer than [`GROUP_NAME_MAX`].
    NameTooLong,
}

impl Engine {
    /// Makes an engine for the calling process, to join the group of this name, loaded from this path. No thread is started, nothing is managed
    /// yet.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(group_name: &[u8], agent_path: &[u8]) -> Result<&'static Engine, CreateError> {
        Self::create_with(group_name, agent_path, Space::create)
    }

    /// The same with a swap space of the caller's choice.
    pub(crate) fn create_with(
        group_name: &[u8],
        agent_path: &[u8],
        space: impl FnOnce(&'static Arena) -> Result<Space<'static, Arena>, NoMemory>,
    ) -> Result<&'static Engine, CreateError> {
        if group_name.len().max(agent_path.len()) > GROUP_NAME_MAX {
            return Err(CreateError::NameTooLong);
        }
        let arena = Arena::create().ok_or(CreateError::NoMemory)?;
        // SAFETY: the arena is never unmapped.
        let arena: &'static Arena = unsafe { arena.as_ref() };
        let take = |bytes| arena.take(bytes).ok_or(CreateError::NoMemory);
        let place: NonNull<Engine> = take(size_of::<Engine>())?.cast();
        let handler_stack = arena.own_mapping(STACK_BYTES).ok_or(CreateError::NoMemory)?;
        let evictor_stack = arena.own_mapping(STACK_BYTES).ok_or(CreateError::NoMemory)?;
        let space = space(arena).map_err(|_| CreateError::NoMemory)?;
        let engine = place.as_ptr();
        // SAFETY: zeroed exclusive memory; all-zero is valid for every field but the references, the space and the
        // tables' constants, which are written here.
        unsafe {
            (&raw mut (*engine).arena).write(arena);
            (&raw mut (*engine).space).write(space);
            (&raw mut (*engine).table).write(PageTable::new());
            (&raw mut (*engine).membership.group_name_length).write(group_name.len());
            (&raw mut (*engine).membership.group_name)
                .cast::<u8>()
                .copy_from_nonoverlapping(group_name.as_ptr(), group_name.len());
            (&raw mut (*engine).membership.agent_path_length).write(agent_path.len());
            (&raw mut (*engine).membership.agent_path)
                .cast::<u8>()
                .copy_from_nonoverlapping(agent_path.as_ptr(), agent_path.len());
            let engine = &*engine;
            engine.own();
            engine.threads.faulting_cpu.store(NO_CPU, Relaxed);
            engine.descriptors.forget();
            engine.threads.handler_stack.store(handler_stack.as_ptr() as usize, Relaxed);
            engine.threads.evictor_stack.store(evictor_stack.as_ptr() as usize, Relaxed);
            // This much every child finds; what comes now is for those that can use it.
            arena.bequeath_to(Heirs::Nobody);
            Ok(engine)
        }
    }

    /// Makes the copy that a forked child inherited its own: locks open, no threads, no descriptors.
    ///
    /// # Safety
    /// Only in a child that fork(2) just made, before any other thread exists in it, after [`crate::fork::protocol::prepare`].
    pub(crate) unsafe fn reset_in_child(&self) {
        self.locks.reset();
        self.advices.forget();
        self.pool.forget();
        self.arena.chunks().forget_range();
        self.plans.forget();
        self.own();
        self.threads.faulting_cpu.store(NO_CPU, Relaxed);
        self.descriptors.forget();
        // The ring is the parent's; this process gets one of its own when it joins.
        self.space.set_tracer(None);
        self.threads.life.store(Life::Starting as u32, Release);
    }

    /// The group's name.
    pub fn group_name(&self) -> &[u8] {
        &self.membership.group_name[..self.membership.group_name_length]
    }
    /// The path that the agent was loaded from; empty for an embedder.
    pub fn agent_path(&self) -> &[u8] {
        &self.membership.agent_path[..self.membership.agent_path_length]
    }

    /// How far it is.
    pub fn life(&self) -> Life {
        match self.threads.life.load(Acquire) {
            1 => Life::Running,
            2 => Life::Unmanaged,
            _ => Life::Starting,
        }
    }

    /// The process's userfaultfd, for the pager threads.
    pub(crate) fn userfault(&self) -> Userfault {
        Userfault(self.descriptors.userfault.load(Relaxed))
    }

    /// The group's segment. Valid once the handler has joined the group.
    pub(crate) fn segment(&self) -> &'static Segment {
        // SAFETY: set before any caller runs, to a mapping that is never taken away.
        unsafe { &*self.membership.segment.load(Acquire) }
    }

    /// This process's place in it.
    pub(crate) fn member(&self) -> &'static Member {
        &self.segment().members[self.membership.member.load(Acquire) as usize]
    }

    /// This process's figures.
    pub(crate) fn figures(&self) -> &'static Figures {
        &self.member().figures
    }

    /// One thread of this process faults again and again, on `cpu`: the supervisor's vigil keeps other CPUs awake. Costs two loads
    /// while that is at work, a system call where it slept.
    pub(crate) fn ask_for_vigil(&self, cpu: u32) {
        let header = &self.segment().header;
        let faulting = Faulting { member: self.membership.member.load(Relaxed), cpu }.pack();
        if header.faulting.load(Relaxed) != faulting {
            header.faulting.store(faulting, Relaxed);
        }
        if header.vigil_sleeps.load(Relaxed) == 1 && header.vigil_sleeps.swap(0, AcqRel) == 1 {
            futex::wake(&header.vigil_sleeps, Sharing::Shared);
        }
    }

    /// Does another member of the group run now?
    pub(crate) fn others_are_active(&self) -> bool {
        let (segment, me) = (self.segment(), self.member());
        let is_other = |member: &&Member| !core::ptr::eq(*member, me);
        segment.live_members().filter(is_other).any(|member| member.active.load(Relaxed) != 0)
    }

    /// Is memory registered?
    pub(crate) fn is_engaged(&self) -> bool {
        self.mappings.engaged.load(Acquire) != 0
    }

    /// Waits until this process's memory is looked after (or is known not to be). Threads of the program.
    pub fn wait_until_running(&self) {
        while self.life() == Life::Starting {
            futex::wait(&self.threads.life, Life::Starting as u32, 1_000_000, Sharing::Private);
        }
    }

    /// What the kernel says now of the `pages` (up to 16) of the program from `address` on. Nothing is known without an answer.
    pub(crate) fn pages_now(&self, address: usize, pages: usize) -> pagemap::Now {
        pagemap::now(self.descriptors.pagemap.load(Relaxed), address, pages).unwrap_or_default()
    }

    /// The calling thread has panicked: the supervisor says that the pager failed.
    pub fn report_bug(&self) {
        self.report_failure(Errno::NOTRECOVERABLE);
    }

    /// No thread could be started: the process runs unmanaged.
    pub fn give_up(&self) {
        self.threads.life.store(Life::Unmanaged as u32, Release);
    }

    /// Does this copy of the engine belong to the calling process?
    pub(crate) fn is_ours(&self) -> bool {
        self.threads.owner.load(Acquire) == sys::getpid()
    }

    pub(crate) fn own(&self) {
        self.threads.owner.store(sys::getpid(), Release);
    }

    /// Keeps `start..end` of the program resident from now on (rounded outwards to pages).
    pub fn keep_resident(&self, start: usize, end: usize) {
        self.request(Request::KeepResident, start & !0xfff, end.next_multiple_of(4096));
    }

    pub(crate) fn request(&self, kind: Request, start: usize, end: usize) {
        if self.is_ours() {
            while self.life() != Life::Unmanaged && !self.requests.post(kind, start, end) {
                rustix::thread::sched_yield();
            }
        }
    }

    /// Applies what the program's threads asked for. Pager threads, or a forking thread that has stopped them.
    pub(crate) fn apply_requests(&self) {
        let _guard = self.locks.kept.lock();
        // SAFETY: under their lock. A full set can only mean sixteen thousand stacks; then a stack may be swapped.
        let kept = unsafe { &mut *self.said.kept.get() };
        // SAFETY: as above.
        let (huge, single) =
            unsafe { (&mut *self.said.huge_pages.get(), &mut *self.said.no_huge_pages.get()) };
        self.requests.take(|kind, start, end| {
            let _ = match kind {
                Request::KeepResident => kept.insert(start, end),
                Request::HugePages | Request::NoHugePages => {
                    self.said.huge_advised.store(1, Relaxed);
                    let (said, other) = if kind == Request::HugePages {
                        (&mut *huge, &mut *single)
                    } else {
                        (&mut *single, &mut *huge)
                    };
                    let _ = other.remove(start, end);
                    said.insert(start, end)
                }
            };
        });
    }
}

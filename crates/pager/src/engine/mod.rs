//! One process's engine: everything that the pager threads share, in memory of its own.
//!
//! A forked child inherits all of it by copy-on-write at the same addresses;
//! `Engine::reset_in_child` makes it the child's.
//!
//! | file | concept |
//! |---|---|
//! | `locks` | the locks, and their order |
//! | `threads`, `placement`, `company`, `due` | the two pager threads: life, CPUs, pace |
//! | `program_process` | the program's process: its end, its exec, and ending it |
//! | `confinement` | what a pager that is a process may do |
//! | `membership`, `link`, `join`, `account` | the group: its memories, its protocol, the charge |
//! | `mappings`, `requests`, `advices`, `demand`, `folio_sizes` | the program's memory |
//! | `holds` | what system calls hold, where the kernel reports no faults of theirs |
//! | `arena`, `chunks`, `pool`, `workspaces` | the engine's own memory |
//! | `ring_turn`, `plans`, `shares` | who may use the staging ring, and what is handed over |
//! | `fork_state`, `raw_tables`, `words` | forks and children, as state |
//! | `embedded`, `commands` | the engine inside a program that asked for it, as state |
//! | `counts`, `course`, `descriptors`, `workingset`, `tracing`, `ending` | counts, times, refaults, ends |

pub mod account;
pub mod advices;
pub mod arena;
pub mod chunks;
pub mod commands;
pub mod company;
pub mod confinement;
pub mod counts;
pub mod course;
pub mod demand;
pub mod descriptors;
pub mod due;
pub mod embedded;
pub mod ending;
pub mod folio_sizes;
pub mod followed_exec;
pub mod fork_state;
pub mod holds;
pub mod join;
pub mod link;
pub mod locks;
pub mod mappings;
pub mod membership;
pub mod placement;
pub mod plans;
pub mod pool;
pub mod program_process;
pub mod raw_tables;
pub mod requests;
pub(crate) mod ring_turn;
pub mod shares;
pub mod threads;
pub mod tracing;
pub mod words;
pub mod workingset;
pub mod workspaces;

use self::confinement::Confinement;
use self::counts::Counts;
use self::descriptors::Descriptors;
use self::locks::Locks;
use self::mappings::{Mappings, Said};
use self::membership::{GROUP_NAME_MAX, Membership};
use self::program_process::ProgramProcess;
use self::raw_tables::ServedChildren;
use self::threads::{Life, Threads};
use self::tracing::Recording;
use self::workspaces::Workspaces;
use crate::engine::advices::Advices;
use crate::engine::arena::{Arena, Heirs};
use crate::engine::demand::Demand;
use crate::engine::embedded::Embedded;
use crate::engine::fork_state::ForkState;
use crate::engine::placement::NO_CPU;
use crate::engine::plans::Plans;
use crate::engine::pool::Pool;
use crate::engine::requests::Requests;
use crate::engine::shares::Shares;
use crate::kernel::pagemap;
use crate::kernel::thread::STACK_BYTES;
use crate::kernel::uffd::Userfault;
use crate::staging::ring::Staging;
use crate::units::{PAGE, PIECE_PAGES, PageAddr, Pages, PieceAddr};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};
use folioswap_group::segment::CLUSTER_BYTES;
use folioswap_policy::around::Around;
use folioswap_policy::memory::Memory;
use folioswap_policy::page::PageWord;
use folioswap_policy::page_table::PageTable;
use folioswap_policy::reclaim::store_share::{Costs, Distances};
use folioswap_policy::reclaim::workingset::Workingset;
use folioswap_space::space::{NoMemory, Space};
use rustix::io::Errno;

// Zeroed memory must be a table of present pages, and a cluster must have the 512 pages that the
// slots crate gives it.
const _: () = assert!(PageWord::PRESENT.bits() == 0);

const _: () = assert!(CLUSTER_BYTES == 512 * PAGE as u64);

/// The engine. Made once per process image by [`Engine::create`]; lives as long as the process.
pub struct Engine {
    /// The memory of the engine.
    pub(crate) arena: &'static Arena,
    /// Page words.
    pub(crate) table: PageTable,
    /// Swap entries and the devices behind them.
    pub(crate) space: Space<'static, Arena>,
    pub(crate) locks: Locks,
    pub(crate) threads: Threads,
    pub(crate) program_process: ProgramProcess,
    pub(crate) membership: Membership,
    pub(crate) descriptors: Descriptors,
    pub(crate) confinement: Confinement,
    pub(crate) mappings: Mappings,
    pub(crate) said: Said,
    pub(crate) counts: Counts,
    /// Children made by a bare clone(2).
    pub(crate) children: ServedChildren,
    pub(crate) fork: ForkState,
    /// The staging ring; [`ring_turn::RingTurn`] says which thread may use it.
    pub(crate) staging: UnsafeCell<Staging>,
    /// The division of a batch's write-back between the evictor and the handler.
    pub(crate) shares: Shares,
    /// The rows that the handler is to take out of the program.
    pub(crate) plans: Plans,
    /// Huge pages that wait for their next use.
    pub(crate) pool: Pool,
    /// Whether it is worth bringing back the neighbours of a page.
    pub(crate) around: Around,
    /// The time that pages were away when they come back.
    pub(crate) workingset: Workingset,
    /// The same, and the cost of it, for the size of the compressed store.
    pub(crate) distances: Distances,
    pub(crate) costs: Costs,
    pub(crate) requests: Requests,
    /// The memory that the program wants to serve by a userfaultfd of its own.
    pub(crate) demand: Demand,
    /// Advices of the program's threads, which wait to be followed.
    pub(crate) advices: Advices,
    /// The demands of an embedder, and their progress; all-zero where the program is not embedded.
    pub(crate) embedded: Embedded,
    /// Raised by a thread of the program that ends it: the evictor is to check every invariant once
    /// more (a futex).
    pub(crate) validation_wanted: AtomicU32,
    pub(crate) workspaces: Workspaces,
    pub(crate) recording: Recording,
}

// SAFETY: the UnsafeCells are used under the locks named beside them (staging: by the evictor, or
// by the holder of its plan, or with `locks.write_back` held and the evictor outside its
// write-back).
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
    /// Makes an engine for the calling process, which is to join the group of this name, loaded
    /// from this path. No thread is started yet, and no memory is managed.
    ///
    /// # Errors
    /// [`CreateError`] has the cases.
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
        // SAFETY: zeroed exclusive memory; all-zero is valid for every field but the references,
        // the space and the tables' constants, which are written here.
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
            engine.confinement.forget();
            engine.threads.handler_stack.store(handler_stack.as_ptr() as usize, Relaxed);
            engine.threads.evictor_stack.store(evictor_stack.as_ptr() as usize, Relaxed);
            // Every child finds the memory made so far; memory made from now on is for children
            // that can use it.
            arena.bequeath_to(Heirs::Nobody);
            Ok(engine)
        }
    }

    /// Makes the copy that a forked child inherited its own: locks open, no threads, no
    /// descriptors.
    ///
    /// # Safety
    /// Only in a child that fork(2) just made, before any other thread exists in it, after
    /// [`crate::fork::protocol::prepare`].
    pub(crate) unsafe fn reset_in_child(&self) {
        self.locks.reset();
        self.advices.forget();
        self.demand.forget();
        self.pool.forget();
        self.arena.chunks().forget_range();
        self.plans.forget();
        self.own();
        self.threads.faulting_cpu.store(NO_CPU, Relaxed);
        self.threads.pager.store(0, Relaxed);
        self.descriptors.forget();
        self.confinement.forget();
        // The ring of the trace is the parent's; this process gets one of its own when it joins.
        self.space.set_tracer(None);
        self.threads.life.store(Life::Starting as u32, Release);
    }

    /// The process's userfaultfd, for the pager threads.
    pub(crate) fn userfault(&self) -> Userfault {
        Userfault(self.descriptors.userfault.load(Relaxed))
    }

    /// The kernel's present view of the `pages` (up to 16) of the program from `first` on.
    /// Without an answer no page is known.
    pub(crate) fn pages_now(&self, first: PageAddr, pages: usize) -> pagemap::Now {
        pagemap::now(self.descriptors.pagemap.load(Relaxed), first.raw(), pages).unwrap_or_default()
    }

    /// The pages of a piece where the program has installed a guard (MADV_GUARD_INSTALL).
    ///
    /// # Errors
    /// The descriptor's; any page may be a guard then.
    pub(crate) fn guards_now(&self, piece: PieceAddr) -> Result<Pages, Errno> {
        let pagemap = self.descriptors.pagemap.load(Relaxed);
        pagemap::now(pagemap, piece.page(0).raw(), PIECE_PAGES).map(|now| now.guarded)
    }

    /// Reports that the calling thread has panicked: the supervisor then says that the pager
    /// failed.
    pub fn report_bug(&self) {
        self.report_failure(Errno::NOTRECOVERABLE);
    }
}

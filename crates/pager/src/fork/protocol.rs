//! The fork protocol of the C library's fork: the child reads the right contents from its first
//! instruction on.
//!
//! ```text
//! forking thread (parent) handler (parent)             forking thread (child)  handler (child)
//! prepare: gate, freeze   serves without changing
//! ... clone(2) ...        anything; logs events
//!                         reads the FORK event; sends
//!                         the child's userfaultfd to
//!                         the supervisor; serves child child: engine is reset,
//! parent: returns                                      starts its handler ---> joins by token,
//!                                                      waits                   gets userfaultfd,
//!                         stops serving the child      <----- fork_ack ------- applies the log
//!                         thaws: applies the log,      ------ fork_done -----> serves
//!                         releases the gate            returns
//! ```
//!
//! From `prepare` until the thaw the evictor stands still, and the handler changes nothing that the
//! child's copy-on-write copy of the engine contains, except the log, whose entries are complete or
//! absent. So that copy is consistent whenever the kernel takes it. A page that is served during
//! the freeze stays `Stored` (or `Leaving`) while it is present; the evictor finds such pages and
//! forgets the copy.
//!
//! A child made by a bare clone(2) has no such protocol: see `raw_child`.
//!
//! Where the system-call gate makes the forks ([`Forks::Gated`]) there is no event. The gate calls
//! [`prepare`] and [`parent`] around clone(2), whoever makes the call, and [`child`] before the
//! child runs code of the program. The child opens a userfaultfd of its own, and registers all that
//! it has inherited, before [`child`] returns; until then nothing touches memory that may be away.
//! The parent's handler announces the child by its number, and thaws at once.

use crate::engine::Engine;
use crate::engine::arena::Heirs;
pub use crate::engine::fork_state::Made;
use crate::engine::fork_state::turn::{Back, Freeze};
use crate::engine::fork_state::{FROZEN, THAWED};
use crate::engine::threads::Life;
use crate::kernel::maps::{self, MappingFilter, MappingKind};
use crate::kernel::sys;
use crate::kernel::thread::{self, Place, SignalsBlocked};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_group::decisions::Forks;
use folioswap_group::protocol::ForkToken;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

impl Engine {
    /// Adopts the child's own list of mappings, which says what it has: areas that were not
    /// inherited, and those that another thread of the parent unmapped just before the fork, are
    /// gone. All else is registered (again, which changes nothing where the kernel registered it at
    /// the fork). The program stands still meanwhile.
    ///
    /// Where calls hold what they use, all that is registered stays known, also what would not be
    /// managed today: pages of it may be away.
    ///
    /// # Errors
    /// Where forks are made by the gate: not all is registered, and the child would read zeroes.
    pub(crate) fn adopt_mappings(&self) -> Result<(), Errno> {
        self.watch_inherited()?;
        let keeps_registered = self.calls_hold();
        if !keeps_registered {
            self.mappings.registered.clear();
        }
        // SAFETY: the descriptor is in the pager threads' table and stays open.
        let file = unsafe { BorrowedFd::borrow_raw(self.descriptors.maps.load(Relaxed)) };
        let mut buffer = [0; 8192];
        let mut filter = MappingFilter::new();
        let mut end = 0;
        let _ = maps::read(file, &mut buffer, |mapping| {
            self.unmap_pages(end, mapping.start);
            end = mapping.end;
            if keeps_registered && mapping.kind == MappingKind::File {
                // It has come there since.
                self.mappings.registered.forget(mapping.start, mapping.end);
            }
            if filter.can_be_managed(mapping)
                && let Some(new) = self.register_pieces(mapping.start, mapping.end)
            {
                self.protect_zero_pages(new.start, new.end);
            }
        });
        self.unmap_pages(end, crate::units::ADDRESS_END);
        Ok(())
    }
}

/// The stack on which a thread forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The program's: its pages may be away.
    OfProgram,
    /// The gate's, which stays resident.
    OfGate,
}

/// Stops the evictor, and the handler's changes, before the C library, or the gate, forks. Called
/// by the forking thread.
pub fn prepare(engine: &Engine, stack: Stack) {
    if engine.is_ours() {
        engine.wait_until_running();
    }
    if stack == Stack::OfGate && !engine.is_ours() && engine.is_engaged() {
        // Its child would have a copy of memory that nobody registers there.
        panic!("a process that shares its parent's memory cannot fork without CAP_SYS_PTRACE");
    }
    if engine.life() == Life::Unmanaged || !engine.is_ours() {
        return;
    }
    let fork = &engine.fork;
    if fork.turn.is_out(sys::gettid()) {
        // The C library has called us for this fork, and now the gate does.
        return;
    }
    engine.end_without_pager();
    engine.forget_old_pagers();
    engine.wait_for_headroom_for_child();
    // The gate has blocked all signals already. A handler of the program's that touched memory that
    // is away, or forked, would wait for what this thread holds. Where a filter forbids the call,
    // such a signal remains a danger.
    let _no_handlers = (stack == Stack::OfProgram).then(SignalsBlocked::now);
    fork.serialised.acquire();
    fork.turn.begin(sys::gettid());
    fork.preparing.store(1, Release);
    fork.have_protected(engine);
    engine.locks.gate.acquire();
    if stack == Stack::OfProgram {
        // No page leaves any more: what is touched now stays until the end of this function.
        touch_stack();
    }
    engine.apply_requests();
    let handler_pauses = engine.locks.serve.lock();
    fork.child_seen.store(0, Relaxed);
    if !engine.is_engaged() {
        fork.turn.set_freeze(Freeze::None);
    } else {
        fork.turn.set_freeze(Freeze::Opened);
        fork.sequence.fetch_add(1, Relaxed);
        fork.log.clear();
        fork.opened_ns.store(sys::now_ns(), Relaxed);
        fork.window.store(FROZEN, Release);
    }
    // The child knows the present key, so neither process writes another page under it.
    engine.space.keys().renew();
    // Evictor and handler stand where neither makes a mapping of the arena; the child will need
    // them all.
    engine.arena.bequeath_to(Heirs::ForkedChild);
    drop(handler_pauses);
}

/// Brings in the stack pages that the next calls will use: no fault of this thread may come while
/// it holds a lock that the handler takes.
#[inline(never)]
fn touch_stack() {
    let mut pages = [0u8; 16 << 10];
    core::hint::black_box(&mut pages);
}

/// Ends the forking thread's part in the parent, after the C library, or the gate, forked (even if
/// the fork failed). Where both call it, the first call counts.
pub fn parent(engine: &Engine, made: Made) {
    let fork = &engine.fork;
    if engine.life() != Life::Running || !engine.is_ours() {
        return;
    }
    let me = sys::gettid();
    if fork.turn.is_out(me) && engine.forks() == Forks::Gated {
        fork.set_gated_child(made);
    }
    match fork.turn.come_back(me) {
        Back::Late => return,
        Back::ToEnd => {
            // The child inherits nothing that was swapped out, but shares the resident pages.
            fork.relatives.store(1, Relaxed);
            fork.end(engine);
            return;
        }
        Back::HandlerEnds => engine.ring_bell(),
    }
    // The handler ends the freeze when the child is on its own, or at once if there is none. This
    // process must not end before the supervisor has been told of the child.
    while fork.turn.waits_for_end(me) && fork.child_seen.load(Acquire) == 0 {
        rustix::thread::sched_yield();
        engine.end_without_pager();
    }
}

/// Starts the engine of a child, after the C library forked.
///
/// # Safety
/// Must be the first call in a forked child, in its only thread, after [`prepare`] in its parent.
pub unsafe fn child(engine: &'static Engine) {
    let fork = &engine.fork;
    if engine.life() != Life::Running || !fork.is_preparing() {
        return;
    }
    engine.arena.bequeath_to(Heirs::Nobody);
    let inherits = !fork.is_thawed();
    fork.inherited_token.store(if inherits { fork.token.load() } else { ForkToken::NONE });
    fork.inherited_from.store(engine.membership.member.load(Relaxed), Relaxed);
    fork.inherited_pid.store(engine.seat().pid(), Relaxed);
    fork.relatives.store(1, Relaxed);
    fork.window.store(THAWED, Relaxed);
    fork.turn.end();
    fork.preparing.store(0, Relaxed);
    fork.serialised.reset();
    // SAFETY: by contract.
    unsafe { engine.reset_in_child() };
    if start(engine).is_err() {
        if inherits {
            sys::kill_self();
        }
        engine.threads.life.store(Life::Unmanaged as u32, Release);
        return;
    }
    // The child's program may run only when its events have a reader (one that the parent read
    // would be lost) and its memory is counted.
    engine.wait_until_running();
    if inherits && engine.life() == Life::Unmanaged {
        // Its pager is gone, and with it the pages that were out at the fork.
        sys::kill_self();
    }
}

/// Starts the pager of this process, which then does all the rest.
///
/// # Errors
/// clone(2)'s.
pub fn start(engine: &'static Engine) -> Result<(), Errno> {
    // SAFETY: the stack is mapped for ever and no thread with this memory uses it.
    let pager = unsafe {
        thread::spawn(
            engine.threads.handler_stack.load(Relaxed) as *mut u8,
            crate::fault::handler::run,
            core::ptr::from_ref(engine) as usize,
            Place::Apart,
        )
    }?;
    engine.threads.pager.store(pager, Relaxed);
    Ok(())
}

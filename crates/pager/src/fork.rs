//! Fork: the child reads what it must read, from its first instruction on.
//!
//! ```text
//! forking thread (parent)          handler (parent)              forking thread (child)   handler (child)
//! prepare: gate, window opens      serves without changing
//!   ... C library, clone(2) ...    anything; logs events
//!                                  reads the FORK event, sends
//!                                  the child's userfaultfd to
//!                                  the supervisor; serves child   child: engine is reset,
//! parent: returns                                                 starts its handler ---->  joins by the token,
//!                                                                 waits                     gets its userfaultfd,
//!                                  stops serving the child  <---------- fork_ack ---------  applies the log
//!                                  closes the window, applies ---------- fork_done ------->  serves
//!                                  the log, opens the gate        returns
//! ```
//!
//! Between `prepare` and the closing of the window the evictor stands still and the handler changes nothing that the
//! child's copy-on-write copy of the engine contains, except the log, whose entries are complete or absent: so that copy
//! is consistent whenever the kernel takes it. What is served in the window stays `Stored` (or `Leaving`) while it is
//! present; the evictor finds such pages and forgets the copy.
//!
//! A child made by a bare clone(2) has no such protocol: see `raw_child`.

mod log;
mod room;
mod turn;
mod window;

use self::log::EventLog;
use self::turn::{Back, ForkTurn, Window};
pub(crate) use self::window::Whose;
use crate::arena::Heirs;
use crate::engine::{Engine, Life};
use crate::futex::{self, Lock, Sharing};
use crate::maps::{self, MappingFilter};
use crate::sys;
use crate::thread::{self, Descriptors};
use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

const SHUT: u32 = 0;
const OPEN: u32 = 1;

/// State of the fork protocol; all-zero is "no fork".
#[repr(C)]
pub(crate) struct ForkState {
    serialised: Lock,
    preparing: AtomicU32,
    turn: ForkTurn,
    window: AtomicU32,
    relatives: AtomicU32,
    /// [`Shared`] as a number.
    shared: AtomicU32,
    /// 1: the forking thread waits for the evictor to protect what will be shared (a futex).
    protection_wanted: AtomicU32,
    child_seen: AtomicU32,
    child_userfault: AtomicI32,
    sequence: AtomicU32,
    token: AtomicU64,
    opened_ns: AtomicU64,
    inherited_token: AtomicU64,
    inherited_from: AtomicU32,
    inherited_pid: AtomicU32,
    log: EventLog,
}

/// Is what this process shares with relatives write-protected?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Shared {
    /// Nothing is shared, or what is shared is protected.
    Protected = 0,
    /// Something may be shared and not protected.
    Unprotected = 1,
}

impl ForkState {
    pub(crate) fn shared(&self) -> Shared {
        match self.shared.load(Relaxed) {
            0 => Shared::Protected,
            _ => Shared::Unprotected,
        }
    }
    pub(crate) fn set_shared(&self, shared: Shared) {
        self.shared.store(shared as u32, Relaxed);
    }
    /// The thread that is forking now; 0 if none is. It never waits for memory: who is to free some waits for it.
    pub(crate) fn forking_thread(&self) -> u32 {
        self.turn.thread()
    }
    pub(crate) fn window_is_shut(&self) -> bool {
        self.window.load(Acquire) == SHUT
    }
    /// A fork waits for the handler and the evictor: nobody may wait for memory now.
    pub(crate) fn is_preparing(&self) -> bool {
        self.preparing.load(Acquire) != 0
    }
    /// Another process shares memory with this one from now on.
    pub(crate) fn gain_relative(&self, engine: &Engine) {
        self.relatives.store(1, Relaxed);
        engine.member().sharing.gain_relative();
    }
    /// Has this process forked, or is it a fork?
    pub(crate) fn has_relatives(&self) -> bool {
        self.relatives.load(Relaxed) != 0
    }

    /// Forks in which what was swapped out was inherited, those of the parents included.
    pub(crate) fn windows_opened(&self) -> u32 {
        self.sequence.load(Relaxed)
    }
    /// The token by which the supervisor knows this child; 0 if it inherited nothing.
    pub(crate) fn inherited_token(&self) -> u64 {
        self.inherited_token.load(Acquire)
    }

    /// The child has its userfaultfd: asks the parent to stop serving it, and waits until it did or is gone; then the
    /// engine is this process's alone.
    pub(crate) fn take_over(&self, engine: &Engine) {
        let parent = &engine.segment().members[self.inherited_from.load(Relaxed) as usize];
        let (token, pid) = (self.inherited_token(), self.inherited_pid.load(Relaxed));
        parent.fork_ack.store(token, Release);
        // Tokens of one parent ascend: it may have finished a later fork before we look.
        while parent.fork_done.load(Acquire) < token && parent.is_live() && parent.pid.load(Relaxed) == pid {
            rustix::thread::sched_yield();
        }
    }

    /// The fork is over for this process: everything may move again. Called once for each fork: by the handler where the window was
    /// opened, else by the forking thread.
    fn end(&self, engine: &Engine) {
        engine.arena.bequeath_to(Heirs::Nobody);
        self.turn.end();
        self.preparing.store(0, Release);
        engine.gate.release();
        self.serialised.release();
        let _ = rustix::thread::futex::wake(&self.preparing, rustix::thread::futex::Flags::PRIVATE, 1);
    }

    /// Waits until the evictor, which stands still from now on, has protected what the child will share. Forking thread.
    fn have_protected(&self, engine: &Engine) {
        if !engine.is_engaged() {
            self.set_shared(Shared::Unprotected);
            return;
        }
        self.protection_wanted.store(1, Release);
        engine.wake_evictor();
        while self.protection_wanted.load(Acquire) != 0 {
            futex::wait(&self.protection_wanted, 1, 1_000_000, Sharing::Private);
        }
    }

    /// The evictor lets a fork go first: without this it would take the gate again before the forking thread woke up.
    /// What `protect` does is done before the fork, if the fork wants it; it says whether it protected anything.
    pub(crate) fn let_pass(&self, protect: impl Fn() -> Shared) {
        while self.is_preparing() {
            if self.protection_wanted.load(Acquire) != 0 {
                if protect() == Shared::Unprotected {
                    self.set_shared(Shared::Unprotected);
                }
                self.protection_wanted.store(0, Release);
                let _ = rustix::thread::futex::wake(
                    &self.protection_wanted,
                    rustix::thread::futex::Flags::PRIVATE,
                    1,
                );
            }
            futex::wait(&self.preparing, 1, 1_000_000, Sharing::Private);
        }
    }

    /// A handler at the limit lets the forking thread have the handler's lock.
    pub(crate) fn pause(&self) {
        futex::wait(&self.preparing, 1, 50_000, Sharing::Private);
    }
}

impl Engine {
    /// What a child has and has not got is in its own list of mappings: areas that were not inherited, and those that
    /// another thread of the parent unmapped just before the fork, are gone; everything else is registered (again, which
    /// changes nothing for what the kernel registered by the fork). The program stands still meanwhile.
    fn adopt_mappings(&self) {
        // SAFETY: the set is used under the move lock, which our caller holds.
        unsafe { &mut *self.registered.get() }.clear();
        // SAFETY: the descriptor is in the pager threads' table and stays open.
        let file = unsafe { BorrowedFd::borrow_raw(self.descriptors.maps.load(Relaxed)) };
        let mut buffer = [0; 8192];
        let mut filter = MappingFilter::new();
        let mut end = 0;
        let _ = maps::read(file, &mut buffer, |mapping| {
            self.unmap_pages(end, mapping.start);
            end = mapping.end;
            if filter.can_be_managed(mapping)
                && let Some(new) = self.register_pieces(mapping.start, mapping.end)
            {
                self.protect_zero_pages(new.start, new.end);
            }
        });
        self.unmap_pages(end, 1 << 47);
    }
}

/// Before the C library forks: the evictor stands still, the handler changes nothing any more. In the forking thread.
pub fn prepare(engine: &Engine) {
    if engine.is_ours() {
        engine.wait_until_running();
    }
    if engine.life() == Life::Unmanaged || !engine.is_ours() {
        return;
    }
    engine.wait_for_room_for_child();
    let fork = &engine.fork;
    fork.serialised.acquire();
    fork.turn.begin(sys::gettid());
    fork.preparing.store(1, Release);
    fork.have_protected(engine);
    engine.gate.acquire();
    // Nothing leaves any more: what is touched now stays until the end of this function.
    touch_stack();
    engine.apply_requests();
    let handler_pauses = engine.serve_lock.lock();
    fork.child_seen.store(0, Relaxed);
    if !engine.is_engaged() {
        fork.turn.set_window(Window::None);
    } else {
        fork.turn.set_window(Window::Opened);
        let sequence = fork.sequence.fetch_add(1, Relaxed) + 1;
        fork.token.store((sys::getpid() as u64) << 32 | sequence as u64, Relaxed);
        fork.log.clear();
        fork.opened_ns.store(sys::now_ns(), Relaxed);
        fork.window.store(OPEN, Release);
    }
    // Evictor and handler are where neither makes a piece; the child will need them all.
    engine.arena.bequeath_to(Heirs::ForkedChild);
    drop(handler_pauses);
}

/// Brings the pages in that the next calls will use: no fault of this thread may come while it holds a lock that the
/// handler takes.
fn touch_stack() {
    let mut room = [0u8; 16 << 10];
    core::hint::black_box(&mut room);
}

/// After the C library forked, in the parent (also when the fork failed).
pub fn parent(engine: &Engine) {
    let fork = &engine.fork;
    if engine.life() != Life::Running || !engine.is_ours() {
        return;
    }
    let me = sys::gettid();
    match fork.turn.come_back(me) {
        Back::Late => return,
        Back::ToEnd => {
            // The child inherits nothing that was swapped out. It shares what is there.
            fork.relatives.store(1, Relaxed);
            fork.end(engine);
            return;
        }
        Back::HandlerEnds => {}
    }
    // The handler closes the window when the child is on its own, or at once if there is none. Until the supervisor has
    // been told of the child this process must not end.
    while fork.turn.waits_for_end(me) && fork.child_seen.load(Acquire) == 0 {
        rustix::thread::sched_yield();
    }
}

/// After the C library forked, in the child.
///
/// # Safety
/// Only as the first thing in a forked child, in its only thread, after [`prepare`] in its parent.
pub unsafe fn child(engine: &'static Engine) {
    let fork = &engine.fork;
    if engine.life() != Life::Running || !fork.is_preparing() {
        return;
    }
    engine.arena.bequeath_to(Heirs::Nobody);
    let inherits = !fork.window_is_shut();
    fork.inherited_token.store(if inherits { fork.token.load(Relaxed) } else { 0 }, Relaxed);
    fork.inherited_from.store(engine.member.load(Relaxed), Relaxed);
    fork.inherited_pid.store(engine.member().pid.load(Relaxed), Relaxed);
    fork.relatives.store(1, Relaxed);
    fork.window.store(SHUT, Relaxed);
    fork.turn.end();
    fork.preparing.store(0, Relaxed);
    fork.serialised.reset();
    // SAFETY: by contract.
    unsafe { engine.reset_in_child() };
    if start(engine).is_err() {
        if inherits {
            sys::kill_self();
        }
        engine.life.store(Life::Unmanaged as u32, Release);
        return;
    }
    // The child's program may run only when its events have a reader (one that the parent read would be lost) and its
    // memory is counted.
    engine.wait_until_running();
}

/// Starts the handler thread of this process, which then does all the rest.
///
/// # Errors
/// clone(2)'s.
pub fn start(engine: &'static Engine) -> Result<(), Errno> {
    // SAFETY: the stack is mapped for ever and no thread of this process uses it.
    unsafe {
        thread::spawn(
            engine.handler_stack.load(Relaxed) as *mut u8,
            crate::handler::run,
            core::ptr::from_ref(engine) as usize,
            Descriptors::Copied,
        )
    }
    .map(|_| ())
}

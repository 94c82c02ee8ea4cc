//! The state of the fork protocol (the protocol itself: `fork/protocol.rs`).

use crate::engine::Engine;
use crate::engine::arena::Heirs;
use crate::engine::fork_state::log::EventLog;
use crate::engine::fork_state::token::TokenCell;
use crate::engine::fork_state::turn::ForkTurn;
use crate::kernel::futex::{self, Lock, Sharing};
use crate::kernel::sys;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use folioswap_group::protocol::ForkToken;
use rustix::io::Errno;

mod log;
mod token;

pub(crate) mod turn;

pub(crate) const THAWED: u32 = 0;

pub(crate) const FROZEN: u32 = 1;

/// A child that the C library made, in a thread before which no gate stands.
const UNKNOWN: u32 = u32::MAX;

/// What the forking thread knows of its child, which no event reports where the gate makes forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// The C library has the answer.
    Unknown,
    /// A child with this number.
    Child(u32),
    /// None: the fork failed.
    Nothing,
}

/// State of the fork protocol; all-zero is "no fork".
#[repr(C)]
pub(crate) struct ForkState {
    pub(crate) serialised: Lock,
    pub(crate) preparing: AtomicU32,
    pub(crate) turn: ForkTurn,
    pub(crate) window: AtomicU32,
    pub(crate) relatives: AtomicU32,
    /// [`Protection`] as a number.
    protection: AtomicU32,
    /// 1: the forking thread waits for the evictor to protect the memory that will be shared (a
    /// futex).
    protection_wanted: AtomicU32,
    pub(crate) child_seen: AtomicU32,
    pub(crate) child_userfault: AtomicI32,
    /// The number of the child that the gate made, or [`UNKNOWN`], until its parent's handler has
    /// announced it; 0: there is none.
    gated_child: AtomicU32,
    /// The address of a page whose removal wakes the handler; 0: there is none.
    pub(crate) bell: AtomicUsize,
    /// The number of the last fork in which swapped-out memory was inherited; those of the parents
    /// count on in their children.
    pub(crate) sequence: AtomicU32,
    /// The token of the next fork, or of the one that is under way; the handler makes it.
    pub(crate) token: TokenCell,
    pub(crate) opened_ns: AtomicU64,
    pub(crate) inherited_token: TokenCell,
    pub(crate) inherited_from: AtomicU32,
    pub(crate) inherited_pid: AtomicU32,
    pub(crate) log: EventLog,
}

/// Whether the memory that this process shares with relatives is write-protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Protection {
    /// No memory is shared, or the shared memory is protected.
    Protected = 0,
    /// Some memory may be shared and not protected.
    Unprotected = 1,
}

impl ForkState {
    pub(crate) fn protection(&self) -> Protection {
        match self.protection.load(Relaxed) {
            0 => Protection::Protected,
            _ => Protection::Unprotected,
        }
    }
    pub(crate) fn set_protection(&self, protection: Protection) {
        self.protection.store(protection as u32, Relaxed);
    }
    /// The thread that is forking now; 0 if none is. It never waits for memory, because the threads
    /// that are to free some wait for it.
    pub(crate) fn forking_thread(&self) -> u32 {
        self.turn.thread()
    }
    pub(crate) fn is_thawed(&self) -> bool {
        self.window.load(Acquire) == THAWED
    }
    /// Whether a fork waits for the handler and the evictor: no thread may wait for memory now.
    pub(crate) fn is_preparing(&self) -> bool {
        self.preparing.load(Acquire) != 0
    }
    /// Leaves it to the handler to announce the child, which the kernel does not report. Forking
    /// thread, before it comes back.
    pub(crate) fn set_gated_child(&self, made: Made) {
        let child = match made {
            Made::Unknown => UNKNOWN,
            Made::Child(number) => number,
            Made::Nothing => 0,
        };
        self.gated_child.store(child, Release);
    }

    /// Takes the child that is to be announced: its number, or 0 where that is not known.
    pub(crate) fn take_gated_child(&self) -> Option<u32> {
        match self.gated_child.swap(0, Acquire) {
            0 => None,
            UNKNOWN => Some(0),
            number => Some(number),
        }
    }

    /// Records that another process shares memory with this one from now on.
    pub(crate) fn gain_relative(&self, engine: &Engine) {
        self.relatives.store(1, Relaxed);
        engine.member().sharing.gain_relative();
    }
    /// Whether this process has forked, or is a fork.
    pub(crate) fn has_relatives(&self) -> bool {
        self.relatives.load(Relaxed) != 0
    }

    /// The number of forks in which swapped-out memory was inherited, including those of the
    /// parents.
    pub(crate) fn freezes(&self) -> u32 {
        self.sequence.load(Relaxed)
    }
    /// The token by which the supervisor knows this child; none if it inherited nothing.
    pub(crate) fn inherited_token(&self) -> ForkToken {
        self.inherited_token.load()
    }

    /// Makes the token of the next fork. Called by the handler while no fork is under way: the
    /// program's own threads may be under a filter that forbids them to ask for random bits.
    ///
    /// # Errors
    /// getrandom(2)'s.
    pub(crate) fn renew_token(&self) -> Result<(), Errno> {
        self.token.store(ForkToken::from_words(sys::random()?));
        Ok(())
    }

    /// The number of the last fork of the process `parent` (its process id in its seat) in the
    /// handshake with its child; it is no secret. A child whose parent has ended may still answer
    /// in the entry of the segment that another process has by then: its process id keeps them
    /// apart.
    pub(crate) fn handshake_of(&self, parent: u32) -> u64 {
        u64::from(parent) << 32 | u64::from(self.sequence.load(Relaxed))
    }

    /// Asks the parent to stop serving this child, which has its userfaultfd now, and waits until
    /// the parent did or is gone; then the engine belongs to this process alone.
    pub(crate) fn take_over(&self, engine: &Engine) {
        let id = self.inherited_from.load(Relaxed);
        let (Some(seat), Some(parent)) = (engine.decisions().seat(id), engine.segment().member(id)) else {
            return;
        };
        let pid = self.inherited_pid.load(Relaxed);
        // Our copy of the number is that of our own fork until we fork ourselves, which waits until
        // we are on our own.
        let number = self.handshake_of(pid);
        parent.fork_ack.store(number, Release);
        // The numbers of one parent ascend: the parent may have finished a later fork before we
        // look.
        while parent.fork_done.load(Acquire) < number && seat.is_live() && seat.pid() == pid {
            rustix::thread::sched_yield();
        }
    }

    /// Leaves the reason why this child cannot join in its parent's entry, which it has mapped
    /// since before the fork: it may have no way to the supervisor.
    pub(crate) fn tell_parents_entry(&self, engine: &Engine, why: Errno) {
        let id = self.inherited_from.load(Relaxed);
        let (Some(seat), Some(parent)) = (engine.decisions().seat(id), engine.segment().member(id)) else {
            return;
        };
        // The entry may be another process's by now.
        if !seat.is_live() || seat.pid() == self.inherited_pid.load(Relaxed) {
            parent.child_failed.store(why.raw_os_error() as u32, Relaxed);
        }
    }

    /// Ends the fork for this process: everything may move again. Called once for each fork: by the
    /// handler where the fork froze the words, else by the forking thread.
    pub(crate) fn end(&self, engine: &Engine) {
        engine.arena.bequeath_to(Heirs::Nobody);
        self.turn.end();
        self.preparing.store(0, Release);
        engine.locks.gate.release();
        self.serialised.release();
        let _ = rustix::thread::futex::wake(&self.preparing, rustix::thread::futex::Flags::PRIVATE, 1);
    }

    /// Waits until the evictor, which stands still from now on, has protected the memory that the
    /// child will share. Forking thread.
    pub(crate) fn have_protected(&self, engine: &Engine) {
        if !engine.is_engaged() {
            self.set_protection(Protection::Unprotected);
            return;
        }
        self.protection_wanted.store(1, Release);
        engine.wake_evictor();
        while self.protection_wanted.load(Acquire) != 0 {
            futex::wait(&self.protection_wanted, 1, 1_000_000, Sharing::Private);
            engine.end_without_pager();
        }
    }

    /// Has the evictor let a fork go first: without this it would take the gate again before the
    /// forking thread woke up. `protect` runs before the fork, if the fork wants it; it returns
    /// whether it protected anything.
    pub(crate) fn let_pass(&self, protect: impl Fn() -> Protection) {
        while self.is_preparing() {
            if self.protection_wanted.load(Acquire) != 0 {
                if protect() == Protection::Unprotected {
                    self.set_protection(Protection::Unprotected);
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

    /// Has a handler at the limit leave the handler's lock to the forking thread.
    pub(crate) fn pause(&self) {
        futex::wait(&self.preparing, 1, 50_000, Sharing::Private);
    }
}

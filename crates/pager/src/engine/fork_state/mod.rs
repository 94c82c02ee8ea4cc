//! The state of the fork protocol (the protocol itself: `fork/protocol.rs`).

use crate::engine::Engine;
use crate::engine::arena::Heirs;
use crate::engine::fork_state::log::EventLog;
use crate::engine::fork_state::turn::ForkTurn;
use crate::kernel::futex::{self, Lock, Sharing};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

mod log;

pub(crate) mod turn;

pub(crate) const THAWED: u32 = 0;

pub(crate) const FROZEN: u32 = 1;

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
    /// 1: the forking thread waits for the evictor to protect what will be shared (a futex).
    protection_wanted: AtomicU32,
    pub(crate) child_seen: AtomicU32,
    pub(crate) child_userfault: AtomicI32,
    pub(crate) sequence: AtomicU32,
    pub(crate) token: AtomicU64,
    pub(crate) opened_ns: AtomicU64,
    pub(crate) inherited_token: AtomicU64,
    pub(crate) inherited_from: AtomicU32,
    pub(crate) inherited_pid: AtomicU32,
    pub(crate) log: EventLog,
}

/// Is what this process shares with relatives write-protected?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Protection {
    /// Nothing is shared, or what is shared is protected.
    Protected = 0,
    /// Something may be shared and not protected.
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
    /// The thread that is forking now; 0 if none is. It never waits for memory: who is to free some waits for it.
    pub(crate) fn forking_thread(&self) -> u32 {
        self.turn.thread()
    }
    pub(crate) fn is_thawed(&self) -> bool {
        self.window.load(Acquire) == THAWED
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
    pub(crate) fn freezes(&self) -> u32 {
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
    pub(crate) fn end(&self, engine: &Engine) {
        engine.arena.bequeath_to(Heirs::Nobody);
        self.turn.end();
        self.preparing.store(0, Release);
        engine.locks.gate.release();
        self.serialised.release();
        let _ = rustix::thread::futex::wake(&self.preparing, rustix::thread::futex::Flags::PRIVATE, 1);
    }

    /// Waits until the evictor, which stands still from now on, has protected what the child will share. Forking thread.
    pub(crate) fn have_protected(&self, engine: &Engine) {
        if !engine.is_engaged() {
            self.set_protection(Protection::Unprotected);
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

    /// A handler at the limit lets the forking thread have the handler's lock.
    pub(crate) fn pause(&self) {
        futex::wait(&self.preparing, 1, 50_000, Sharing::Private);
    }
}

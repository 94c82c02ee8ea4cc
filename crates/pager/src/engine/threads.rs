//! The two pager threads of a process, and their progress.

use crate::engine::Engine;
use crate::kernel::futex::{self, Sharing};
use crate::kernel::process::{self, Child};
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// How often a thread that waits for its pager's first work looks whether there is a pager.
const START_LOOK_NS: u64 = 1_000_000_000;

/// The progress of the pager threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Life {
    /// The handler thread has not finished its preparations.
    Starting = 0,
    /// Faults are served; memory is evicted when the group is over its limit.
    Running = 1,
    /// This process could not join the group: it runs unmanaged, and none of its memory was ever
    /// swapped out.
    Unmanaged = 2,
}

/// The two pager threads of a process.
#[repr(C)]
pub struct Threads {
    /// The evictor's thread id: the evictor's own faults never wait for memory.
    pub(crate) evictor: AtomicU32,
    /// The handler's thread id.
    pub(crate) handler: AtomicU32,
    pub(crate) handler_stack: AtomicUsize,
    pub(crate) evictor_stack: AtomicUsize,
    /// The CPU of the thread whose faults the handler serves there; `NO_CPU` when the handler
    /// follows no thread.
    pub(crate) faulting_cpu: AtomicU32,
    /// 1: the evictor waits for the handler's lock (a futex).
    pub(crate) evictor_waits: AtomicU32,
    /// [`Life`] as a number; also a futex.
    pub(crate) life: AtomicU32,
    /// The process id of the pager, where it is a process of its own; 0 before it was started.
    pub(crate) pager: AtomicU32,
}

impl Engine {
    /// The progress of this process's pager threads.
    pub fn life(&self) -> Life {
        match self.threads.life.load(Acquire) {
            1 => Life::Running,
            2 => Life::Unmanaged,
            _ => Life::Starting,
        }
    }

    /// Waits until this process's memory is managed (or is known not to be). Threads of the
    /// program.
    pub fn wait_until_running(&self) {
        while self.life() == Life::Starting {
            futex::wait(&self.threads.life, Life::Starting as u32, START_LOOK_NS, Sharing::Private);
            let pager = self.threads.pager.load(Relaxed);
            if self.life() == Life::Starting && process::wait_for(pager, process::NO_WAIT) == Child::Ended {
                // It was killed, or the program has waited for it.
                self.give_up();
            }
        }
        if self.life() == Life::Unmanaged && self.is_ours() {
            self.forget_pager();
        }
    }

    /// Waits for the end of a pager that could not join, so that the program has no child that it
    /// did not make.
    fn forget_pager(&self) {
        let pager = self.threads.pager.swap(0, Relaxed);
        if pager != 0 {
            process::wait_for(pager, 0);
        }
    }

    /// Records that no thread could be started: the process runs unmanaged.
    pub fn give_up(&self) {
        self.threads.life.store(Life::Unmanaged as u32, Release);
    }
}

//! A lock and a wake-up word on futexes. They have no thread identity: another thread may release a
//! lock, which the fork protocol needs, and a forked child resets them.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use rustix::thread::futex;

const OPEN: u32 = 0;

const HELD: u32 = 1;

const WAITED_FOR: u32 = 2;

/// How often a thread looks at a lock before it sleeps: tens of microseconds, about as long as the
/// evictor holds one for a move. To sleep and be woken takes longer, and the evictor would be back
/// first.
const SPINS: u32 = 1000;

/// After this many looks the thread yields once, since the holder may wait for this very CPU.
const SPINS_BEFORE_YIELD: u32 = 100;

/// Mutual exclusion; spins for a while, then sleeps.
#[repr(C)]
pub struct Lock(AtomicU32);

/// Exclusive access. Dropping the guard releases the lock.
pub struct Guard<'a>(&'a Lock);

impl Lock {
    /// Creates an unlocked lock.
    pub const fn new() -> Self {
        Lock(AtomicU32::new(OPEN))
    }

    /// Takes the lock. Any thread may give it back, by [`Lock::release`].
    pub fn acquire(&self) {
        for spin in 0..SPINS {
            if self.0.load(Relaxed) == OPEN
                && self.0.compare_exchange_weak(OPEN, HELD, Acquire, Relaxed).is_ok()
            {
                return;
            }
            if spin == SPINS_BEFORE_YIELD {
                rustix::thread::sched_yield();
            }
            core::hint::spin_loop();
        }
        while self.0.swap(WAITED_FOR, Acquire) != OPEN {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, WAITED_FOR, None);
        }
    }

    /// Releases the lock.
    pub fn release(&self) {
        if self.0.swap(OPEN, Release) == WAITED_FOR {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }

    /// Takes the lock for a scope.
    pub fn lock(&self) -> Guard<'_> {
        self.acquire();
        Guard(self)
    }

    /// Takes the lock for a scope if it is open.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        self.0.compare_exchange(OPEN, HELD, Acquire, Relaxed).ok().map(|_| Guard(self))
    }

    /// Releases the lock whatever its state. For a forked child, in which no other thread runs.
    pub fn reset(&self) {
        self.0.store(OPEN, Release);
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Whether the waiters of a word all belong to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Private memory.
    Private,
    /// The group's segment.
    Shared,
}

impl Sharing {
    const fn flags(self) -> futex::Flags {
        match self {
            Sharing::Private => futex::Flags::PRIVATE,
            Sharing::Shared => futex::Flags::empty(),
        }
    }
}

/// Sleeps while `word` is `value`, at most `timeout_ns`.
pub fn wait(word: &AtomicU32, value: u32, timeout_ns: u64, sharing: Sharing) {
    let timeout = futex::Timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as _,
        tv_nsec: (timeout_ns % 1_000_000_000) as _,
    };
    let _ = futex::wait(word, sharing.flags(), value, Some(&timeout));
}

/// Changes `word` and wakes all threads that sleep on it.
pub fn post(word: &AtomicU32, sharing: Sharing) {
    word.fetch_add(1, Release);
    wake(word, sharing);
}

/// Wakes all threads that sleep on a word that was changed.
pub fn wake(word: &AtomicU32, sharing: Sharing) {
    let _ = futex::wake(word, sharing.flags(), i32::MAX as u32);
}

//! The lock of rewriting. Its holder has all signals blocked, so it is never interrupted by code
//! that could want it too.

use crate::kernel::give_way;
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A word of its own: nothing else is kept over a fork in it.
static LOCK: AtomicU32 = AtomicU32::new(FREE);
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Somebody has waited in vain: its holder is gone, and nobody waits again.
const LOST: u32 = 2;

/// Looks before a bounded wait ends, with others let run at each sixty-fourth: half a second and
/// more. A holder needs some 50 microseconds; only the death of a vfork's child within them lets
/// others wait in vain.
const LOOKS: u32 = 1 << 24;

/// How long to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    Bounded,
}

/// The lock, held.
pub(super) struct Held(());

impl Held {
    pub(super) fn wait(patience: Patience) -> Option<Held> {
        let looks = match patience {
            Patience::None => 1,
            Patience::Bounded => LOOKS,
        };
        for look in 0..looks {
            match LOCK.load(Relaxed) {
                FREE if LOCK.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() => return Some(Held(())),
                LOST => return None,
                _ => {}
            }
            if look % 64 == 63 {
                give_way();
            }
            core::hint::spin_loop();
        }
        if patience == Patience::Bounded {
            let _ = LOCK.compare_exchange(HELD, LOST, Relaxed, Relaxed);
        }
        None
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        LOCK.store(FREE, Release);
    }
}

/// Takes the lock before memory is copied, so that the child finds no site half written. The word
/// is for [`release_after_fork`].
pub(crate) fn hold_over_fork() -> u64 {
    Held::wait(Patience::Bounded).map_or(0, |held| {
        core::mem::forget(held);
        1
    })
}

/// Frees the lock in the parent, if it was taken.
pub(crate) fn release_after_fork(held: u64) {
    if held != 0 {
        LOCK.store(FREE, Release);
    }
}

/// Frees the lock in the child, which is alone.
pub(crate) fn free_after_fork() {
    LOCK.store(FREE, Release);
    super::mapped::forget_other_threads();
}

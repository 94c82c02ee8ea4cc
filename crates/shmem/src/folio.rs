//! Folios: the state of each, and their locks.
//!
//! There is a [`Folio`] for each frame; that of a folio's first frame is the folio's. They stay
//! where they are for ever. A thread that has read a frame number from a map may therefore lock it,
//! no matter what became of the frame meanwhile, and then check that the map still says so. Only
//! the holder of a folio's exclusive lock takes it out of the map and frees its frames.

use crate::mapping::Mapping;
use crate::sync::{
    AcqRel, Acquire, AtomicU32, AtomicU64, Condvar, Mutex, Relaxed, Release, SPINS, lock, spin_loop,
};
use folioswap_slots::{Order, SwapEntry};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

#[cfg(test)]
#[path = "folio/tests.rs"]
mod tests;

const EXCLUSIVE: u32 = 1 << 31;
const WAITERS: u32 = 1 << 30;
/// A thread waits for the exclusive lock: readers that come now let it pass, for [`PATIENCE`].
const EXCLUSIVE_WAITS: u32 = 1 << 29;
const READERS: u32 = EXCLUSIVE_WAITS - 1;
/// How long a reader waits for a thread that itself waits for other readers. Not for ever, because
/// one of those readers may be this thread, which then would never leave.
const PATIENCE: Duration = Duration::from_millis(1);
/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// State of a folio; in the frames after its first, nothing. All-zero is a frame that was never
/// used.
#[repr(C)]
pub(crate) struct Folio {
    /// Exclusive, or the number of readers; whether a thread sleeps, and whether one waits for the
    /// exclusive lock.
    state: AtomicU32,
    /// Order (bits 0-3) and [flags](flag). Changed by the exclusive holder, except REFERENCED.
    flags: AtomicU32,
    /// Neighbours on a list of reclaim, or of free frames: changed under the list's lock.
    pub(crate) previous: AtomicU32,
    pub(crate) next: AtomicU32,
    /// Order and tag of a free piece. Changed under the lock of the free frames.
    pub(crate) free: AtomicU32,
    _pad: u32,
    /// The object's address; 0: the folio is in no map. Changed and used by the exclusive holder.
    pub(crate) object: AtomicU64,
    /// Index of its first page in the object.
    pub(crate) index: AtomicU64,
    /// Its first swap entry while it is in the swap cache, else 0.
    entry: AtomicU64,
}

/// Flags of a folio.
pub(crate) mod flag {
    /// The folio was used since reclaim last looked.
    pub(crate) const REFERENCED: u32 = 1 << 8;
    /// On the active list, or going there.
    pub(crate) const ACTIVE: u32 = 1 << 9;
    /// On a list of reclaim.
    pub(crate) const LISTED: u32 = 1 << 10;
    /// Its contents are valid.
    pub(crate) const UPTODATE: u32 = 1 << 11;
    /// In a map, and its swap entries, which it still has, hold the same bytes. A thread that
    /// changes the bytes gives the entries up first.
    pub(crate) const CLEAN: u32 = 1 << 13;
    /// Read ahead, and not yet asked for.
    pub(crate) const READAHEAD: u32 = 1 << 12;
}

impl Folio {
    pub(crate) fn order(&self) -> Order {
        Order::new(self.flags.load(Relaxed) & 15).unwrap_or(Order::ZERO)
    }
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }
    pub(crate) fn set(&self, flag: u32) {
        if !self.has(flag) {
            self.flags.fetch_or(flag, Relaxed);
        }
    }
    pub(crate) fn clear(&self, flag: u32) {
        if self.has(flag) {
            self.flags.fetch_and(!flag, Relaxed);
        }
    }
    pub(crate) fn entry(&self) -> Option<SwapEntry> {
        SwapEntry::from_raw(self.entry.load(Relaxed))
    }
    pub(crate) fn set_entry(&self, entry: Option<SwapEntry>) {
        self.entry.store(entry.map_or(0, SwapEntry::to_raw), Relaxed);
    }
    /// Makes it a new folio of this order with these flags, in no map and not in the swap cache.
    pub(crate) fn begin(&self, order: Order, flags: u32) {
        self.flags.store(order.index() as u32 | flags, Relaxed);
        self.object.store(0, Relaxed);
        self.index.store(0, Relaxed);
        self.set_entry(None);
    }

    /// Takes the exclusive lock if the folio is not held now.
    pub(crate) fn try_lock(&self) -> bool {
        let state = self.state.load(Relaxed);
        state & !(WAITERS | EXCLUSIVE_WAITS) == 0
            && self.state.compare_exchange(state, state | EXCLUSIVE, Acquire, Relaxed).is_ok()
    }

    /// Joins the readers, unless a thread holds the exclusive lock or waits for it.
    pub(crate) fn try_share(&self) -> bool {
        self.share_unless(EXCLUSIVE | EXCLUSIVE_WAITS)
    }

    /// Joins the readers, unless one of these bits is set.
    fn share_unless(&self, marks: u32) -> bool {
        let mut state = self.state.load(Relaxed);
        while state & marks == 0 {
            match self.state.compare_exchange(state, state + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }
}

/// Threads that wait for a folio sleep here. Many folios share one.
struct Bucket {
    asleep: Mutex<()>,
    wake: Condvar,
}

const BUCKETS: usize = 64;

/// Tries for a moment before the thread sleeps.
fn spin(mut take: impl FnMut() -> bool) -> bool {
    for _ in 0..SPINS {
        if take() {
            return true;
        }
        spin_loop();
    }
    false
}

/// The states of all frames.
pub(crate) struct Folios {
    memory: Mapping,
    count: u32,
    buckets: Box<[Bucket]>,
}

impl Folios {
    /// States for `count` frames. Cost: addresses, and memory as it is used.
    pub(crate) fn new(count: u32) -> Option<Folios> {
        let memory = Mapping::new(count as usize * size_of::<Folio>(), 4096)?.without_huge_pages();
        let bucket = |_| Bucket { asleep: Mutex::new(()), wake: Condvar::new() };
        Some(Folios { memory, count, buckets: (0..BUCKETS).map(bucket).collect() })
    }

    pub(crate) fn of(&self, frame: u32) -> &Folio {
        assert!(frame < self.count, "frame {frame} of {}", self.count);
        let first: NonNull<Folio> = self.memory.start().cast();
        // SAFETY: in range; zeroed memory is valid, and everything in it is atomic.
        unsafe { first.add(frame as usize).as_ref() }
    }

    /// Takes the exclusive lock. Sleeps while another thread holds the folio; readers that come
    /// meanwhile let this one pass, for a moment.
    pub(crate) fn lock(&self, frame: u32) {
        let folio = self.of(frame);
        if spin(|| folio.try_lock()) {
            return;
        }
        let bucket = &self.buckets[frame as usize % BUCKETS];
        let mut asleep = lock(&bucket.asleep);
        loop {
            // Set before the last attempt: a thread that unlocks after it finds the bit, and then
            // waits for this bucket's lock to wake us. The second bit stays until a thread that
            // held the lock exclusively leaves.
            folio.state.fetch_or(WAITERS | EXCLUSIVE_WAITS, AcqRel);
            if folio.try_lock() {
                return;
            }
            let state = folio.state.load(Acquire);
            if state & WAITERS != 0 && state & (EXCLUSIVE | READERS) != 0 {
                asleep = bucket.wake.wait(asleep).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }

    /// Joins the readers. Sleeps while a thread holds the exclusive lock, and for at most a moment
    /// while one only waits for it.
    pub(crate) fn share(&self, frame: u32) {
        let folio = self.of(frame);
        if spin(|| folio.try_share()) {
            return;
        }
        let bucket = &self.buckets[frame as usize % BUCKETS];
        let patient_until = Instant::now() + PATIENCE;
        let mut asleep = lock(&bucket.asleep);
        loop {
            // As in `lock`.
            folio.state.fetch_or(WAITERS, AcqRel);
            let patience = patient_until.saturating_duration_since(Instant::now());
            let taken = if patience.is_zero() { folio.share_unless(EXCLUSIVE) } else { folio.try_share() };
            if taken {
                return;
            }
            let state = folio.state.load(Acquire);
            if state & WAITERS == 0 {
                continue;
            }
            if state & EXCLUSIVE != 0 {
                asleep = bucket.wake.wait(asleep).unwrap_or_else(std::sync::PoisonError::into_inner);
            } else if state & EXCLUSIVE_WAITS != 0 && !patience.is_zero() {
                let woken = bucket.wake.wait_timeout(asleep, patience);
                asleep = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        }
    }

    /// Gives the exclusive lock back.
    pub(crate) fn unlock(&self, frame: u32) {
        let state = self.of(frame).state.fetch_and(!(EXCLUSIVE | WAITERS | EXCLUSIVE_WAITS), Release);
        debug_assert!(state & EXCLUSIVE != 0);
        self.wake_sleepers(frame, state);
    }

    /// Turns the exclusive lock into a reader's.
    pub(crate) fn downgrade(&self, frame: u32) {
        let folio = self.of(frame);
        // No reader can have come while EXCLUSIVE is set.
        folio.state.fetch_add(1, Relaxed);
        let state = folio.state.fetch_and(!(EXCLUSIVE | WAITERS | EXCLUSIVE_WAITS), Release);
        self.wake_sleepers(frame, state);
    }

    /// Leaves the readers.
    pub(crate) fn unshare(&self, frame: u32) {
        let folio = self.of(frame);
        let state = folio.state.fetch_sub(1, Release) - 1;
        debug_assert!(state & READERS != READERS);
        if state & (READERS | WAITERS) == WAITERS {
            let state = folio.state.fetch_and(!WAITERS, Release);
            self.wake_sleepers(frame, state);
        }
    }

    fn wake_sleepers(&self, frame: u32, state: u32) {
        if state & WAITERS != 0 {
            let bucket = &self.buckets[frame as usize % BUCKETS];
            drop(lock(&bucket.asleep));
            bucket.wake.notify_all();
        }
    }
}

//! Folios: what is known of each, and their locks.
//!
//! There is a [`Folio`] for each frame; that of the first frame of a folio is the folio's. They stay where they are for ever, so that
//! who has read a frame number from a map may lock it whatever became of it meanwhile, and then look whether the map still says so: a folio
//! leaves the map, and its frames are freed, only by who holds its lock exclusively.

use crate::mapping::Mapping;
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, Condvar, Mutex, Relaxed, Release, lock};
use folioswap_slots::{Order, SwapEntry};
use std::ptr::NonNull;

const EXCLUSIVE: u32 = 1 << 31;
const WAITERS: u32 = 1 << 30;
const READERS: u32 = WAITERS - 1;
/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// What is known of a folio (or, in the frames after its first, nothing). All-zero is a frame that was never used.
#[repr(C)]
pub(crate) struct Folio {
    /// Exclusive, or the number of readers; and whether somebody sleeps.
    state: AtomicU32,
    /// Order (bits 0-3) and [flags](flag). Changed by who holds the folio exclusively, but for REFERENCED.
    flags: AtomicU32,
    /// Neighbours on a list of reclaim, or of free frames: changed under the list's lock.
    pub(crate) previous: AtomicU32,
    pub(crate) next: AtomicU32,
    /// Of a free piece: its order and a mark. Changed under the lock of the free frames.
    pub(crate) free: AtomicU32,
    _pad: u32,
    /// The object's address; 0: it is in no map. Changed and used by who holds the folio exclusively.
    pub(crate) object: AtomicU64,
    /// Of its first page, in the object's pages.
    pub(crate) index: AtomicU64,
    /// Its first swap entry while it is in the swap cache, else 0.
    entry: AtomicU64,
}

/// Flags of a folio.
pub(crate) mod flag {
    /// Was used since reclaim last looked.
    pub(crate) const REFERENCED: u32 = 1 << 8;
    /// On the active list (or is to be).
    pub(crate) const ACTIVE: u32 = 1 << 9;
    /// On a list of reclaim.
    pub(crate) const LISTED: u32 = 1 << 10;
    /// Its contents are valid.
    pub(crate) const UPTODATE: u32 = 1 << 11;
    /// In a map, and its swap entries, which it still has, hold the same bytes. Whoever changes them gives the entries up first.
    pub(crate) const CLEAN: u32 = 1 << 13;
    /// Was read ahead and not yet asked for.
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
    /// A new folio of this order, in no map, not in the swap cache, with these flags.
    pub(crate) fn begin(&self, order: Order, flags: u32) {
        self.flags.store(order.index() as u32 | flags, Relaxed);
        self.object.store(0, Relaxed);
        self.index.store(0, Relaxed);
        self.set_entry(None);
    }

    /// Locks it exclusively if nobody has it now.
    pub(crate) fn try_lock(&self) -> bool {
        let state = self.state.load(Relaxed);
        state & !WAITERS == 0
            && self.state.compare_exchange(state, state | EXCLUSIVE, Acquire, Relaxed).is_ok()
    }

    /// Joins the readers if nobody has it exclusively now.
    pub(crate) fn try_share(&self) -> bool {
        let mut state = self.state.load(Relaxed);
        while state & EXCLUSIVE == 0 {
            match self.state.compare_exchange(state, state + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(found) => state = found,
            }
        }
        false
    }
}

/// Where those sleep who wait for a folio; shared by many folios.
struct Bucket {
    asleep: Mutex<()>,
    wake: Condvar,
}

const BUCKETS: usize = 64;
/// Looks at a lock before going to sleep.
const SPINS: u32 = 200;

/// All of them.
pub(crate) struct Folios {
    memory: Mapping,
    count: u32,
    buckets: Box<[Bucket]>,
}

impl Folios {
    /// For `count` frames. Costs addresses; memory as it is used.
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

    /// Locks a folio exclusively. Sleeps while somebody else has it.
    pub(crate) fn lock(&self, frame: u32) {
        self.wait(frame, Folio::try_lock);
    }

    /// Joins its readers. Sleeps while somebody has it exclusively.
    pub(crate) fn share(&self, frame: u32) {
        self.wait(frame, Folio::try_share);
    }

    fn wait(&self, frame: u32, take: fn(&Folio) -> bool) {
        let folio = self.of(frame);
        for _ in 0..SPINS {
            if take(folio) {
                return;
            }
            std::hint::spin_loop();
        }
        let bucket = &self.buckets[frame as usize % BUCKETS];
        let mut asleep = lock(&bucket.asleep);
        loop {
            // Said before the last look: who unlocks after it finds the mark, and then waits for this lock to wake us.
            folio.state.fetch_or(WAITERS, AcqRel);
            if take(folio) {
                return;
            }
            let state = folio.state.load(Acquire);
            if state & WAITERS != 0 && state & (EXCLUSIVE | READERS) != 0 {
                asleep = bucket.wake.wait(asleep).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
    }

    /// Gives an exclusive lock back.
    pub(crate) fn unlock(&self, frame: u32) {
        let state = self.of(frame).state.fetch_and(!(EXCLUSIVE | WAITERS), Release);
        debug_assert!(state & EXCLUSIVE != 0);
        self.woken(frame, state);
    }

    /// An exclusive lock becomes a reader's.
    pub(crate) fn downgrade(&self, frame: u32) {
        let folio = self.of(frame);
        // Alone with EXCLUSIVE: no reader can have come.
        folio.state.fetch_add(1, Relaxed);
        let state = folio.state.fetch_and(!(EXCLUSIVE | WAITERS), Release);
        self.woken(frame, state);
    }

    /// A reader leaves.
    pub(crate) fn unshare(&self, frame: u32) {
        let folio = self.of(frame);
        let state = folio.state.fetch_sub(1, Release) - 1;
        debug_assert!(state & READERS != READERS);
        if state & (READERS | WAITERS) == WAITERS {
            let state = folio.state.fetch_and(!WAITERS, Release);
            self.woken(frame, state);
        }
    }

    fn woken(&self, frame: u32, state: u32) {
        if state & WAITERS != 0 {
            let bucket = &self.buckets[frame as usize % BUCKETS];
            drop(lock(&bucket.asleep));
            bucket.wake.notify_all();
        }
    }
}

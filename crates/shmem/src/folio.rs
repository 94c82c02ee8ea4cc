//! Folios: what is known of each, and their locks.
//!
//! There is a [`Folio`] for each frame; that of the first frame of a folio is the folio's. They stay where they are for ever, so that
//! who has read a frame number from a map may lock it whatever became of it meanwhile, and then look whether the map still says so: a folio
//! leaves the map, and its frames are freed, only by who holds its lock exclusively.

use crate::mapping::Mapping;
use crate::sync::{
    AcqRel, Acquire, AtomicU32, AtomicU64, Condvar, Mutex, Relaxed, Release, SPINS, lock, spin_loop,
};
use folioswap_slots::{Order, SwapEntry};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

const EXCLUSIVE: u32 = 1 << 31;
const WAITERS: u32 = 1 << 30;
/// Somebody waits to have it exclusively: readers that come now let it pass, for [`PATIENCE`].
const EXCLUSIVE_WAITS: u32 = 1 << 29;
const READERS: u32 = EXCLUSIVE_WAITS - 1;
/// How long a reader waits for who waits for other readers. Not for ever: one of those may be itself, and would never leave.
const PATIENCE: Duration = Duration::from_millis(1);
/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// What is known of a folio (or, in the frames after its first, nothing). All-zero is a frame that was never used.
#[repr(C)]
pub(crate) struct Folio {
    /// Exclusive, or the number of readers; whether somebody sleeps, and whether somebody wants it exclusively.
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
        state & !(WAITERS | EXCLUSIVE_WAITS) == 0
            && self.state.compare_exchange(state, state | EXCLUSIVE, Acquire, Relaxed).is_ok()
    }

    /// Joins the readers if nobody has it exclusively now, or waits to.
    pub(crate) fn try_share(&self) -> bool {
        self.share_unless(EXCLUSIVE | EXCLUSIVE_WAITS)
    }

    /// Joins the readers if none of these marks is there.
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

/// Where those sleep who wait for a folio; shared by many folios.
struct Bucket {
    asleep: Mutex<()>,
    wake: Condvar,
}

const BUCKETS: usize = 64;

/// Tries for a moment, before there is a need to sleep.
fn spin(mut take: impl FnMut() -> bool) -> bool {
    for _ in 0..SPINS {
        if take() {
            return true;
        }
        spin_loop();
    }
    false
}

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

    /// Locks a folio exclusively. Sleeps while somebody else has it; readers that come meanwhile let it pass, for a moment.
    pub(crate) fn lock(&self, frame: u32) {
        let folio = self.of(frame);
        if spin(|| folio.try_lock()) {
            return;
        }
        let bucket = &self.buckets[frame as usize % BUCKETS];
        let mut asleep = lock(&bucket.asleep);
        loop {
            // Said before the last look: who unlocks after it finds the mark, and then waits for this lock to wake us. The second mark
            // stays until somebody who locked it exclusively leaves.
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

    /// Joins its readers. Sleeps while somebody has it exclusively, and for a moment at most while somebody only waits to.
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

    /// Gives an exclusive lock back.
    pub(crate) fn unlock(&self, frame: u32) {
        let state = self.of(frame).state.fetch_and(!(EXCLUSIVE | WAITERS | EXCLUSIVE_WAITS), Release);
        debug_assert!(state & EXCLUSIVE != 0);
        self.woken(frame, state);
    }

    /// An exclusive lock becomes a reader's.
    pub(crate) fn downgrade(&self, frame: u32) {
        let folio = self.of(frame);
        // Alone with EXCLUSIVE: no reader can have come.
        folio.state.fetch_add(1, Relaxed);
        let state = folio.state.fetch_and(!(EXCLUSIVE | WAITERS | EXCLUSIVE_WAITS), Release);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    /// Readers that come one upon the other, so that there is always one, let a writer pass.
    #[test]
    fn readers_without_end_let_a_writer_pass() {
        let (folios, passed) = (Folios::new(512).unwrap(), AtomicBool::new(false));
        let (first, second) = (1, 2);
        let began = Instant::now();
        std::thread::scope(|scope| {
            let (folios, passed) = (&folios, &passed);
            // Each has the folio until the other has it again, as long as nobody wants it for itself.
            let turn = [AtomicBool::new(false), AtomicBool::new(false)];
            let turn = std::sync::Arc::new(turn);
            for own in [first, second] {
                let turn = turn.clone();
                scope.spawn(move || {
                    while !passed.load(SeqCst) && began.elapsed() < Duration::from_secs(10) {
                        folios.share(1);
                        turn[own - 1].store(true, SeqCst);
                        turn[2 - own].store(false, SeqCst);
                        let since = Instant::now();
                        while !turn[2 - own].load(SeqCst) && since.elapsed() < PATIENCE / 2 {
                            std::thread::yield_now();
                        }
                        folios.unshare(1);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(5));
            for _ in 0..20 {
                let since = Instant::now();
                folios.lock(1);
                folios.unlock(1);
                assert!(since.elapsed() < Duration::from_secs(5));
            }
            passed.store(true, SeqCst);
        });
        assert_eq!(folios.of(1).state.load(SeqCst), 0, "no mark stays");
    }

    /// Who has it may join its readers again while somebody waits for it: it waits a moment, not for ever.
    #[test]
    fn a_reader_may_come_again_while_a_writer_waits() {
        let folios = Folios::new(512).unwrap();
        folios.share(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                folios.lock(1);
                folios.unlock(1);
            });
            while folios.of(1).state.load(SeqCst) & EXCLUSIVE_WAITS == 0 {
                std::thread::yield_now();
            }
            assert!(!folios.of(1).try_share(), "it lets the writer pass");
            let since = Instant::now();
            folios.share(1);
            assert!(since.elapsed() >= PATIENCE / 2);
            folios.unshare(1);
            folios.unshare(1);
        });
        assert_eq!(folios.of(1).state.load(SeqCst), 0, "no mark stays");
    }
}

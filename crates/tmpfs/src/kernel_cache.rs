//! Bounds the kernel's page cache of the mount: what was handed out longest ago is taken back.
//!
//! A thread of its own does it, the *invalidator*. It serves no requests, since taking back waits for what the kernel is doing with the
//! pages: for a read that we have not answered yet, or for a dirty page's way back to us. For the same reason a request that waits until there
//! is room again ([`KernelCache::hand_out`]) must never be one that the invalidator waits for:
//!
//! * a chunk that a waiting request lies in is not taken back;
//! * a request that lies in the chunk being taken back does not wait;
//! * two threads at least wait here for [`SHORT`] only, so that a dirty page always finds one that takes it.
//!
//! Besides, nobody waits longer than [`PATIENCE`]. Who goes on without room passes the bound by one request, for a moment.

use crate::account::{CHUNK_PAGES, CacheAccount, ChunkId};
use crate::inode::PAGE_SIZE;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

/// The longest that a request waits for room. (In tests long, so that who waits so long waits in a circle, and not for a busy machine.)
pub const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 10_000 } else { 200 });
/// The longest that those wait who may be needed.
pub const SHORT: Duration = Duration::from_millis(2);

/// What takes pages back from the kernel.
pub trait Invalidate: Send {
    /// Drops the pages of a file from the kernel's cache, after their changes have come to us. `length` 0: to the end.
    fn pages(&self, inode: u64, offset: u64, length: u64);
}

impl Invalidate for Notifier {
    fn pages(&self, inode: u64, offset: u64, length: u64) {
        // An error means that the kernel does not know the inode any more, or that the mount is gone.
        let _ = self.inval_inode(INodeNo(inode), offset as i64, length as i64);
    }
}

/// Something for the invalidator besides the bound: to bring all changes of a file to us, then call.
struct Flush(u64, Box<dyn FnOnce() + Send>);

/// What is being taken back at this moment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Current {
    Nothing,
    Chunk(ChunkId),
    File(u64),
}

struct Inner {
    account: CacheAccount,
    /// Chunks that waiting requests lie in, and how many of them.
    awaited: HashMap<ChunkId, u32>,
    waiting: usize,
    current: Current,
    jobs: VecDeque<Flush>,
    stopping: bool,
    /// How often the invalidator found that all that is left lies where requests wait: these then go on.
    exhausted: u64,
    taken_back: u64,
    waits: u64,
}

/// The bound on the kernel's page cache, shared by the threads that serve requests and the invalidator.
pub struct KernelCache {
    inner: Mutex<Inner>,
    /// There is something to do for the invalidator.
    work: Condvar,
    /// Something was taken back, or is about to be.
    room: Condvar,
    /// Pages that the kernel may hold.
    window: u64,
    /// Requests that may wait long at once.
    patient_max: usize,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCacheStatistics {
    /// Pages handed out and not taken back.
    pub pages: u64,
    /// Chunks taken back.
    pub taken_back: u64,
    /// Times that a request waited for room.
    pub waits: u64,
}

impl KernelCache {
    /// `window`: bytes that the kernel may hold; `threads`: how many serve requests.
    pub fn new(window: u64, threads: usize) -> Arc<Self> {
        let inner = Inner {
            account: CacheAccount::default(),
            awaited: HashMap::new(),
            waiting: 0,
            current: Current::Nothing,
            jobs: VecDeque::new(),
            stopping: false,
            exhausted: 0,
            taken_back: 0,
            waits: 0,
        };
        Arc::new(KernelCache {
            inner: Mutex::new(inner),
            work: Condvar::new(),
            room: Condvar::new(),
            window: window / PAGE_SIZE,
            patient_max: threads.saturating_sub(2),
        })
    }

    /// Notes that pages of a file go to the kernel, after waiting for room. Before the answer that carries them.
    pub fn hand_out(&self, inode: u64, pages: Range<u64>) {
        let count = pages.end - pages.start;
        let mut inner = self.inner.lock();
        let patience = if inner.waiting < self.patient_max { PATIENCE } else { SHORT };
        let deadline = Instant::now() + patience;
        let exhausted = inner.exhausted;
        while inner.account.pages() + count > self.window
            && inner.account.pages() > 0
            && !inner.stopping
            && inner.exhausted == exhausted
            && !overlaps(inner.current, inode, &pages)
        {
            inner.waits += 1;
            inner.waiting += 1;
            for id in CacheAccount::chunks_of(inode, pages.clone()) {
                *inner.awaited.entry(id).or_default() += 1;
            }
            self.work.notify_one();
            let late = self.room.wait_until(&mut inner, deadline).timed_out();
            inner.waiting -= 1;
            for id in CacheAccount::chunks_of(inode, pages.clone()) {
                if let Some(count) = inner.awaited.get_mut(&id) {
                    *count -= 1;
                    if *count == 0 {
                        inner.awaited.remove(&id);
                    }
                }
            }
            if late {
                break;
            }
        }
        inner.account.add(inode, pages);
        if inner.account.pages() > self.low() {
            self.work.notify_one();
        }
    }

    /// From here on chunks are taken back, so that requests seldom wait.
    fn low(&self) -> u64 {
        self.window - self.window / 4
    }

    /// Notes that the kernel holds no pages of a file from `page` on.
    pub fn gone(&self, inode: u64, page: u64) {
        let mut inner = self.inner.lock();
        if inner.account.knows(inode) {
            inner.account.remove_from(inode, page);
            self.room.notify_all();
        }
    }

    /// Calls `then` after the changes that the kernel has of a file's pages have come to us: in the invalidator, or here when the
    /// kernel has no pages of it.
    pub fn after_flush(&self, inode: u64, then: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner.lock();
        if inner.stopping || (!inner.account.knows(inode) && inner.current == Current::Nothing) {
            drop(inner);
            return then();
        }
        inner.jobs.push_back(Flush(inode, Box::new(then)));
        self.work.notify_one();
    }

    /// Ends the invalidator and all waiting.
    pub fn stop(&self) {
        self.inner.lock().stopping = true;
        self.work.notify_all();
        self.room.notify_all();
    }

    /// What happened so far.
    pub fn statistics(&self) -> KernelCacheStatistics {
        let inner = self.inner.lock();
        let (taken_back, waits) = (inner.taken_back, inner.waits);
        KernelCacheStatistics { pages: inner.account.pages(), taken_back, waits }
    }

    /// The invalidator: works until [`Self::stop`].
    pub fn run(&self, kernel: &dyn Invalidate) {
        let mut inner = self.inner.lock();
        loop {
            if let Some(Flush(inode, then)) = inner.jobs.pop_front() {
                // Those that wait with pages of this file go on at once.
                inner.account.remove_from(inode, 0);
                inner.current = Current::File(inode);
                self.room.notify_all();
                drop(inner);
                kernel.pages(inode, 0, 0);
                then();
                inner = self.inner.lock();
                inner.current = Current::Nothing;
                self.room.notify_all();
                continue;
            }
            if inner.stopping {
                return;
            }
            let Inner { account, awaited, .. } = &mut *inner;
            let wanted = account.pages() > self.low() || !awaited.is_empty();
            let oldest = if wanted { account.take_oldest(|id| !awaited.contains_key(&id)) } else { None };
            let Some(id) = oldest else {
                if !inner.awaited.is_empty() {
                    inner.exhausted += 1;
                    self.room.notify_all();
                }
                self.work.wait(&mut inner);
                continue;
            };
            inner.current = Current::Chunk(id);
            inner.taken_back += 1;
            drop(inner);
            kernel.pages(id.inode, id.chunk * CHUNK_PAGES * PAGE_SIZE, CHUNK_PAGES * PAGE_SIZE);
            inner = self.inner.lock();
            inner.current = Current::Nothing;
            self.room.notify_all();
        }
    }
}

fn overlaps(current: Current, inode: u64, pages: &Range<u64>) -> bool {
    match current {
        Current::Nothing => false,
        Current::File(file) => file == inode,
        Current::Chunk(id) => CacheAccount::chunks_of(inode, pages.clone()).any(|other| other == id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// A kernel that holds pages, and whose taking back waits for reads that were not answered.
    #[derive(Default)]
    struct Kernel {
        held: Mutex<HashMap<ChunkId, u64>>,
        unanswered: Mutex<HashMap<ChunkId, u32>>,
        answered: Condvar,
        slowest: AtomicU64,
    }

    impl Invalidate for Arc<Kernel> {
        fn pages(&self, inode: u64, offset: u64, length: u64) {
            let start = Instant::now();
            let id = ChunkId { inode, chunk: offset / (CHUNK_PAGES * PAGE_SIZE) };
            let within = |other: &ChunkId| if length == 0 { other.inode == inode } else { *other == id };
            let mut unanswered = self.unanswered.lock();
            while unanswered.keys().any(within) {
                self.answered.wait(&mut unanswered);
            }
            self.held.lock().retain(|other, _| !within(other));
            self.slowest.fetch_max(start.elapsed().as_millis() as u64, Relaxed);
        }
    }

    impl Kernel {
        /// The kernel asks for a page; `serve` is our part, up to the answer.
        fn read(&self, inode: u64, page: u64, serve: impl FnOnce()) {
            let id = ChunkId { inode, chunk: page / CHUNK_PAGES };
            *self.unanswered.lock().entry(id).or_default() += 1;
            serve();
            *self.held.lock().entry(id).or_default() += 1;
            let mut unanswered = self.unanswered.lock();
            if let Some(count) = unanswered.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    unanswered.remove(&id);
                }
            }
            drop(unanswered);
            self.answered.notify_all();
        }
    }

    /// Threads read all over some files, flush, truncate, beyond a small window: the bound holds, and nobody waits for who waits for him,
    /// which would show as somebody who waits as long as the patience lasts.
    #[test]
    fn the_bound_holds_and_nobody_waits_in_a_circle() {
        const WINDOW: u64 = 256;
        const FILES: u64 = 100;
        const THREADS: u64 = 6;
        let kernel = Arc::new(Kernel::default());
        let cache = KernelCache::new(WINDOW * PAGE_SIZE, THREADS as usize);
        let (mut most, mut slowest) = (0, Duration::ZERO);
        std::thread::scope(|scope| {
            let invalidator = scope.spawn(|| cache.run(&Arc::clone(&kernel)));
            let readers: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let (cache, kernel) = (&cache, &kernel);
                    scope.spawn(move || {
                        let mut random = seed * 0x9e37_79b9_7f4a_7c15 + 1;
                        let (mut most, mut slowest) = (0, Duration::ZERO);
                        for _ in 0..4000 {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            let (inode, page) = (random % FILES, random / FILES % (CHUNK_PAGES * 4));
                            let start = Instant::now();
                            match random >> 50 & 63 {
                                0 => {
                                    let (send, receive) = std::sync::mpsc::channel();
                                    cache.after_flush(inode, move || {
                                        let _ = send.send(());
                                    });
                                    let _ = receive.recv();
                                }
                                1 => cache.gone(inode, page),
                                _ => kernel.read(inode, page, || cache.hand_out(inode, page..page + 1)),
                            }
                            slowest = slowest.max(start.elapsed());
                            most = most.max(cache.statistics().pages);
                        }
                        (most, slowest)
                    })
                })
                .collect();
            for reader in readers {
                let (pages, time) = reader.join().expect("a reader");
                (most, slowest) = (most.max(pages), slowest.max(time));
            }
            cache.stop();
            invalidator.join().expect("the invalidator");
        });
        assert!(cache.statistics().taken_back > 100, "{:?}", cache.statistics());
        // Two threads never wait, so it may be passed for a moment.
        assert!(most <= WINDOW + WINDOW / 4, "{most} pages in a window of {WINDOW}");
        assert!(slowest < PATIENCE, "somebody waited {slowest:?}");
    }

    #[test]
    fn a_request_larger_than_the_window_goes_through() {
        let cache = KernelCache::new(4 * PAGE_SIZE, 4);
        let start = Instant::now();
        cache.hand_out(1, 0..256);
        assert!(start.elapsed() < PATIENCE);
        assert_eq!(cache.statistics().pages, 256);
    }
}

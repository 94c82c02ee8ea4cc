//! The bound on the kernel's page cache of the mount: the pages handed out longest ago are taken
//! back.
//!
//! A thread of its own does this, the *invalidator*. It serves no requests, because taking pages
//! back waits for the kernel's work on them: for a read that we have not answered yet, or for the
//! write-back of a dirty page to us. For the same reason a request that waits for space
//! ([`KernelCache::hand_out`]) must never be one that the invalidator waits for:
//!
//! * a chunk that a waiting request lies in is not taken back;
//! * a request that lies in the chunk being taken back does not wait;
//! * at least two threads wait here only for [`SHORT`], so that a dirty page always finds a thread.
//!
//! Besides, no request waits longer than [`PATIENCE`]. A request that goes on without space exceeds
//! the bound for a moment, by its own pages.
//!
//! [`past`] keeps writes past the page cache in agreement with pages that the kernel holds.

pub mod past;

use crate::account::{CHUNK_PAGES, CacheAccount, ChunkId, chunk_numbers};
use crate::inode::PAGE_SIZE;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex, MutexGuard};
use past::{PastWrites, WriteId};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The longest time that a request waits for space. (In tests it is long, so that a wait of this
/// length proves a circular wait, not a busy machine.)
pub const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 10_000 } else { 200 });
/// The longest time that threads wait which a write-back may need.
pub const SHORT: Duration = Duration::from_millis(2);

/// Takes pages back from the kernel.
pub trait Invalidate: Send {
    /// Drops the pages of a file from the kernel's cache, after the kernel has written its changes
    /// back to us. `length` 0: to the end.
    fn pages(&self, inode: u64, offset: u64, length: u64);
}

impl Invalidate for Notifier {
    fn pages(&self, inode: u64, offset: u64, length: u64) {
        // An error means that the kernel no longer knows the inode, or that the mount is gone.
        let _ = self.inval_inode(INodeNo(inode), offset as i64, length as i64);
    }
}

/// Pages of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    inode: u64,
    /// To the end of the file where it ends at `u64::MAX`.
    pages: Range<u64>,
}

impl Span {
    /// Returns whether both have pages in one chunk. The kernel locks whole folios, which may reach
    /// beyond the pages of a request, but not beyond a chunk.
    fn shares_chunk(&self, inode: u64, pages: &Range<u64>) -> bool {
        self.inode == inode && overlap(&chunk_numbers(&self.pages), &chunk_numbers(pages))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// A further job of the invalidator: take these pages back, changes of them written to us, then
/// call the closure.
struct Job {
    span: Span,
    /// The write past the page cache that it is for.
    write: Option<WriteId>,
    then: Box<dyn FnOnce() + Send>,
}

/// What the invalidator turns to first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Job,
    Chunk,
}

struct Inner {
    account: CacheAccount,
    /// The chunks that waiting requests lie in, with the number of requests.
    awaited: HashMap<ChunkId, u32>,
    waiting: usize,
    /// The pages that are being taken back at this moment.
    current: Option<Span>,
    jobs: VecDeque<Job>,
    past: PastWrites,
    stopping: bool,
    /// How often the invalidator found that waiting requests lie in all chunks left. These requests
    /// then go on.
    exhausted: u64,
    taken_back: u64,
    waits: u64,
}

/// The bound on the kernel's page cache, shared by the threads that serve requests and the
/// invalidator.
pub struct KernelCache {
    inner: Mutex<Inner>,
    /// Signals work for the invalidator.
    work: Condvar,
    /// Signals that pages were taken back, or are about to be.
    freed: Condvar,
    /// Signals that a request of [`past`] has been served.
    served: Condvar,
    /// The pages that the kernel may hold.
    pages_max: AtomicU64,
    /// The number of requests that may wait for [`PATIENCE`] at once.
    patient_max: usize,
}

/// Counts since the mount, and the pages of this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCacheStatistics {
    /// The pages handed out and not taken back.
    pub pages: u64,
    /// The chunks taken back.
    pub taken_back: u64,
    /// How often a request waited for space.
    pub waits: u64,
}

impl KernelCache {
    /// Makes a bound of `bytes_max` bytes for `threads` threads that serve requests.
    pub fn new(bytes_max: u64, threads: usize) -> Arc<Self> {
        let inner = Inner {
            account: CacheAccount::default(),
            awaited: HashMap::new(),
            waiting: 0,
            current: None,
            jobs: VecDeque::new(),
            past: PastWrites::default(),
            stopping: false,
            exhausted: 0,
            taken_back: 0,
            waits: 0,
        };
        Arc::new(KernelCache {
            inner: Mutex::new(inner),
            work: Condvar::new(),
            freed: Condvar::new(),
            served: Condvar::new(),
            pages_max: AtomicU64::new(bytes_max / PAGE_SIZE),
            patient_max: threads.saturating_sub(2),
        })
    }

    /// Records that pages of a file go to the kernel, after waiting for space. Call it before the
    /// answer that carries them.
    pub fn hand_out(&self, inode: u64, pages: Range<u64>) {
        let count = pages.end - pages.start;
        let mut inner = self.inner.lock();
        let patience = if inner.waiting < self.patient_max { PATIENCE } else { SHORT };
        let deadline = Instant::now() + patience;
        let exhausted = inner.exhausted;
        while inner.account.pages() + count > self.pages_max.load(Relaxed)
            && inner.account.pages() > 0
            && !inner.stopping
            && inner.exhausted == exhausted
            && !inner.current.as_ref().is_some_and(|current| current.shares_chunk(inode, &pages))
        {
            inner.waits += 1;
            inner.waiting += 1;
            for id in CacheAccount::chunks_of(inode, pages.clone()) {
                *inner.awaited.entry(id).or_default() += 1;
            }
            self.work.notify_one();
            let late = self.freed.wait_until(&mut inner, deadline).timed_out();
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

    /// Returns the number of pages above which chunks are taken back, so that requests rarely wait.
    fn low(&self) -> u64 {
        let most = self.pages_max.load(Relaxed);
        most - most / 4
    }

    /// Sets another bound, in bytes. The invalidator takes back what is above it.
    pub fn set_bound(&self, bytes: u64) {
        self.pages_max.store(bytes / PAGE_SIZE, Relaxed);
        self.work.notify_one();
        self.freed.notify_all();
    }

    /// Records that the kernel holds no pages of a file from `page` on.
    pub fn gone(&self, inode: u64, page: u64) {
        let mut inner = self.inner.lock();
        if inner.account.knows(inode) {
            inner.account.remove(inode, page..u64::MAX);
            self.freed.notify_all();
        }
    }

    /// Calls `then` after the kernel has written its changes of a file's pages back to us: on the
    /// invalidator, or at once where the kernel holds no pages of the file.
    pub fn after_flush(&self, inode: u64, then: impl FnOnce() + Send + 'static) {
        let mut inner = self.inner.lock();
        if inner.stopping || (!inner.account.knows(inode) && inner.current.is_none()) {
            drop(inner);
            return then();
        }
        let span = Span { inode, pages: 0..u64::MAX };
        inner.jobs.push_back(Job { span, write: None, then: Box::new(then) });
        self.work.notify_one();
    }

    /// Ends the invalidator and all waits.
    pub fn stop(&self) {
        self.inner.lock().stopping = true;
        self.work.notify_all();
        self.freed.notify_all();
    }

    /// Returns the counts of this moment.
    pub fn statistics(&self) -> KernelCacheStatistics {
        let inner = self.inner.lock();
        let (taken_back, waits) = (inner.taken_back, inner.waits);
        KernelCacheStatistics { pages: inner.account.pages(), taken_back, waits }
    }

    /// Whether a chunk should be taken back.
    fn wants_chunk(&self, inner: &Inner) -> bool {
        inner.account.pages() > self.low() || !inner.awaited.is_empty()
    }

    /// The invalidator's work: runs until [`Self::stop`].
    pub fn run(&self, kernel: &dyn Invalidate) {
        let mut inner = self.inner.lock();
        // Jobs and chunks take turns where both wait, so that neither keeps the other out.
        let mut next = Next::Job;
        loop {
            let is_chunks_turn = next == Next::Chunk && !inner.stopping && self.wants_chunk(&inner);
            if !is_chunks_turn && let Some(Job { span, write, then }) = inner.jobs.pop_front() {
                next = Next::Chunk;
                // Requests that wait with these pages go on at once.
                inner.account.remove(span.inode, span.pages.clone());
                self.freed.notify_all();
                inner = self.take_back(inner, kernel, span, || {
                    if let Some(write) = write {
                        self.inner.lock().past.end(write);
                    }
                    then();
                });
                continue;
            }
            if inner.stopping {
                return;
            }
            next = Next::Job;
            let wanted = self.wants_chunk(&inner);
            let Inner { account, awaited, .. } = &mut *inner;
            let oldest = if wanted { account.take_oldest(|id| !awaited.contains_key(&id)) } else { None };
            let Some(id) = oldest else {
                if !inner.awaited.is_empty() {
                    inner.exhausted += 1;
                    self.freed.notify_all();
                }
                if inner.jobs.is_empty() {
                    self.work.wait(&mut inner);
                }
                continue;
            };
            let start = id.chunk * CHUNK_PAGES;
            let span = Span { inode: id.inode, pages: start..start + CHUNK_PAGES };
            inner.taken_back += 1;
            inner = self.take_back(inner, kernel, span, || {});
        }
    }

    /// Takes pages back from the kernel, and calls `then` while they still count as the current
    /// ones: both without the lock, which is given and returned.
    fn take_back<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        kernel: &dyn Invalidate,
        span: Span,
        then: impl FnOnce(),
    ) -> MutexGuard<'a, Inner> {
        let (inode, Range { start, end }) = (span.inode, span.pages.clone());
        inner.current = Some(span);
        drop(inner);
        let length = if end == u64::MAX { 0 } else { (end - start) * PAGE_SIZE };
        kernel.pages(inode, start * PAGE_SIZE, length);
        then();
        let mut inner = self.inner.lock();
        inner.current = None;
        self.freed.notify_all();
        inner
    }
}

#[cfg(test)]
mod tests;

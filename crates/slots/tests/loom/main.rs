//! Small real parts of the crate under loom, which also explores the memory model: the spin lock
//! and the off-list protocol, compiled from the crate's own source files with loom's atomics, and
//! the lockless reader's protocol, restated over the crate's own word transitions.
#![allow(dead_code, missing_docs)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) fn spin_loop() {
        loom::thread::yield_now();
    }
}
#[path = "../../src/lock.rs"]
mod lock;
#[path = "../../src/observe.rs"]
mod observe;
#[path = "../../src/usage.rs"]
mod usage;

/// `word.rs` needs only the folio number from `entry.rs`.
mod entry {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct FolioId(pub u32);
}
#[path = "../../src/word.rs"]
mod word;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use usage::{Listing, Usage};
use word::{Shadow, Word};

#[test]
fn lock_excludes_and_publishes() {
    struct Guarded {
        lock: lock::SpinLock,
        value: UnsafeCell<u32>,
    }
    // SAFETY: the value is only touched under the lock; loom checks that.
    unsafe impl Sync for Guarded {}
    // SAFETY: as for `Sync`.
    unsafe impl Send for Guarded {}
    loom::model(|| {
        let shared = Arc::new(Guarded { lock: lock::SpinLock::new(), value: UnsafeCell::new(0) });
        let other = shared.clone();
        let thread = thread::spawn(move || {
            if other.lock.try_lock() {
                // SAFETY: the lock is held.
                other.value.with_mut(|value| unsafe { *value += 1 });
                other.lock.unlock();
                return 1;
            }
            0
        });
        let mut done = 0;
        if shared.lock.try_lock() {
            // SAFETY: the lock is held.
            shared.value.with_mut(|value| unsafe { *value += 1 });
            shared.lock.unlock();
            done += 1;
        }
        done += thread.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(shared.value.with(|value| unsafe { *value }), done);
    });
}

/// The available list reduced to "is the device on it", behind its lock. The device has two
/// clusters with one slot each.
struct Available {
    usage: Usage,
    lock: loom::sync::Mutex<bool>,
}

const CLUSTERS: u64 = 2;

impl Available {
    fn new() -> Self {
        Available { usage: Usage::new(CLUSTERS), lock: loom::sync::Mutex::new(true) }
    }

    /// As `Locked::count_taken` and `Slots::remove_full_from_available`.
    fn take(&self) {
        self.usage.add(0, 1);
        if self.usage.close_cluster() {
            let mut listed = self.lock.lock().unwrap();
            if self.usage.mark_full() {
                *listed = false;
            }
        }
    }

    /// As the end of `Locked::count_freed` and `Slots::add_to_available`.
    fn free(&self) {
        self.usage.sub(0, 1);
        if self.usage.open_more(1) == Listing::OffList {
            let mut listed = self.lock.lock().unwrap();
            if self.usage.listing() == Listing::OffList && self.usage.mark_on_list() {
                *listed = true;
            }
        }
    }

    fn check(&self) {
        let listed = *self.lock.lock().unwrap();
        assert_eq!(listed, self.usage.listing() == Listing::OnList);
        assert_eq!(listed, self.usage.inuse() < CLUSTERS, "off the list exactly while full");
        assert_eq!(self.usage.inuse() + self.usage.open_clusters(), CLUSTERS);
    }
}

fn off_list_model(before: u64, takes: u64, frees: u64) {
    loom::model(move || {
        let shared = Arc::new(Available::new());
        for _ in 0..before {
            shared.take();
        }
        let take = |count| {
            let shared = shared.clone();
            thread::spawn(move || (0..count).for_each(|_| shared.take()))
        };
        let taker = take(takes);
        let other = shared.clone();
        let giver = thread::spawn(move || (0..frees).for_each(|_| other.free()));
        taker.join().unwrap();
        giver.join().unwrap();
        assert_eq!(shared.usage.inuse(), before + takes - frees);
        shared.check();
    });
}

#[test]
fn last_slot_taken_while_one_is_freed() {
    off_list_model(1, 1, 1);
}

#[test]
fn full_device_freed_twice() {
    off_list_model(2, 0, 2);
}

#[test]
fn two_threads_free_and_take_on_a_full_device() {
    loom::model(|| {
        let shared = Arc::new(Available::new());
        shared.take();
        shared.take();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.free();
                    shared.take();
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared.check();
    });
}

/// `Slots::word` against a table that leaves its cluster and is given to another.
#[test]
fn lockless_reader_notices_that_the_table_left() {
    struct Shared {
        generation: AtomicU32,
        /// 1 while the cluster has the table.
        frame: AtomicU32,
        word: AtomicU64,
        /// The pool's bit for the table.
        pool: AtomicU64,
    }
    loom::model(|| {
        let mine = Word::allocated(entry::FolioId(1)).into_shadow(Shadow::EMPTY);
        let foreign = Word::allocated(entry::FolioId(2));
        let shared = Arc::new(Shared {
            generation: AtomicU32::new(0),
            frame: AtomicU32::new(1),
            word: AtomicU64::new(mine.raw()),
            pool: AtomicU64::new(0),
        });
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.word.store(0, Ordering::Release);
                shared.frame.store(0, Ordering::Relaxed);
                shared.generation.fetch_add(1, Ordering::Release);
                shared.pool.fetch_or(1, Ordering::Release);
            })
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                if shared.pool.fetch_and(!1, Ordering::Acquire) & 1 != 0 {
                    shared.word.store(foreign.raw(), Ordering::Release);
                }
            })
        };
        let generation = shared.generation.load(Ordering::Acquire);
        if shared.frame.load(Ordering::Acquire) != 0 {
            let word = Word::from_raw(shared.word.load(Ordering::Acquire));
            fence(Ordering::Acquire);
            if shared.generation.load(Ordering::Relaxed) == generation {
                assert!(word == mine || word.is_free(), "a word of another cluster");
            }
        }
        owner.join().unwrap();
        other.join().unwrap();
    });
}

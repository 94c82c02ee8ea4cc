use super::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A kernel that holds pages, and whose invalidation waits for reads that were not answered.
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
    /// Reads a page as the kernel does; `serve` is our part, up to the answer.
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

/// Threads read many files at random, flush and truncate, beyond a small bound. The bound
/// holds, and no thread is in a circular wait, which would show as a wait of PATIENCE.
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
    // Two threads never wait, so the bound may be exceeded for a moment.
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

use super::*;
use crate::{inode::PAGE_SIZE, kernel_cache::Invalidate};
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

const FILE: u64 = 7;
const PAGES: usize = 2;
/// Bytes of a page that one thread owns: each page has a part of every thread.
const PART: usize = 8;

/// A page of the kernel's cache.
#[derive(Default)]
struct Cached {
    bytes: Option<Vec<u8>>,
    dirty: bool,
}

/// A kernel and a file: its contents with us, and the pages that the kernel has of it. A page is
/// locked while it is read or written back, as a folio is.
struct Machine {
    cache: Arc<KernelCache>,
    contents: Mutex<Vec<u8>>,
    pages: [Mutex<Cached>; PAGES],
    waited: AtomicU64,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Machine {
            cache: KernelCache::new(1 << 30, 4),
            contents: Mutex::new(vec![0; PAGES * PAGE_SIZE as usize]),
            pages: Default::default(),
            waited: AtomicU64::new(0),
        })
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        self.contents.lock()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The page in the kernel, read from us where it is not there.
    fn fault<'a>(&self, page: usize, cached: &'a mut Cached) -> &'a mut Vec<u8> {
        cached.bytes.get_or_insert_with(|| {
            let mut read = Vec::new();
            self.cache.read_pages(FILE, page as u64..page as u64 + 1, || {
                thread::yield_now();
                read = self.contents.lock()[page * PAGE_SIZE as usize..][..PAGE_SIZE as usize].to_vec();
                thread::yield_now();
            });
            read
        })
    }

    fn clean(&self, page: usize, cached: &mut Cached) {
        if std::mem::take(&mut cached.dirty)
            && let Some(bytes) = &cached.bytes
        {
            let offset = page as u64 * PAGE_SIZE;
            let put = |bytes: &[u8]| {
                self.put(offset, bytes);
                Ok::<(), Infallible>(())
            };
            let _ = self.cache.write_back(FILE, offset, bytes, put);
        }
    }

    /// As the kernel before it sends a read or a write past the cache.
    fn drop_page(&self, page: usize) {
        let mut cached = self.pages[page].lock();
        self.clean(page, &mut cached);
        cached.bytes = None;
    }

    fn store(&self, page: usize, at: usize, bytes: &[u8]) {
        let mut cached = self.pages[page].lock();
        self.fault(page, &mut cached)[at..at + bytes.len()].copy_from_slice(bytes);
        cached.dirty = true;
    }

    fn load(&self, page: usize, at: usize) -> Vec<u8> {
        self.fault(page, &mut self.pages[page].lock())[at..at + PART].to_vec()
    }

    fn write(&self, page: usize, at: usize, bytes: &[u8]) {
        self.drop_page(page);
        thread::yield_now();
        let offset = page as u64 * PAGE_SIZE + at as u64;
        let carry_out = || {
            thread::yield_now();
            self.put(offset, bytes);
            thread::yield_now();
            Ok::<usize, Infallible>(bytes.len())
        };
        let Ok((_, answer)) = self.cache.write_past(FILE, offset, bytes, carry_out);
        if let Answer::AfterTakingBack(id) = answer {
            self.waited.fetch_add(1, Relaxed);
            let (send, receive) = mpsc::channel();
            self.cache.after_taking_back(id, move || {
                let _ = send.send(());
            });
            receive.recv().expect("the write is answered");
        }
    }

    fn read(&self, page: usize, at: usize) -> Vec<u8> {
        let mut cached = self.pages[page].lock();
        self.clean(page, &mut cached);
        drop(cached);
        self.contents.lock()[page * PAGE_SIZE as usize + at..][..PART].to_vec()
    }
}

impl Invalidate for Arc<Machine> {
    fn pages(&self, _inode: u64, offset: u64, length: u64) {
        let first = (offset / PAGE_SIZE) as usize;
        let end = if length == 0 { PAGES } else { first + length.div_ceil(PAGE_SIZE) as usize };
        (first..end.min(PAGES)).for_each(|page| self.drop_page(page));
    }
}

/// Threads that own parts of the same pages write past the cache, store, load and read. Each finds
/// what it wrote last, whichever way, at once.
#[test]
fn writes_past_the_cache_beside_mappings_are_not_lost() {
    const THREADS: usize = 4;
    let machine = Machine::new();
    let wrong = AtomicBool::new(false);
    thread::scope(|scope| {
        let invalidator = scope.spawn(|| machine.cache.run(&Arc::clone(&machine)));
        let threads: Vec<_> = (0..THREADS)
            .map(|own| {
                let (machine, wrong) = (&machine, &wrong);
                scope.spawn(move || {
                    let mut random = own as u64 * 0x9e37_79b9_7f4a_7c15 + 1;
                    let mut known = [[0; PART]; PAGES];
                    for step in 0..30_000_u64 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let page = (random >> 20) as usize % PAGES;
                        let (at, bytes) = (own * PART, (step + 1).to_ne_bytes());
                        match random >> 40 & 7 {
                            0..=2 => {
                                machine.write(page, at, &bytes);
                                known[page] = bytes;
                            }
                            3 | 4 => {
                                machine.store(page, at, &bytes);
                                known[page] = bytes;
                            }
                            5 => machine.drop_page(page),
                            _ => {}
                        }
                        let found = if random >> 50 & 1 == 0 {
                            machine.load(page, at)
                        } else {
                            machine.read(page, at)
                        };
                        if found != known[page] {
                            wrong.store(true, Relaxed);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        machine.cache.stop();
        invalidator.join().expect("the invalidator");
    });
    assert!(!wrong.load(Relaxed));
    assert!(machine.waited.load(Relaxed) > 1000, "{} writes had to wait", machine.waited.load(Relaxed));
    let inner = machine.cache.inner.lock();
    assert!(inner.past.turns.is_empty() && inner.past.noted.is_empty());
}

/// One thread writes a number past the cache, the other waits for it in a mapping and stores the
/// next: what was stored after the write was seen is newer than the write.
#[test]
fn a_store_after_a_write_was_seen_is_kept() {
    const ROUNDS: u64 = 5_000;
    let machine = Machine::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for = |number: u64, look: &dyn Fn() -> Vec<u8>| {
        while look() != number.to_ne_bytes() {
            assert!(Instant::now() < deadline, "{number} never came");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let invalidator = scope.spawn(|| machine.cache.run(&Arc::clone(&machine)));
        let other = scope.spawn(|| {
            for round in 0..ROUNDS {
                wait_for(2 * round + 1, &|| machine.load(0, 0));
                machine.store(0, 0, &(2 * round + 2).to_ne_bytes());
            }
        });
        for round in 0..ROUNDS {
            machine.write(0, 0, &(2 * round + 1).to_ne_bytes());
            wait_for(2 * round + 2, &|| machine.read(0, 0));
        }
        other.join().expect("the other thread");
        machine.cache.stop();
        invalidator.join().expect("the invalidator");
    });
}

/// What is noted of a write is what was written, without what others wrote over it.
#[test]
fn what_is_noted_of_a_write_ends_where_a_newer_one_begins() {
    let cache = KernelCache::new(1 << 30, 4);
    cache.hand_out(FILE, 0..2);
    let write = |offset, data: &[u8], written: usize| {
        cache.write_past(FILE, offset, data, || Ok::<usize, Infallible>(written)).expect("infallible").1
    };
    assert!(matches!(write(10, &[1; 20], 20), Answer::AfterTakingBack(_)));
    let Answer::AfterTakingBack(second) = write(15, &[2; 10], 3) else { panic!("the kernel may hold it") };
    assert_eq!(write(100, &[3; 5], 0), Answer::Now, "nothing was written");
    let failed = cache.write_past(FILE, 12, &[4; 9], || Err(()));
    assert_eq!(failed, Err(()));
    let mut back = Vec::new();
    let mut write_back = || {
        let put = |bytes: &[u8]| {
            back = bytes.to_vec();
            Ok::<(), Infallible>(())
        };
        let _ = cache.write_back(FILE, 0, &[0; 200], put);
        std::mem::take(&mut back)
    };
    let mut expected = vec![0; 200];
    expected[10..30].fill(1);
    expected[15..18].fill(2);
    assert_eq!(write_back(), expected);
    // The second one's range was taken back. The first has no bytes there any more.
    cache.inner.lock().past.end(second);
    expected[15..18].fill(0);
    assert_eq!(write_back(), expected);
    // The kernel has the new bytes: what it writes back now is newer than both.
    cache.read_pages(FILE, 0..1, || {});
    assert_eq!(write_back(), [0; 200]);
}

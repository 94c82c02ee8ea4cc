use super::*;
use crate::{inode::PAGE_SIZE, kernel_cache::Invalidate};
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    sync::{
        Arc,
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
            let put = |at, part: &[u8]| {
                self.put(at, part);
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
        let Ok((_, answer)) = self.cache.write_past(FILE, offset..offset + bytes.len() as u64, carry_out);
        if let Answer::AfterTakingBack(id) = answer {
            self.waited.fetch_add(1, Relaxed);
            let (send, receive) = mpsc::channel();
            self.cache.after_taking_back(id, move || {
                let _ = send.send(());
            });
            receive.recv().expect("the write is answered");
        }
    }

    fn read(self: &Arc<Self>, page: usize, at: usize) -> Vec<u8> {
        let mut cached = self.pages[page].lock();
        self.clean(page, &mut cached);
        drop(cached);
        let (machine, start) = (Arc::clone(self), page * PAGE_SIZE as usize + at);
        let (send, receive) = mpsc::channel();
        self.cache.read_past(FILE, start as u64..(start + PART) as u64, move || {
            let _ = send.send(machine.contents.lock()[start..start + PART].to_vec());
        });
        receive.recv().expect("the read is answered")
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

/// A write-back leaves out what was written past the cache and not answered: no more than was
/// written, and only until the page is read again.
#[test]
fn a_write_back_leaves_out_what_is_noted() {
    let cache = KernelCache::new(1 << 30, 4);
    cache.hand_out(FILE, 0..2);
    let write = |bytes, written: usize| {
        cache.write_past(FILE, bytes, || Ok::<usize, Infallible>(written)).expect("infallible").1
    };
    let Answer::AfterTakingBack(first) = write(10..30, 20) else { panic!("the kernel may hold it") };
    assert!(matches!(write(50..60, 3), Answer::AfterTakingBack(_)), "a short write");
    assert_eq!(write(100..105, 0), Answer::Now, "nothing was written");
    assert_eq!(cache.write_past(FILE, 120..129, || Err(())), Err(()));
    assert_eq!(write(2 * PAGE_SIZE..3 * PAGE_SIZE, 4096), Answer::Now, "the kernel has no such page");
    let written_back = || {
        let parts = Mutex::new(Vec::new());
        let put = |at: u64, part: &[u8]| {
            parts.lock().push(at..at + part.len() as u64);
            Ok::<(), Infallible>(())
        };
        let _ = cache.write_back(FILE, 0, &[0; 200], put);
        parts.into_inner()
    };
    assert_eq!(written_back(), [0..10, 30..50, 53..200]);
    cache.inner.lock().past.end(first);
    assert_eq!(written_back(), [0..50, 53..200], "the first one's range was taken back");
    // The kernel has the new bytes: what it writes back now is newer than the write.
    cache.read_pages(FILE, 0..1, || {});
    assert_eq!(written_back(), vec![0..200_u64; 1]);
}

/// Of a write through the page cache, whose page the kernel dropped before it was carried out, a
/// page that is read meanwhile has all.
#[test]
fn a_page_is_not_read_while_it_is_written_through() {
    let cache = KernelCache::new(1 << 30, 4);
    let (contents, reading) = (Mutex::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let write = cache.write_through(FILE, 10..20, || {
            scope.spawn(|| {
                reading.store(true, Relaxed);
                cache.read_pages(FILE, 0..1, || assert_eq!(*contents.lock(), 1));
            });
            while !reading.load(Relaxed) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20));
            *contents.lock() = 1;
            Ok::<(), ()>(())
        });
        assert_eq!(write, Ok(()));
    });
}

/// A read past the cache of a write that is not answered is answered after the pages were taken
/// back, so that whoever has read it finds it in a mapping too.
#[test]
fn what_was_read_past_the_cache_is_in_every_mapping() {
    let machine = Machine::new();
    let first = machine.load(0, 0);
    assert_eq!(first, [0; PART]);
    let carry_out = || {
        machine.put(0, &[5; PART]);
        Ok::<usize, Infallible>(PART)
    };
    let Ok((_, answer)) = machine.cache.write_past(FILE, 0..PART as u64, carry_out);
    assert!(matches!(answer, Answer::AfterTakingBack(_)));
    assert_eq!(machine.load(0, 0), [0; PART], "the page is still there");
    thread::scope(|scope| {
        let invalidator = scope.spawn(|| machine.cache.run(&Arc::clone(&machine)));
        let (read, loaded) = (machine.read(0, 0), machine.load(0, 0));
        // The invalidator ends before anything is judged, so that a failure is not a hang.
        machine.cache.stop();
        invalidator.join().expect("the invalidator");
        assert_eq!((read, loaded), (vec![5; PART], vec![5; PART]));
    });
}

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
            self.cache.hand_out(FILE, page as u64..page as u64 + 1);
            thread::yield_now();
            let read = self.contents.lock()[page * PAGE_SIZE as usize..][..PAGE_SIZE as usize].to_vec();
            thread::yield_now();
            read
        })
    }

    fn clean(&self, page: usize, cached: &mut Cached) {
        if std::mem::take(&mut cached.dirty)
            && let Some(bytes) = &cached.bytes
        {
            let put = |offset, bytes: &[u8]| {
                self.put(offset, bytes);
                Ok::<(), Infallible>(())
            };
            let _ = self.cache.write_back(FILE, page as u64 * PAGE_SIZE, bytes, put);
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
    assert!(machine.cache.inner.lock().past.under_way.is_empty());
}

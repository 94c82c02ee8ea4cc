//! Memory for the store: mapped from the system, or (under Miri) from the heap.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use folioswap_devices::{Handle, PageMemory, Prefault};

const ALIGN: usize = 4096;

/// Chunks of zeroed memory, remembered so that tests can look behind the store's back.
pub struct TestMemory {
    chunks: Mutex<Vec<(usize, usize)>>,
    pub given_back_bytes: AtomicUsize,
    pub map_calls: AtomicUsize,
    /// Ranges that the store has said it will write.
    pub announced: Mutex<Vec<(usize, usize)>>,
    map_calls_max: usize,
}

impl TestMemory {
    pub fn new() -> Self {
        Self::with_map_calls(usize::MAX)
    }

    /// Memory that runs out after this many calls of `map`.
    pub fn with_map_calls(map_calls_max: usize) -> Self {
        Self {
            chunks: Mutex::new(Vec::new()),
            given_back_bytes: AtomicUsize::new(0),
            map_calls: AtomicUsize::new(0),
            announced: Mutex::new(Vec::new()),
            map_calls_max,
        }
    }

    /// The address of an object's header: mapping 0 is the directory's first leaf, mapping n + 1 is
    /// chunk n.
    pub fn object(&self, handle: Handle) -> *mut u8 {
        let granules_per_chunk = (2 << 20) / 32;
        let chunk = (handle.raw() / granules_per_chunk) as usize + 1;
        let (start, _) = self.chunks.lock().unwrap()[chunk];
        std::ptr::with_exposed_provenance_mut(start + (handle.raw() % granules_per_chunk) as usize * 32)
    }

    /// Bytes of all chunks that the system really has pages for, from `/proc/self/pagemap`.
    pub fn resident_bytes(&self) -> usize {
        use std::os::unix::fs::FileExt;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut pages = 0;
        for &(start, bytes) in self.chunks.lock().unwrap().iter() {
            let mut entries = vec![0u8; bytes / 4096 * 8];
            pagemap.read_exact_at(&mut entries, (start / 4096 * 8) as u64).unwrap();
            pages += entries.chunks_exact(8).filter(|entry| entry[7] & 0x80 != 0).count();
        }
        pages * 4096
    }
}

// SAFETY: `map` hands out fresh, zeroed, page-aligned memory that lives until the TestMemory is
// dropped, which is after the store that owns it; `give_back` touches its own range alone.
unsafe impl PageMemory for TestMemory {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        if self.map_calls.fetch_add(1, Ordering::Relaxed) >= self.map_calls_max {
            return None;
        }
        assert_eq!(bytes % (2 << 20), 0);
        let start = if cfg!(miri) { heap(bytes) } else { system::map(bytes) }?;
        self.chunks.lock().unwrap().push((start.as_ptr().expose_provenance(), bytes));
        Some(start)
    }

    fn will_write(&self, start: NonNull<u8>, bytes: usize) -> Prefault {
        let start = start.as_ptr().addr();
        let within = |&(chunk, len): &(usize, usize)| chunk <= start && start + bytes <= chunk + len;
        assert!(start.is_multiple_of(4096) && self.chunks.lock().unwrap().iter().any(within));
        self.announced.lock().unwrap().push((start, bytes));
        Prefault::Done
    }

    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        assert!(start.as_ptr().addr().is_multiple_of(4096) && bytes.is_multiple_of(4096) && bytes > 0);
        self.given_back_bytes.fetch_add(bytes, Ordering::Relaxed);
        if cfg!(miri) {
            // SAFETY: the range is inside one chunk and nothing uses it. The bytes are not zeroes
            // because the store must rely on neither.
            unsafe { start.write_bytes(0xdd, bytes) };
        } else {
            // SAFETY: as above.
            unsafe { system::give_back(start, bytes) };
        }
    }
}

fn heap(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, ALIGN).unwrap()) })
}

impl Drop for TestMemory {
    fn drop(&mut self) {
        for (start, bytes) in self.chunks.lock().unwrap().drain(..) {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
            // SAFETY: `map` made it with the same size; the store is gone.
            unsafe {
                if cfg!(miri) {
                    dealloc(start, Layout::from_size_align(bytes, ALIGN).unwrap());
                } else {
                    system::unmap(start, bytes);
                }
            }
        }
    }
}

mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    pub fn map(bytes: usize) -> Option<NonNull<u8>> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, prot, flags) }.ok()?;
        // SAFETY: the mapping is fresh and ours. It has no huge pages, so that residency can be
        // counted by pages.
        unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) }.ok()?;
        NonNull::new(start.cast())
    }

    pub unsafe fn give_back(start: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller's contract; the memory is private anonymous.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }.unwrap();
    }

    pub unsafe fn unmap(start: *mut u8, bytes: usize) {
        // SAFETY: by the caller's contract.
        unsafe { munmap(start.cast(), bytes) }.unwrap();
    }
}

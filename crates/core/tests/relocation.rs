//! Bytes move while pages are read and freed: every page reads back what was stored, and the memory goes back.

use core::ptr::NonNull;
use folioswap_core::page_table::Memory;
use folioswap_core::space::{Incompressible, Movers, Space};
use folioswap_devices::{Page, PageMemory, Scratch};
use folioswap_slots::{FolioId, Order, SwapEntry};
use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The heap, and how many bytes were given back.
#[derive(Default)]
struct Heap {
    given_back: AtomicUsize,
}

fn zeroed(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc_zeroed(Layout::from_size_align(bytes, align).unwrap()) })
}

impl Memory for Heap {
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        zeroed(bytes, 4096)
    }
}

// SAFETY: zeroed memory that is never freed; what is given back is cleared, so that a late reader would notice.
unsafe impl PageMemory for Heap {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        zeroed(bytes, 2 << 20)
    }
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        self.given_back.fetch_add(bytes, Relaxed);
        // SAFETY: by contract.
        unsafe { start.write_bytes(0, bytes) };
    }
}

/// A page that half compresses, other for every number.
fn page(number: u64) -> Page {
    let mut page = [0; 4096];
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in page[..2048].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    page
}

const PAGES: u64 = 6000;

fn filled(space: &Space<'_, Heap>) -> Vec<SwapEntry> {
    let mut scratch = Scratch::new();
    (0..PAGES)
        .map(|number| {
            space.reserve_frames().unwrap();
            let entry = space.allocate(Order::ZERO, FolioId(1)).unwrap();
            space.write(&mut scratch, entry, &page(number), Incompressible::Keep).unwrap();
            space.leave_cache(entry, 1);
            entry
        })
        .collect()
}

#[test]
fn what_frees_left_sparse_is_moved_together_and_its_memory_goes_back() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let entries = filled(&space);
    for (number, &entry) in entries.iter().enumerate() {
        if number % 4 != 0 {
            space.put(entry, 1);
        }
    }
    let before = space.mm_stat();
    assert!(before.mem_used_total > before.compr_data_size * 2, "{before:?}");
    let mut moved = 0;
    loop {
        let report = space.compact(256 << 10);
        moved += report.objects_moved;
        if report.objects_moved == 0 {
            break;
        }
    }
    let after = space.mm_stat();
    assert!(moved > PAGES / 16, "{moved}");
    assert!(heap.given_back.load(Relaxed) > 0);
    assert!(after.mem_used_total < before.mem_used_total * 3 / 4, "{before:?} {after:?}");
    let mut read = [0; 4096];
    for (number, &entry) in entries.iter().enumerate().step_by(4) {
        space.read(entry, &mut read, Movers::Running).unwrap();
        assert!(read == page(number as u64), "page {number}");
        space.put(entry, 1);
    }
    assert_eq!(space.mm_stat().orig_data_size, 0);
    assert!(space.slots().validate().is_ok());
}

#[test]
fn pages_are_read_and_freed_while_they_are_moved() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let entries = filled(&space);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                space.compact(64 << 10);
            }
        });
        let mut read = [0; 4096];
        // Each round frees a part of what is left, so that there is always something sparse.
        let mut left: Vec<u64> = (0..PAGES).collect();
        for round in 0..8u64 {
            left.retain(|&number| {
                let entry = entries[number as usize];
                space.read(entry, &mut read, Movers::Running).unwrap();
                assert!(read == page(number), "page {number}");
                let stays = (number ^ round) % 3 != 0;
                if !stays {
                    space.put(entry, 1);
                }
                stays
            });
        }
        done.store(true, Relaxed);
        for number in left {
            space.put(entries[number as usize], 1);
        }
    });
    assert_eq!(space.mm_stat().orig_data_size, 0);
    assert!(space.slots().validate().is_ok());
}

//! Bytes move while pages are read and freed: every page reads back what was stored, and the memory
//! goes back.

mod heap;

use folioswap_devices::zstd::Decoder;
use folioswap_devices::{IncompressiblePolicy, Page, Scratch};
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_slots::{DeviceId, DeviceMask, FolioId, Order, Shadow, SwapEntry};
use folioswap_space::recompression::{Recompression, Workspace};
use folioswap_space::space::{Movers, Space};
use heap::Heap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Damages a byte of this page where it is stored. No other thread may be at work.
fn damage(heap: &Heap, page: &Page) {
    // Random bytes are stored as they are.
    let bytes = &page[1024..1056];
    for &(start, len) in &*heap.mapped.lock().unwrap() {
        // SAFETY: mapped by `map`, never freed, and used by no other thread just now.
        let memory = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, len) };
        if let Some(at) = memory.windows(bytes.len()).position(|found| found == bytes) {
            memory[at] ^= 1;
            return;
        }
    }
    panic!("the page is not in the store");
}

/// A page that half compresses, different for every number.
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
            space.write(&mut scratch, entry, &page(number), IncompressiblePolicy::Keep).unwrap();
            space.leave_cache(entry, 1, Shadow::EMPTY);
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
    let mut decoder = Decoder::new();
    for (number, &entry) in entries.iter().enumerate().step_by(4) {
        space.read(entry, &mut decoder, &mut read, Movers::Running).unwrap();
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
        let mut decoder = Decoder::new();
        // Each round frees a part of the pages left, so that there is always something sparse.
        let mut left: Vec<u64> = (0..PAGES).collect();
        for round in 0..8u64 {
            left.retain(|&number| {
                let entry = entries[number as usize];
                space.read(entry, &mut decoder, &mut read, Movers::Running).unwrap();
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

/// A page of digits, different for every number: zstd takes less than two thirds of LZ4's size.
fn digits(number: u64) -> Page {
    let mut state = number + 1;
    core::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b'0' + (state >> 40) as u8 % 10
    })
}

#[test]
fn pages_are_read_and_freed_while_they_are_recompressed_and_moved() {
    const PAGES: u64 = 3000;
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let mut scratch = Scratch::new();
    let entries: Vec<SwapEntry> = (0..PAGES)
        .map(|number| {
            space.reserve_frames().unwrap();
            let entry = space.allocate(Order::ZERO, FolioId(1)).unwrap();
            space.write(&mut scratch, entry, &digits(number), IncompressiblePolicy::Keep).unwrap();
            space.leave_cache(entry, 1, Shadow::EMPTY);
            entry
        })
        .collect();
    let before = space.mm_stat();
    let (mut done, mut passed) = (0, 0);
    let all_are_freed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The evictor's side: it alone recompresses and compacts, and goes on with pages freed
        // meanwhile.
        let evictor = scope.spawn(|| {
            let mut workspace = Box::new(Workspace::new());
            let (mut saved_bytes, mut done, mut passed) = (0, 0, 0);
            for entries in entries.chunks(100) {
                for &entry in entries {
                    match space.recompress(entry, &mut workspace).unwrap() {
                        Recompression::Done { saved } => {
                            saved_bytes += u64::from(saved);
                            done += 1;
                        }
                        Recompression::Passed => passed += 1,
                        Recompression::Settled => panic!("it shrinks"),
                    }
                }
                space.compact(64 << 10);
            }
            // The evictor makes one more pass after the last reader: it passed over pages that were
            // being read at every other time.
            let mut is_last = false;
            while !is_last {
                is_last = all_are_freed.load(Relaxed);
                entries.iter().for_each(|&entry| {
                    assert!(!matches!(
                        space.recompress(entry, &mut workspace).unwrap(),
                        Recompression::Settled
                    ));
                });
            }
            (saved_bytes, done, passed)
        });
        // Two handlers: each reads all of its half, from the other end so that it meets the
        // evictor, and frees two thirds.
        let handlers: Vec<_> = (0..2)
            .map(|half| {
                let (space, entries) = (&space, &entries);
                scope.spawn(move || {
                    let (mut read, mut decoder) = ([0; 4096], Box::new(Decoder::new()));
                    for (number, &entry) in entries.iter().enumerate().rev().skip(half).step_by(2) {
                        for _ in 0..2 {
                            space.read(entry, &mut decoder, &mut read, Movers::Running).unwrap();
                            assert!(read == digits(number as u64), "page {number}");
                        }
                        if number % 3 != 0 {
                            space.put(entry, 1);
                        }
                    }
                })
            })
            .collect();
        handlers.into_iter().for_each(|handler| handler.join().unwrap());
        all_are_freed.store(true, Relaxed);
        let (saved_bytes, first, other) = evictor.join().unwrap();
        (done, passed) = (first, other);
        assert!(saved_bytes > 300 * first, "{saved_bytes} of {first}");
    });
    assert!(done > 100 && passed > 100, "{done} {passed}");
    // The pages left have the evictor's last treatment: all of them are zstd's now.
    let (mut read, mut decoder) = ([0; 4096], Box::new(Decoder::new()));
    for (number, &entry) in entries.iter().enumerate().step_by(3) {
        assert!(!space.may_recompress(entry), "page {number}");
        space.read(entry, &mut decoder, &mut read, Movers::Running).unwrap();
        assert!(read == digits(number as u64), "page {number}");
    }
    space.validate().unwrap();
    let after = space.mm_stat();
    assert_eq!(after.objects, PAGES / 3);
    assert!(after.compr_data_size * 3 < before.compr_data_size * 2 / 3, "{before:?} {after:?}");
    entries.iter().step_by(3).for_each(|&entry| space.put(entry, 1));
    assert_eq!((space.ages().total(), space.mm_stat().orig_data_size), (0, 0));
}

/// A recompressed page goes on to a file like any other.
#[test]
fn what_was_recompressed_is_demoted() {
    let heap = Heap::default();
    let (space, _file, _) = with_file(&heap);
    let mut workspace = Box::new(Workspace::new());
    let stored = |number| {
        space.reserve_frames().unwrap();
        let entry = space.allocate(Order::ZERO, FolioId(1)).unwrap();
        space.write(&mut Scratch::new(), entry, &digits(number), IncompressiblePolicy::Keep).unwrap();
        space.leave_cache(entry, 1, Shadow::EMPTY);
        entry
    };
    let entries: Vec<_> = (0..64).map(|number| Some(stored(number))).collect();
    for entry in entries.iter().flatten() {
        assert!(matches!(space.recompress(*entry, &mut workspace), Ok(Recompression::Done { .. })));
    }
    let (mut run, mut decoder) = (Box::new(Run([[0; 4096]; 64])), Box::new(Decoder::new()));
    assert_eq!(space.demote_run(&entries, &mut decoder, &mut run.0, DeviceMask::ALL), Ok(64));
    for (number, entry) in entries.iter().flatten().enumerate() {
        assert!(space.file_slot(*entry).is_some());
        space.read(*entry, &mut decoder, &mut run.0[0], Movers::Running).unwrap();
        assert!(run.0[0] == digits(number as u64), "page {number}");
        // A page in a file is not the store's to recompress.
        assert_eq!(space.recompress(*entry, &mut workspace), Ok(Recompression::Passed));
    }
}

/// Memory for a run, aligned as the file device asks.
#[repr(align(4096))]
struct Run([Page; 64]);

const FILE: DeviceId = DeviceId::new(1).unwrap();

const CLUSTERS: u32 = 20;

/// A space whose pages are all in the compressed store, with clusters enough for them in a file.
fn with_file(heap: &Heap) -> (Space<'_, Heap>, OwnedFd, Vec<SwapEntry>) {
    let space = Space::create(heap).unwrap();
    let file = rustix::fs::memfd_create("relocation", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let description = DeviceDescription {
        kind,
        priority: 0,
        io,
        first_cluster: 0,
        clusters: CLUSTERS,
        contents: DeviceContents::Plain,
    };
    space.shared_devices().set(FILE, description, file.as_raw_fd());
    assert_eq!(space.file_space().add((0..CLUSTERS).map(|number| (number, FILE))), CLUSTERS as usize);
    let entries = filled(&space);
    (space, file, entries)
}

/// A page that cannot be read stays where it is. It does not stay the oldest, or no younger one
/// would ever be found.
#[test]
fn what_is_damaged_does_not_stay_the_oldest() {
    let heap = Heap::default();
    let (space, _file, entries) = with_file(&heap);
    let oldest = space.ages().oldest().unwrap();
    let is_oldest = |entry: &&SwapEntry| space.generation(**entry) == Some(oldest);
    damage(&heap, &page(0));
    assert_eq!(space.generation(entries[0]), Some(oldest));
    let (mut run, mut decoder) = (Box::new(Run([[0; 4096]; 64])), Decoder::new());
    let all: Vec<_> = entries.iter().filter(is_oldest).copied().map(Some).collect();
    let mut moved = 0;
    for part in all.chunks(64) {
        moved += space.demote_run(part, &mut decoder, &mut run.0[..part.len()], DeviceMask::ALL).unwrap();
    }
    assert_eq!(moved, all.len() as u64 - 1, "the damaged one alone stays");
    assert!(space.file_slot(entries[0]).is_none());
    let next = space.ages().oldest().unwrap();
    assert!(oldest.is_older_than(next), "the next generation is the oldest now");
    assert!(next.is_older_than(space.generation(entries[0]).unwrap()));
    assert_eq!(space.ages().total(), PAGES - moved);
    assert!(
        space.read(entries[0], &mut decoder, &mut run.0[0], Movers::Running).is_err(),
        "and it is still told"
    );
    entries.iter().for_each(|&entry| space.put(entry, 1));
    assert_eq!(space.ages().total(), 0);
}

#[test]
fn demotion_takes_what_was_stored_first() {
    let heap = Heap::default();
    let (space, _file, entries) = with_file(&heap);
    assert_eq!(space.ages().total(), PAGES);
    let oldest = space.ages().oldest().unwrap();
    assert_eq!(space.generation(entries[0]), Some(oldest));
    assert!(oldest.is_older_than(space.generation(entries[PAGES as usize - 1]).unwrap()));
    let mut run = Box::new(Run([[0; 4096]; 64]));
    let mut decoder = Decoder::new();
    let run_entries: Vec<_> = entries[..64].iter().copied().map(Some).collect();
    assert_eq!(space.demote_run(&run_entries, &mut decoder, &mut run.0, DeviceMask::ALL), Ok(64));
    assert_eq!(space.demote_run(&run_entries, &mut decoder, &mut run.0, DeviceMask::ALL), Ok(0));
    assert_eq!((space.ages().total(), space.file_space().used_slots()), (PAGES - 64, 64));
    let mut read = Box::new(Run([[0; 4096]; 64]));
    let first = space.file_slot(entries[0]).unwrap();
    assert_eq!(space.file_slot(entries[63]).unwrap().raw(), first.raw() + 63);
    space.read_run(&run_entries, first, &mut read.0, |bad, why| panic!("page {bad}: {why}"));
    assert!(read.0.iter().zip(0..).all(|(read, number)| *read == page(number)));
    for entry in entries {
        space.put(entry, 1);
    }
    assert_eq!((space.ages().total(), space.file_space().used_slots()), (0, 0));
}

#[test]
fn pages_are_read_and_freed_while_they_are_demoted() {
    let heap = Heap::default();
    let (space, _file, entries) = with_file(&heap);
    let demoted = std::thread::scope(|scope| {
        let demoter = scope.spawn(|| {
            let mut run = Box::new(Run([[0; 4096]; 64]));
            let mut demoted = 0;
            let mut decoder = Decoder::new();
            for entries in entries.chunks(64) {
                let entries: Vec<_> = entries.iter().copied().map(Some).collect();
                demoted += space
                    .demote_run(&entries, &mut decoder, &mut run.0[..entries.len()], DeviceMask::ALL)
                    .unwrap();
            }
            demoted
        });
        let mut read = Box::new(Run([[0; 4096]; 64]));
        let mut decoder = Decoder::new();
        // The handler begins at the other end, so that the two meet.
        for (number, &entry) in entries.iter().enumerate().rev() {
            space.read(entry, &mut decoder, &mut read.0[0], Movers::Running).unwrap();
            assert!(read.0[0] == page(number as u64), "page {number}");
            if number % 3 != 0 {
                space.put(entry, 1);
            }
        }
        demoter.join().unwrap()
    });
    assert!(demoted > 0);
    let mut left = 0;
    let mut decoder = Decoder::new();
    for (number, &entry) in entries.iter().enumerate().step_by(3) {
        let mut read = Box::new(Run([[0; 4096]; 64]));
        space.read(entry, &mut decoder, &mut read.0[0], Movers::Running).unwrap();
        assert!(read.0[0] == page(number as u64), "page {number}");
        left += u64::from(space.file_slot(entry).is_some());
        space.put(entry, 1);
    }
    assert!(left > 0);
    assert_eq!((space.ages().total(), space.file_space().used_slots()), (0, 0));
    assert_eq!(space.mm_stat().orig_data_size, 0);
    assert!(space.slots().validate().is_ok());
}

//! Pages on a device that others can read are encrypted there, whichever way they came, and come
//! back by every way.

mod heap;

use folioswap_devices::read_ring::ReadRing;
use folioswap_devices::zstd::Decoder;
use folioswap_devices::{FileSlot, IncompressiblePolicy, Orders, Page, Scratch};
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_slots::{DeviceId, DeviceMask, FolioId, Order, Shadow, SwapEntry};
use folioswap_space::space::{Movers, ReadError, Space, WriteError, Written};
use heap::Heap;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

const PAGES: usize = 16;
const ONE: DeviceId = DeviceId::new(1).unwrap();
const TWO: DeviceId = DeviceId::new(2).unwrap();

#[repr(align(4096))]
struct Run([Page; PAGES]);

/// Pages that zram compresses, and that no other test has.
fn run(seed: u64) -> Box<Run> {
    let mut run = Box::new(Run([[0; 4096]; PAGES]));
    for (page, number) in run.0.iter_mut().zip(seed..) {
        for (index, word) in page.chunks_exact_mut(8).enumerate() {
            let noise = (number + 1).wrapping_mul(index as u64 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&(if index % 4 == 0 { noise } else { number }).to_le_bytes());
        }
    }
    run
}

fn device(space: &Space<'_, Heap>, id: DeviceId, first_cluster: u32, contents: DeviceContents) -> OwnedFd {
    let file = memfd_create("encrypted", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let description = DeviceDescription { kind, priority: 0, io, first_cluster, clusters: 1, contents };
    space.shared_devices().set(id, description, file.as_raw_fd());
    assert_eq!(space.file_space().add([(first_cluster, id)].into_iter()), 1);
    file
}

fn entries(space: &Space<'_, Heap>) -> Vec<Option<SwapEntry>> {
    space.reserve_frames().unwrap();
    let first = space.allocate(Order::new(4).unwrap(), FolioId(1)).unwrap();
    (0..PAGES as u32).map(|within| first.checked_add(within.into())).collect()
}

fn give_up(space: &Space<'_, Heap>, entries: &[Option<SwapEntry>]) {
    for entry in entries.iter().flatten() {
        space.leave_cache(*entry, 1, Shadow::EMPTY);
        space.put(*entry, 1);
    }
}

/// How many of these pages stand on the device as they are.
fn readable(file: &OwnedFd, run: &Run) -> usize {
    let mut bytes = vec![0; 2 << 20];
    let got = pread(file, &mut bytes[..], 0).unwrap();
    let on_device = |page: &&Page| bytes[..got].chunks_exact(64).any(|part| part == &page[64..128]);
    run.0.iter().filter(on_device).count()
}

fn slot(space: &Space<'_, Heap>, entry: Option<SwapEntry>) -> FileSlot {
    space.file_slot(entry.unwrap()).unwrap()
}

/// Reads all entries by every way that there is, and compares.
fn assert_comes_back(space: &Space<'_, Heap>, entries: &[Option<SwapEntry>], run: &Run) {
    let mut decoder = Decoder::default();
    for (entry, page) in entries.iter().zip(&run.0) {
        let mut one = Box::new(Run([[0; 4096]; PAGES]));
        let read = space.read(entry.unwrap(), &mut decoder, &mut one.0[0], Movers::Running);
        assert_eq!(read, Ok(Written::Shared));
        assert!(one.0[0] == *page);
    }
    let first = slot(space, entries[0]);
    let mut together = Box::new(Run([[0; 4096]; PAGES]));
    space.read_run(entries, first, &mut together.0, |page, why| panic!("{page}: {why}"));
    assert!(together.0 == run.0);
    let Ok(mut ring) = ReadRing::new(4, Box::leak(Box::default())) else { return };
    let mut begun = Box::new(Run([[0; 4096]; PAGES]));
    let pages = NonNull::from(&mut begun.0).cast();
    // SAFETY: the pages live until the read has ended below.
    unsafe { space.begin_read(&mut ring, first, pages, PAGES * 4096, 7) }.unwrap();
    poll(&mut [PollFd::new(&ring, PollFlags::IN)], None).unwrap();
    assert_eq!(ring.ended().unwrap().read, Ok(PAGES * 4096));
    space.check_run(entries, &mut begun.0, |page| panic!("{page}"));
    assert!(begun.0 == run.0);
}

#[test]
fn nothing_of_a_page_is_on_the_device() {
    for (contents, expected) in [(DeviceContents::Plain, PAGES), (DeviceContents::Encrypted, 0)] {
        let heap = Heap::default();
        let space = Space::create(&heap).unwrap();
        let file = device(&space, ONE, 0, contents);
        let (entries, run) = (entries(&space), run(1));
        space.write_run(&entries, run.0.as_flattened(), DeviceMask::ALL).unwrap();
        assert_eq!(readable(&file, &run), expected, "{contents:?}");
        assert_comes_back(&space, &entries, &run);
        let under_keys = if contents == DeviceContents::Plain { 0 } else { PAGES as u64 };
        assert_eq!(space.keys().pages(), under_keys);
        give_up(&space, &entries);
        assert_eq!(space.keys().pages(), 0);
    }
}

#[test]
fn pages_that_were_written_before_a_fork_come_back_after_it() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let _file = device(&space, ONE, 0, DeviceContents::Encrypted);
    let written: Vec<_> = (0..5)
        .map(|round| {
            let (entries, run) = (entries(&space), run(100 * round));
            space.write_run(&entries, run.0.as_flattened(), DeviceMask::ALL).unwrap();
            space.keys().renew();
            (entries, run)
        })
        .collect();
    for (entries, run) in written.iter().rev() {
        assert_comes_back(&space, entries, run);
    }
    // Slots that follow each other are under different keys.
    let first = &written[0].0;
    let mut mixed: Vec<_> = first[8..].to_vec();
    mixed.extend(&written[1].0[..8]);
    let mut read = Box::new(Run([[0; 4096]; PAGES]));
    space.read_run(&mixed, slot(&space, mixed[0]), &mut read.0, |page, why| panic!("{page}: {why}"));
    assert!(read.0[..8] == written[0].1.0[8..] && read.0[8..] == written[1].1.0[..8]);
}

#[test]
fn pages_that_are_demoted_or_moved_are_encrypted_on_their_new_device() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let plain = device(&space, ONE, 0, DeviceContents::Plain);
    let (entries, run) = (entries(&space), run(7));
    let mut scratch = Scratch::new();
    for (entry, page) in entries.iter().zip(&run.0) {
        space.write(&mut scratch, entry.unwrap(), page, IncompressiblePolicy::Keep).unwrap();
    }
    let (mut decoder, mut room) = (Decoder::default(), Box::new(Run([[0; 4096]; PAGES])));
    let demoted = space.demote_run(&entries, &mut decoder, &mut room.0, DeviceMask::ALL);
    assert_eq!(demoted, Ok(PAGES as u64));
    assert_eq!((readable(&plain, &run), space.keys().pages()), (PAGES, 0));
    let sealed = device(&space, TWO, 2, DeviceContents::Encrypted);
    let (mut leaving, _) = space.stored_on(DeviceMask::only(ONE), 0, PAGES);
    assert!(space.read_leaving(&mut leaving, &mut room.0));
    space.store_leaving_on(&mut leaving, 0..PAGES, &room.0, DeviceMask::only(TWO)).unwrap();
    assert_eq!(space.settle_leaving(&leaving).moved, PAGES as u64);
    assert_eq!((readable(&sealed, &run), space.keys().pages()), (0, PAGES as u64));
    assert_comes_back(&space, &entries, &run);
    give_up(&space, &entries);
    assert_eq!(space.keys().pages(), 0);
}

#[test]
fn a_slot_that_refuses_its_page_costs_no_key_and_shows_nothing() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let file = device(&space, ONE, 0, DeviceContents::Encrypted);
    // The device ends after 20 pages, and cannot grow.
    ftruncate(&file, 20 * 4096).unwrap();
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let (first, second) = (entries(&space), entries(&space));
    let (there, refused) = (run(1), run(50));
    space.write_run(&first, there.0.as_flattened(), DeviceMask::ALL).unwrap();
    let error = space.write_run(&second, refused.0.as_flattened(), DeviceMask::ALL);
    assert!(matches!(error, Err(WriteError::Device(_))), "{error:?}");
    assert_eq!(space.keys().pages(), PAGES as u64);
    assert_eq!(readable(&file, &refused), 0);
    assert_comes_back(&space, &first, &there);
}

#[test]
fn a_device_that_takes_no_run_is_not_given_one_in_parts() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let _file = device(&space, ONE, 0, DeviceContents::Encrypted);
    space.shared_devices().set_orders(ONE, Orders::ONLY_ZERO);
    let (entries, run) = (entries(&space), run(3));
    let refused = space.write_run(&entries, run.0.as_flattened(), DeviceMask::only(ONE));
    assert_eq!(refused, Err(WriteError::OrderNotTaken));
    assert_eq!(space.keys().pages(), 0);
    space.write_run(&entries[..1], &run.0[0], DeviceMask::ALL).unwrap();
    assert_eq!(space.keys().pages(), 1);
}

#[test]
fn a_page_that_was_moved_damaged_lost_or_put_back_is_not_taken() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let file = device(&space, ONE, 0, DeviceContents::Encrypted);
    let (before, run_before) = (entries(&space), run(1));
    space.write_run(&before, run_before.0.as_flattened(), DeviceMask::ALL).unwrap();
    let mut old = [0; 4096];
    pread(&file, &mut old[..], 5 * 4096).unwrap();
    give_up(&space, &before);
    let (entries, run) = (entries(&space), run(1000));
    let slots = (0..PAGES).map(|page| {
        space.write_run(&entries[page..=page], &run.0[page], DeviceMask::ALL).unwrap();
        slot(&space, entries[page]).raw()
    });
    assert!(slots.eq(0..PAGES as u64), "in the slots that are free again");
    let mut page = [0; 4096];
    pread(&file, &mut page[..], 4096).unwrap();
    pwrite(&file, &page, 2 * 4096).unwrap();
    let mut byte = [0];
    pread(&file, &mut byte[..], 3 * 4096 + 77).unwrap();
    pwrite(&file, &[!byte[0]], 3 * 4096 + 77).unwrap();
    pwrite(&file, &[0; 4096], 4 * 4096).unwrap();
    pwrite(&file, &old, 5 * 4096).unwrap();
    let (mut decoder, mut read) = (Decoder::default(), self::run(0));
    for (index, entry) in entries.iter().enumerate() {
        let result = space.read(entry.unwrap(), &mut decoder, &mut read.0[0], Movers::Running);
        let expected = if (2..=5).contains(&index) { Err(ReadError::Corrupt) } else { Ok(Written::Shared) };
        assert_eq!(result, expected, "{index}");
        assert!(result.is_err() || read.0[0] == run.0[index]);
    }
}

//! One suite for devices that keep pages by [`Place`]: the compressed store and the file. The
//! contract by slot has a suite of its own (`device_conformance.rs`).
#![cfg(not(miri))]

mod common;

use std::os::fd::{AsFd, BorrowedFd};

use common::data::{PageKind, Rng};
use common::device::{AlignedRun, Fault, FileUnderTest, PageStore, Refused, ZramDevice};
use folioswap_devices::{
    FileDevice, FileError, FileSlot, LoadError, PAGE_SIZE, Page, Place, StoreError, StoreOptions,
};
use rustix::io::Errno;

fn zram() -> ZramDevice {
    ZramDevice::new(StoreOptions::DEFAULT)
}

fn run_of(kind: PageKind, seed: u64, pages: usize) -> Vec<Page> {
    (0..pages as u64).map(|index| kind.page(seed * 1000 + index)).collect()
}

fn check(device: &dyn PageStore, place: Place, page: &Page) {
    let mut out = [0xee; PAGE_SIZE];
    device.load(place, &mut out).unwrap();
    assert!(out == *page, "{place:?}");
}

/// Every kind of data comes back, in any order, as runs and as single pages.
fn round_trip(device: &dyn PageStore) {
    let mut stored = Vec::new();
    for kind in PageKind::ALL {
        for pages in [1, 2, 16, 64] {
            let run = run_of(kind, pages as u64, pages);
            let places = device.store_run(&run, 7).unwrap();
            assert_eq!(places.len(), run.len());
            stored.extend(places.into_iter().zip(run));
        }
    }
    assert_eq!(device.report().pages, stored.len() as u64);
    let mut rng = Rng::new(1);
    for _ in 0..stored.len() {
        let (place, page) = &stored[rng.below(stored.len() as u64) as usize];
        check(device, *place, page);
    }
    for (place, page) in &stored {
        check(device, *place, page);
    }
    for (place, _) in stored {
        device.free(place);
    }
    assert_eq!(device.report().pages, 0);
}

/// Freeing some pages leaves the others alone.
fn partial_free(device: &dyn PageStore) {
    let run = run_of(PageKind::Mixed, 5, 512);
    let places = device.store_run(&run, 0).unwrap();
    for (index, place) in places.iter().enumerate() {
        if index % 3 != 0 {
            device.free(*place);
        }
    }
    let more = run_of(PageKind::TwoToOne, 6, 256);
    let more_places = device.store_run(&more, 1000).unwrap();
    for (index, place) in places.iter().enumerate().filter(|(index, _)| index % 3 == 0) {
        check(device, *place, &run[index]);
        device.free(*place);
    }
    for (place, page) in more_places.into_iter().zip(&more) {
        check(device, place, page);
        device.free(place);
    }
    assert_eq!(device.report().pages, 0);
    device.settle();
}

/// Threads that store, load and free at the same time each see their own bytes.
fn concurrent(device: &dyn PageStore) {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut mine: Vec<(Place, Page)> = Vec::new();
                for round in 0..60 {
                    let run = run_of(PageKind::Mixed, thread * 100 + round, 1 + rng.below(16) as usize);
                    let places = device.store_run(&run, thread << 20).unwrap();
                    mine.extend(places.into_iter().zip(run));
                    for _ in 0..8 {
                        let at = rng.below(mine.len() as u64) as usize;
                        check(device, mine[at].0, &mine[at].1);
                    }
                    while mine.len() > 200 || (rng.below(2) == 0 && !mine.is_empty()) {
                        let (place, page) = mine.swap_remove(rng.below(mine.len() as u64) as usize);
                        check(device, place, &page);
                        device.free(place);
                    }
                }
                mine.into_iter().for_each(|(place, _)| device.free(place));
            });
        }
    });
    assert_eq!(device.report().pages, 0);
    device.settle();
}

/// A flipped bit is an error that names the place, for that page alone.
fn damage_is_named(device: &dyn PageStore) {
    let run = run_of(PageKind::TwoToOne, 9, 32);
    let places = device.store_run(&run, 0).unwrap();
    assert!(device.damage(places[10]));
    let mut out = [0; PAGE_SIZE];
    match (device.load(places[10], &mut out).unwrap_err(), places[10]) {
        (Fault::Load(LoadError::Corrupt { expected, found }), Place::Zram { checksum, .. }) => {
            assert!(expected == checksum && found != checksum)
        }
        (Fault::Checksum { slot, expected, found }, Place::File { slot: asked, checksum, .. }) => {
            assert!(slot == asked && expected == checksum && found != checksum)
        }
        other => panic!("{other:?}"),
    }
    for (index, place) in places.iter().enumerate().filter(|(index, _)| *index != 10) {
        check(device, *place, &run[index]);
    }
    places.into_iter().for_each(|place| device.free(place));
}

/// Emptied memory and slots go back to the system.
fn emptied_is_given_back(device: &dyn PageStore) {
    device.settle();
    let before = device.report().used_bytes;
    let mut places = Vec::new();
    for seed in 0..16 {
        places.extend(device.store_run(&run_of(PageKind::TwoToOne, seed, 256), 0).unwrap());
    }
    let full = device.report().used_bytes - before;
    assert!(full > 6 << 20, "16 MiB of 2:1 pages take {full} bytes");
    places.into_iter().for_each(|place| device.free(place));
    device.settle();
    let left = device.report().used_bytes - before;
    assert!(left <= 64 << 10, "{left} of {full} bytes are left");
}

fn conforms(device: &dyn PageStore) {
    round_trip(device);
    partial_free(device);
    concurrent(device);
    damage_is_named(device);
    emptied_is_given_back(device);
    round_trip(device);
}

#[test]
fn zram_conforms() {
    conforms(&zram());
}

#[test]
fn file_conforms() {
    conforms(&FileUnderTest::new());
}

#[test]
fn a_full_zram_refuses_and_takes_again_after_a_free() {
    let device = ZramDevice::new(StoreOptions { mem_limit: 4 << 20, ..StoreOptions::DEFAULT });
    let mut places = Vec::new();
    let refused = loop {
        match device.store_run(&run_of(PageKind::TwoToOne, places.len() as u64, 16), 0) {
            Ok(more) => places.extend(more),
            Err(refused) => break refused,
        }
        assert!(places.len() < 4096, "the limit is never reached");
    };
    assert_eq!(refused, Refused::Store(StoreError::LimitReached));
    let stat = device.zram.mm_stat();
    assert!(stat.mem_used_total - stat.metadata_bytes <= 4 << 20, "{stat:?}");
    assert!(stat.mem_used_total > 3 << 20, "{stat:?}");
    for place in places.drain(..64) {
        device.free(place);
    }
    places.extend(device.store_run(&run_of(PageKind::TwoToOne, 0, 16), 0).unwrap());
    places.into_iter().for_each(|place| device.free(place));
    device.settle();
    assert_eq!(device.zram.mm_stat().objects, 0);
}

#[test]
fn a_full_disk_is_named() {
    let full = std::fs::File::options().write(true).read(true).open("/dev/full").unwrap();
    let slot = FileSlot::new(3).unwrap();
    let error = FileDevice::new(full.as_fd()).write(slot, AlignedRun::new(2).bytes()).unwrap_err();
    assert_eq!(error, FileError::Write { slot, errno: Errno::NOSPC });
    assert!(error.to_string().contains("slot 3"), "{error}");
}

#[test]
fn a_closed_descriptor_is_named() {
    // SAFETY: no open file has this number, so the calls fail and touch nothing.
    let device = FileDevice::new(unsafe { BorrowedFd::borrow_raw(1 << 20) });
    let slot = FileSlot::new(8).unwrap();
    let mut run = AlignedRun::new(1);
    assert_eq!(device.write(slot, run.bytes()), Err(FileError::Write { slot, errno: Errno::BADF }));
    assert_eq!(device.read(slot, run.bytes()), Err(FileError::Read { slot, errno: Errno::BADF }));
    assert_eq!(device.discard(slot, 1), Err(FileError::Punch { slot, errno: Errno::BADF }));
}

#[test]
fn reading_past_the_end_names_the_first_missing_slot() {
    let file = FileUnderTest::new();
    file.store_run(&run_of(PageKind::TwoToOne, 0, 4), 0).unwrap();
    let slot = FileSlot::new(2).unwrap();
    let error = file.device().read(slot, AlignedRun::new(4).bytes()).unwrap_err();
    assert_eq!(error, FileError::EndOfFile { slot: FileSlot::new(4).unwrap() });
}

#[test]
fn buffers_that_direct_io_would_refuse_are_refused_here() {
    let file = FileUnderTest::new();
    let slot = FileSlot::new(0).unwrap();
    let mut run = AlignedRun::new(2);
    for range in [0..0, 8..4104, 0..4095] {
        assert_eq!(file.device().write(slot, &run.bytes()[range]), Err(FileError::BadBuffer { slot }));
    }
    let last = FileSlot::new((1 << FileSlot::BITS) - 1).unwrap();
    assert_eq!(file.device().read(last, run.bytes()), Err(FileError::SlotRange { slot: last, slots: 2 }));
    assert_eq!(file.device().discard(slot, 0), Err(FileError::SlotRange { slot, slots: 0 }));
}

#[test]
fn a_punched_slot_reads_as_zeroes_and_frees_its_blocks() {
    let file = FileUnderTest::new();
    let run = run_of(PageKind::Incompressible, 0, 8);
    file.store_run(&run, 0).unwrap();
    let before = file.report().used_bytes;
    file.device().discard(FileSlot::new(2).unwrap(), 4).unwrap();
    assert_eq!(file.report().used_bytes, before - 4 * 4096);
    let mut back = AlignedRun::new(8);
    file.device().read(FileSlot::new(0).unwrap(), back.bytes()).unwrap();
    for (index, page) in run.iter().enumerate() {
        let found = &back.bytes()[index * 4096..][..4096];
        assert_eq!(found == page, !(2..6).contains(&index), "slot {index}");
        assert_eq!(found.iter().all(|&byte| byte == 0), (2..6).contains(&index), "slot {index}");
    }
}

#[test]
fn the_swap_file_is_private_nameless_and_direct() {
    let file = FileUnderTest::new();
    let stat = rustix::fs::fstat(&file.fd).unwrap();
    assert_eq!((stat.st_mode & 0o7777, stat.st_nlink, stat.st_size), (0o600, 0, 0));
    let flags = rustix::fs::fcntl_getfl(&file.fd).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::DIRECT));
}

#[test]
fn without_a_size_the_swap_file_takes_at_most_half_of_what_is_free() {
    let free = || {
        let disk = rustix::fs::statvfs("/var/tmp").unwrap();
        disk.f_bavail * disk.f_frsize
    };
    let before = free();
    let most = folioswap_devices::create::default_swap_max(std::path::Path::new("/var/tmp")).unwrap();
    // Other processes write to the disk meanwhile.
    let (least, greatest) = (before.min(free()) / 2, before.max(free()) / 2);
    let tolerance = greatest / 20;
    assert!((least - tolerance..=greatest + tolerance).contains(&most), "{most} of {before}");
}

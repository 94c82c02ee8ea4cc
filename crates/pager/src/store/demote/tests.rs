use super::*;
use crate::test_memory;
use crate::units::{BLOCK, PAGE};
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_slots::DeviceId;
use std::os::fd::AsRawFd;
use std::vec::Vec;

const PROGRAM: usize = 0x7000_0000_0000;

const FILE: DeviceId = DeviceId::new(0).unwrap();

const CLUSTERS: u32 = 4;

const BELOW: Below = Below { devices: DeviceMask::only(FILE), pieces: DemotionUnits::Whole };

/// An engine with a file, of which it has no cluster yet.
fn engine() -> (&'static Engine, std::fs::File) {
    let engine = test_memory::engine();
    let descriptor = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let description = DeviceDescription {
        kind,
        priority: 0,
        io,
        first_cluster: 0,
        clusters: CLUSTERS,
        contents: DeviceContents::Plain,
    };
    engine.space.shared_devices().set(FILE, description, descriptor.as_raw_fd());
    (engine, descriptor.into())
}

fn grant(engine: &Engine) {
    engine.space.file_space().add((0..CLUSTERS).map(|number| (number, FILE)));
}

/// Stores pages at these addresses of the program (in pages), in this order.
fn store(engine: &Engine, places: impl IntoIterator<Item = usize>) -> Vec<SwapEntry> {
    let stored = |place: usize| {
        let mut page = [0; PAGE];
        page[..8].copy_from_slice(&(place + 1).to_le_bytes());
        test_memory::store_page(engine, PROGRAM + place * PAGE, &page)
    };
    places.into_iter().map(stored).collect()
}

fn are_on_file(engine: &Engine, entries: &[SwapEntry]) -> bool {
    entries.iter().all(|&entry| engine.space.is_on_file(entry))
}

#[test]
fn the_oldest_goes_first_wherever_it_lies() {
    let (engine, _file) = engine();
    grant(engine);
    // The second half of the memory was stored first.
    let old = store(engine, 1024..1280);
    let new = store(engine, 0..768);
    let mut demotion = Demotion::new();
    let mut pages = 0;
    while pages < 256 {
        let demoted = engine.demote(&mut demotion, 64, BELOW);
        assert_eq!((demoted.pages, demoted.stopped), (64, None));
        pages += 64;
    }
    assert!(are_on_file(engine, &old));
    assert!(new.iter().all(|&entry| engine.space.is_in_zram(entry)));
    // Then younger pages go, and at last none.
    for _ in 0..64 {
        pages += engine.demote(&mut demotion, 128, BELOW).pages;
    }
    assert_eq!(pages, 1024);
    assert!(are_on_file(engine, &new));
    assert_eq!(engine.demote(&mut demotion, 64, BELOW), Demoted::default());
    assert_eq!(engine.figures().counter(Counter::FilePagesOut), 1024);
}

#[test]
fn it_makes_way_for_who_waits_after_a_run() {
    let (engine, _file) = engine();
    grant(engine);
    let entries = store(engine, 0..512);
    engine.mappings.scan_wanted.store(1, Relaxed);
    assert_eq!(engine.demote(&mut Demotion::new(), 512, BELOW).pages, RUN_PAGES as u64);
    assert!(are_on_file(engine, &entries[..RUN_PAGES]));
}

#[test]
fn without_a_run_of_slots_it_stops_or_goes_on_in_pieces() {
    let (engine, _file) = engine();
    let entries = store(engine, 0..256);
    let mut demotion = Demotion::new();
    let stopped = Demoted { pages: 0, stopped: Some(WriteError::NoSlots) };
    assert_eq!(engine.demote(&mut demotion, 128, BELOW), stopped);
    grant(engine);
    // Every second slot is used.
    let files = engine.space.file_space();
    let slots: Vec<_> = core::iter::from_fn(|| files.allocate(1, DeviceMask::ALL)).collect();
    slots.iter().step_by(2).for_each(|&slot| files.free(slot));
    assert_eq!(engine.demote(&mut demotion, 128, BELOW), stopped);
    let pieces = Below { pieces: DemotionUnits::Any, ..BELOW };
    assert_eq!(engine.demote(&mut demotion, 16, pieces), Demoted { pages: 16, stopped: None });
    assert!(are_on_file(engine, &entries[..16]) && !engine.space.is_on_file(entries[16]));
}

#[test]
fn a_step_passes_a_bounded_part_of_the_program() {
    let (engine, _file) = engine();
    grant(engine);
    let block_pages = BLOCK / PAGE;
    let entries = store(engine, (0..BLOCKS_AT_ONCE + 1).map(|block| block * block_pages));
    let mut demotion = Demotion::new();
    assert_eq!(engine.demote(&mut demotion, 64, BELOW).pages, BLOCKS_AT_ONCE as u64);
    assert!(!engine.space.is_on_file(entries[BLOCKS_AT_ONCE]));
    assert_eq!(engine.demote(&mut demotion, 64, BELOW).pages, 1);
}

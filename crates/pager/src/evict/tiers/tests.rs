use super::*;
use crate::engine::Engine;
use crate::staging::candidates::Candidates;
use crate::test_memory::decide;
use crate::test_memory::ring_turn;
use crate::test_memory::{attach_file, fill, map, moving_engine};
use crate::units::{BlockAddr, PIECE, PageAddr, PieceAddr};
use folioswap_group::counters::Gauge;
use folioswap_group::devices::{DeviceContents, DeviceIo, DeviceKind};
use folioswap_policy::page::PageState;
use std::os::fd::OwnedFd;
use std::vec::Vec;

const FILE: DeviceId = DeviceId::new(0).unwrap();

/// An engine with a berth in staging and one cluster of a file, in which the slots are free that
/// `is_free` names.
fn scene(is_free: impl Fn(usize) -> bool) -> Option<(Evictor, usize, OwnedFd)> {
    let engine: &'static Engine = moving_engine()?;
    let file = attach_file(engine, 512);
    let (files, devices) = (engine.space.file_space(), DeviceMask::only(FILE));
    files.add([(0, FILE)].into_iter());
    let taken: Vec<_> = core::iter::from_fn(|| files.allocate(1, devices)).collect();
    let free = taken.into_iter().enumerate().filter(|(number, _)| is_free(*number));
    free.for_each(|(_, slot)| files.free(slot));
    let start = map(2 * PIECE).next_multiple_of(PIECE);
    fill(start);
    engine.table.block_or_insert(BlockAddr::containing(start), engine.arena)?;
    engine.register_pieces(start, start + PIECE);
    assert_eq!(
        ring_turn(engine).isolate(PieceAddr::containing(start), Candidates::ALL_DIRTY).moved,
        u16::MAX
    );
    assert_eq!(engine.to_write(), (16, Order::new(4).unwrap()));
    let mut evictor = Evictor::new(engine);
    // There is no supervisor to ask.
    evictor.tiers.ask_full_due.take(sys::now_ns(), 1 << 60);
    Some((evictor, start, file))
}

fn write(evictor: &mut Evictor) -> Result<u64, Stuck> {
    let devices = DeviceMask::only(FILE);
    evictor.whole_or_in_pieces(devices, PIECE_PAGES, |evictor, pieces| {
        let engine = evictor.engine;
        let back =
            engine.write_back_oldest(&mut evictor.scratch, Tier::Shared(devices), pieces, RUN_BERTHS)?;
        Ok(back.pages)
    })
}

fn fallbacks(evictor: &Evictor) -> Vec<u64> {
    let figures = evictor.engine.figures();
    (0..10).map(|order| figures.size(SizeCounter::SwapOutFallback, order)).collect()
}

#[test]
fn a_device_without_room_for_the_run_is_a_fallback() {
    let Some((mut evictor, start, _file)) = scene(|number| number % 2 == 0) else { return };
    assert_eq!(write(&mut evictor), Ok(16));
    assert_eq!(fallbacks(&evictor), [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    let block = evictor.engine.table.block(BlockAddr::containing(start)).unwrap();
    let stored = |page| matches!(block.word(PageAddr::containing(start).index().plus(page)).state(), PageState::Stored(entry) if evictor.engine.space.is_on_file(entry));
    assert!((0..PIECE_PAGES).all(stored));
}

#[test]
fn a_device_with_room_takes_it_whole_and_one_without_any_has_split_nothing() {
    let Some((mut evictor, _, _file)) = scene(|number| number >= 16) else { return };
    assert_eq!(write(&mut evictor), Ok(16));
    assert_eq!(fallbacks(&evictor), [0; 10]);
    let Some((mut evictor, _, _file)) = scene(|_| false) else { return };
    assert_eq!(write(&mut evictor), Err(Stuck::WantClusters));
    assert_eq!(fallbacks(&evictor), [0; 10]);
    assert_eq!(evictor.engine.to_write().0, 16);
    // A part of it has gone by itself, where the device has room for a part of it.
    let Some((mut evictor, _, _file)) = scene(|number| number < 5) else { return };
    assert_eq!(write(&mut evictor), Err(Stuck::WantClusters));
    assert_eq!(fallbacks(&evictor)[4], 1);
    assert_eq!(evictor.engine.to_write().0, 11);
}

/// The same with a compressed store above the file.
fn scene_with_store() -> Option<(Evictor, usize, OwnedFd)> {
    let (evictor, start, file) = scene(|_| true)?;
    let engine = evictor.engine;
    for (number, kind, clusters) in [(0, DeviceKind::File, 4), (1, DeviceKind::Zram, 0)] {
        decide(engine).device(number).describe(DeviceDescription {
            kind,
            priority: number as i32,
            io: DeviceIo::Asynchronous,
            first_cluster: 0,
            clusters,
            contents: DeviceContents::Plain,
        });
    }
    engine.space.reserve_frames().ok()?;
    Some((Evictor { tiers: Tiers::new(engine), ..evictor }, start, file))
}

#[test]
fn pages_pass_a_store_by_that_has_no_share() {
    for (percent, goes_to_file) in [(44, false), (4, false), (0, true)] {
        let Some((mut evictor, start, _file)) = scene_with_store() else { return };
        evictor.tiers.store_share = StoreShare::near(percent);
        assert_eq!(evictor.writes_to_store_alone(), !goes_to_file, "{percent}");
        let written = evictor.write_back(RUN_BERTHS).expect("room");
        assert_eq!(written.pages, PIECE_PAGES as u64);
        let block = evictor.engine.table.block(BlockAddr::containing(start)).unwrap();
        let is_on_file = |page| match block.word(PageAddr::containing(start).index().plus(page)).state() {
            PageState::Stored(entry) => evictor.engine.space.is_on_file(entry),
            state => panic!("{percent}: {state:?}"),
        };
        assert!((0..PIECE_PAGES).all(|page| is_on_file(page) == goes_to_file), "{percent}");
    }
}

#[test]
fn a_store_that_passed_pages_by_takes_them_where_the_file_is_full() {
    let Some((mut evictor, _, _file)) = scene_with_store() else { return };
    evictor.tiers.store_share = StoreShare::near(0);
    let (files, devices) = (evictor.engine.space.file_space(), DeviceMask::only(FILE));
    while files.allocate(1, devices).is_some() {}
    decide(evictor.engine).device(0).mark_full();
    assert!(evictor.writes_to_store_alone());
    assert_eq!(evictor.write_back(RUN_BERTHS).expect("room").pages, PIECE_PAGES as u64);
    assert!(evictor.engine.space.store_bytes() > 0);
}

#[test]
fn a_process_begins_with_the_share_of_others() {
    let Some((evictor, ..)) = scene_with_store() else { return };
    let engine = evictor.engine;
    assert_eq!(share_of_others(engine), StoreShare::default(), "nobody has judged one");
    assert_eq!(decide(engine).assign(engine.segment(), std::process::id()), Some(0));
    engine.figures().set(Gauge::Resident, 100 << 20);
    for (pool, percent) in [(1, 0), (12 << 20, 11), (40 << 20, 44)] {
        engine.figures().set(Gauge::MaxPool, pool);
        assert_eq!(share_of_others(engine).percent(), percent);
    }
}

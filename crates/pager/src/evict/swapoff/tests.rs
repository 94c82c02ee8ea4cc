use super::*;
use crate::engine::Engine;
use crate::test_memory::{self, decide};
use crate::units::PAGE;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::Decoder;
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_group::protocol::Kind;
use folioswap_group::protocol::Message;
use folioswap_slots::{FolioId, Order, Shadow, SwapEntry};
use folioswap_space::space::{Movers, ReadError};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::boxed::Box;
use std::os::fd::{IntoRawFd, OwnedFd};

use std::vec::Vec;

const FIRST: DeviceId = DeviceId::new(0).unwrap();

const SECOND: DeviceId = DeviceId::new(1).unwrap();

const STORE: DeviceId = DeviceId::new(2).unwrap();

const CLUSTERS: u32 = 4;

/// Two files of which this process has all clusters, the first with the higher priority, and a
/// compressed store below.
struct Scene {
    engine: &'static Engine,
    evictor: Evictor,
    /// A second descriptor of the first one.
    first: OwnedFd,
    supervisor: OwnedFd,
}

impl Scene {
    fn new() -> Self {
        let engine = test_memory::engine();
        let describe = |id: DeviceId, kind, first_cluster, clusters| {
            let (priority, io) = (9 - id.index() as i32, DeviceIo::Asynchronous);
            let description = DeviceDescription {
                kind,
                priority,
                io,
                first_cluster,
                clusters,
                contents: DeviceContents::Plain,
            };
            decide(engine).device(id.index()).describe(description);
            description
        };
        let mut first = None;
        for (id, first_cluster) in [(FIRST, 0), (SECOND, CLUSTERS + 1)] {
            let file = memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
            first = first.or_else(|| Some(rustix::io::dup(&file).expect("a descriptor")));
            let description = describe(id, DeviceKind::File, first_cluster, CLUSTERS);
            engine.space.shared_devices().set(id, description, file.into_raw_fd());
            let numbers = first_cluster..first_cluster + CLUSTERS;
            engine.space.file_space().add(numbers.map(|number| (number, id)));
        }
        describe(STORE, DeviceKind::Zram, 0, 0);
        let (ours, supervisor) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
        engine.descriptors.control.store(ours.into_raw_fd(), Relaxed);
        Scene { engine, evictor: Evictor::new(engine), first: first.expect("a file"), supervisor }
    }

    fn says(&mut self, id: DeviceId, usage: DeviceUsage) {
        decide(self.engine).device(id.index()).set_usage(usage);
        decide(self.engine).devices_have_changed();
        self.evictor.follow_devices();
    }

    /// Fills the second file, but for these slots of its first run of 256.
    fn leave_on_second(&mut self, slots: impl Iterator<Item = u64>) {
        let files = self.engine.space.file_space();
        let taken: Vec<_> = core::iter::from_fn(|| files.allocate(256, DeviceMask::only(SECOND))).collect();
        assert_eq!(taken.len(), 2 * CLUSTERS as usize);
        for slot in slots {
            files.free(folioswap_devices::FileSlot::new(taken[0].raw() + slot).expect("a slot"));
        }
        decide(self.engine).device(1).mark_full();
        self.evictor.tiers.ask_full_due.take(sys::now_ns(), 1 << 60);
    }

    /// Moves until nothing moves any more; returns the pages that went.
    fn move_all(&mut self) -> u64 {
        let mut moved = 0;
        for _ in 0..1000 {
            self.evictor.tiers.swapoff.due = Due::at_once();
            let pages = self.evictor.move_off_leaving(Memory::Ample);
            moved += pages;
            if pages == 0 && self.evictor.tiers.swapoff.hand == 0 {
                break;
            }
        }
        moved
    }

    /// Numbers of clusters that were given back.
    fn given_back(&self) -> Vec<u32> {
        let (mut numbers, mut bytes) = (vec![], [0; Message::BYTES]);
        while let Ok((_, Message::BYTES)) = recv(&self.supervisor, &mut bytes, RecvFlags::DONTWAIT) {
            let message = Message::from_bytes(&bytes);
            assert_eq!(message.kind(), Some(Kind::DropClusters));
            numbers.extend_from_slice(message.clusters());
        }
        numbers.sort_unstable();
        numbers
    }
}

fn page(number: usize) -> Page {
    core::array::from_fn(|at| (number * 31 + at * at) as u8)
}

/// Pages on these devices, of these numbers.
fn stored(engine: &Engine, devices: DeviceMask, numbers: Range<usize>) -> Vec<SwapEntry> {
    #[repr(align(4096))]
    struct Aligned(Page);
    numbers
        .map(|number| {
            engine.space.reserve_frames().expect("memory");
            let entry = engine.space.allocate(Order::ZERO, FolioId(0)).expect("a slot");
            let bytes = Aligned(page(number));
            engine.space.write_run(&[Some(entry)], &bytes.0, devices).expect("room");
            engine.space.leave_cache(entry, 1, Shadow::EMPTY);
            entry
        })
        .collect()
}

fn read(engine: &Engine, entry: SwapEntry) -> Result<Page, ReadError> {
    #[repr(align(4096))]
    struct Aligned(Page);
    let mut bytes = Box::new(Aligned([0; PAGE]));
    engine.space.read(entry, &mut Box::new(Decoder::new()), &mut bytes.0, Movers::Running)?;
    Ok(bytes.0)
}

#[track_caller]
fn are_right(engine: &Engine, entries: &[SwapEntry]) {
    for (number, &entry) in entries.iter().enumerate() {
        assert!(read(engine, entry).expect("stored") == page(number), "page {number}");
    }
    engine.space.validate().expect("invariants");
}

#[test]
fn what_is_on_it_goes_to_the_other_devices_and_its_clusters_go_back() {
    let mut scene = Scene::new();
    let engine = scene.engine;
    let entries = stored(engine, DeviceMask::only(FIRST), 0..700);
    scene.says(FIRST, DeviceUsage::Leaving);
    let stale = engine.counts.stale_copies.load(Relaxed);
    assert_eq!(scene.move_all(), 700);
    assert!(entries.iter().all(|&entry| engine.space.is_on_shared(entry, SECOND)));
    assert_ne!(engine.counts.stale_copies.load(Relaxed), stale, "what was read ahead is not used");
    are_right(engine, &entries);
    assert_eq!(scene.given_back(), [0, 1, 2, 3]);
    assert_eq!(engine.figures().counter(Counter::SwapoffPages), 700);
    scene.says(FIRST, DeviceUsage::Off);
    assert_eq!(engine.space.shared_devices().mask(), DeviceMask::only(SECOND), "it is closed");
    are_right(engine, &entries);
}

#[test]
fn what_finds_no_room_on_them_goes_to_the_store_and_what_was_shared_is_let_go() {
    let mut scene = Scene::new();
    let engine = scene.engine;
    let entries = stored(engine, DeviceMask::only(FIRST), 0..300);
    scene.leave_on_second((0..5).map(|at| 3 * at));
    engine.space.file_space().share_all();
    engine.space.file_space().unshare(|number| number > CLUSTERS);
    scene.says(FIRST, DeviceUsage::Leaving);
    assert_eq!(scene.move_all(), 300);
    let on_second = entries.iter().filter(|&&entry| engine.space.is_on_shared(entry, SECOND)).count();
    assert_eq!(on_second, 5);
    assert_eq!(engine.space.mm_stat().objects, 295);
    are_right(engine, &entries);
    assert_eq!(scene.given_back(), [0, 1, 2, 3], "a child has a copy of its own");
}

#[test]
fn a_page_that_it_does_not_give_is_lost_and_no_other() {
    let mut scene = Scene::new();
    let engine = scene.engine;
    let entries = stored(engine, DeviceMask::only(FIRST), 0..40);
    let slot = engine.space.file_slot(entries[17]).expect("on the file");
    rustix::io::pwrite(&scene.first, b"other bytes", slot.raw() * PAGE as u64).expect("written");
    scene.says(FIRST, DeviceUsage::Leaving);
    assert_eq!(scene.move_all(), 40);
    let figure = |counter| engine.figures().counter(counter);
    assert_eq!((figure(Counter::SwapoffPages), figure(Counter::SwapoffLost)), (39, 1));
    for (number, &entry) in entries.iter().enumerate() {
        match read(engine, entry) {
            Ok(bytes) => assert!(number != 17 && bytes == page(number)),
            Err(error) => assert_eq!((number, error), (17, ReadError::Missing)),
        }
    }
    assert_eq!(scene.given_back(), [0, 1, 2, 3]);
    engine.space.validate().expect("invariants");
}

/// A page that is freed, or written anew, between the steps keeps the state that it has then.
#[test]
fn what_changes_meanwhile_stays_as_it_is() {
    let scene = Scene::new();
    let (engine, space) = (scene.engine, &scene.engine.space);
    let entries = stored(engine, DeviceMask::only(FIRST), 0..4);
    let (mut leaving, _) = space.stored_on(DeviceMask::only(FIRST), 0, 16);
    assert_eq!(leaving.len(), 4);
    let run = &mut engine.run_room().expect("memory")[..4];
    assert!(space.read_leaving(&mut leaving, run));
    space.store_leaving_on(&mut leaving, 0..2, &run[..2], DeviceMask::only(SECOND)).expect("room");
    let mut scratch = Box::new(folioswap_devices::Scratch::new());
    for (index, page) in (2..4).zip(&run[2..]) {
        space.store_leaving_in_store(&mut leaving, index, &mut scratch, page).expect("memory");
    }
    space.put(entries[0], 1);
    space.put(entries[2], 1);
    let settled = space.settle_leaving(&leaving);
    assert_eq!((settled.moved, settled.lost), (2, 0));
    assert_eq!((space.file_space().used_slots(), space.mm_stat().objects), (1, 1));
    for number in [1, 3] {
        assert!(read(engine, entries[number]).expect("stored") == page(number));
    }
    space.validate().expect("invariants");
}

/// While memory is short pages go to the other file, and not to the store.
#[test]
fn while_memory_is_short_nothing_goes_where_it_takes_some() {
    let mut scene = Scene::new();
    let engine = scene.engine;
    let entries = stored(engine, DeviceMask::only(FIRST), 0..200);
    scene.leave_on_second(0..128);
    scene.says(FIRST, DeviceUsage::Leaving);
    for _ in 0..4 {
        scene.evictor.tiers.swapoff.due = Due::at_once();
        scene.evictor.move_off_leaving(Memory::Short);
    }
    let on_second = entries.iter().filter(|&&entry| engine.space.is_on_shared(entry, SECOND)).count();
    assert_eq!((on_second, engine.space.mm_stat().objects), (128, 0));
    assert_eq!(scene.move_all(), 72);
    assert_eq!(engine.space.mm_stat().objects, 72);
    are_right(engine, &entries);
}

/// The handler does not make way: nothing moves, and nothing is kept of the attempt.
#[test]
fn nothing_moves_while_the_handler_reads() {
    let mut scene = Scene::new();
    let engine = scene.engine;
    let entries = stored(engine, DeviceMask::only(FIRST), 0..40);
    scene.says(FIRST, DeviceUsage::Leaving);
    let served = engine.locks.serve.lock();
    scene.evictor.tiers.swapoff.due = Due::at_once();
    assert_eq!(scene.evictor.move_off_leaving(Memory::Ample), 0);
    assert!(entries.iter().all(|&entry| engine.space.is_on_shared(entry, FIRST)));
    assert_eq!(engine.space.file_space().used_slots(), 40);
    drop(served);
    assert_eq!(scene.move_all(), 40);
    are_right(engine, &entries);
}

/// Readers of single pages and of runs go on meanwhile, each under its own protection.
#[test]
fn readers_find_one_place_or_the_other() {
    let mut scene = Scene::new();
    let engine = scene.engine;
    let entries = stored(engine, DeviceMask::only(FIRST), 0..512);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while rounds.load(Relaxed) < 20 {
                engine.make_way_for_evictor();
                let _in_a_round = engine.locks.serve.lock();
                for (number, &entry) in entries.iter().enumerate().step_by(37) {
                    assert!(read(engine, entry).expect("stored") == page(number), "page {number}");
                }
            }
        });
        for round in 0..20 {
            let (from, to) = if round % 2 == 0 { (FIRST, SECOND) } else { (SECOND, FIRST) };
            scene.says(to, DeviceUsage::InUse);
            scene.says(from, DeviceUsage::Leaving);
            while engine.space.file_space().used_on(DeviceMask::only(from)) > 0 {
                scene.evictor.tiers.swapoff.due = Due::at_once();
                scene.evictor.move_off_leaving(Memory::Ample);
            }
            // The pages are treated as if they had come back.
            let clusters = if from == FIRST { 0..CLUSTERS } else { CLUSTERS + 1..2 * CLUSTERS + 1 };
            let held = engine.space.file_space();
            scene.evictor.let_go_of(from);
            held.add(clusters.map(|number| (number, from)));
            rounds.fetch_add(1, Relaxed);
        }
        reader.join().expect("right bytes");
    });
    are_right(engine, &entries);
}

//! A device of the group is taken out of use while it runs (swapoff, spec §0): each member moves what it has there elsewhere, and lets it go.
//!
//! The supervisor says in the segment which device leaves. From then on nobody chooses it for a write (`tiers.rs`), what comes back from it
//! keeps no copy there (`clean.rs`), and the evictor, under the gate, goes over the entries in use and moves those that lie there: to the other devices, and where
//! there is no room, to the compressed store. When nothing is left, this process's clusters go back, shared ones as well: all forks that there were
//! until then have been told of. When nobody has any, the supervisor says that the device is off, and each member closes it.
//!
//! A device that was added (swapon) is asked for, and used by its priority from then on.
//!
//! The handler reads runs of slots without locking each location: locations are exchanged while it is outside of its rounds, and what it reads
//! ahead is forgotten.

use crate::demote::{Pieces, RUN_PAGES};
use crate::due::Due;
use crate::engine::Engine;
use crate::evictor::Evictor;
use crate::futex::Guard;
use crate::link;
use crate::registration::Memory;
use crate::sys;
use crate::tiers::RunFolios;
use crate::write_back::Stuck;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use folioswap_core::space::WriteError;
use folioswap_core::swapoff::Leaving;
use folioswap_core::turns::Turns;
use folioswap_devices::{Orders, Page};
use folioswap_group::counters::Counter;
use folioswap_group::devices::DeviceUsage;
use folioswap_group::protocol::{CLUSTERS_PER_MESSAGE, Ending, Kind, Message};
use folioswap_slots::{DeviceId, DeviceMask};
use rustix::thread::{Timespec, nanosleep};

/// Between two steps that found nothing to do, or no room.
const PAUSE_NS: u64 = 20_000_000;
/// Between two steps while memory is short: a step takes a millisecond or two.
const SHORT_NS: u64 = 10_000_000;
/// After a server did not answer.
const AWAY_NS: u64 = 500_000_000;
/// Times that the handler is asked to make way, and between two of them.
const ASKED: u32 = 30;
const ASKED_NS: i64 = 100_000;

/// What this process knows of devices that leave. Lost without harm at a fork.
pub(crate) struct Swapoff {
    /// `Header::devices_changed` at the last look.
    seen: Option<u32>,
    leaving: DeviceMask,
    /// The offset of the entry that is looked at next.
    hand: u64,
    due: Due,
}

impl Swapoff {
    /// Nothing leaves, as far as is known.
    pub(crate) const fn new() -> Self {
        Swapoff { seen: None, leaving: DeviceMask::NONE, hand: 0, due: Due::at_once() }
    }
}

impl Evictor {
    /// Looks which devices leave, closes those that are off, and opens those that were added. Under the gate.
    pub(crate) fn follow_devices(&mut self) {
        let engine = self.engine;
        let changed = engine.segment().header.devices_changed.load(Acquire);
        if self.swapoff.seen == Some(changed) {
            return;
        }
        let (mut leaving, mut off) = (DeviceMask::NONE, DeviceMask::NONE);
        for (id, (_, entry)) in DeviceMask::ALL.iter().zip(engine.segment().devices()) {
            match entry.usage() {
                DeviceUsage::InUse => {}
                DeviceUsage::Leaving => leaving = leaving.with(id),
                DeviceUsage::Off => off = off.with(id),
            }
        }
        let off = off.intersection(engine.space.shared_devices().mask());
        if !off.is_empty() {
            // What the handler still reads of it nobody wants; it is looked at again if it does not make way.
            let Some(_outside) = engine.have_handler_outside() else { return };
            engine.stale_copies.fetch_add(1, Release);
            off.iter().for_each(|id| engine.space.shared_devices().close(id));
        }
        self.open_added();
        self.swapoff = Swapoff { seen: Some(changed), leaving, ..Swapoff::new() };
    }

    /// Asks for the devices that this process has not got. One that cannot be had, for want of a descriptor, it does not use.
    fn open_added(&mut self) {
        let engine = self.engine;
        if engine.embedded.is_on() {
            return;
        }
        let known = engine.space.shared_devices().mask();
        let mut added = DeviceMask::NONE;
        for (id, (device, entry)) in DeviceMask::ALL.iter().zip(engine.segment().devices()) {
            if device.clusters == 0 || known.contains(id) || entry.usage() == DeviceUsage::Off {
                continue;
            }
            if let Some(descriptor) = engine.device(id) {
                engine.space.shared_devices().set_orders(id, Orders::from_bits(entry.orders()));
                engine.space.shared_devices().set(id, device, descriptor);
                added = added.with(id);
            }
        }
        if !added.is_empty() {
            self.turns = Turns::new(engine.segment().devices().map(|(device, _)| device));
            self.run_folios = RunFolios::new();
            self.note_devices_below_store();
        }
    }

    /// Moves some of what lies on devices that leave. Under the gate. Returns how many pages went. While memory is short nothing goes where it takes
    /// some, and eviction has most of the time.
    pub(crate) fn move_off_leaving(&mut self, memory: Memory) -> u64 {
        let leaving = self.swapoff.leaving;
        let rest_ns = if memory == Memory::Short { SHORT_NS } else { 0 };
        if leaving.is_empty() || !self.swapoff.due.take(sys::now_ns(), rest_ns) {
            return 0;
        }
        let engine = self.engine;
        let from = self.swapoff.hand;
        let (mut pages, next) = engine.space.stored_on(leaving, from, RUN_PAGES);
        if pages.is_empty() {
            self.swapoff.hand = next.unwrap_or(0);
            if next.is_none() {
                leaving.iter().for_each(|id| self.let_go_of(id));
                self.swapoff.due.take(sys::now_ns(), PAUSE_NS);
            }
            return 0;
        }
        let Some(run) = engine.run_room() else {
            self.swapoff.due.take(sys::now_ns(), PAUSE_NS);
            return 0;
        };
        let run = &mut run[..pages.len()];
        let answers = engine.space.read_leaving(&mut pages, run);
        self.store_leaving(&mut pages, run, memory);
        let settled = match engine.have_handler_outside() {
            Some(_outside) => {
                let settled = engine.space.settle_leaving(&pages);
                engine.stale_copies.fetch_add(1, Release);
                settled
            }
            None => {
                engine.space.give_up_leaving(&pages);
                Default::default()
            }
        };
        engine.figures().add(Counter::SwapoffPages, settled.moved);
        engine.figures().add(Counter::SwapoffLost, settled.lost);
        if settled.moved + settled.lost == pages.len() as u64 {
            self.swapoff.hand = next.unwrap_or(0);
        } else {
            // They are looked at again.
            self.swapoff.due.take(sys::now_ns(), if answers { PAUSE_NS } else { AWAY_NS });
        }
        settled.moved + settled.lost
    }

    /// How long the evictor may sleep, as far as devices that leave are concerned, in nanoseconds.
    pub(crate) fn leaving_rest_ns(&self) -> u64 {
        if self.swapoff.leaving.is_empty() { u64::MAX } else { PAUSE_NS }
    }

    /// Gives these pages other places, as far as there is room: on other devices by their priority, or in the compressed store.
    fn store_leaving(&mut self, pages: &mut Leaving, run: &[Page], memory: Memory) {
        let engine = self.engine;
        let available = self.available();
        let mut available = if memory == Memory::Short { self.on_disk(available) } else { available };
        loop {
            let devices = self.turns.shared(available);
            if devices.is_empty() {
                break;
            }
            let stored = self.whole_or_in_pieces(devices, RUN_PAGES, |_, pieces| {
                engine.store_leaving_on(pages, run, devices, pieces)
            });
            match stored {
                Ok(()) => return,
                Err(Stuck::Failed(device)) => {
                    self.let_rest(device);
                    available = available.without(device);
                }
                Err(_) => available = available.minus(devices),
            }
        }
        let has_store = !available.minus(engine.space.shared_devices().mask()).is_empty();
        for index in (0..pages.len()).filter(|_| has_store) {
            if engine.space.store_leaving_in_store(pages, index, &mut self.scratch, &run[index]).is_err() {
                return;
            }
        }
    }

    /// Nothing of this process is on the device any more, unless the handler has just put something there: its clusters go back.
    fn let_go_of(&mut self, id: DeviceId) {
        let engine = self.engine;
        let Some(_outside) = engine.have_handler_outside() else { return };
        let mut numbers = [0; CLUSTERS_PER_MESSAGE];
        loop {
            let count = engine.space.file_space().take_all(id, &mut numbers);
            if count == 0 {
                return;
            }
            let message =
                Message::new(Kind::DropClusters, [count as u64, 0, 0]).with_clusters(&numbers[..count]);
            let _ = link::send(engine.descriptors.control.load(Relaxed), &message, None);
        }
    }
}

impl Engine {
    /// The descriptor of a device that was added to the group.
    fn device(&self, id: DeviceId) -> Option<i32> {
        let control = self.descriptors.control.load(Relaxed);
        let request = Message::new(Kind::WantDevice, [id.index() as u64, 0, 0]);
        match link::send(control, &request, None).and_then(|()| link::receive(control)) {
            Ok((answer, came)) if answer.kind() == Some(Kind::Device) => {
                (answer.words[0] == 1 && came[0] >= 0).then_some(came[0])
            }
            _ => self.end(Ending::NoClusters, None),
        }
    }

    /// Writes what was read, and has no place yet, to one of `devices`: together, or in pieces.
    fn store_leaving_on(
        &self,
        pages: &mut Leaving,
        run: &[Page],
        devices: DeviceMask,
        pieces: Pieces,
    ) -> Result<(), Stuck> {
        let mut piece = RUN_PAGES;
        while let Some(first) = (0..pages.len()).find(|&index| pages.is_read(index)) {
            let range = first..pages.len().min(first + piece);
            match self.space.store_leaving_on(pages, range.clone(), &run[range.clone()], devices) {
                Ok(()) => {}
                Err(WriteError::NoSlots | WriteError::OrderNotTaken)
                    if pieces == Pieces::Any && range.len() > 1 =>
                {
                    piece = (range.len() / 4).max(1);
                }
                Err(error) => {
                    self.tell_of_failure(error);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// The handler's lock, for the evictor: it waits for a read from a disk, but not for a handler that waits for memory.
    fn have_handler_outside(&self) -> Option<Guard<'_>> {
        (0..ASKED).find_map(|_| {
            self.handler_outside().or_else(|| {
                let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: ASKED_NS });
                None
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_memory;
    use core::ops::Range;
    use core::sync::atomic::AtomicU64;
    use folioswap_core::page_table::PAGE;
    use folioswap_core::space::{Movers, ReadError};
    use folioswap_devices::zstd::Decoder;
    use folioswap_group::devices::{DeviceDescription, DeviceIo, DeviceKind};
    use folioswap_slots::{FolioId, Order, Shadow, SwapEntry};
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use std::boxed::Box;
    use std::os::fd::{IntoRawFd, OwnedFd};
    use std::vec;
    use std::vec::Vec;

    const FIRST: DeviceId = DeviceId::new(0).unwrap();
    const SECOND: DeviceId = DeviceId::new(1).unwrap();
    const STORE: DeviceId = DeviceId::new(2).unwrap();
    const CLUSTERS: u32 = 4;

    /// Two files of which this process has all clusters, the first with the higher priority, and a compressed store below.
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
                let description = DeviceDescription { kind, priority, io, first_cluster, clusters };
                engine.segment().devices[id.index()].describe(description);
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
            self.engine.segment().devices[id.index()].set_usage(usage);
            self.engine.segment().header.devices_changed.fetch_add(1, Release);
            self.evictor.follow_devices();
        }

        /// Moves until nothing moves any more; the pages that went.
        fn move_all(&mut self) -> u64 {
            let mut moved = 0;
            for _ in 0..1000 {
                self.evictor.swapoff.due = Due::at_once();
                let pages = self.evictor.move_off_leaving(Memory::Ample);
                moved += pages;
                if pages == 0 && self.evictor.swapoff.hand == 0 {
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
        let stale = engine.stale_copies.load(Relaxed);
        assert_eq!(scene.move_all(), 700);
        assert!(entries.iter().all(|&entry| engine.space.is_on_shared(entry, SECOND)));
        assert_ne!(engine.stale_copies.load(Relaxed), stale, "what was read ahead is not used");
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
        let room = |scene: &Scene| scene.engine.space.file_space().allocate(256, DeviceMask::only(SECOND));
        let taken: Vec<_> = core::iter::from_fn(|| room(&scene)).collect();
        assert_eq!(taken.len(), 2 * CLUSTERS as usize);
        (0..5).for_each(|at| {
            let slot = folioswap_devices::FileSlot::new(taken[0].raw() + 3 * at).expect("a slot");
            engine.space.file_space().free(slot);
        });
        engine.segment().devices[1].full.store(1, Relaxed);
        scene.evictor.ask_full_due.take(sys::now_ns(), 1 << 60);
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

    /// What is freed, or written anew, between the steps keeps what it has then.
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
        let free = |scene: &Scene| scene.engine.space.file_space().allocate(128, DeviceMask::only(SECOND));
        let taken: Vec<_> = core::iter::from_fn(|| free(&scene)).collect();
        let freed = taken[0].raw();
        (freed..freed + 128).for_each(|slot| {
            engine.space.file_space().free(folioswap_devices::FileSlot::new(slot).expect("a slot"));
        });
        engine.segment().devices[1].full.store(1, Relaxed);
        scene.evictor.ask_full_due.take(sys::now_ns(), 1 << 60);
        scene.says(FIRST, DeviceUsage::Leaving);
        for _ in 0..4 {
            scene.evictor.swapoff.due = Due::at_once();
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
        let served = engine.serve_lock.lock();
        scene.evictor.swapoff.due = Due::at_once();
        assert_eq!(scene.evictor.move_off_leaving(Memory::Ample), 0);
        assert!(entries.iter().all(|&entry| engine.space.is_on_shared(entry, FIRST)));
        assert_eq!(engine.space.file_space().used_slots(), 40);
        drop(served);
        assert_eq!(scene.move_all(), 40);
        are_right(engine, &entries);
    }

    /// Readers of single pages and of runs go on meanwhile, each under what protects it.
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
                    let _in_a_round = engine.serve_lock.lock();
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
                    scene.evictor.swapoff.due = Due::at_once();
                    scene.evictor.move_off_leaving(Memory::Ample);
                }
                // As if they had come back.
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
}

//! The swap space on devices that fail: a bad slot costs a page or another slot, never more, and is
//! not used again.

mod heap;

use folioswap_devices::zstd::Decoder;
use folioswap_devices::{FileError, FileSlot, IncompressiblePolicy, Orders, Page, Scratch};
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo, DeviceKind};
use folioswap_group::swap_link::{Command, REQUEST_BYTES, Reply, Request};
use folioswap_slots::{DeviceId, DeviceMask, FolioId, Order, Shadow, SwapEntry};
use folioswap_space::space::{Movers, ReadError, Space, WriteError, Written};
use heap::Heap;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[repr(align(4096))]
struct Run([Page; 16]);

impl Run {
    fn new(seed: u64) -> Box<Self> {
        let mut run = Box::new(Run([[0; 4096]; 16]));
        for (page, number) in run.0.iter_mut().zip(seed..) {
            for (word, at) in page.chunks_exact_mut(8).zip(0u64..) {
                word.copy_from_slice(
                    &((number + 1) * (at + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(),
                );
            }
        }
        run
    }
}

const ONE: DeviceId = DeviceId::new(1).unwrap();
const TWO: DeviceId = DeviceId::new(2).unwrap();

/// A device in memory, whose clusters are all this space's.
fn device(space: &Space<'_, Heap>, id: DeviceId, first_cluster: u32) -> OwnedFd {
    let file = memfd_create("errors", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let (kind, io) = (DeviceKind::File, DeviceIo::Asynchronous);
    let description = DeviceDescription {
        kind,
        priority: 0,
        io,
        first_cluster,
        clusters: 1,
        contents: DeviceContents::Plain,
    };
    space.shared_devices().set(id, description, file.as_raw_fd());
    assert_eq!(space.file_space().add([(first_cluster, id)].into_iter()), 1);
    file
}

fn entries(space: &Space<'_, Heap>) -> Vec<Option<SwapEntry>> {
    space.reserve_frames().unwrap();
    let first = space.allocate(Order::new(4).unwrap(), FolioId(1)).unwrap();
    (0..16).map(|within| first.checked_add(within)).collect()
}

fn give_up(space: &Space<'_, Heap>, entries: &[Option<SwapEntry>]) {
    for entry in entries.iter().flatten() {
        space.leave_cache(*entry, 1, Shadow::EMPTY);
        space.put(*entry, 1);
    }
}

#[test]
fn slots_that_refuse_a_write_are_bad_and_the_others_are_used() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let file = device(&space, ONE, 0);
    // The device ends after 20 pages, and cannot grow.
    ftruncate(&file, 20 * 4096).unwrap();
    fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let (first, second) = (entries(&space), entries(&space));
    let (run, other) = (Run::new(1), Run::new(100));
    space.write_run(&first, run.0.as_flattened(), DeviceMask::ALL).unwrap();
    let refused = space.write_run(&second, other.0.as_flattened(), DeviceMask::ALL).unwrap_err();
    let WriteError::Device(failure) = refused else { panic!("{refused:?}") };
    assert_eq!((failure.device, failure.slot.raw(), failure.errno), (ONE, 20, Errno::PERM));
    assert!(
        second.iter().flatten().all(|entry| space.file_slot(*entry).is_none()),
        "nothing has half a place"
    );
    let files = space.file_space();
    assert_eq!(
        (files.used_slots(), files.bad_slots()),
        (16, 3),
        "found one by one, and no longer than needed"
    );
    // Its good slots are used page by page, and none of the bad ones.
    for (entry, page) in second.iter().zip(&other.0).take(4) {
        space.write_run(&[*entry], page, DeviceMask::ALL).unwrap();
    }
    let slots: Vec<u64> =
        second.iter().flatten().filter_map(|entry| Some(space.file_slot(*entry)?.raw())).collect();
    assert_eq!(slots, [16, 17, 18, 19]);
    let again = space.write_run(&second[4..5], &other.0[4], DeviceMask::ALL).unwrap_err();
    assert!(matches!(again, WriteError::Device(failure) if failure.slot.raw() == 23), "{again:?}");
    let mut read = Run::new(0);
    space.read_run(&first, FileSlot::new(0).unwrap(), &mut read.0, |page, why| panic!("{page}: {why}"));
    assert!(read.0 == run.0);
    give_up(&space, &first);
    give_up(&space, &second);
    assert_eq!((files.used_slots(), files.bad_slots()), (0, 4));
    drop(file);
}

#[test]
fn a_full_disk_makes_no_slot_bad() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let file = device(&space, ONE, 0);
    let full = std::fs::File::options().read(true).write(true).open("/dev/full").unwrap();
    let mut taken = file;
    rustix::io::dup2(&full, &mut taken).unwrap();
    let folio = entries(&space);
    let refused = space.write_run(&folio, Run::new(1).0.as_flattened(), DeviceMask::ALL).unwrap_err();
    assert!(matches!(refused, WriteError::Device(failure) if failure.errno == Errno::NOSPC), "{refused:?}");
    assert_eq!((space.file_space().used_slots(), space.file_space().bad_slots()), (0, 0));
    give_up(&space, &folio);
}

/// A bad spot in the middle of a run costs the pages in it: damaged ones, and those behind the end.
#[test]
fn what_cannot_be_read_is_named_page_by_page() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let file = device(&space, ONE, 0);
    let (folio, run) = (entries(&space), Run::new(7));
    space.write_run(&folio, run.0.as_flattened(), DeviceMask::ALL).unwrap();
    pwrite(&file, b"x", 3 * 4096 + 5).unwrap();
    ftruncate(&file, 14 * 4096 + 100).unwrap();
    let mut read = Run::new(0);
    let mut bad = Vec::new();
    space.read_run(&folio, FileSlot::new(0).unwrap(), &mut read.0, |page, why| bad.push((page, why)));
    let ends = |slot| ReadError::File(FileError::EndOfFile { slot: FileSlot::new(slot).unwrap() });
    assert_eq!(bad, [(3, ReadError::Corrupt), (14, ends(14)), (15, ends(15))]);
    let good = (0..14).filter(|&page| page != 3);
    assert!(good.into_iter().all(|page| read.0[page] == run.0[page]), "one bad page is one bad page");
    // A page read alone gives the same error.
    let mut decoder = Decoder::new();
    let mut one =
        |page: usize| space.read(folio[page].unwrap(), &mut decoder, &mut read.0[0], Movers::Running);
    assert_eq!((one(3), one(14), one(2)), (Err(ReadError::Corrupt), Err(ends(14)), Ok(Written::Shared)));
    give_up(&space, &folio);
}

/// Whether the thread whose `/proc/PID/task/TID/stat` this is sleeps.
fn sleeps(stat: &Path) -> bool {
    let text = std::fs::read_to_string(stat).unwrap();
    text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

/// The page is damaged on its way and right on the medium: the second read is believed, by its
/// checksum, and counted.
#[test]
fn a_read_that_succeeds_when_tried_again_loses_nothing() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let file = device(&space, ONE, 0);
    let (folio, run) = (entries(&space), Run::new(3));
    space.write_run(&folio, run.0.as_flattened(), DeviceMask::ALL).unwrap();
    ftruncate(&file, 0).unwrap();
    // The page comes back during the pause after the first failure, in which this thread sleeps.
    let reader = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap()).join("stat");
    let mut read = Run::new(0);
    let began = Instant::now();
    loop {
        assert!(began.elapsed().as_secs() < 60, "the second attempt never met the mended device");
        ftruncate(&file, 0).unwrap();
        let is_over = AtomicBool::new(false);
        let mut bad = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) && !sleeps(&reader) {
                    std::thread::yield_now();
                }
                pwrite(&file, run.0.as_flattened(), 0).unwrap();
            });
            space.read_run(&folio, FileSlot::new(0).unwrap(), &mut read.0, |_, _| bad += 1);
            is_over.store(true, Relaxed);
        });
        let retries = space.take_read_retries();
        // A page that is called bad may have come a moment later.
        assert!(bad > 0 || read.0 == run.0, "what is called right is right");
        if bad == 0 && retries > 0 {
            break;
        }
        read.0 = [[0; 4096]; 16];
        space.read_run(&folio, FileSlot::new(0).unwrap(), &mut read.0, |page, why| panic!("{page}: {why}"));
    }
    give_up(&space, &folio);
}

/// The device takes single pages only: larger runs are refused before a slot is taken, and a device
/// that takes them is preferred for them.
#[test]
fn devices_are_asked_for_what_they_take() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let (_one, _two) = (device(&space, ONE, 0), device(&space, TWO, 2));
    space.shared_devices().set_orders(ONE, Orders::ONLY_ZERO);
    let (folio, run) = (entries(&space), Run::new(9));
    let only_one = DeviceMask::only(ONE);
    let refused = space.write_run(&folio, run.0.as_flattened(), only_one);
    assert_eq!((refused, space.file_space().used_slots()), (Err(WriteError::OrderNotTaken), 0));
    space.write_run(&folio[..1], &run.0[0], only_one).unwrap();
    assert_eq!(space.file_slot(folio[0].unwrap()).unwrap().raw(), 0);
    space.write_run(&folio[1..], run.0[1..].as_flattened(), DeviceMask::ALL).unwrap();
    let on = |page: usize| space.shared_devices().of_slot(space.file_slot(folio[page].unwrap()).unwrap());
    assert_eq!((on(0), on(1), on(15)), (Some(ONE), Some(TWO), Some(TWO)));
    give_up(&space, &folio);
}

/// A folio whose pages lie in the compressed store and on two files, some of them moved on
/// meanwhile, comes back unharmed, page by page.
#[test]
fn a_folio_on_several_tiers_comes_back() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let (_one, _two) = (device(&space, ONE, 0), device(&space, TWO, 2));
    let (folio, run) = (entries(&space), Run::new(40));
    let mut compressible = run.0;
    compressible.iter_mut().for_each(|page| page[1024..].fill(0));
    for (entry, page) in folio.iter().flatten().zip(&compressible) {
        space.write(&mut Scratch::new(), *entry, page, IncompressiblePolicy::Keep).unwrap();
    }
    let (mut decoder, mut room) = (Decoder::new(), Run::new(0));
    for (pages, device) in [(2..7, ONE), (9..12, TWO), (12..14, ONE)] {
        let entries = &folio[pages.clone()];
        let moved = space.demote_run(entries, &mut decoder, &mut room.0[pages], DeviceMask::only(device));
        assert_eq!(moved, Ok(entries.len() as u64));
    }
    let places: Vec<bool> = folio.iter().flatten().map(|entry| space.is_on_file(*entry)).collect();
    assert_eq!(places.iter().filter(|on_file| **on_file).count(), 10);
    for (entry, page) in folio.iter().flatten().zip(&compressible) {
        space.read(*entry, &mut decoder, &mut room.0[0], Movers::Running).unwrap();
        assert!(room.0[0] == *page);
    }
    let first = space.file_slot(folio[2].unwrap()).unwrap();
    space.read_run(&folio[2..7], first, &mut room.0[..5], |page, why| panic!("{page}: {why}"));
    assert!(room.0[..5] == compressible[2..7], "what lies together comes together");
    give_up(&space, &folio);
    assert_eq!((space.file_space().used_slots(), space.mm_stat().objects), (0, 0));
}

/// The next answer of a network device's server, and the pages that it has.
#[derive(Default)]
struct Served {
    refuses_with: Option<Errno>,
    forged: Option<usize>,
    bytes: Vec<u8>,
}

/// A network device, and the thread that serves it until the device's socket ends.
fn network_device(space: &Space<'_, Heap>) -> (OwnedFd, Arc<Mutex<Served>>) {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let served = Arc::new(Mutex::new(Served { bytes: vec![0; 2 << 20], ..Served::default() }));
    let server = Arc::clone(&served);
    std::thread::spawn(move || {
        let mut message = vec![0; 512 << 10];
        while let Ok((_, received @ 1..)) = recv(&theirs, &mut message[..], RecvFlags::empty()) {
            let request = Request::decode(&message[..received]).unwrap();
            let (start, length) = (request.offset as usize, request.length as usize);
            let mut served = server.lock().unwrap();
            let is_forged = served.forged.is_some_and(|at| (start..start + length).contains(&at));
            let error = match request.command {
                // A further socket is not taken: all goes over this one.
                Command::Attach => continue,
                Command::Read if is_forged => Some(Errno::BADMSG),
                _ => served.refuses_with,
            };
            let reply = match (error, request.command) {
                (None, Command::Read) => served.bytes[start..start + length].to_vec(),
                (error, _) => {
                    if error.is_none() {
                        served.bytes[start..start + length]
                            .copy_from_slice(&message[REQUEST_BYTES..received]);
                    }
                    let error = error.map_or(0, |errno| errno.raw_os_error() as u32);
                    Reply { error, cookie: request.cookie }.encode().to_vec()
                }
            };
            send(&theirs, &reply, SendFlags::NOSIGNAL).unwrap();
        }
    });
    let (kind, io) = (DeviceKind::Nbd, DeviceIo::Served);
    let description = DeviceDescription {
        kind,
        priority: 0,
        io,
        first_cluster: 0,
        clusters: 1,
        contents: DeviceContents::Plain,
    };
    space.shared_devices().set(ONE, description, ours.as_raw_fd());
    assert_eq!(space.file_space().add([(0, ONE)].into_iter()), 1);
    (ours, served)
}

/// A server that is away spoils no slot; one that was asked and did not answer may write yet, so
/// its slots are lost.
#[test]
fn an_outage_costs_no_slots_but_those_whose_write_was_not_answered() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let (_device, served) = network_device(&space);
    let (folio, run) = (entries(&space), Run::new(5));
    let refuses = |errno| {
        served.lock().unwrap().refuses_with = Some(errno);
        let refused = space.write_run(&folio, run.0.as_flattened(), DeviceMask::ALL).unwrap_err();
        assert!(matches!(refused, WriteError::Device(failure) if failure.errno == errno), "{refused:?}");
        (space.file_space().used_slots(), space.file_space().bad_slots())
    };
    assert_eq!([Errno::HOSTDOWN, Errno::NODEV].map(refuses), [(0, 0); 2]);
    assert_eq!(refuses(Errno::TIMEDOUT), (0, 16));
    served.lock().unwrap().refuses_with = None;
    space.write_run(&folio, run.0.as_flattened(), DeviceMask::ALL).unwrap();
    assert_eq!(space.file_slot(folio[0].unwrap()).unwrap().raw(), 16, "not where the late write may come");
    give_up(&space, &folio);
}

/// One page is lost of a run in which one page does not open.
#[test]
fn a_forged_page_on_a_server_costs_one_page() {
    let heap = Heap::default();
    let space = Space::create(&heap).unwrap();
    let (_device, served) = network_device(&space);
    let (folio, run) = (entries(&space), Run::new(11));
    space.write_run(&folio, run.0.as_flattened(), DeviceMask::ALL).unwrap();
    served.lock().unwrap().forged = Some(6 * 4096);
    let (mut read, mut bad) = (Run::new(0), Vec::new());
    space.read_run(&folio, FileSlot::new(0).unwrap(), &mut read.0, |page, why| bad.push((page, why)));
    let slot = FileSlot::new(6).unwrap();
    assert_eq!(bad, [(6, ReadError::File(FileError::Read { slot, errno: Errno::BADMSG }))]);
    assert!((0..16).filter(|&page| page != 6).all(|page| read.0[page] == run.0[page]));
    give_up(&space, &folio);
}

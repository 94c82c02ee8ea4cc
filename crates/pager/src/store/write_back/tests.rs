//! Berths that are written together, and the changes that may happen to them meanwhile.

use super::*;
use crate::fault::buffers::Buffers;
use crate::fault::handler::Handler;
use crate::staging::candidates::Candidates;
use crate::staging::row::Row;
use crate::test_memory::ring_turn;
use crate::test_memory::{map, moving_engine};
use crate::units::{BlockAddr, PIECE, PageAddr, PieceAddr};
use core::sync::atomic::Ordering::Relaxed;
use folioswap_devices::zstd::Decoder;
use folioswap_group::devices::{DeviceContents, DeviceDescription, DeviceIo};
use folioswap_group::swap_link::{Command, REQUEST_BYTES, Reply, Request};
use folioswap_policy::page::PageWord;
use folioswap_space::space::Movers;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Mutex;
use std::vec::Vec;

const FOLIOS: usize = RUN_BERTHS + 2;

const FILE: DeviceId = DeviceId::new(0).unwrap();

const TIER: Tier = Tier::Shared(DeviceMask::only(FILE));

#[repr(align(4096))]
struct Aligned(Page);

fn contents(page: usize) -> Page {
    let mut bytes = [0; PAGE];
    let mut word = page as u64 | 1 << 63;
    for chunk in bytes.chunks_exact_mut(8) {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn describe(engine: &Engine, kind: DeviceKind, descriptor: &OwnedFd) {
    let io = if kind == DeviceKind::Nbd { DeviceIo::Served } else { DeviceIo::Asynchronous };
    let clusters = 2;
    let description = DeviceDescription {
        kind,
        priority: 0,
        io,
        first_cluster: 0,
        clusters,
        contents: DeviceContents::Plain,
    };
    engine.space.shared_devices().set(FILE, description, descriptor.as_raw_fd());
}

fn file_device(engine: &Engine) -> OwnedFd {
    let file = memfd_create("runs", MemfdFlags::CLOEXEC).unwrap();
    describe(engine, DeviceKind::File, &file);
    engine.space.file_space().add([(0, FILE), (1, FILE)].into_iter());
    file
}

/// Memory of the program, filled, and moved to staging; every fifth page of every third piece
/// stays.
fn take_out(engine: &Engine) -> usize {
    let start = map((FOLIOS + 1) * PIECE).next_multiple_of(PIECE);
    engine.register_pieces(start, start + FOLIOS * PIECE);
    for page in 0..FOLIOS * PIECE_PAGES {
        // SAFETY: the source is ours; pages missing at the target are filled.
        unsafe { engine.userfault().copy(start + page * PAGE, contents(page).as_ptr(), PAGE) }.unwrap();
    }
    for number in 0..FOLIOS {
        let piece = start + number * PIECE;
        engine.table.block_or_insert(BlockAddr::containing(piece), engine.arena).unwrap();
        let done = ring_turn(engine).isolate_row(&Row::of(
            PieceAddr::containing(piece),
            Candidates { written: wanted(number), clean: 0 },
        ));
        assert_eq!(done[0].moved, wanted(number), "{done:?}");
    }
    start
}

fn wanted(folio: usize) -> Pages {
    if folio.is_multiple_of(3) { !0b1000_0100_0010_0001 } else { Pages::MAX }
}

fn is_out(page: usize) -> bool {
    wanted(page / PIECE_PAGES) >> (page % PIECE_PAGES) & 1 != 0
}

fn pages_out() -> usize {
    (0..FOLIOS * PIECE_PAGES).filter(|&page| is_out(page)).count()
}

fn state(engine: &Engine, start: usize, page: usize) -> PageState {
    engine
        .table
        .block(BlockAddr::containing(start + page * PAGE))
        .unwrap()
        .word(PageAddr::containing(start + page * PAGE).index())
        .state()
}

/// A receiver of the messages about failures.
fn supervisor(engine: &Engine) -> OwnedFd {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    engine.descriptors.control.store(ours.into_raw_fd(), Relaxed);
    theirs
}

fn write_back(engine: &Engine, tier: Tier, pieces: DemotionUnits) -> Result<WrittenBack, Stuck> {
    engine.write_back_oldest(&mut Scratch::new(), tier, pieces, RUN_BERTHS)
}

fn waiting(engine: &Engine) -> u64 {
    // SAFETY: the ring's numbers are ours to read.
    unsafe { &*engine.staging.get() }.waiting()
}

/// Checks that every page that left is stored, except those `touched`, and reads back as it was;
/// afterwards nothing is stored anywhere.
fn check_and_free(engine: &Engine, start: usize, touched: &[usize]) {
    assert_eq!(waiting(engine), 0);
    assert_eq!(engine.validate(), Ok((pages_out() - touched.len()) as u64));
    for page in (0..FOLIOS * PIECE_PAGES).filter(|&page| is_out(page) && !touched.contains(&page)) {
        let PageState::Stored(entry) = state(engine, start, page) else {
            panic!("page {page} is not stored")
        };
        let mut found = Aligned([0; PAGE]);
        engine.space.read(entry, &mut Decoder::new(), &mut found.0, Movers::Running).unwrap();
        assert!(found.0 == contents(page), "page {page}");
        engine.space.put(entry, 1);
    }
    assert_eq!(engine.space.slots().stats().inuse, 0);
    assert_eq!((engine.space.file_space().used_slots(), engine.space.mm_stat().objects), (0, 0));
}

/// Takes back a page that waits in staging, as the handler does when it is touched.
fn touch(engine: &Engine, address: usize) {
    let (block, index) =
        (engine.table.block(BlockAddr::containing(address)).unwrap(), PageAddr::containing(address).index());
    block.set(index, block.word(index).claim().and_then(PageWord::returned).expect("it waits"));
    engine.note_returned(1);
}

#[test]
fn folios_go_together_each_page_to_its_place() {
    let Some(engine) = moving_engine() else { return };
    let _file = file_device(engine);
    let start = take_out(engine);
    let touched = [6, 3 * PIECE_PAGES + 4];
    touched.iter().for_each(|page| touch(engine, start + page * PAGE));
    let in_run =
        (0..RUN_BERTHS * PIECE_PAGES).filter(|page| is_out(*page) && !touched.contains(page)).count();
    let back = write_back(engine, TIER, DemotionUnits::Whole).unwrap();
    assert_eq!(back, WrittenBack { pages: in_run as u64, folios: RUN_BERTHS as u64, was_cut: false });
    assert_eq!(engine.figures().counter(Counter::FilePagesOut), in_run as u64);
    let slot = |page| match state(engine, start, page) {
        PageState::Stored(entry) => engine.space.file_slot(entry).unwrap().raw(),
        other => panic!("{other:?}"),
    };
    // A read of several pages at once wants them side by side, even where one in between is
    // elsewhere.
    assert_eq!(slot(PIECE_PAGES + 15), slot(PIECE_PAGES) + 15);
    assert_eq!(slot(11), slot(1) + 10);
    assert_eq!(slot(PIECE_PAGES), slot(14) + 1, "one run");
    let rest = write_back(engine, TIER, DemotionUnits::Whole).unwrap();
    assert_eq!(
        (rest.folios, write_back(engine, TIER, DemotionUnits::Whole)),
        (2, Ok(WrittenBack::default()))
    );
    check_and_free(engine, start, &touched);
}

#[test]
fn where_long_runs_of_slots_are_rare_shorter_ones_are_used_and_single_ones_at_last() {
    let Some(engine) = moving_engine() else { return };
    let _file = file_device(engine);
    let files = engine.space.file_space();
    // One cluster has runs of 32 slots left, and the other single slots.
    let slots: Vec<_> = core::iter::from_fn(|| files.allocate(1, DeviceMask::ALL)).collect();
    let is_free = |slot: u64| if slot < 512 { slot % 64 < 32 } else { slot.is_multiple_of(2) };
    slots.iter().filter(|slot| is_free(slot.raw())).for_each(|&slot| files.free(slot));
    let start = take_out(engine);
    let mut sizes = Vec::new();
    while let Ok(back @ WrittenBack { folios: 1.., .. }) = write_back(engine, TIER, DemotionUnits::Whole) {
        assert!(back.was_cut || waiting(engine) == 0);
        sizes.push(back.folios);
    }
    assert!(sizes[..3].iter().all(|&folios| folios == 2), "{sizes:?}");
    while waiting(engine) > 0 {
        let whole = write_back(engine, TIER, DemotionUnits::Whole);
        assert!(whole.is_ok() || whole == Err(Stuck::WantClusters), "{whole:?}");
        write_back(engine, TIER, DemotionUnits::Any).unwrap();
    }
    slots.iter().filter(|slot| !is_free(slot.raw())).for_each(|&slot| files.free(slot));
    check_and_free(engine, start, &[]);
}

#[test]
fn what_a_device_refuses_waits_and_goes_elsewhere() {
    let Some(engine) = moving_engine() else { return };
    let (file, _told) = (file_device(engine), supervisor(engine));
    let start = take_out(engine);
    let read_only =
        rustix::fs::open("/dev/zero", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    describe(engine, DeviceKind::File, &read_only);
    assert_eq!(write_back(engine, TIER, DemotionUnits::Whole), Err(Stuck::Failed(FILE)));
    let files = engine.space.file_space();
    assert_eq!((files.used_slots(), files.bad_slots()), (0, 3), "it refuses the others too");
    assert_eq!((waiting(engine), engine.figures().counter(Counter::WriteErrors)), (FOLIOS as u64, 1));
    assert!(
        (0..FOLIOS * PIECE_PAGES)
            .filter(|&page| is_out(page))
            .all(|page| { matches!(state(engine, start, page), PageState::Leaving(_)) })
    );
    // The first berths go to the store, the others to the disk that is back.
    write_back(engine, Tier::Store(DeviceMask::NONE), DemotionUnits::Whole).unwrap();
    describe(engine, DeviceKind::File, &file);
    while waiting(engine) > 0 {
        write_back(engine, TIER, DemotionUnits::Whole).unwrap();
    }
    assert_eq!(engine.space.mm_stat().objects, u64::from(wanted(0).count_ones()));
    check_and_free(engine, start, &[]);
}

#[test]
fn what_does_not_compress_goes_on_in_long_runs() {
    let Some(engine) = moving_engine() else { return };
    let _file = file_device(engine);
    let start = take_out(engine);
    let back = write_back(engine, Tier::Store(DeviceMask::only(FILE)), DemotionUnits::Whole).unwrap();
    assert_eq!((back.folios, engine.space.mm_stat().objects), (RUN_BERTHS as u64, 0));
    write_back(engine, Tier::Store(DeviceMask::only(FILE)), DemotionUnits::Whole).unwrap();
    check_and_free(engine, start, &[]);
}

/// A server that calls `during` before it answers the first write, when it has all requests of the
/// run.
fn slow_server(link: OwnedFd, pages: usize, bytes: &Mutex<Vec<u8>>, during: impl FnOnce()) {
    let (mut during, mut held, mut message) = (Some(during), Vec::new(), std::vec![0; 512 << 10]);
    let mut written = 0;
    while let Ok((_, received @ 1..)) = recv(&link, &mut message[..], RecvFlags::empty()) {
        let request = Request::decode(&message[..received]).unwrap();
        let (start, length) = (request.offset as usize, request.length as usize);
        let mut bytes = bytes.lock().unwrap();
        match request.command {
            Command::Attach => {}
            Command::Read => {
                send(&link, &bytes[start..start + length], SendFlags::NOSIGNAL).unwrap();
            }
            Command::Write => {
                bytes[start..start + length].copy_from_slice(&message[REQUEST_BYTES..received]);
                written += length / PAGE;
                held.push(Reply { error: 0, cookie: request.cookie });
            }
        }
        if written >= pages || during.is_none() {
            drop(bytes);
            during.take().into_iter().for_each(|during| during());
            // The last request is answered first.
            while let Some(reply) = held.pop() {
                send(&link, &reply.encode(), SendFlags::NOSIGNAL).unwrap();
            }
        }
    }
}

/// While a server writes a run, a mapping moves (its pages are written elsewhere), pages are
/// touched, and contents are given up.
#[test]
fn while_a_run_is_written_pages_leave_it_in_every_way() {
    let Some(engine) = moving_engine() else { return };
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    describe(engine, DeviceKind::Nbd, &ours);
    engine.space.file_space().add([(0, FILE), (1, FILE)].into_iter());
    let start = take_out(engine);
    let bytes = Mutex::new(std::vec![0; 4 << 20]);
    let touched = [2 * PIECE_PAGES, 6 * PIECE_PAGES + 3];
    let run: usize = (0..RUN_BERTHS)
        .map(|folio| (16 - wanted(folio).leading_zeros() - wanted(folio).trailing_zeros()) as usize)
        .sum();
    std::thread::scope(|scope| {
        let during = || {
            let mut handler = Handler::new(engine, Buffers::of(engine).unwrap());
            handler.write_back_range(start + PIECE, start + 2 * PIECE);
            touched.iter().for_each(|page| touch(engine, start + page * PAGE));
        };
        let bytes = &bytes;
        scope.spawn(move || slow_server(theirs, run, bytes, during));
        let back = write_back(engine, TIER, DemotionUnits::Whole).unwrap();
        assert_eq!(back.folios, RUN_BERTHS as u64);
        let moved = PIECE_PAGES as u64;
        assert_eq!(engine.space.mm_stat().objects, moved, "to the store, while the server was busy");
        let stored: usize = (0..RUN_BERTHS * PIECE_PAGES).filter(|&page| is_out(page)).count();
        assert_eq!(back.pages, (stored - touched.len()) as u64 - moved);
        write_back(engine, TIER, DemotionUnits::Whole).unwrap();
        check_and_free(engine, start, &touched);
        drop(ours);
    });
}

#[test]
fn one_part_that_may_still_be_written_keeps_all_slots_of_its_run_from_others() {
    let Some(engine) = moving_engine() else { return };
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    describe(engine, DeviceKind::Nbd, &ours);
    engine.space.file_space().add([(0, FILE), (1, FILE)].into_iter());
    let (start, _told) = (take_out(engine), supervisor(engine));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut message = std::vec![0; 512 << 10];
            for answer in [0, Errno::TIMEDOUT.raw_os_error(), Errno::HOSTDOWN.raw_os_error(), 0, 0, 0, 0, 0] {
                let (_, received) = recv(&theirs, &mut message[..], RecvFlags::empty()).unwrap();
                let cookie = Request::decode(&message[..received]).unwrap().cookie;
                let reply = Reply { error: answer as u32, cookie };
                send(&theirs, &reply.encode(), SendFlags::NOSIGNAL).unwrap();
            }
        });
        assert_eq!(write_back(engine, TIER, DemotionUnits::Whole), Err(Stuck::Failed(FILE)));
    });
    let files = engine.space.file_space();
    let run: u64 = (0..RUN_BERTHS)
        .map(|folio| u64::from(16 - wanted(folio).leading_zeros() - wanted(folio).trailing_zeros()))
        .sum();
    assert_eq!((files.used_slots(), files.bad_slots()), (0, run));
    while waiting(engine) > 0 {
        write_back(engine, Tier::Store(DeviceMask::NONE), DemotionUnits::Whole).unwrap();
    }
    check_and_free(engine, start, &[]);
}

//! One suite for the contract by slot ([`Device`]), run over every device: the compressed store, a
//! file, plain RAM, a block device.
#![cfg(not(miri))]

mod common;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::data::{PageKind, Rng};
use common::device::{AlignedRun, Fault, PageStore, Refused, ZramDevice};
use common::loop_device::{LoopDevice, TestFile};
use folioswap_devices::{
    Characteristics, Device, FileDevice, FileError, FileSlot, Medium, Orders, PAGE_SIZE, Page, Place,
    StoreError, StoreOptions, Synchrony,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

/// Slots of every device under test: 16 MiB.
const SLOTS: u64 = 4096;

fn slot(number: u64) -> FileSlot {
    FileSlot::new(number).unwrap()
}

/// Pages of one kind, aligned.
fn run_of(kind: PageKind, seed: u64, pages: u64) -> AlignedRun {
    let mut run = AlignedRun::new(pages as usize);
    for (page, seed) in run.bytes().chunks_exact_mut(PAGE_SIZE).zip(seed * 10_000..) {
        page.copy_from_slice(&kind.page(seed));
    }
    run
}

fn read(device: &dyn Device, first: u64, pages: u64) -> AlignedRun {
    let mut run = AlignedRun::new(pages as usize);
    run.bytes().fill(0xee);
    device.read(slot(first), run.bytes()).unwrap();
    run
}

/// Writes as the engine does: a run that is not taken at once is written in the largest parts that
/// are.
fn write(device: &dyn Device, first: u64, pages: &[u8]) -> Result<(), FileError> {
    let (orders, count) = (device.characteristics().orders, pages.len() / PAGE_SIZE);
    if orders.take_run(count) {
        return device.write(slot(first), pages);
    }
    let order =
        (0..=Orders::MAX_ORDER).rev().find(|&order| orders.take(order) && 1 << order <= count).unwrap();
    for (index, piece) in pages.chunks(PAGE_SIZE << order).enumerate() {
        write(device, first + ((index as u64) << order), piece)?;
    }
    Ok(())
}

/// Folios of every order come back as a whole, and in every kind of part.
fn every_order(device: &dyn Device) {
    let orders = device.characteristics().orders;
    for (order, kind) in (0..=Orders::MAX_ORDER).zip(PageKind::ALL.into_iter().cycle()) {
        let pages = 1u64 << order;
        let first = pages * 3 % SLOTS;
        let mut folio = run_of(kind, order.into(), pages);
        let whole = device.write(slot(first), folio.bytes());
        if orders.take(order) {
            whole.unwrap();
        } else {
            assert_eq!(whole, Err(FileError::OrderNotTaken { slot: slot(first), pages: pages as usize }));
            write(device, first, folio.bytes()).unwrap();
        }
        assert!(read(device, first, pages).bytes() == folio.bytes(), "order {order}, whole");
        let mut rng = Rng::new(order.into());
        for _ in 0..16 {
            let from = rng.below(pages);
            let count = 1 + rng.below(pages - from);
            let expected = &folio.bytes()[from as usize * PAGE_SIZE..][..count as usize * PAGE_SIZE];
            assert!(
                read(device, first + from, count).bytes() == expected,
                "order {order}, {count} from {from}"
            );
        }
        // One page of the folio is rewritten; the others stay.
        let at = rng.below(pages);
        let mut page = run_of(PageKind::TwoToOne, 77 + u64::from(order), 1);
        device.write(slot(first + at), page.bytes()).unwrap();
        folio.bytes()[at as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(page.bytes());
        assert!(read(device, first, pages).bytes() == folio.bytes(), "order {order}, page {at} anew");
    }
}

/// Discarded slots can be written again, and their neighbours are unchanged.
fn discard(device: &dyn Device) {
    let mut run = run_of(PageKind::TwoToOne, 1, 512);
    write(device, 512, run.bytes()).unwrap();
    let discarded = device.discard(slot(512 + 128), 256);
    assert_eq!(discarded.is_ok(), device.characteristics().discard_bytes.is_some(), "{discarded:?}");
    assert!(read(device, 512, 128).bytes() == &run.bytes()[..128 * PAGE_SIZE]);
    assert!(read(device, 512 + 384, 128).bytes() == &run.bytes()[384 * PAGE_SIZE..]);
    let mut anew = run_of(PageKind::Incompressible, 2, 64);
    write(device, 512 + 160, anew.bytes()).unwrap();
    run.bytes()[160 * PAGE_SIZE..][..64 * PAGE_SIZE].copy_from_slice(anew.bytes());
    assert!(read(device, 512 + 160, 64).bytes() == anew.bytes());
    assert_eq!(device.discard(slot(512), 0), Err(FileError::SlotRange { slot: slot(512), slots: 0 }));
}

/// Threads that write, read and discard slots of their own at the same time each see their own
/// bytes.
fn concurrent(device: &dyn Device) {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut oracle: HashMap<u64, (PageKind, u64)> = HashMap::new();
                for round in 0..40 {
                    // Of every 64 slots 16 are this thread's, so neighbours are other threads'.
                    let first = (rng.below(SLOTS / 64) * 4 + thread) * 16 + rng.below(8);
                    let (pages, seed) = (1 + rng.below(8), thread * 1000 + round);
                    match rng.below(5) {
                        0 => {
                            let _ = device.discard(slot(first), pages);
                            oracle.retain(|slot, _| !(first..first + pages).contains(slot));
                        }
                        _ => {
                            write(device, first, run_of(PageKind::Mixed, seed, pages).bytes()).unwrap();
                            let written = (0..pages)
                                .map(|page| (first + page, (PageKind::Mixed, seed * 10_000 + page)));
                            oracle.extend(written);
                        }
                    }
                    for (&slot, &(kind, seed)) in oracle.iter().take(12) {
                        assert!(read(device, slot, 1).bytes() == kind.page(seed), "slot {slot}");
                    }
                }
            });
        }
    });
}

/// Errors name the slot, leave the slots before it written or read, and harm nothing else.
fn faults(device: &dyn Device) {
    let faulty = Faulty { device, broken: Mutex::new(Vec::new()) };
    let mut run = run_of(PageKind::Mixed, 5, 8);
    write(&faulty, 64, run.bytes()).unwrap();
    faulty.broken.lock().unwrap().push(68);
    let mut back = AlignedRun::new(8);
    let failed = FileError::Read { slot: slot(68), errno: Errno::IO };
    assert_eq!(faulty.read(slot(64), back.bytes()), Err(failed));
    assert!(back.bytes()[..4 * PAGE_SIZE] == run.bytes()[..4 * PAGE_SIZE]);
    for page in [64, 65, 66, 67, 69, 70, 71] {
        let expected = &run.bytes()[(page - 64) as usize * PAGE_SIZE..][..PAGE_SIZE];
        assert!(read(&faulty, page, 1).bytes() == expected, "{page} is not harmed");
    }
    let mut anew = run_of(PageKind::Mixed, 6, 8);
    let error = write(&faulty, 64, anew.bytes()).unwrap_err();
    assert_eq!(error, FileError::Write { slot: slot(68), errno: Errno::IO });
    assert!(read(&faulty, 64, 4).bytes() == &anew.bytes()[..4 * PAGE_SIZE], "what is before it is written");
    assert!(read(&faulty, 69, 3).bytes() == &run.bytes()[5 * PAGE_SIZE..], "what is behind it is as it was");
    faulty.broken.lock().unwrap().clear();
    write(&faulty, 64, anew.bytes()).unwrap();
    assert!(read(&faulty, 64, 8).bytes() == anew.bytes());
}

/// Beyond its end a device refuses by name, keeps its contents, and again takes pages that fit.
fn full(device: &dyn Device, end: u64) {
    let mut run = run_of(PageKind::Incompressible, 9, 8);
    write(device, end - 8, run.bytes()).unwrap();
    let beyond = device.write(slot(end), &run.bytes()[..PAGE_SIZE]).unwrap_err();
    assert!(matches!(beyond, FileError::Write { slot: named, .. } if named == slot(end)), "{beyond:?}");
    assert!(read(device, end - 8, 8).bytes() == run.bytes());
    let mut page = run_of(PageKind::TwoToOne, 10, 1);
    device.write(slot(end - 1), page.bytes()).unwrap();
    assert!(read(device, end - 1, 1).bytes() == page.bytes());
}

/// A device that is gone answers reads and writes with an error; it gives no wrong bytes and does
/// not hang.
fn removed(device: &dyn Device, remove: impl FnOnce()) {
    let mut run = run_of(PageKind::Mixed, 11, 4);
    write(device, 100, run.bytes()).unwrap();
    remove();
    let gone = device.read(slot(100), AlignedRun::new(4).bytes()).unwrap_err();
    assert!(matches!(gone, FileError::Read { .. } | FileError::EndOfFile { .. }), "{gone:?}");
    assert!(gone.to_string().contains("slot 100"), "{gone}");
    let gone = write(device, 100, run.bytes()).unwrap_err();
    assert!(matches!(gone, FileError::Write { .. } | FileError::ShortWrite { .. }), "{gone:?}");
}

fn conforms(device: &dyn Device) {
    every_order(device);
    discard(device);
    concurrent(device);
    faults(device);
    every_order(device);
}

/// A device with broken slots: an operation that touches one fails there.
struct Faulty<'d> {
    device: &'d dyn Device,
    broken: Mutex<Vec<u64>>,
}

impl Faulty<'_> {
    /// Pages before the first broken slot, if there is one.
    fn good(&self, first: FileSlot, bytes: usize) -> Option<usize> {
        let slots = first.raw()..first.raw() + (bytes / PAGE_SIZE) as u64;
        let broken = self.broken.lock().unwrap();
        broken.iter().filter(|slot| slots.contains(slot)).min().map(|slot| (slot - first.raw()) as usize)
    }
}

impl Device for Faulty<'_> {
    fn characteristics(&self) -> Characteristics {
        self.device.characteristics()
    }
    fn write(&self, first: FileSlot, pages: &[u8]) -> Result<(), FileError> {
        match self.good(first, pages.len()) {
            None => self.device.write(first, pages),
            Some(good) => {
                if good > 0 {
                    write(self.device, first.raw(), &pages[..good * PAGE_SIZE])?;
                }
                Err(FileError::Write { slot: slot(first.raw() + good as u64), errno: Errno::IO })
            }
        }
    }
    fn read(&self, first: FileSlot, pages: &mut [u8]) -> Result<(), FileError> {
        match self.good(first, pages.len()) {
            None => self.device.read(first, pages),
            Some(good) => {
                if good > 0 {
                    self.device.read(first, &mut pages[..good * PAGE_SIZE])?;
                }
                Err(FileError::Read { slot: slot(first.raw() + good as u64), errno: Errno::IO })
            }
        }
    }
    fn discard(&self, first: FileSlot, slots: u64) -> Result<(), FileError> {
        self.device.discard(first, slots)
    }
}

/// The compressed store behind a table from slot to place.
struct ZramBySlot {
    store: ZramDevice,
    places: Vec<Mutex<Option<Place>>>,
    removed: AtomicU64,
}

impl ZramBySlot {
    fn new(slots: u64, options: StoreOptions) -> Self {
        let places = (0..slots).map(|_| Mutex::new(None)).collect();
        Self { store: ZramDevice::new(options), places, removed: AtomicU64::new(0) }
    }
    fn place(&self, slot: u64) -> Option<&Mutex<Option<Place>>> {
        self.places.get(slot as usize).filter(|_| self.removed.load(Ordering::Relaxed) == 0)
    }
}

impl Device for ZramBySlot {
    fn characteristics(&self) -> Characteristics {
        Characteristics {
            synchrony: Synchrony::Synchronous,
            orders: Orders::ALL,
            discard_bytes: Some((PAGE_SIZE as u32).try_into().unwrap()),
            read_ns: 3000,
            batch_pages: 1,
        }
    }
    fn write(&self, first: FileSlot, pages: &[u8]) -> Result<(), FileError> {
        for (number, page) in (first.raw()..).zip(pages.chunks_exact(PAGE_SIZE)) {
            let failed = |errno| FileError::Write { slot: slot(number), errno };
            let mut place = self.place(number).ok_or(failed(Errno::NOSPC))?.lock().unwrap();
            let page: &Page = page.try_into().unwrap();
            let stored = self.store.store_run(&[*page], number).map_err(|refused| match refused {
                Refused::Store(StoreError::LimitReached) => failed(Errno::NOSPC),
                _ => failed(Errno::NOMEM),
            })?;
            place.replace(stored[0]).into_iter().for_each(|old| self.store.free(old));
        }
        Ok(())
    }
    fn read(&self, first: FileSlot, pages: &mut [u8]) -> Result<(), FileError> {
        for (number, page) in (first.raw()..).zip(pages.chunks_exact_mut(PAGE_SIZE)) {
            let failed = FileError::Read { slot: slot(number), errno: Errno::IO };
            let place = self.place(number).ok_or(failed)?.lock().unwrap();
            let page: &mut Page = page.try_into().unwrap();
            match *place {
                Some(place) => self.store.load(place, page).map_err(|_: Fault| failed)?,
                None => page.fill(0),
            }
        }
        Ok(())
    }
    fn discard(&self, first: FileSlot, slots: u64) -> Result<(), FileError> {
        if slots == 0 {
            return Err(FileError::SlotRange { slot: first, slots });
        }
        for number in first.raw()..first.raw() + slots {
            let place = self.place(number).and_then(|place| place.lock().unwrap().take());
            place.into_iter().for_each(|place| self.store.free(place));
        }
        Ok(())
    }
}

#[test]
fn zram_conforms() {
    let device = ZramBySlot::new(SLOTS, StoreOptions::DEFAULT);
    conforms(&device);
    full(&device, SLOTS);
    removed(&device, || device.removed.store(1, Ordering::Relaxed));
}

/// The store runs out of bytes instead of slots.
#[test]
fn zram_at_its_limit_names_the_slot() {
    let device = ZramBySlot::new(SLOTS, StoreOptions { mem_limit: 2 << 20, ..StoreOptions::DEFAULT });
    let mut run = run_of(PageKind::Incompressible, 1, 1024);
    let error = device.write(slot(0), run.bytes()).unwrap_err();
    let FileError::Write { slot: named, errno: Errno::NOSPC } = error else { panic!("{error:?}") };
    let written = named.raw();
    assert!((300..512).contains(&written), "2 MiB are {written} pages");
    assert!(read(&device, 0, written).bytes() == &run.bytes()[..written as usize * PAGE_SIZE]);
    device.discard(slot(0), 64).unwrap();
    device.write(named, &run.bytes()[..16 * PAGE_SIZE]).unwrap();
}

fn memory() -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, SLOTS * PAGE_SIZE as u64).unwrap();
    fd
}

#[test]
fn plain_ram_conforms() {
    let fd = memory();
    let device = FileDevice::new(fd.as_fd()).on(Medium::Memory);
    conforms(&device);
    removed(&device, || ftruncate(&fd, 0).and_then(|()| fcntl_add_seals(&fd, SealFlags::GROW)).unwrap());
    let fd = memory();
    fcntl_add_seals(&fd, SealFlags::GROW).unwrap();
    full(&FileDevice::new(fd.as_fd()).on(Medium::Memory), SLOTS);
}

/// The device takes single pages and 64 KiB, or single pages alone: every other order is refused,
/// and nothing of it is written.
#[test]
fn a_device_that_takes_few_orders_conforms() {
    for orders in [Orders::ONLY_ZERO, Orders::from_bits(1 << 4)] {
        let fd = memory();
        let device = FileDevice::new(fd.as_fd()).on(Medium::Memory).taking(orders);
        assert_eq!(device.characteristics().orders, orders);
        conforms(&device);
        let mut run = run_of(PageKind::Mixed, 3, 2);
        let refused = Device::write(&device, slot(3000), run.bytes());
        assert_eq!(refused, Err(FileError::OrderNotTaken { slot: slot(3000), pages: 2 }));
        assert!(read(&device, 3000, 2).bytes().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_file_conforms() {
    let file = TestFile::new(SLOTS * PAGE_SIZE as u64);
    let fd = file.direct();
    conforms(&FileDevice::new(fd.as_fd()));
    // A read from a closed file system returns nothing, and nothing can be written to it:
    // /dev/null, open for reading.
    let mut taken = fd.try_clone().unwrap();
    // SAFETY: the descriptor stays open until the end of the test; the file that it refers to is
    // exchanged, as the system does.
    let device = FileDevice::new(unsafe { BorrowedFd::borrow_raw(taken.as_raw_fd()) });
    let nothing = std::fs::File::open("/dev/null").unwrap();
    removed(&device, || rustix::io::dup2(&nothing, &mut taken).unwrap());
}

#[test]
fn a_block_device_conforms() {
    let Some(block) = LoopDevice::new(SLOTS * PAGE_SIZE as u64) else { return };
    let fd = block.direct();
    let device = FileDevice::new(fd.as_fd()).on(Medium::Block);
    conforms(&device);
    full(&device, SLOTS);
    let cannot = device.discarding(None);
    assert_eq!(cannot.discard(slot(0), 1), Err(FileError::Punch { slot: slot(0), errno: Errno::OPNOTSUPP }));
    // The medium first ends in the middle, and then is gone.
    let mut run = run_of(PageKind::Mixed, 11, 4);
    device.write(slot(100), run.bytes()).unwrap();
    block.backing.truncate(102 * PAGE_SIZE as u64);
    let mut back = AlignedRun::new(1);
    assert_eq!(
        device.read(slot(102), back.bytes()),
        Err(FileError::Read { slot: slot(102), errno: Errno::IO })
    );
    assert!(read(&device, 100, 2).bytes() == &run.bytes()[..2 * PAGE_SIZE]);
    removed(&device, || {
        block.backing.truncate(0);
        block.take_size();
    });
}

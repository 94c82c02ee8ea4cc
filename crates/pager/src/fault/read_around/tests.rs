use super::*;
use crate::fault::reading::{Purpose, Taken};
use crate::test_memory::{self, decide};
use crate::units::{BlockAddr, PAGE};
use core::sync::atomic::Ordering::Release;
use folioswap_devices::Page;
use folioswap_policy::page::PageWord;
use folioswap_slots::{DeviceId, DeviceMask, FolioId, Order, SwapEntry};
use std::boxed::Box;
use std::os::fd::OwnedFd;
use std::vec::Vec;

const PROGRAM: usize = 0x7000_0000_0000;

const AHEAD: Taken = Taken { purpose: Purpose::Ahead, waited_since_ns: None };

/// The file wants whole pages of memory.
#[repr(align(4096))]
struct Aligned([Page; 16]);

struct Swapped {
    engine: &'static Engine,
    block: &'static Block,
    reads: Reads,
    entries: Vec<SwapEntry>,
    _file: OwnedFd,
}

/// An engine with `pages` pages of the program in consecutive slots of a file, page n filled with
/// the byte n.
fn swapped(pages: usize, page_cluster: u32) -> Swapped {
    let (engine, file) = test_memory::engine_with_file(2 * 512);
    decide(engine).set_page_cluster(page_cluster);
    let device = DeviceId::new(0).unwrap();
    engine.space.file_space().add([(0, device)].into_iter());
    engine.space.reserve_frames().unwrap();
    let mut bytes = Box::new(Aligned([[0; PAGE]; 16]));
    let entries: Vec<SwapEntry> =
        (0..pages).map(|_| engine.space.allocate(Order::ZERO, FolioId(0)).unwrap()).collect();
    let block = engine.table.block_or_insert(BlockAddr::containing(PROGRAM), engine.arena).unwrap();
    for (first, entries) in entries.chunks(16).enumerate() {
        bytes.0.iter_mut().enumerate().for_each(|(at, page)| page.fill((16 * first + at) as u8));
        let bytes = bytes.0[..entries.len()].as_flattened();
        let wanted: Vec<Option<SwapEntry>> = entries.iter().copied().map(Some).collect();
        engine.space.write_run(&wanted, bytes, DeviceMask::ALL).unwrap();
    }
    for (page, &entry) in entries.iter().enumerate() {
        engine.space.leave_cache(entry, 1, engine.workingset.shadow());
        let word = PageWord::PRESENT.isolate(entry).and_then(PageWord::moved).and_then(PageWord::written);
        block.set(PageInBlock::new(page), word.unwrap());
    }
    Swapped { engine, block, reads: Reads::new(), entries, _file: file }
}

impl Swapped {
    fn slot(&self, page: usize) -> FileSlot {
        self.engine.space.file_slot(self.entries[page]).unwrap()
    }

    /// Reports a served fault on this page, and waits for the reads that it began. Returns false if
    /// io_uring is not allowed here.
    fn fault(&mut self, page: usize, found: Found) -> bool {
        let slot = self.slot(page);
        self.reads.read_around(
            self.engine,
            self.block,
            PageAddr::containing(PROGRAM + page * PAGE),
            slot,
            found,
        );
        if !self.reads.has_means() {
            test_memory::skip("io_uring is not allowed");
            return false;
        }
        self.wait();
        true
    }

    fn wait(&mut self) {
        while self.reads.descriptor().is_some() {
            self.reads.collect();
            std::thread::yield_now();
        }
    }

    /// The pages that were read ahead for this page, and whether they are as they were written.
    fn take(&mut self, page: usize) -> Option<(Taken, bool)> {
        let (slot, mut bytes) = (self.slot(page), [[0xee; PAGE]]);
        let taken = self.reads.take(self.engine, slot, &mut bytes)?;
        let mut is_right = true;
        self.engine.space.check_run(&[Some(self.entries[page])], &mut bytes, |_| is_right = false);
        assert!(!is_right || bytes[0] == [page as u8; PAGE]);
        Some((taken, is_right))
    }

    fn counters(&self) -> [u64; 3] {
        [Counter::PagesReadAhead, Counter::ReadAheadHits, Counter::FilePagesIn]
            .map(|counter| self.engine.figures().counter(counter))
    }
}

#[test]
fn what_lies_around_is_there_for_the_faults_that_follow() {
    let mut swapped = swapped(32, 3);
    if !swapped.fault(13, Found::Away) {
        return;
    }
    assert_eq!(swapped.counters(), [7, 0, 7]);
    assert_eq!(swapped.take(13), None, "it was brought back already");
    assert_eq!((swapped.take(7), swapped.take(16)), (None, None));
    for page in [8, 15, 9, 14, 10, 12, 11] {
        assert_eq!(swapped.take(page), Some((AHEAD, true)), "{page}");
        assert_eq!(swapped.take(page), None, "{page}: once");
        swapped.fault(page, Found::ReadAhead);
    }
    assert_eq!(swapped.counters(), [7, 7, 7]);
    swapped.fault(27, Found::Away);
    assert_eq!(swapped.counters(), [14, 7, 14]);
    swapped.fault(27, Found::Away);
    assert_eq!(swapped.counters(), [14, 7, 14], "they are there already");
}

#[test]
fn nothing_is_read_ahead_where_it_is_off_or_goes_in_order() {
    let mut swapped = swapped(32, 0);
    let slot = swapped.slot(9);
    for found in [Found::Away, Found::InOrder, Found::ReadAhead] {
        swapped.reads.read_around(
            swapped.engine,
            swapped.block,
            PageAddr::containing(PROGRAM + 9 * PAGE),
            slot,
            found,
        );
    }
    assert_eq!(swapped.counters(), [0; 3]);
    decide(swapped.engine).set_page_cluster(3);
    swapped.reads.read_around(
        swapped.engine,
        swapped.block,
        PageAddr::containing(PROGRAM + 9 * PAGE),
        slot,
        Found::InOrder,
    );
    assert_eq!(swapped.counters(), [0; 3]);
}

#[test]
fn only_what_is_on_the_device_is_read_and_neighbours_together() {
    let mut swapped = swapped(32, 5);
    // The page is present again, and was never written.
    swapped.block.set(PageInBlock::new(2), PageWord::PRESENT);
    swapped.block.set(PageInBlock::new(3), PageWord::PRESENT);
    (20..32).for_each(|page| swapped.block.set(PageInBlock::new(page), PageWord::PRESENT));
    // A first window is 8 pages; after many hits it is 32.
    (0..40).for_each(|_| swapped.reads.readahead.hit(PROGRAM / PAGE + 300));
    if !swapped.fault(10, Found::Away) {
        return;
    }
    assert_eq!(swapped.counters()[0], 20 - 3);
    let first = swapped.slot(0);
    assert_eq!(swapped.reads.read_ahead(first, 16), 2);
    assert_eq!(swapped.reads.read_ahead(swapped.slot(4), 16), 4, "up to the end of one read");
    assert_eq!((swapped.take(2), swapped.take(21)), (None, None));
    assert!(swapped.take(19).is_some() && swapped.take(8).is_some());
}

/// Race 52: pages that were read ahead while their slots get another owner.
#[test]
fn what_may_be_anothers_by_now_is_not_taken() {
    let mut swapped = swapped(64, 3);
    if !swapped.fault(4, Found::Away) {
        return;
    }
    swapped.reads.forget_all();
    assert_eq!(swapped.take(5), None, "an event or a fork's window");
    assert!(swapped.fault(20, Found::Away));
    swapped.engine.counts.stale_copies.fetch_add(1, Release);
    assert_eq!(swapped.take(21), None, "the evictor freed a stale copy");
    (0..3).for_each(|_| swapped.reads.readahead.hit(PROGRAM / PAGE + 300));
    assert!(swapped.fault(36, Found::Away));
    // The page is read another way, together with its neighbour, of which nothing was read ahead.
    // The other pages stay.
    let (slot, mut bytes) = (swapped.slot(39), [[0; PAGE]; 2]);
    assert_eq!(swapped.reads.take(swapped.engine, slot, &mut bytes), None);
    assert_eq!(swapped.take(39), None);
    assert_eq!(swapped.take(38), Some((AHEAD, true)));
    // Nobody reported the new owner; the checksum detects it.
    let (entry, other) = (swapped.entries[37], Box::new(Aligned([[0x55; PAGE]; 16])));
    swapped.engine.space.put(entry, 1);
    swapped.entries[37] = swapped.engine.space.allocate(Order::ZERO, FolioId(0)).unwrap();
    swapped.engine.space.write_run(&[Some(swapped.entries[37])], &other.0[0], DeviceMask::ALL).unwrap();
    assert_eq!(swapped.slot(37).raw(), swapped.slot(36).raw() + 1, "the slot is used again");
    assert_eq!(swapped.take(37), Some((AHEAD, false)));
}

#[test]
fn what_is_not_there_yet_is_given_up_page_by_page() {
    let mut swapped = swapped(16, 3);
    let slot = swapped.slot(4);
    swapped.reads.read_around(
        swapped.engine,
        swapped.block,
        PageAddr::containing(PROGRAM + 4 * PAGE),
        slot,
        Found::Away,
    );
    if swapped.reads.descriptor().is_none() {
        return;
    }
    assert_eq!(swapped.take(6), None, "under way as far as we know");
    swapped.wait();
    assert_eq!((swapped.take(6), swapped.take(7)), (None, Some((AHEAD, true))));
}

#[test]
fn the_oldest_makes_room() {
    let mut swapped = swapped(8 * 40, 3);
    for window in 0..17 {
        (0..8).for_each(|_| swapped.reads.readahead.hit(PROGRAM / PAGE + 400));
        if !swapped.fault(8 * window, Found::Away) {
            return;
        }
    }
    assert_eq!(swapped.take(1), None);
    assert!((1..17).all(|window| swapped.take(8 * window + 1) == Some((AHEAD, true))));
    // While all buffers are being read into, no further read begins.
    let before = swapped.counters()[0];
    for window in 17..40 {
        (0..8).for_each(|_| swapped.reads.readahead.hit(PROGRAM / PAGE + 400));
        let slot = swapped.slot(8 * window);
        swapped.reads.read_around(
            swapped.engine,
            swapped.block,
            PageAddr::containing(PROGRAM + 8 * window * PAGE),
            slot,
            Found::Away,
        );
    }
    assert_eq!(swapped.counters()[0], before + 16 * 7);
    swapped.wait();
}

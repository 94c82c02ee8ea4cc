//! One object of a few pages, and two or three threads that use it at once. In every schedule each
//! page ends as its last writer left it, no page comes back that was cut off, and all books are
//! right.

use crate::devices::{DeviceIo, SwapDevice};
use crate::frames::PAGE;
use crate::lru::Coldest;
use crate::object::ShmemObject;
use crate::options::{HugePolicy, Options};
use crate::space::{Background, ShmemSpace};
use crate::swapoff::SwapoffError;
use crate::sync::SeqCst;
use folioswap_slots::{DeviceId, DeviceMask};
use folioswap_test_support::{environment, schedule};
use shuttle::thread::{JoinHandle, spawn};
use std::path::Path;
use std::sync::Arc;

/// Pages of the object, in one folio.
const PAGES: u64 = 4;

fn model(run: impl Fn() + Send + Sync + 'static) {
    schedule::check_random(environment::number("FOLIOSWAP_SHMEM_SCHEDULES", 150), run);
}

fn page_of(page: u64) -> Vec<u8> {
    (0..PAGE).map(|at| if at % 64 == 0 { (at / 64) as u8 } else { page as u8 + 1 }).collect()
}

/// Plain RAM comes first, compressed RAM behind it.
fn with_ram() -> Options {
    let ram = SwapDevice::ram("ram".as_ref(), 4 << 20, 2, DeviceIo::Synchronous).unwrap();
    Options::within(8 << 20).and(ram)
}

fn object(options: Options) -> Arc<ShmemObject> {
    let space = ShmemSpace::with(options, Background::Nobody).unwrap();
    let object = ShmemObject::new(&space, HugePolicy::Always);
    let bytes: Vec<u8> = (0..PAGES).flat_map(page_of).collect();
    object.write(0, &bytes).unwrap();
    Arc::new(object)
}

/// Reclaims one folio.
fn swap_out_one(object: &ShmemObject) {
    let space = &object.space;
    if let Coldest::Folio(frame) = space.lru.coldest(&space.folios, 64) {
        space.swap_out(frame);
    }
}

fn swapped_out(options: Options) -> Arc<ShmemObject> {
    let object = object(options);
    // Written pages are new to the lists, and were used: they get their second chance.
    while object.space.lru.folios() > 0 {
        swap_out_one(&object);
    }
    object
}

#[track_caller]
fn page_is(object: &ShmemObject, page: u64, expected: &[u8]) {
    let mut found = vec![0xee; PAGE];
    assert_eq!(object.read(page * PAGE as u64, &mut found), Ok(PAGE));
    assert!(found == expected, "page {page} begins with {:?}", &found[..4]);
}

/// Checks that the pages are these (`None`: zeroes), and that the books are right. Then drops the
/// object, and checks that nothing is left.
fn ends_as(object: Arc<ShmemObject>, pages: [Option<u64>; PAGES as usize]) {
    let space = object.space.clone();
    // An object with an entry is on the swap list.
    assert!(object.inner.swapped.load(SeqCst) == 0 || space.swap_list.has(&object.inner));
    for (page, expected) in pages.into_iter().enumerate() {
        page_is(&object, page as u64, &expected.map_or_else(|| vec![0; PAGE], page_of));
    }
    assert_eq!(object.pages(), pages.iter().flatten().count() as u64);
    space.validate().unwrap();
    let inner = object.inner.clone();
    drop(Arc::into_inner(object).expect("everybody is done"));
    assert!(!space.swap_list.has(&inner));
    while let Coldest::Folio(frame) = space.lru.coldest(&space.folios, 64) {
        space.swap_out(frame);
    }
    let swap = space.swap.space();
    assert_eq!(swap.slots().device_info(swap.device()).unwrap().inuse, 0);
    assert_eq!((space.frames.used_pages(), space.statistics().content), (0, 0));
}

const WHOLE: [Option<u64>; PAGES as usize] = [Some(0), Some(1), Some(2), Some(3)];

/// S2, S3: the range check at insertion against a hole, which splits the entry and takes a piece of
/// it.
#[test]
fn insertion_against_a_split_and_a_hole() {
    model(|| {
        let object = swapped_out(Options::within(8 << 20));
        let own = object.clone();
        let reader = spawn(move || page_is(&own, 1, &page_of(1)));
        object.punch_hole(3 * PAGE as u64, PAGE as u64).unwrap();
        reader.join().unwrap();
        ends_as(object, [Some(0), Some(1), Some(2), None]);
    });
}

/// S3: truncation, and growing again, against two swap-ins.
#[test]
fn swap_in_against_truncation() {
    model(|| {
        let object = swapped_out(Options::within(8 << 20));
        let readers = [2, 3].map(|page| {
            let own = object.clone();
            spawn(move || {
                let mut found = vec![0xee; PAGE];
                let read = own.read(page * PAGE as u64, &mut found).unwrap();
                let is_zero = found[..read].iter().all(|&byte| byte == 0);
                assert!(is_zero || found[..read] == page_of(page)[..read], "page {page}");
            })
        });
        object.set_size(2 * PAGE as u64).unwrap();
        object.set_size(PAGES * PAGE as u64).unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        ends_as(object, [Some(0), Some(1), None, None]);
    });
}

/// S7, S9: lookups, for reading and for writing, against swap-out.
#[test]
fn swap_out_against_lookups() {
    model(|| {
        let object = object(Options::within(8 << 20));
        let (reader, writer) = (object.clone(), object.clone());
        let reader = spawn(move || page_is(&reader, 1, &page_of(1)));
        let writer = spawn(move || {
            writer.write(2 * PAGE as u64, &page_of(7)).unwrap();
            page_is(&writer, 2, &page_of(7));
        });
        swap_out_one(&object);
        swap_out_one(&object);
        reader.join().unwrap();
        writer.join().unwrap();
        ends_as(object, [Some(0), Some(1), Some(7), Some(3)]);
    });
}

/// S6, S12, S13: two swap-ins of one entry, and the folio leaves again, clean or written to. The
/// object is on the swap list whenever it has an entry.
#[test]
fn swap_ins_of_one_entry_while_it_leaves_again() {
    model(|| {
        let object = swapped_out(Options::within(8 << 20));
        let (reader, writer) = (object.clone(), object.clone());
        let reader = spawn(move || page_is(&reader, 0, &page_of(0)));
        let writer = spawn(move || _ = writer.write(3 * PAGE as u64, &page_of(9)).unwrap());
        swap_out_one(&object);
        swap_out_one(&object);
        reader.join().unwrap();
        writer.join().unwrap();
        swap_out_one(&object);
        ends_as(object, [Some(0), Some(1), Some(2), Some(9)]);
    });
}

fn nothing_is_on_ram(space: &ShmemSpace) -> bool {
    space.swap.space().file_space().used_on(DeviceMask::ALL) == 0
}

/// S14, S15: swapoff against a swap-in and a hole.
#[test]
fn swapoff_against_a_swap_in_and_a_hole() {
    model(|| {
        let object = swapped_out(with_ram());
        assert!(!nothing_is_on_ram(&object.space));
        let (reader, puncher) = (object.clone(), object.clone());
        let reader = spawn(move || page_is(&reader, 1, &page_of(1)));
        let puncher = spawn(move || puncher.punch_hole(2 * PAGE as u64, PAGE as u64).unwrap());
        let report = object.space.swapoff(Path::new("ram"), || true).unwrap();
        assert_eq!(report.lost, 0);
        assert!(nothing_is_on_ram(&object.space));
        reader.join().unwrap();
        puncher.join().unwrap();
        ends_as(object, [Some(0), Some(1), None, Some(3)]);
    });
}

/// Swaps out twice: the first may have chosen the device already, the second comes later.
fn swaps_out_twice(object: &Arc<ShmemObject>) -> JoinHandle<()> {
    let own = object.clone();
    spawn(move || {
        swap_out_one(&own);
        swap_out_one(&own);
    })
}

/// S17: swapoff against a swap-out that has chosen the device, and one that comes later.
#[test]
fn swapoff_against_swap_out() {
    model(|| {
        let object = object(with_ram());
        let evictor = swaps_out_twice(&object);
        object.space.swapoff(Path::new("ram"), || true).unwrap();
        assert!(nothing_is_on_ram(&object.space));
        evictor.join().unwrap();
        assert!(nothing_is_on_ram(&object.space), "nobody writes to it afterwards");
        ends_as(object, WHOLE);
    });
}

/// S15: the object is dropped while swapoff works on it.
#[test]
fn swapoff_against_a_drop() {
    model(|| {
        let object = swapped_out(with_ram());
        let space = object.space.clone();
        let own = space.clone();
        let swapoff = spawn(move || own.swapoff(Path::new("ram"), || true).unwrap());
        drop(Arc::into_inner(object).unwrap());
        assert_eq!(swapoff.join().unwrap().lost, 0);
        assert!(nothing_is_on_ram(&space));
        assert_eq!(space.statistics().content, 0);
        while let Coldest::Folio(frame) = space.lru.coldest(&space.folios, 64) {
            space.swap_out(frame);
        }
        assert_eq!(space.frames.used_pages(), 0);
        space.validate().unwrap();
    });
}

/// The model of S17 can fail: without waiting for the thread that has chosen the device, pages are
/// on it at the end.
#[test]
#[should_panic(expected = "somebody wrote to it")]
fn wrong_everything_is_read_back_while_the_device_is_still_on() {
    model(|| {
        let object = object(with_ram());
        let evictor = swaps_out_twice(&object);
        let id = DeviceId::new(1).unwrap();
        let done: Result<_, SwapoffError> = object.space.unuse(id, &mut || true);
        done.unwrap();
        evictor.join().unwrap();
        assert!(nothing_is_on_ram(&object.space), "somebody wrote to it");
    });
}

//! The race catalogue of swap-in, one race at a time: a swap-in is stopped at a step ([`Step`]),
//! another thread acts just there, and the swap-in goes on. Each race is shown with the variant
//! from before, which fails in the way that is told, and with today's variant.
//!
//! No scheduler is needed: at each step the swap-in holds no lock that the other thread wants.

mod reading;
mod swap_in;
mod swap_out;
mod swapoff;
mod truncation;

use crate::before::{After1, After2, After5, Before, Series};
use crate::devices::{Growth, SwapDevice};
use crate::error::ShmemError;
use crate::folio::flag;
use crate::frames::PAGE;
use crate::object::{Hold, ObjectOf};
use crate::options::{HugePolicy, Options};
use crate::space::{Background, ShmemSpace};
use crate::swap::Context;
use crate::swapin::Failed;
use crate::swapout::Afterwards;
use crate::variant::{Current, Hooked, Hooks, Step, Variant};
use crate::word::Item;
use folioswap_slots::{DeviceMask, Order, SlotWord, SwapEntry};
use folioswap_test_support::random::noise;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;

/// Lets other threads act at a step, and denies large folios.
struct Interruption;

/// A variant that can be interrupted, and denied large folios.
type Interrupted<V> = Hooked<V, Interruption>;

type Other = Box<dyn FnOnce()>;

thread_local! {
    static AT: RefCell<Option<(Step, Other)>> = const { RefCell::new(None) };
    static LARGE: Cell<bool> = const { Cell::new(true) };
    /// The largest order that can be had.
    static LARGEST: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Hooks for Interruption {
    fn at(step: Step) {
        let due = AT.with_borrow_mut(|at| at.take_if(|(when, _)| *when == step));
        if let Some((_, other)) = due {
            other();
        }
    }

    fn may_allocate_large(order: Order) -> bool {
        LARGE.get() && order.index() <= LARGEST.get()
    }
}

/// At `step` of the next swap-in, `other` happens.
fn interrupt(step: Step, other: impl FnOnce() + 'static) {
    AT.set(Some((step, Box::new(other))));
}

fn nothing_is_left_to_happen() {
    assert!(AT.with_borrow(|at| at.is_none()), "the swap-in never came to the step");
}

type Object<V> = Arc<ObjectOf<Interrupted<V>>>;

const PAGES: u64 = 16;

/// An object whose first 16 pages were one folio; page i is filled with i + 1.
fn object<V: Variant>() -> Object<V> {
    object_with(Options::within(32 << 20))
}

fn object_with<V: Variant>(options: Options) -> Object<V> {
    let space = ShmemSpace::with(options, Background::Nobody).unwrap();
    let object = ObjectOf::new(&space, HugePolicy::Always);
    let bytes: Vec<u8> = (0..PAGES).flat_map(page_of).collect();
    object.write(0, &bytes).unwrap();
    LARGE.set(true);
    LARGEST.set(usize::MAX);
    Arc::new(object)
}

const DISK: &str = "/var/tmp";

/// Compressed memory, with a file behind it.
fn with_file() -> Options {
    Options::within(32 << 20).and(SwapDevice::temporary(Path::new(DISK), Some(64 << 20), 0).unwrap())
}

/// An object with all 16 pages on the file.
fn object_on_file<V: Variant>() -> Object<V> {
    let object = object_with::<V>(with_file());
    out(&object, 0, Afterwards::Freed);
    assert_eq!(object.space.demote(), PAGES);
    object
}

/// Moves these pages of the object's first folio from the store to the file.
fn demote<V: Variant>(object: &Object<V>, pages: std::ops::Range<u64>) {
    let space = &object.space;
    let first = entry_at(object, 0).0;
    let entries: Vec<_> = pages.map(|page| first.checked_add(page)).collect();
    let devices = space.swap.devices().behind_store(DeviceMask::NONE);
    // The file begins without clusters.
    assert_eq!(space.swap.grow(devices), Growth::Added);
    let moved = space.swap.with(|context| {
        let (decoder, memory) = context.split();
        let memory = Context::pages(memory, entries.len()).unwrap();
        space.swap.space().demote_run(&entries, decoder, memory, devices)
    });
    assert_eq!(moved.ok(), Some(entries.len() as u64));
}

/// Overwrites the page's bytes on the file with zeroes.
fn damage<V: Variant>(object: &Object<V>, index: u64) {
    use std::os::unix::fs::FileExt;
    let space = &object.space;
    let bad = space.swap.space().file_slot(entry_at(object, index).0).unwrap();
    // Direct I/O requires an aligned buffer.
    let page = crate::mapping::Mapping::new(PAGE, PAGE).unwrap();
    // SAFETY: a zeroed page of our own.
    let zeroes = unsafe { std::slice::from_raw_parts(page.start().as_ptr(), PAGE) };
    space.swap.devices().file().unwrap().write_all_at(zeroes, bad.offset_bytes()).unwrap();
}

/// Checks that nothing of the object is left: every slot and every folio is free once reclaim has
/// dropped those without an owner.
fn nothing_is_left(space: &ShmemSpace) {
    while let crate::lru::Coldest::Folio(frame) = space.lru.coldest(&space.folios, 64) {
        space.swap_out(frame);
    }
    let swap = space.swap.space();
    assert_eq!(swap.slots().device_info(swap.device()).unwrap().inuse, 0);
    space.validate().unwrap();
}

/// Bytes that compress, but are not one word repeated.
fn page_of(page: u64) -> Vec<u8> {
    (0..PAGE).map(|at| if at % 64 == 0 { (at / 64) as u8 } else { page as u8 + 1 }).collect()
}

/// Swaps the folio of a page out, whatever its order.
fn out<V: Variant>(object: &Object<V>, index: u64, afterwards: Afterwards) {
    let space = &object.space;
    let held = object.existing(index, Hold::Exclusive, 1).map_err(drop).unwrap().unwrap();
    space.give_copy_up(held.frame);
    let (first, order) = (held.index, held.order);
    let frame = held.into_frame();
    space.lru.remove(&space.folios, frame);
    assert!(space.swap_out_whole(&object.inner, frame, first, order, afterwards).is_ok());
}

fn entry_at<V: Variant>(object: &Object<V>, index: u64) -> (SwapEntry, Order) {
    match object.inner.map.get(index).unwrap() {
        crate::word::Found { item: Item::Swap(entry), order } => (entry, order),
        found => panic!("{found:?}"),
    }
}

/// Swaps the folio out again until it has the same entry as before (the slots of an empty cluster
/// are handed out from its start).
fn out_and_in_and_out<V: Variant>(object: &Object<V>, entry: SwapEntry, afterwards: Afterwards) {
    for _ in 0..200 {
        drop(object.existing(0, Hold::Shared, 1).unwrap());
        out(object, 0, Afterwards::Freed);
        if entry_at(object, 0).0 == entry {
            drop(object.existing(0, Hold::Shared, 1).unwrap());
            for _ in 0..200 {
                out(object, 0, afterwards);
                if entry_at(object, 0).0 == entry {
                    return;
                }
                drop(object.existing(0, Hold::Shared, 1).unwrap());
            }
        }
    }
    panic!("the entry was not handed out again");
}

/// Makes one attempt at a page.
fn attempt<V: Variant>(object: &Object<V>, index: u64) -> Result<(), Option<ShmemError>> {
    let found = object.inner.map.get(index).unwrap();
    match object.swap_in(index, found, 1) {
        Ok(held) => {
            let (from, to) = (index * PAGE as u64, (index + 1) * PAGE as u64);
            assert!(held.bytes(from, to) == page_of(index));
            Ok(())
        }
        Err(Failed::Again) => Err(None),
        Err(Failed::Error(error)) => Err(Some(error)),
    }
}

/// Number of attempts until one works; `None` after so many that it is a hang.
fn attempts<V: Variant>(object: &Object<V>, index: u64) -> Option<u32> {
    (1..1000).find(|_| attempt(object, index).is_ok())
}

fn all_pages_are_right<V: Variant>(object: &Object<V>) {
    let mut bytes = vec![0; (PAGES * PAGE as u64) as usize];
    assert_eq!(object.read(0, &mut bytes), Ok(bytes.len()));
    for (page, found) in bytes.chunks(PAGE).enumerate() {
        assert!(found == page_of(page as u64), "page {page}");
    }
    object.space.validate().unwrap();
}

//! The store against a plain map, under random stores, frees, compactions and trims; everything is
//! validated.

mod common;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use common::data::{PageKind, Rng};
use common::device::ZramDevice;
use common::memory::TestMemory;
use folioswap_devices::{
    FreeError, Handle, IncompressiblePolicy, Location, LocationCell, Owner, PAGE_SIZE, Page, PageMemory,
    Place, Scratch, StoreError, StoreOptions, Stored, StoredLen, Verdict, Zram,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    /// Store this many pages of a kind.
    Store(PageKind, u8),
    /// Free this many random pages.
    Free(u8),
    /// Free all but one page in this many, which makes sparse spans.
    Thin(u8),
    /// Compact with this budget in pages; one location in this many is "being read" and stays.
    Compact(u16, u8),
    Trim,
    /// Recompress this many random pages with zstd.
    Recompress(u8),
    /// Load everything.
    Check,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..PageKind::ALL.len(), 1..=if cfg!(miri) { 8 } else { 120u8 }).prop_map(|(kind, n)| Op::Store(PageKind::ALL[kind], n)),
        3 => (1..=100u8).prop_map(Op::Free),
        1 => (2..=8u8).prop_map(Op::Thin),
        2 => (1..=500u16, 2..=255u8).prop_map(|(budget, locked)| Op::Compact(budget, locked)),
        1 => Just(Op::Trim),
        if cfg!(miri) { 0 } else { 2 } => (1..=100u8).prop_map(Op::Recompress),
        1 => Just(Op::Check),
    ]
}

/// The caller's side: a table of locations by owner, and the expected contents of each page.
struct Oracle {
    device: ZramDevice,
    scratch: Box<Scratch>,
    pages: HashMap<u64, (Place, Page)>,
    next_owner: u64,
    rng: Rng,
}

impl Oracle {
    fn new() -> Self {
        let options =
            StoreOptions { empty_reserve: 256 << 10, compact_above_percent: 5, ..StoreOptions::DEFAULT };
        Self {
            device: ZramDevice::new(options),
            scratch: Box::default(),
            pages: HashMap::new(),
            next_owner: 0,
            rng: Rng::new(3),
        }
    }

    fn store(&mut self, kind: PageKind) {
        let owner = self.next_owner;
        self.next_owner += 1;
        let page = kind.page(owner);
        let place = self.device.store(&mut self.scratch, &page, owner).unwrap();
        self.pages.insert(owner, (place, page));
    }

    fn free(&mut self, owner: u64) {
        use common::device::PageStore;
        let (place, _) = self.pages.remove(&owner).unwrap();
        self.device.free(place);
    }

    fn owners(&self) -> Vec<u64> {
        let mut owners: Vec<_> = self.pages.keys().copied().collect();
        owners.sort_unstable();
        owners
    }

    fn check(&self) {
        use common::device::PageStore;
        let mut out = [0; PAGE_SIZE];
        for (owner, (place, page)) in &self.pages {
            self.device.load(*place, &mut out).unwrap();
            assert!(out == *page, "owner {owner}");
        }
    }

    fn compact(&mut self, budget_pages: u16, one_locked_in: u8) {
        let (pages, rng) = (&mut self.pages, &mut self.rng);
        self.device.zram.compact(u64::from(budget_pages) * 4096, |relocation| {
            let (place, _) = pages.get_mut(&relocation.owner.raw()).expect("an owner that we know");
            let Place::Zram { handle, len, .. } = place else { panic!("not in the store: {place:?}") };
            assert_eq!((*handle, *len), (relocation.old, relocation.len));
            if rng.below(u64::from(one_locked_in)) == 0 {
                return Verdict::Kept;
            }
            *handle = relocation.new;
            Verdict::Moved
        });
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Store(kind, pages) => (0..pages).for_each(|_| self.store(kind)),
            Op::Free(pages) => {
                for _ in 0..pages {
                    let owners = self.owners();
                    if owners.is_empty() {
                        break;
                    }
                    let index = self.rng.below(owners.len() as u64) as usize;
                    self.free(owners[index]);
                }
            }
            Op::Thin(keep_one_in) => {
                for owner in self.owners() {
                    if self.rng.below(u64::from(keep_one_in)) != 0 {
                        self.free(owner);
                    }
                }
            }
            Op::Compact(budget, locked) => self.compact(budget, locked),
            Op::Trim => {
                self.device.zram.trim();
                assert_eq!(self.device.zram.mm_stat().empty_spans_resident, 0);
            }
            Op::Recompress(pages) => {
                let owners = self.owners();
                for _ in 0..pages.min(owners.len() as u8) {
                    let owner = owners[self.rng.below(owners.len() as u64) as usize];
                    let (place, page) = &self.pages[&owner];
                    let after = self.device.recompress(*place, page, owner);
                    assert!(stored_bytes(after) <= stored_bytes(*place));
                    self.pages.get_mut(&owner).unwrap().0 = after;
                }
            }
            Op::Check => self.check(),
        }
        self.device.zram.validate().unwrap();
        let stat = self.device.zram.mm_stat();
        assert_eq!(stat.orig_data_size / 4096, self.pages.len() as u64);
        let stored: u64 = self.pages.values().map(|(place, _)| stored_bytes(*place)).sum();
        assert_eq!(stat.compr_data_size, stored);
        assert!(stat.mem_used_total >= stored);
    }
}

fn stored_bytes(place: Place) -> u64 {
    if let Place::Zram { len, .. } = place { len.bytes() as u64 } else { 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 150 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_a_map(ops in prop::collection::vec(any_op(), 1..if cfg!(miri) { 6 } else { 40 })) {
        let mut oracle = Oracle::new();
        for op in &ops {
            oracle.apply(op);
        }
        oracle.check();
        for owner in oracle.owners() {
            oracle.free(owner);
        }
        oracle.device.zram.trim();
        oracle.device.zram.validate().unwrap();
        let stat = oracle.device.zram.mm_stat();
        prop_assert_eq!((stat.objects, stat.same_pages, stat.huge_pages, stat.compr_data_size), (0, 0, 0, 0));
        prop_assert_eq!(stat.mem_used_total, stat.metadata_bytes);
    }
}

#[test]
fn compaction_empties_sparse_spans() {
    let pages = if cfg!(miri) { 60 } else { 8000 };
    let mut oracle = Oracle::new();
    (0..pages).for_each(|_| oracle.store(PageKind::TwoToOne));
    let owners = oracle.owners();
    owners.into_iter().filter(|owner| owner % 4 != 0).for_each(|owner| oracle.free(owner));
    oracle.device.zram.trim();
    let before = oracle.device.zram.mm_stat();
    oracle.compact(u16::MAX, u8::MAX);
    oracle.device.zram.trim();
    oracle.device.zram.validate().unwrap();
    oracle.check();
    let after = oracle.device.zram.mm_stat();
    assert_eq!(after.compr_data_size, before.compr_data_size);
    if !cfg!(miri) {
        assert!(after.pages_compacted > 0);
        assert!(after.mem_used_total < before.mem_used_total / 2, "{before:?} -> {after:?}");
    }
}

#[test]
fn a_second_free_and_a_foreign_handle_are_refused() {
    let zram = Box::new(Zram::new(TestMemory::new(), StoreOptions::DEFAULT));
    let page = PageKind::ThreeToOne.page(1);
    let owner = Owner::new(1).unwrap();
    let mut scratch = Box::new(Scratch::new());
    let Stored::Object { handle, len, .. } = zram.store(&mut scratch, &page, owner).unwrap() else {
        panic!()
    };
    let Stored::Object { handle: other, len: other_len, .. } =
        zram.store(&mut scratch, &page, owner).unwrap()
    else {
        panic!()
    };
    let beside = Handle::from_raw(handle.raw() ^ 1).unwrap();
    let nowhere = Handle::from_raw((1 << Handle::BITS) - 1).unwrap();
    // SAFETY: the test is single-threaded and stores nothing in between; it tests the store's own
    // checks.
    unsafe {
        assert_eq!(zram.free(beside, len), Err(FreeError::NotAnObject));
        assert_eq!(zram.free(nowhere, len), Err(FreeError::NotAnObject));
        zram.free(handle, len).unwrap();
        assert_eq!(zram.free(handle, len), Err(FreeError::NotAnObject));
        zram.free(other, other_len).unwrap();
        assert_eq!(zram.free(other, other_len), Err(FreeError::NotAnObject));
    }
    zram.validate().unwrap();
}

#[test]
fn what_does_not_compress_is_refused_when_asked() {
    let zram = Box::new(Zram::new(TestMemory::new(), StoreOptions::DEFAULT));
    assert_eq!(StoreOptions::DEFAULT.incompressible, IncompressiblePolicy::Refuse);
    let mut scratch = Box::new(Scratch::new());
    let stored = zram.store(&mut scratch, &PageKind::Incompressible.page(1), Owner::new(1).unwrap()).unwrap();
    assert_eq!(stored, Stored::Incompressible);
    let stat = zram.mm_stat();
    assert_eq!((stat.objects, stat.huge_pages, stat.huge_pages_since, stat.mem_used_total), (0, 0, 1, 0));
}

#[test]
#[cfg_attr(miri, ignore = "a thousand compressions")]
fn without_new_memory_a_chunk_ahead_is_still_there_and_frees_work() {
    // The three mappings are the directory's leaf, the first chunk, and the chunk ahead.
    let memory = TestMemory::with_map_calls(3);
    let options = StoreOptions { incompressible: IncompressiblePolicy::Keep, ..StoreOptions::DEFAULT };
    let zram = Box::new(Zram::new(memory, options));
    let mut scratch = Box::new(Scratch::new());
    let mut objects = Vec::new();
    let error = loop {
        let page = PageKind::Incompressible.page(1);
        match zram.store(&mut scratch, &page, Owner::new(objects.len() as u64).unwrap()) {
            Ok(Stored::Object { handle, len, .. }) => objects.push((handle, len)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, StoreError::NoMemory);
    assert_eq!(objects.len(), 2 * 16 * 31, "two chunks of 16 spans of 31 whole pages");
    for (handle, len) in objects {
        // SAFETY: the object was stored above and is freed once.
        unsafe { zram.free(handle, len) }.unwrap();
    }
    zram.validate().unwrap();
    let _ = zram.store(&mut scratch, &PageKind::Incompressible.page(1), Owner::new(0).unwrap()).unwrap();
}

/// Frees an object in the middle of the pool's growing, as another thread may.
struct FreesWhileGrowing {
    memory: TestMemory,
    store: AtomicPtr<Zram<FreesWhileGrowing>>,
    object: Mutex<Option<(Handle, StoredLen)>>,
}

// SAFETY: every call is passed on to memory that keeps the contract.
unsafe impl PageMemory for FreesWhileGrowing {
    fn map(&self, bytes: usize) -> Option<NonNull<u8>> {
        if let Some((handle, len)) = self.object.lock().unwrap().take() {
            // SAFETY: the store calls this, so it exists; the object was stored in it and is freed
            // here alone.
            unsafe { (*self.store.load(Relaxed)).free(handle, len) }.unwrap();
        }
        self.memory.map(bytes)
    }
    unsafe fn give_back(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the call is passed on.
        unsafe { self.memory.give_back(start, bytes) }
    }
}

#[test]
#[cfg_attr(miri, ignore = "five hundred compressions")]
fn a_span_that_a_free_made_needless_goes_back_to_the_pool() {
    let memory = FreesWhileGrowing {
        memory: TestMemory::new(),
        store: AtomicPtr::default(),
        object: Mutex::default(),
    };
    let options = StoreOptions { incompressible: IncompressiblePolicy::Keep, ..StoreOptions::DEFAULT };
    let zram = Box::new(Zram::new(memory, options));
    zram.memory().store.store((&raw const *zram).cast_mut(), Relaxed);
    let mut scratch = Box::new(Scratch::new());
    let page = PageKind::Incompressible.page(1);
    let mut store = |owner| match zram.store(&mut scratch, &page, Owner::new(owner).unwrap()) {
        Ok(Stored::Object { handle, len, .. }) => (handle, len),
        other => panic!("{other:?}"),
    };
    let first = store(0);
    // From here on every span is full when the pool is asked for the next one.
    *zram.memory().object.lock().unwrap() = Some(first);
    let mut objects: Vec<_> = Vec::new();
    while zram.memory().object.lock().unwrap().is_some() {
        objects.push(store(1 + objects.len() as u64));
        zram.validate().unwrap();
    }
    for (handle, len) in objects {
        // SAFETY: the object was stored above and is freed once.
        unsafe { zram.free(handle, len) }.unwrap();
    }
    zram.validate().unwrap();
    assert_eq!(zram.mm_stat().objects, 0);
}

/// Spans of a class that has many are announced once, before their first object, however often they
/// are filled and emptied, and count as used from then on. Those of classes with few objects are
/// not announced.
#[test]
#[cfg_attr(miri, ignore = "a thousand compressions")]
fn spans_are_announced_before_they_are_used_where_there_are_many_of_a_size() {
    const PER_SPAN: u64 = 31;
    const SPAN: usize = 128 << 10;
    let options = StoreOptions { incompressible: IncompressiblePolicy::Keep, ..StoreOptions::DEFAULT };
    let zram = Box::new(Zram::new(TestMemory::new(), options));
    let mut scratch = Box::new(Scratch::new());
    let mut store = |page: &Page, number| match zram.store(&mut scratch, page, Owner::new(number).unwrap()) {
        Ok(Stored::Object { handle, len, .. }) => (handle, len),
        other => panic!("{other:?}"),
    };
    let announced = || zram.memory().announced.lock().unwrap().clone();
    // Objects of many sizes, one each.
    let sizes = (64..4000).step_by(100).map(|random| {
        let noise = PageKind::Incompressible.page(random as u64);
        core::array::from_fn(|at| if at < random { noise[at] } else { 0 })
    });
    let few: Vec<_> = sizes.enumerate().map(|(number, page)| store(&page, number as u64)).collect();
    assert!(announced().is_empty());
    for _ in 0..3 {
        let objects: Vec<_> =
            (0..8 * PER_SPAN).map(|number| store(&PageKind::Incompressible.page(number), number)).collect();
        let announced = announced();
        let starts: std::collections::BTreeSet<_> = announced.iter().map(|&(start, _)| start).collect();
        assert!((3..=8).contains(&starts.len()) && starts.len() == announced.len(), "{announced:x?}");
        assert!(announced.iter().all(|&(_, bytes)| bytes == SPAN));
        let is_within = |handle: &Handle| {
            let at = zram.memory().object(*handle).addr();
            announced.iter().any(|&(start, bytes)| (start..start + bytes).contains(&at))
        };
        let within = objects.iter().filter(|(handle, _)| is_within(handle)).count() as u64;
        assert!(within >= 3 * PER_SPAN, "{within}");
        assert!(zram.mm_stat().mem_used_total >= (8 * SPAN) as u64);
        zram.validate().unwrap();
        for (handle, len) in objects {
            // SAFETY: the object was stored above and is freed once.
            unsafe { zram.free(handle, len) }.unwrap();
        }
    }
    drop(few);
    zram.validate().unwrap();
}

/// Readers, writers and the compactor over one table of locations, by the documented protocol.
#[test]
fn compaction_runs_beside_stores_loads_and_frees() {
    const CELLS: u64 = if cfg!(miri) { 10 } else { 4000 };
    const ROUNDS: u64 = if cfg!(miri) { 24 } else { 60_000 };
    const MOVED: u64 = if cfg!(miri) { 0 } else { 1000 };
    let options = StoreOptions { empty_reserve: 0, compact_above_percent: 1, ..StoreOptions::DEFAULT };
    let device = ZramDevice::new(options);
    // Per cell: location, check word, and the seed of its page (both under the LOCK bit).
    let cells: Vec<_> = (0..CELLS).map(|_| (LocationCell::default(), [const { word() }; 2])).collect();
    let stop = word();
    let moved = word();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3u64)
            .map(|thread| {
                let (device, cells, moved) = (&device, &cells, &moved);
                // The test cannot decide when the compactor gets the processor, so the workers go
                // on until it has moved enough.
                let goes_on =
                    move |round| round < ROUNDS || (moved.load(Relaxed) < MOVED && round < 200 * ROUNDS);
                scope.spawn(move || work(device, cells, thread, ROUNDS / 6, goes_on))
            })
            .collect();
        let (device, cells, stop, moved) = (&device, &cells, &stop, &moved);
        scope.spawn(move || {
            while stop.load(Relaxed) == 0 {
                let report = device.zram.compact(1 << 20, |relocation| {
                    let cell = &cells[relocation.owner.raw() as usize].0;
                    match cell.relocate_object(relocation.old, relocation.new) {
                        true => Verdict::Moved,
                        false => Verdict::Kept,
                    }
                });
                moved.fetch_add(report.objects_moved, Relaxed);
                device.zram.trim();
                std::thread::yield_now();
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // The stop comes before any unwrap: a failed worker must not leave the compactor running
        // for ever.
        stop.store(1, Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    device.zram.validate().unwrap();
    assert!(moved.load(Relaxed) >= MOVED, "only {} objects moved", moved.load(Relaxed));
}

const fn word() -> AtomicU64 {
    AtomicU64::new(0)
}

/// Half of the pages are of a kind that zstd shrinks further.
fn kind_of(seed: u64) -> PageKind {
    if seed.is_multiple_of(2) { PageKind::Mixed } else { PageKind::Text }
}

fn work(
    device: &ZramDevice,
    cells: &[(LocationCell, [AtomicU64; 2])],
    thread: u64,
    wave: u64,
    goes_on: impl Fn(u64) -> bool,
) {
    use common::device::PageStore;
    let mut rng = Rng::new(thread + 77);
    let mut scratch = Box::new(Scratch::new());
    for round in (0..).take_while(|round| goes_on(*round)) {
        // Waves of filling and draining make spans sparse.
        let filling = (round / wave).is_multiple_of(2);
        let index = rng.below(cells.len() as u64);
        let (cell, [check, seed]) = &cells[index as usize];
        let Some(location) = cell.try_lock() else { continue };
        let place = Place::unpack(location, check.load(Relaxed) as u32).unwrap();
        let mut after = location;
        match (place, rng.below(4), filling) {
            (Place::None, _, true) | (Place::None, 0, false) => {
                let new_seed = rng.next();
                let page = kind_of(new_seed).page(new_seed);
                let (word, new_check) = device.store(&mut scratch, &page, index).unwrap().pack();
                check.store(u64::from(new_check), Relaxed);
                seed.store(new_seed, Relaxed);
                after = word;
            }
            (Place::None, ..) => {}
            (place, action, filling) => {
                let mut out = [0; PAGE_SIZE];
                device.load(place, &mut out).unwrap();
                let seed = seed.load(Relaxed);
                assert!(out == kind_of(seed).page(seed), "cell {index}");
                if action == 1 && filling && !cfg!(miri) {
                    let (word, new_check) = device.recompress(place, &out, index).pack();
                    check.store(u64::from(new_check), Relaxed);
                    after = word;
                }
                if action == 0 || !filling {
                    device.free(place);
                    check.store(0, Relaxed);
                    after = Location::NONE;
                }
            }
        }
        cell.unlock_with(after);
    }
}

//! The models: small numbers of threads on small devices, each ending in `validate`.

use crate::*;
use folioswap_test_support::memory::Zeroed;
use folioswap_test_support::{environment, schedule};
use std::sync::Arc;

pub(crate) struct Turn;
impl Relax for Turn {
    fn relax(_round: u32) {
        schedule::yield_now();
    }
}

pub(crate) struct Modelled;
impl Policy for Modelled {
    type Relax = Turn;
}

pub(crate) type Swap = Slots<4, Modelled>;

pub(crate) struct Engine {
    pub(crate) swap: Swap,
    _memory: [Zeroed; 2],
}

impl Engine {
    pub(crate) fn new(frames: usize) -> Engine {
        let config = Config { cpus: 3, clusters_max: 16, frame_chunks_max: 2 };
        let memory = [Swap::bytes_needed(config), frames * Swap::FRAME_BYTES].map(Zeroed::new);
        let [metadata, space] = &memory;
        // SAFETY: fresh zeroed memory that lives as long as the handle.
        let swap = unsafe {
            let swap = Swap::init(metadata.start(), metadata.bytes(), config).unwrap();
            swap.add_frames(space.start(), space.bytes()).unwrap();
            swap
        };
        Engine { swap, _memory: memory }
    }

    pub(crate) fn take(&self, cpu: u32, size: u32, folio: u32) -> Result<SwapEntry, AllocError> {
        let order = Order::new(size).unwrap();
        self.swap.alloc_folio(LogicalCpu(cpu), order, FolioId(folio), DeviceMask::ALL)
    }

    pub(crate) fn give(&self, entry: SwapEntry, size: u32, folio: u32) {
        let slots = 1 << size;
        self.swap.cache_remove(entry, slots, FolioId(folio), Shadow::EMPTY, |_, _| {}).unwrap();
        assert_eq!(self.swap.put(entry, slots, |_, _| {}).unwrap().freed, slots);
    }

    /// Takes order-0 slots until the device is full.
    fn fill(&self) -> Vec<SwapEntry> {
        std::iter::from_fn(|| self.take(0, 0, 1).ok()).collect()
    }
}

/// Runs `model` under random schedules, and under schedules with few, well-placed switches (PCT).
fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = environment::number("FOLIOSWAP_SLOTS_SCHEDULES", 600);
    schedule::check_random(schedules / 2, model.clone());
    schedule::check_pct(schedules / 2, 3, model);
}

fn spawn<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> shuttle::thread::JoinHandle<T> {
    shuttle::thread::spawn(action)
}

#[test]
fn allocate_against_free() {
    check(|| {
        let engine = Arc::new(Engine::new(4));
        engine.swap.swapon(DeviceSpec::new(1536)).unwrap();
        let threads: Vec<_> = (0..2u32)
            .map(|cpu| {
                let engine = engine.clone();
                spawn(move || {
                    for folio in [cpu * 10, cpu * 10 + 1] {
                        if let Ok(entry) = engine.take(cpu, 3, folio) {
                            engine.give(entry, 3, folio);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(engine.swap.validate().unwrap().inuse, 0);
    });
}

#[test]
fn isolate_against_relocate_against_free() {
    check(|| {
        let engine = Arc::new(Engine::new(4));
        engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        // A cluster of order 6 holds two folios. One CPU frees them, one allocates by its hint, one
        // isolates the cluster from a list.
        let first = engine.take(0, 6, 1).unwrap();
        let second = engine.take(0, 6, 2).unwrap();
        let free = {
            let engine = engine.clone();
            spawn(move || {
                engine.give(first, 6, 1);
                engine.give(second, 6, 2);
            })
        };
        let hint = {
            let engine = engine.clone();
            spawn(move || engine.take(0, 6, 3).ok())
        };
        let isolate = {
            let engine = engine.clone();
            spawn(move || engine.take(1, 6, 4).ok())
        };
        free.join().unwrap();
        let (third, fourth) = (hint.join().unwrap(), isolate.join().unwrap());
        engine.swap.validate().unwrap();
        assert!(third.is_none() || third != fourth);
        third.into_iter().for_each(|entry| engine.give(entry, 6, 3));
        fourth.into_iter().for_each(|entry| engine.give(entry, 6, 4));
        assert_eq!(engine.swap.validate().unwrap().inuse, 0);
    });
}

#[test]
fn last_slot_off_list_bit_against_free() {
    check(|| {
        let engine = Arc::new(Engine::new(2));
        engine.swap.swapon(DeviceSpec::new(4)).unwrap();
        let first = engine.take(0, 0, 1).unwrap();
        engine.take(0, 0, 2).unwrap();
        // Two slots of three are used: the last one is taken while one is freed.
        let taker = {
            let engine = engine.clone();
            spawn(move || engine.take(1, 0, 3).ok())
        };
        let giver = {
            let engine = engine.clone();
            spawn(move || engine.give(first, 0, 1))
        };
        let taken = taker.join().unwrap();
        giver.join().unwrap();
        assert!(taken.is_some(), "a slot was free all the time");
        engine.swap.validate().unwrap();
        assert!(engine.take(2, 0, 4).is_ok(), "the free slot can be got");
        assert_eq!(engine.take(2, 0, 5), Err(AllocError::NoSpace));
        engine.swap.validate().unwrap();
    });
}

#[test]
fn full_device_two_frees() {
    check(|| {
        let engine = Arc::new(Engine::new(2));
        engine.swap.swapon(DeviceSpec::new(5)).unwrap();
        let entries = engine.fill();
        assert_eq!(entries.len(), 4);
        let threads: Vec<_> = entries[..2]
            .iter()
            .map(|entry| {
                let (engine, entry) = (engine.clone(), *entry);
                spawn(move || {
                    engine.give(entry, 0, 1);
                    engine.take(1, 0, 1).is_ok()
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        engine.swap.validate().unwrap();
    });
}

#[test]
fn duplicate_against_put_across_the_overflow_border() {
    check(|| {
        let engine = Arc::new(Engine::new(3));
        engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        let entry = engine.take(0, 1, 1).unwrap();
        for _ in 0..13 {
            engine.swap.dup(entry, 2).unwrap();
        }
        let up = {
            let engine = engine.clone();
            spawn(move || {
                engine.swap.dup(entry, 2).unwrap();
                engine.swap.put(entry, 2, |_, _| panic!()).unwrap();
            })
        };
        let read = {
            let engine = engine.clone();
            spawn(move || {
                for _ in 0..2 {
                    let count = engine.swap.swap_count(entry).unwrap();
                    assert!((14..=15).contains(&count), "{count} was never the count");
                }
            })
        };
        up.join().unwrap();
        read.join().unwrap();
        assert_eq!(engine.swap.swap_count(entry), Some(14));
        engine.swap.validate().unwrap();
    });
}

#[test]
fn swap_in_race_has_one_winner() {
    check(|| {
        let engine = Arc::new(Engine::new(3));
        engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        let entry = engine.take(0, 2, 1).unwrap();
        engine.swap.cache_remove(entry, 4, FolioId(1), Shadow::EMPTY, |_, _| {}).unwrap();
        let threads: Vec<_> = (0..2u32)
            .map(|thread| {
                let engine = engine.clone();
                spawn(move || {
                    let target = entry.checked_add(u64::from(thread) * 3).unwrap();
                    engine.swap.cache_insert(target, Order::new(2).unwrap(), FolioId(10 + thread))
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let winners: Vec<_> = results.iter().filter(|result| result.is_ok()).collect();
        assert_eq!(winners.len(), 1);
        assert!(results.iter().any(|result| matches!(result, Err(InsertError::Exist(_)))));
        engine.swap.validate().unwrap();
    });
}

/// The last count of a cached slot goes while its folio leaves the swap cache: the second of the
/// two frees it, once.
#[test]
fn put_against_cache_remove() {
    check(|| {
        let engine = Arc::new(Engine::new(3));
        engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        let entry = engine.take(0, 2, 1).unwrap();
        let putter = {
            let engine = engine.clone();
            spawn(move || {
                // One page goes on its own first, as a task that ends frees them one by one.
                let first = engine.swap.put(entry, 1, |_, _| {}).unwrap();
                let rest = engine.swap.put(entry.checked_add(1).unwrap(), 3, |_, _| {}).unwrap();
                assert_eq!((first.rejected, rest.rejected), (0, 0));
                assert_eq!(first.freed + first.only_cached + rest.freed + rest.only_cached, 4);
                first.freed + rest.freed
            })
        };
        let remover = {
            let engine = engine.clone();
            spawn(move || {
                let freed = std::cell::Cell::new(0);
                let counted = engine
                    .swap
                    .cache_remove(entry, 4, FolioId(1), Shadow::EMPTY, |_, _| freed.set(freed.get() + 1));
                assert_eq!(counted.unwrap(), freed.get());
                freed.get()
            })
        };
        let freed = putter.join().unwrap() + remover.join().unwrap();
        assert_eq!(freed, 4, "each slot is freed once");
        assert_eq!(engine.swap.validate().unwrap().inuse, 0);
        assert!(engine.take(1, 9, 2).is_ok(), "the cluster is free again");
    });
}

/// The last count of slots goes while a folio is added to the swap cache for them. Either they are
/// gone, and nothing is added, or the folio holds those left until it leaves the cache.
#[test]
fn put_against_cache_insert() {
    check(|| {
        let engine = Arc::new(Engine::new(3));
        engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        let entry = engine.take(0, 2, 1).unwrap();
        engine.swap.cache_remove(entry, 4, FolioId(1), Shadow::EMPTY, |_, _| {}).unwrap();
        let putter = {
            let engine = engine.clone();
            spawn(move || {
                let first = engine.swap.put(entry, 2, |_, _| {}).unwrap();
                let rest = engine.swap.put(entry.checked_add(2).unwrap(), 2, |_, _| {}).unwrap();
                assert_eq!((first.rejected, rest.rejected), (0, 0));
                first.freed + rest.freed
            })
        };
        let inserter = {
            let engine = engine.clone();
            spawn(move || engine.swap.cache_insert(entry, Order::new(2).unwrap(), FolioId(7)).is_ok())
        };
        let (freed, inserted) = (putter.join().unwrap(), inserter.join().unwrap());
        engine.swap.validate().unwrap();
        if inserted {
            assert_eq!(freed, 0, "all of them were there, so the folio holds them");
            let left = engine.swap.cache_remove(entry, 4, FolioId(7), Shadow::EMPTY, |_, _| {}).unwrap();
            assert_eq!(left, 4);
        } else {
            assert_eq!(freed, 4);
        }
        assert_eq!(engine.swap.validate().unwrap().inuse, 0);
    });
}

#[test]
fn lockless_reader_never_sees_another_clusters_word() {
    check(|| {
        // One frame besides the header's moves from cluster to cluster.
        let engine = Arc::new(Engine::new(2));
        engine.swap.swapon(DeviceSpec::new(2048)).unwrap();
        let entry = engine.take(0, 8, 1).unwrap();
        let writer = {
            let engine = engine.clone();
            spawn(move || {
                engine.give(entry, 8, 1);
                // Order 9 isolates FREE: another cluster, or this one; only then the words are this
                // slot's.
                let other = engine.take(1, 9, 2).unwrap();
                (other.offset() / 512 == entry.offset() / 512).then_some(())
            })
        };
        let reader = {
            let engine = engine.clone();
            spawn(move || engine.swap.word(entry))
        };
        let same = writer.join().unwrap().is_some();
        if let SlotWord::Cached { folio, .. } = reader.join().unwrap() {
            assert!(folio == FolioId(1) || (same && folio == FolioId(2)));
        }
        engine.swap.validate().unwrap();
    });
}

#[test]
fn swapoff_against_allocate() {
    check(|| {
        let engine = Arc::new(Engine::new(4));
        let id = engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        let allocate = {
            let engine = engine.clone();
            spawn(move || engine.take(0, 5, 1).ok())
        };
        engine.swap.swapoff_begin(id).unwrap();
        // From here on no slot may appear: the slots in use now are all there will be.
        let inuse = engine.swap.device_info(id).unwrap().inuse;
        let taken = allocate.join().unwrap();
        assert_eq!(inuse, if taken.is_some() { 32 } else { 0 });
        taken.into_iter().for_each(|entry| engine.give(entry, 5, 1));
        engine.swap.swapoff_finish(id).unwrap();
        engine.swap.validate().unwrap();
        assert_eq!(engine.swap.frames_free(), engine.swap.frames_total());
    });
}

#[test]
fn device_reference_against_swapoff() {
    check(|| {
        let engine = Arc::new(Engine::new(4));
        let id = engine.swap.swapon(DeviceSpec::new(1024)).unwrap();
        engine.swap.swapoff_begin(id).unwrap();
        let reader = {
            let engine = engine.clone();
            spawn(move || {
                if let Some(_reference) = engine.swap.device_get(LogicalCpu(1), id) {
                    shuttle::thread::yield_now();
                    assert!(engine.swap.device_info(id).is_some(), "the device is held");
                }
            })
        };
        let finished = engine.swap.swapoff_finish(id);
        reader.join().unwrap();
        if finished.is_err() {
            assert_eq!(finished, Err(SwapoffError::Pinned));
            engine.swap.swapoff_finish(id).unwrap();
        }
        assert_eq!(engine.swap.device_info(id), None);
    });
}

#[test]
fn discard_against_allocate_by_hint() {
    struct Discards;
    impl Hooks for Discards {
        fn discard(&self, _: DeviceId, _: u64, _: u32) -> DiscardOutcome {
            shuttle::thread::yield_now();
            DiscardOutcome::Done
        }
    }
    check(|| {
        let engine = Arc::new(Engine::new(4));
        let spec = DeviceSpec { flags: DeviceFlags::DISCARD, ..DeviceSpec::new(1536) };
        let id = engine.swap.swapon(spec).unwrap();
        let entry = engine.take(0, 6, 1).unwrap();
        let free = {
            let engine = engine.clone();
            spawn(move || {
                engine.give(entry, 6, 1);
                engine.swap.run_discards(id, &Discards);
            })
        };
        let taken = engine.take(0, 6, 2).ok();
        free.join().unwrap();
        engine.swap.validate().unwrap();
        assert!(taken.is_some(), "the second cluster was free all the time");
    });
}

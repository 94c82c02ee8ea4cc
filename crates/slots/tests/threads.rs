//! Real threads that allocate, duplicate, free and swap in at random, ending in `validate`.
//!
//! `FOLIOSWAP_SLOTS_SECONDS=600 cargo test --release -p folioswap-slots --test threads` is the long
//! form (default 2 s per test).

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::{environment, random::Random};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

struct Threaded;
impl Policy for Threaded {
    type Relax = Yield;
}

struct Discards;
impl Hooks for Discards {
    fn discard(&self, _: DeviceId, _: u64, _: u32) -> DiscardOutcome {
        DiscardOutcome::Done
    }
}

fn duration() -> Duration {
    let seconds = environment::number("FOLIOSWAP_SLOTS_SECONDS", 2);
    if cfg!(miri) { Duration::from_millis(300) } else { Duration::from_secs(seconds) }
}

/// One folio that a thread owns: it writes its mark into every payload and checks it at the end.
struct Owned {
    entry: SwapEntry,
    slots: u32,
    folio: u32,
    extra: u64,
}

fn worker(swap: &Slots<PAYLOAD, Threaded>, thread: u32, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(0x9e37_79b9 + u64::from(thread));
    let mut owned: Vec<Owned> = Vec::new();
    let mut allocated = 0;
    // A thread that had no processor in all that time allocates something as well.
    while !stop.load(Ordering::Relaxed) || allocated == 0 || !owned.is_empty() {
        let stopping = stop.load(Ordering::Relaxed) && allocated > 0;
        if !stopping && (owned.is_empty() || random.below(2) == 0) {
            let size = [0, 0, 0, 1, 2, 4, 4, 9][random.below(8) as usize];
            let folio = thread << 24 | (allocated as u32 & 0xff_ffff);
            // Now and then the other thread's CPU, as when the scheduler moves a thread.
            let cpu = LogicalCpu(if random.below(8) == 0 { thread + 1 } else { thread });
            if let Ok(entry) =
                swap.alloc_folio_with(cpu, order(size), FolioId(folio), DeviceMask::ALL, &Discards)
            {
                allocated += 1;
                for step in 0..1u64 << size {
                    let payload = swap.payload(entry.checked_add(step).unwrap()).unwrap();
                    // SAFETY: the slot is ours.
                    unsafe { payload.cast::<[u8; 4]>().write(folio.to_le_bytes()) };
                }
                swap.cache_remove(entry, 1 << size, FolioId(folio), Shadow::EMPTY, |_, _| {}).unwrap();
                owned.push(Owned { entry, slots: 1 << size, folio, extra: 0 });
                continue;
            }
        }
        if owned.is_empty() {
            continue;
        }
        let index = random.below(owned.len() as u64) as usize;
        if !stopping && random.below(3) == 0 {
            let folio = &mut owned[index];
            for _ in 0..random.below(20) {
                if swap.dup(folio.entry, folio.slots).is_ok() {
                    folio.extra += 1;
                }
            }
            continue;
        }
        let folio = owned.swap_remove(index);
        let size = folio.slots.trailing_zeros();
        swap.cache_insert(folio.entry, order(size), FolioId(folio.folio)).unwrap();
        for _ in 0..folio.extra {
            assert_eq!(swap.put(folio.entry, folio.slots, |_, _| panic!()), Ok(Put::default()));
        }
        let put = swap.put(folio.entry, folio.slots, |_, _| panic!("cached")).unwrap();
        assert_eq!(put.only_cached, folio.slots);
        let check = |_: SwapEntry, payload: *mut u8| {
            // SAFETY: the callback may use the payload.
            assert_eq!(unsafe { payload.cast::<[u8; 4]>().read() }, folio.folio.to_le_bytes());
        };
        let freed = swap.cache_remove(folio.entry, folio.slots, FolioId(folio.folio), Shadow::EMPTY, check);
        assert_eq!(freed, Ok(folio.slots));
    }
    allocated
}

#[test]
fn threads_share_three_devices() {
    let config = Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 };
    let swap = engine_with::<Threaded>(config, 40);
    let spec = DeviceSpec::new(512 * 6);
    swap.swapon(spec).unwrap();
    swap.swapon(DeviceSpec { flags: DeviceFlags::DISCARD, ..spec }).unwrap();
    swap.swapon(DeviceSpec { flags: DeviceFlags::ROTATIONAL, ..DeviceSpec::new(1000) }).unwrap();
    let stop = AtomicBool::new(false);
    let slots = swap.slots;
    let total: u64 = std::thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || worker(&slots, thread, stop))).collect();
        // A reader without locks beside the workers must only ever see folios that exist.
        let start = Instant::now();
        let mut random = Random::new(77);
        while start.elapsed() < duration() {
            let device = DeviceId::new(random.below(3) as u32).unwrap();
            let entry = SwapEntry::new(device, 1 + random.below(512 * 6)).unwrap();
            if let SlotWord::Cached { folio, .. } = slots.word(entry) {
                assert!(folio.0 >> 24 < 4);
            }
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let report = swap.validate().unwrap();
    assert_eq!(report.inuse, 0);
    assert_eq!(swap.stats().allocated.iter().sum::<u64>(), total);
    assert!(total > 0);
    println!("{total} allocations");
}

#[test]
fn swapoff_while_threads_allocate() {
    let config = Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 };
    let swap = engine_with::<Threaded>(config, 40);
    let spec = DeviceSpec::new(512 * 4);
    swap.swapon(spec).unwrap();
    let stop = AtomicBool::new(false);
    let slots = swap.slots;
    let rounds = std::thread::scope(|scope| {
        let stop = &stop;
        let threads: Vec<_> =
            (0..2).map(|thread| scope.spawn(move || worker(&slots, thread, stop))).collect();
        let start = Instant::now();
        let mut rounds = 0;
        while start.elapsed() < duration() {
            let id = slots.swapon(spec).unwrap();
            std::thread::sleep(Duration::from_micros(300));
            slots.swapoff_begin(id).unwrap();
            // The workers free all their slots in time; after that no slot may appear any more.
            while slots.device_info(id).unwrap().inuse > 0 {
                std::thread::yield_now();
                if start.elapsed() > duration() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            slots.swapoff_finish(id).unwrap();
            assert_eq!(slots.swapoff_next(id, 0), None);
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() > 0));
        rounds
    });
    assert_eq!(swap.validate().unwrap().inuse, 0);
    println!("{rounds} rounds of swapon and swapoff");
}

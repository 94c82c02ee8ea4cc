//! The slot cache from before spec §2: 64 slots per logical CPU, its thresholds, and the slots that
//! it pins.

mod common;
use common::*;
use folioswap_slots::*;

const CPUS: u32 = 2;

fn with<P: Policy>(frames: usize) -> Bench<P> {
    engine_with::<P>(Config { cpus: CPUS, clusters_max: 256, frame_chunks_max: 8 }, frames)
}

type Cached = SlotCachePerCpu;

fn inuse<P: Policy>(swap: &Bench<P>) -> u64 {
    swap.devices().iter().map(|id| swap.device_info(id).unwrap().inuse).sum()
}

#[test]
fn one_fill_takes_64_slots_and_serves_64_allocations() {
    let swap = with::<Cached>(16);
    swap.swapon(DeviceSpec::new(4096)).unwrap();
    let first = take(&swap.slots, CPU0, 0, 1);
    assert_eq!((inuse(&swap), swap.stats().slot_cached), (64, 63));
    for step in 1..64 {
        assert_eq!(take(&swap.slots, CPU0, 0, 1).offset(), first.offset() + step);
    }
    assert_eq!((inuse(&swap), swap.stats().slot_cached), (64, 0));
    take(&swap.slots, CPU0, 0, 1);
    assert_eq!((inuse(&swap), swap.stats().slot_cached), (128, 63));
    assert_eq!(swap.stats().allocated[0], 65, "allocations, not slots in caches");
    let report = swap.validate().unwrap();
    assert_eq!((report.slot_cached, report.only_cached), (63, 63));
}

#[test]
fn each_cpu_has_its_own_and_large_orders_have_none() {
    let swap = with::<Cached>(16);
    swap.swapon(DeviceSpec::new(4096)).unwrap();
    take(&swap.slots, CPU0, 0, 1);
    take(&swap.slots, CPU1, 0, 1);
    assert_eq!(swap.stats().slot_cached, 126);
    take(&swap.slots, CPU0, 4, 1);
    assert_eq!((inuse(&swap), swap.stats().slot_cached), (128 + 16, 126));
    swap.validate().unwrap();
}

#[test]
fn without_the_variant_nothing_is_cached() {
    let swap = with::<Current>(16);
    swap.swapon(DeviceSpec::new(4096)).unwrap();
    take(&swap, CPU0, 0, 1);
    assert_eq!((inuse(&swap), swap.stats().slot_cached), (1, 0));
}

#[test]
fn in_use_only_above_5_x_64_free_slots_per_cpu() {
    let limit = 5 * 64 * u64::from(CPUS);
    let swap = with::<Cached>(16);
    // The header slot is not free.
    swap.swapon(DeviceSpec::new(limit + 1)).unwrap();
    take(&swap.slots, CPU0, 0, 1);
    assert_eq!(swap.stats().slot_cached, 0, "exactly at the threshold");
    let swap = with::<Cached>(16);
    swap.swapon(DeviceSpec::new(limit + 2)).unwrap();
    take(&swap.slots, CPU0, 0, 1);
    assert_eq!(swap.stats().slot_cached, 63);
}

#[test]
fn drained_below_2_x_64_free_slots_per_cpu_and_back_above_5_x_64() {
    let low = 2 * 64 * u64::from(CPUS);
    let swap = with::<Cached>(16);
    swap.swapon(DeviceSpec::new(1024)).unwrap();
    take(&swap.slots, CPU1, 0, 1);
    let mut entries = Vec::new();
    while swap.free_slots() >= low {
        entries.push(take(&swap.slots, CPU0, 0, 1));
        assert!(swap.stats().slot_cached > 0, "still in use between the thresholds");
    }
    // CPU 0 notices at its next fill.
    (0..63).for_each(|_| entries.push(take(&swap.slots, CPU0, 0, 1)));
    assert_eq!(swap.stats().slot_cached, 63);
    take(&swap.slots, CPU0, 0, 1);
    assert_eq!(swap.stats().slot_cached, 0, "CPU 1's 63 were drained as well");
    swap.validate().unwrap();
    // Between the thresholds it stays out of use.
    while swap.free_slots() <= 5 * 64 * u64::from(CPUS) - 2 {
        give(&swap.slots, entries.pop().unwrap(), 0, 1);
        entries.insert(0, take(&swap.slots, CPU0, 0, 1));
        give(&swap.slots, entries.pop().unwrap(), 0, 1);
        assert_eq!(swap.stats().slot_cached, 0);
    }
    (0..3).for_each(|_| give(&swap.slots, entries.pop().unwrap(), 0, 1));
    take(&swap.slots, CPU0, 0, 1);
    assert_eq!(swap.stats().slot_cached, 63);
    swap.validate().unwrap();
}

#[test]
fn every_slot_can_be_got_in_the_end() {
    let swap = with::<Cached>(16);
    swap.swapon(DeviceSpec::new(2000)).unwrap();
    let count = std::iter::from_fn(|| {
        let cpu = LogicalCpu(swap.free_slots() as u32 % CPUS);
        swap.alloc_folio(cpu, Order::ZERO, FolioId(1), DeviceMask::ALL).ok()
    });
    assert_eq!(count.count(), 1999);
    swap.validate().unwrap();
}

#[test]
fn cached_slots_look_used_and_are_pinned_against_reclaim() {
    struct Asked;
    impl Hooks for Asked {
        fn reclaim(&self, _: SwapEntry, folio: FolioId) -> Reclaimed {
            panic!("folio {} does not exist", folio.0);
        }
    }
    let swap = with::<Cached>(16);
    let id = swap.swapon(DeviceSpec::new(2048)).unwrap();
    let entry = take(&swap.slots, CPU0, 0, 1);
    let cached = entry.checked_add(1).unwrap();
    let word = SlotWord::Cached { folio: FolioId::SLOT_CACHE, count: 0, zero: false };
    assert_eq!(swap.word(cached), word);
    assert_eq!(swap.swapoff_next(id, 2).map(|(entry, _)| entry), Some(cached), "looks used");
    assert_eq!(swap.put(cached, 1, |_, _| {}).unwrap().rejected, 1);
    assert_eq!(swap.dup(cached, 1), Err(DupError::NoEntry(cached)));
    assert_eq!(
        swap.cache_insert(cached, Order::ZERO, FolioId(5)),
        Err(InsertError::Exist(FolioId::SLOT_CACHE))
    );
    // Seven more fills take the cluster's other 448 slots; then reclaim of full clusters meets the
    // 63 cached ones.
    for folio in 0..3 {
        take(&swap.slots, CPU1, 9, folio);
    }
    for _ in 0..447 {
        take(&swap.slots, CPU1, 0, 1);
    }
    assert!(swap.vm_swap_full());
    assert_eq!(swap.reclaim_full_clusters(id, FullClusters::All, &Asked), 0);
    let report = swap.validate().unwrap();
    assert_eq!(report.slot_cached, swap.stats().slot_cached);
}

#[test]
fn swapoff_drains_the_slots_of_its_device_only() {
    let swap = with::<Cached>(32);
    let high = swap.swapon(DeviceSpec { priority: Some(1), ..DeviceSpec::new(4096) }).unwrap();
    let entry = take(&swap.slots, CPU0, 0, 1);
    let other = swap.swapon(DeviceSpec { priority: Some(2), ..DeviceSpec::new(4096) }).unwrap();
    take(&swap.slots, CPU1, 0, 1);
    assert_eq!(swap.stats().slot_cached, 126);
    swap.swapoff_begin(high).unwrap();
    assert_eq!(swap.stats().slot_cached, 63);
    assert_eq!(swap.device_info(high).unwrap().inuse, 1, "what was handed out stays");
    assert_eq!(take(&swap.slots, CPU0, 0, 1).device(), other);
    give(&swap.slots, entry, 0, 1);
    swap.swapoff_finish(high).unwrap();
    swap.validate().unwrap();
}

#[test]
fn a_slot_of_a_device_that_is_not_permitted_stays_in_the_cache() {
    let swap = with::<Cached>(32);
    let first = swap.swapon(DeviceSpec { priority: Some(1), ..DeviceSpec::new(4096) }).unwrap();
    let second = swap.swapon(DeviceSpec::new(4096)).unwrap();
    assert_eq!(take(&swap.slots, CPU0, 0, 1).device(), first);
    let entry = swap.alloc_folio(CPU0, Order::ZERO, FolioId(2), DeviceMask::only(second)).unwrap();
    assert_eq!(entry.device(), second);
    assert_eq!(swap.stats().slot_cached, 63);
    swap.validate().unwrap();
}

#[test]
fn a_refused_charge_frees_the_slot() {
    struct Refuses;
    impl Hooks for Refuses {
        fn charge(&self, _: Result<SwapEntry, AllocError>, _: u32) -> Result<(), ChargeRefused> {
            Err(ChargeRefused)
        }
    }
    let swap = with::<Cached>(16);
    swap.swapon(DeviceSpec::new(4096)).unwrap();
    let refused = swap.alloc_folio_with(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL, &Refuses);
    assert_eq!(refused, Err(AllocError::ChargeRefused));
    assert_eq!((inuse(&swap), swap.stats().slot_cached), (63, 63));
    swap.validate().unwrap();
}

#[test]
fn with_the_old_rotation_a_fill_comes_from_one_device_and_the_next_from_another() {
    let swap = with::<BeforeSlotCacheRemoval>(32);
    add_devices(&swap, 2, 4096);
    let used: Vec<_> = (0..192).map(|_| take(&swap.slots, CPU0, 0, 1).device().index()).collect();
    let expected: Vec<_> = [0, 1, 0].into_iter().flat_map(|device| [device; 64]).collect();
    assert_eq!(used, expected);
    swap.validate().unwrap();
}

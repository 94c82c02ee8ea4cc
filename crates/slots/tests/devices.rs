//! Devices: rotation, priorities, masks, growth, bad slots, answers to bad input (spec §4, §6).

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::random::Random;
use std::cell::Cell;
use std::num::NonZeroU64;

#[test]
fn equal_devices_rotate_by_cluster_and_different_priorities_are_strict() {
    let swap = engine(64);
    let low: Vec<_> = (0..3).map(|_| plain(&swap, 4096)).collect();
    let order_of_use: Vec<_> = (0..9).map(|_| take(&swap, CPU0, 9, 1).device()).collect();
    assert_eq!(order_of_use, [low.clone(), low.clone(), low.clone()].concat());
    let high: Vec<_> = (0..2)
        .map(|_| swap.swapon(DeviceSpec { priority: Some(5), ..DeviceSpec::new(1536) }).unwrap())
        .collect();
    let used: Vec<_> = (0..4).map(|_| take(&swap, CPU0, 9, 1).device()).collect();
    assert_eq!(used, [high[0], high[1], high[0], high[1]], "equal explicit priorities rotate too");
    // A large order stops at the first device that fails: the top one has no run left.
    assert_eq!(
        swap.alloc_folio(CPU0, Order::MAX, FolioId(1), DeviceMask::ALL),
        Err(AllocError::SplitAndRetry)
    );
    let mask = DeviceMask::ALL.without(high[0]).without(high[1]);
    assert!(low.contains(&swap.alloc_folio(CPU0, Order::MAX, FolioId(1), mask).unwrap().device()));
    swap.validate().unwrap();
}

#[test]
fn hint_is_used_only_if_its_device_is_in_the_mask() {
    let swap = engine(16);
    let first = plain(&swap, 4096);
    let second = plain(&swap, 4096);
    assert_eq!(take(&swap, CPU0, 0, 1).device(), first);
    let masked = swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::only(second)).unwrap();
    assert_eq!(masked.device(), second);
    let nothing = swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::NONE);
    assert_eq!(nothing, Err(AllocError::NoSpace));
}

#[test]
fn order_zero_goes_on_to_the_next_device() {
    let swap = engine(16);
    let top = swap.swapon(DeviceSpec { priority: Some(1), ..DeviceSpec::new(3) }).unwrap();
    let bottom = plain(&swap, 1024);
    let used: Vec<_> = (0..3).map(|_| take(&swap, CPU0, 0, 1).device()).collect();
    assert_eq!(used, [top, top, bottom]);
}

#[test]
fn orders_that_no_device_takes() {
    let swap = engine(16);
    let orders = OrderMask::ONLY_ZERO.with(order(4));
    swap.swapon(DeviceSpec { orders, ..DeviceSpec::new(4096) }).unwrap();
    take(&swap, CPU0, 4, 1);
    assert_eq!(swap.alloc_folio(CPU0, order(5), FolioId(1), DeviceMask::ALL), Err(AllocError::InvalidOrder));
}

#[test]
fn grow_opens_the_partial_cluster_and_new_ones() {
    let swap = engine(32);
    let spec = DeviceSpec { pages_max: 8192, ..DeviceSpec::new(100) };
    let id = swap.swapon(spec).unwrap();
    for (from, to) in
        [(100, 101), (101, 512), (512, 700), (700, 701), (701, 1024), (1024, 3000), (3000, 8192)]
    {
        // The device was full and off the list, so growth must bring it back.
        let wanted = swap.free_slots();
        for _ in 0..wanted {
            take(&swap, CPU0, 0, 1);
        }
        assert!(!swap.device_info(id).unwrap().available);
        swap.validate().unwrap();
        swap.grow(id, to).unwrap();
        swap.validate().unwrap();
        assert_eq!(swap.free_slots(), to - from, "{from} to {to}");
    }
    take(&swap, CPU0, 9, 1);
    swap.validate().unwrap();
}

#[test]
fn bad_slots_are_never_handed_out() {
    let swap = engine(16);
    let bad = [5, 513, 514, 1535];
    swap.swapon(DeviceSpec { bad: &bad, ..DeviceSpec::new(1536) }).unwrap();
    assert_eq!(swap.validate().unwrap().bad, 5);
    let mut count = 0;
    while let Ok(entry) = swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL) {
        assert!(!bad.contains(&entry.offset()));
        count += 1;
    }
    assert_eq!(count, 1535 - 4);
    swap.validate().unwrap();
    for bad in [&[0u64][..], &[1536], &[7, 7], &[8, 7]] {
        assert_eq!(
            swap.swapon(DeviceSpec { bad, ..DeviceSpec::new(1536) }),
            Err(SwaponError::InvalidBadSlots)
        );
    }
}

#[test]
fn priorities() {
    struct Descending;
    impl Policy for Descending {
        type Relax = SpinOnly;
        const DEFAULT_PRIORITY: DefaultPriority = DefaultPriority::Descending;
    }
    let swap = engine(8);
    assert_eq!(
        swap.swapon(DeviceSpec { priority: Some(-1), ..DeviceSpec::new(512) }),
        Err(SwaponError::InvalidPriority)
    );
    let ids = [plain(&swap, 512), plain(&swap, 512)];
    assert!(ids.iter().all(|id| swap.device_info(*id).unwrap().prio == -1));
    let before = engine_with::<Descending>(Config { cpus: 1, clusters_max: 8, frame_chunks_max: 1 }, 8);
    let ids: Vec<_> = (0..3).map(|_| before.swapon(DeviceSpec::new(512)).unwrap()).collect();
    let prio = |id: DeviceId| before.device_info(id).unwrap().prio;
    assert_eq!(ids.iter().map(|id| prio(*id)).collect::<Vec<_>>(), [-2, -3, -4]);
    before.swapoff_begin(ids[1]).unwrap();
    before.swapoff_finish(ids[1]).unwrap();
    assert_eq!((prio(ids[0]), prio(ids[2])), (-2, -3), "the later ones move up by one");
}

#[test]
fn too_many_devices_and_too_few_clusters() {
    let swap = engine(64);
    for _ in 0..32 {
        plain(&swap, 512);
    }
    assert_eq!(swap.swapon(DeviceSpec::new(512)), Err(SwaponError::TooManyDevices));
    let small = engine(8);
    assert_eq!(small.swapon(DeviceSpec::new(512 * 257)), Err(SwaponError::NoClusters));
    let id = small.swapon(DeviceSpec::new(512 * 200)).unwrap();
    assert_eq!(small.swapon(DeviceSpec::new(512 * 57)), Err(SwaponError::NoClusters));
    small.swapoff_begin(id).unwrap();
    small.swapoff_finish(id).unwrap();
    small.swapon(DeviceSpec::new(512 * 256)).unwrap();
}

// ---- rotation ----

#[test]
fn four_equal_devices_differ_by_at_most_cpus_times_orders_clusters() {
    let config = Config { cpus: 8, clusters_max: 1024, frame_chunks_max: 16 };
    let swap = engine_with::<Current>(config, 900);
    add_devices(&swap, 4, 512 * 200);
    let mut random = Random::new(88172645463325252);
    for folio in 0..20_000 {
        let random = random.next();
        let size = [0, 0, 0, 2, 4, 4][(random >> 32) as usize % 6];
        take(&swap.slots, LogicalCpu(random as u32 % 8), size, folio);
    }
    let inuse: Vec<_> = swap.devices().iter().map(|id| swap.device_info(id).unwrap().inuse).collect();
    let (least, most) = (inuse.iter().min().unwrap(), inuse.iter().max().unwrap());
    // Three orders are in use.
    assert!(most - least <= 8 * 3 * 512, "{inuse:?}");
    swap.validate().unwrap();
}

#[test]
fn a_device_in_swapoff_is_off_for_good_and_a_full_one_returns_at_its_first_free() {
    let swap = engine(16);
    let full = plain(&swap, 3);
    let leaving = plain(&swap, 1024);
    let entries: Vec<_> = (0..2).map(|_| take(&swap, CPU0, 0, 1)).collect();
    assert!(entries.iter().all(|entry| entry.device() == full));
    let there = take(&swap, CPU0, 0, 1);
    let more = take(&swap, CPU0, 0, 1);
    assert_eq!((there.device(), more.device()), (leaving, leaving));
    swap.swapoff_begin(leaving).unwrap();
    give(&swap, there, 0, 1);
    assert!(!swap.device_info(leaving).unwrap().available);
    assert!(!swap.device_info(full).unwrap().available);
    give(&swap, entries[0], 0, 1);
    assert!(swap.device_info(full).unwrap().available);
    assert_eq!(take(&swap, CPU0, 0, 1), entries[0]);
    swap.validate().unwrap();
}

#[test]
fn the_walk_starts_over_if_the_device_that_was_to_come_next_left_the_list() {
    /// A cached folio that stays when it is first asked for; meanwhile the device is switched off.
    struct SwapoffMeanwhile<'a>(&'a Slots<PAYLOAD>, DeviceId, Cell<u32>);
    impl Hooks for SwapoffMeanwhile<'_> {
        fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
            self.2.set(self.2.get() + 1);
            if self.2.get() == 1 {
                self.0.swapoff_begin(self.1).unwrap();
                return Reclaimed::Kept(512);
            }
            self.0.cache_remove(entry, 512, folio, Shadow::EMPTY, |_, _| {}).unwrap();
            Reclaimed::Freed(512)
        }
    }
    let swap = engine(16);
    // Five clusters: two only cached, of which each look tries the next one, one used as a whole,
    // one full of order 0, one waiting for a discard that nobody runs.
    let flags = DeviceFlags::DISCARD;
    let first = swap.swapon(DeviceSpec { priority: Some(1), flags, ..DeviceSpec::new(512 * 5) }).unwrap();
    let wholes: Vec<_> = (0..4).map(|folio| take(&swap, CPU0, 9, folio)).collect();
    give(&swap, wholes[3], 9, 3);
    wholes[..2].iter().for_each(|whole| _ = swap.put(*whole, 512, |_, _| {}).unwrap());
    for _ in 0..511 {
        take(&swap, CPU0, 0, 9);
    }
    let second = plain(&swap, 512);
    assert!(swap.vm_swap_full());
    let hooks = SwapoffMeanwhile(&swap, second, Cell::new(0));
    // The first device has free slots but none within reach; the second one goes off during the
    // look at the first.
    let result = swap.alloc_folio_with(CPU1, Order::ZERO, FolioId(10), DeviceMask::ALL, &hooks);
    assert_eq!(hooks.2.get(), 2, "the first one was looked at again");
    // Its clusters wait for their discards, which nobody runs.
    assert_eq!(result, Err(AllocError::NoSpace));
    assert_eq!(swap.discards_pending(first), 2);
    swap.validate().unwrap();
}

/// The first device gets a free slot in a list that its look has passed already, and the second
/// device goes off. One walk that starts over with *all* devices finds the slot; a walk that starts
/// over with the rest of them finds nothing, and the allocation needs a second round, which takes
/// the local lock again.
#[test]
fn a_walk_that_starts_over_looks_at_the_devices_again_that_it_had_passed() {
    type Counted = CountLocks<Current>;
    struct FreesAndSwitchesOff<'a> {
        slots: &'a Slots<PAYLOAD, Counted>,
        freed: SwapEntry,
        leaving: DeviceId,
        calls: Cell<u32>,
    }
    impl Hooks for FreesAndSwitchesOff<'_> {
        fn reclaim(&self, _: SwapEntry, _: FolioId) -> Reclaimed {
            if self.calls.replace(self.calls.get() + 1) == 0 {
                give(self.slots, self.freed, 0, 9);
                self.slots.swapoff_begin(self.leaving).unwrap();
            }
            Reclaimed::Kept(512)
        }
    }
    let config = Config { cpus: 4, clusters_max: 16, frame_chunks_max: 2 };
    let swap = engine_with::<Counted>(config, 8);
    // Three clusters: one only cached, one that waits for a discard, one full of order 0.
    let flags = DeviceFlags::DISCARD;
    let first = swap.swapon(DeviceSpec { priority: Some(1), flags, ..DeviceSpec::new(512 * 3) }).unwrap();
    let wholes = [1, 2].map(|folio| take(&swap, CPU0, 9, folio));
    give(&swap, wholes[1], 9, 2);
    swap.put(wholes[0], 512, |_, _| {}).unwrap();
    let singles: Vec<_> = (0..511).map(|_| take(&swap, CPU0, 0, 9)).collect();
    let leaving = plain(&swap, 100);
    assert!(swap.vm_swap_full());
    let hooks = FreesAndSwitchesOff { slots: &swap, freed: singles[100], leaving, calls: Cell::new(0) };
    let rounds_before = swap.lock_stats().unwrap().local.acquired;
    let found = swap.alloc_folio_with(CPU1, Order::ZERO, FolioId(10), DeviceMask::ALL, &hooks);
    let rounds = swap.lock_stats().unwrap().local.acquired - rounds_before;
    assert_eq!(found, Ok(singles[100]), "on the first device, {first:?}");
    assert_eq!((hooks.calls.get(), rounds), (1, 1), "within one walk");
    swap.validate().unwrap();
}

#[test]
fn an_empty_mask_and_a_mask_of_devices_that_are_off_get_nothing() {
    let swap = engine(16);
    plain(&swap, 1024);
    for mask in [DeviceMask::NONE, DeviceMask::only(DeviceId::new(5).unwrap())] {
        assert_eq!(swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), mask), Err(AllocError::NoSpace));
        assert_eq!(swap.alloc_folio(CPU0, order(3), FolioId(1), mask), Err(AllocError::NoSpace));
    }
}

#[test]
fn masks_keep_groups_on_their_devices_whatever_the_hints_say() {
    let swap = engine(32);
    let ids: Vec<_> = (0..3).map(|_| plain(&swap, 4096)).collect();
    let masks = [DeviceMask::only(ids[1]), DeviceMask::ALL.without(ids[1]), DeviceMask::only(ids[2])];
    for turn in 0..600 {
        let mask = masks[turn % 3];
        let entry = swap.alloc_folio(CPU0, order(turn as u32 % 4), FolioId(1), mask).unwrap();
        assert!(mask.contains(entry.device()));
    }
    swap.validate().unwrap();
}

// ---- rotating disks ----

#[test]
fn a_rotating_disk_has_one_next_offset_per_order() {
    let swap = engine(16);
    swap.swapon(DeviceSpec { flags: DeviceFlags::ROTATIONAL, ..DeviceSpec::new(8192) }).unwrap();
    let four = take(&swap, CPU0, 4, 1);
    let two = take(&swap, CPU1, 2, 1);
    assert_ne!(four.offset() / 512, two.offset() / 512);
    assert_eq!(take(&swap, CPU1, 4, 1).offset(), four.offset() + 16);
    assert_eq!(take(&swap, CPU0, 2, 1).offset(), two.offset() + 4);
    swap.validate().unwrap();
}

#[test]
fn rotating_disks_take_turns_with_every_allocation() {
    let swap = engine(16);
    let spec = DeviceSpec { flags: DeviceFlags::ROTATIONAL, ..DeviceSpec::new(4096) };
    let ids: Vec<_> = (0..2).map(|_| swap.swapon(spec).unwrap()).collect();
    let entries: Vec<_> = (0..6).map(|_| take(&swap, CPU0, 0, 1)).collect();
    let used: Vec<_> = entries.iter().map(|entry| entry.device()).collect();
    assert_eq!(used, [ids[0], ids[1], ids[0], ids[1], ids[0], ids[1]]);
    assert_eq!(entries[4].offset(), entries[0].offset() + 2, "sequential on each");
    swap.validate().unwrap();
}

#[test]
fn swapoff_of_a_rotating_disk_forgets_its_next_offsets() {
    let swap = engine(16);
    let spec = DeviceSpec { flags: DeviceFlags::ROTATIONAL, ..DeviceSpec::new(4096) };
    let id = swap.swapon(spec).unwrap();
    let entries: Vec<_> = (0..5).map(|_| take(&swap, CPU0, 0, 1)).collect();
    entries.iter().for_each(|entry| give(&swap, *entry, 0, 1));
    swap.swapoff_begin(id).unwrap();
    swap.swapoff_finish(id).unwrap();
    assert_eq!(swap.swapon(spec), Ok(id));
    assert_eq!(take(&swap, CPU0, 0, 1), entries[0]);
    swap.validate().unwrap();
}

// ---- bad input gets an error, and nothing is changed ----

/// All the state that a refused call could have changed.
fn picture(swap: &Bench) -> (Stats, Vec<Option<DeviceInfo>>, u32, Report) {
    let info = (0..DEVICES_MAX as u32).map(|id| swap.device_info(DeviceId::new(id).unwrap())).collect();
    (swap.stats(), info, swap.frames_free(), swap.validate().unwrap())
}

#[test]
fn swapon_of_a_priority_out_of_range_is_refused() {
    let swap = engine(8);
    plain(&swap, 1024);
    let before = picture(&swap);
    for priority in [-1, -2, i16::MIN] {
        let spec = DeviceSpec { priority: Some(priority), ..DeviceSpec::new(512) };
        assert_eq!(swap.swapon(spec), Err(SwaponError::InvalidPriority));
    }
    assert_eq!(picture(&swap), before);
    let spec = DeviceSpec { priority: Some(32767), ..DeviceSpec::new(512) };
    let id = swap.swapon(spec).unwrap();
    assert_eq!(swap.device_info(id).unwrap().prio, 32767);
}

#[test]
fn swapon_of_a_device_of_size_0_is_refused() {
    let swap = engine(8);
    let before = picture(&swap);
    assert_eq!(swap.swapon(DeviceSpec::new(0)), Err(SwaponError::InvalidSize));
    assert_eq!(
        swap.swapon(DeviceSpec { pages_max: 100, ..DeviceSpec::new(200) }),
        Err(SwaponError::InvalidSize)
    );
    assert_eq!(swap.swapon(DeviceSpec::new(u64::MAX)), Err(SwaponError::InvalidSize));
    assert_eq!(picture(&swap), before);
}

#[test]
fn swapon_of_the_same_device_twice_is_refused_until_it_is_off() {
    let swap = engine(8);
    let spec = |name| DeviceSpec { identity: NonZeroU64::new(name), ..DeviceSpec::new(1024) };
    let id = swap.swapon(spec(7)).unwrap();
    swap.swapon(spec(8)).unwrap();
    plain(&swap, 512);
    plain(&swap, 512);
    let before = picture(&swap);
    let refused = swap.swapon(spec(7)).unwrap_err();
    assert_eq!(refused, SwaponError::AlreadyOn(id));
    assert_eq!(refused.to_string(), "in use already as swap device 0");
    assert_eq!(picture(&swap), before);
    swap.swapoff_begin(id).unwrap();
    assert_eq!(swap.swapon(spec(7)), Err(SwaponError::AlreadyOn(id)), "still on its way off");
    swap.swapoff_finish(id).unwrap();
    assert_eq!(swap.swapon(spec(7)), Ok(id));
}

#[test]
fn swapoff_of_what_is_not_there_is_refused() {
    let swap = engine(8);
    let id = plain(&swap, 1024);
    let absent = DeviceId::new(3).unwrap();
    let before = picture(&swap);
    assert_eq!(swap.swapoff_check(absent, u64::MAX), Err(SwapoffError::NoDevice));
    assert_eq!(swap.swapoff_begin(absent), Err(SwapoffError::NoDevice));
    assert_eq!(swap.swapoff_finish(absent), Err(SwapoffError::NoDevice));
    assert_eq!(swap.swapoff_cancel(absent), Err(SwapoffError::WrongStep));
    assert_eq!(swap.swapoff_finish(id), Err(SwapoffError::WrongStep), "it has not begun");
    assert!(swap.device_get(CPU0, absent).is_none());
    assert_eq!(picture(&swap), before);
    assert_eq!(swap.grow(absent, 4096), Err(SwaponError::NoDevice));
}

#[test]
fn swapoff_without_room_for_its_pages_is_refused() {
    let swap = engine(16);
    let id = plain(&swap, 2048);
    take(&swap, CPU0, 8, 1);
    take(&swap, CPU0, 4, 1);
    let before = picture(&swap);
    let refused = swap.swapoff_check(id, 271);
    assert_eq!(refused, Err(SwapoffError::NoRoom { inuse: 272, room: 271 }));
    assert_eq!(refused.unwrap_err().to_string(), "272 pages in use, but room for only 271");
    assert_eq!(picture(&swap), before);
    assert_eq!(swap.swapoff_check(id, 272), Ok(()));
    // Free slots of other devices are room as well; the device's own are not.
    plain(&swap, 101);
    assert_eq!(swap.swapoff_check(id, 171), Err(SwapoffError::NoRoom { inuse: 272, room: 271 }));
    assert_eq!(swap.swapoff_check(id, 172), Ok(()));
    assert_eq!(swap.swapoff_check(id, u64::MAX), Ok(()));
}

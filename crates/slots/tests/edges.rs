//! One test per open edge (spec §6), and the edges of devices, counts and the swap cache.

mod common;
use common::*;
use folioswap_slots::*;
use std::cell::{Cell, RefCell};

fn plain(swap: &Bench, pages: u64) -> DeviceId {
    swap.swapon(DeviceSpec::new(pages)).unwrap()
}

// ---- spec §6, "open edges to test explicitly" ----

#[test]
fn discard_arriving_while_a_hint_points_to_the_cluster() {
    struct AllocDuringDiscard<'a>(&'a Slots<PAYLOAD>, RefCell<Vec<SwapEntry>>);
    impl Hooks for AllocDuringDiscard<'_> {
        fn discard(&self, _: DeviceId, first: u64, slots: u32) -> DiscardOutcome {
            // The hint of CPU 0, order 2 leads into the very cluster that is being discarded.
            let entry = take(self.0, CPU0, 2, 7);
            assert!(entry.offset() < first || entry.offset() >= first + u64::from(slots));
            self.1.borrow_mut().push(entry);
            DiscardOutcome::Done
        }
    }
    let swap = engine(8);
    let id = swap.swapon(DeviceSpec { flags: DeviceFlags::DISCARD, ..DeviceSpec::new(4096) }).unwrap();
    let entry = take(&swap, CPU0, 2, 7);
    give(&swap, entry, 2, 7);
    let hooks = AllocDuringDiscard(&swap, RefCell::default());
    assert_eq!(swap.run_discards(id, &hooks), 1);
    assert_eq!(hooks.1.borrow().len(), 1);
    swap.validate().unwrap();
}

/// Scenario: cluster of order 2 with one range only cached; CPU 0's scan reclaims it with the lock dropped, and meanwhile `meddle` runs.
fn scan_with_meddling(
    meddle: impl Fn(&Slots<PAYLOAD>, SwapEntry, FolioId),
) -> (Bench, SwapEntry, Result<SwapEntry, AllocError>) {
    struct Meddler<F>(F, Cell<bool>);
    impl<F: Fn(SwapEntry, FolioId)> Hooks for Meddler<F> {
        fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
            if self.1.replace(true) {
                return Reclaimed::Kept(4);
            }
            (self.0)(entry, folio);
            Reclaimed::Freed(4)
        }
    }
    let swap = engine(8);
    plain(&swap, 1024);
    let first = take(&swap, CPU0, 2, 1);
    for folio in 2..=127 {
        take(&swap, CPU0, 2, folio);
    }
    let last = take(&swap, CPU0, 2, 128);
    assert_eq!(first.offset() / 512, last.offset() / 512);
    for _ in 0..256 {
        take(&swap, CPU0, 0, 999);
    }
    assert!(swap.vm_swap_full());
    // The cluster is NONFULL, its last range is free again, its first range only cached.
    give(&swap, last, 2, 128);
    swap.put(first, 4, |_, _| {}).unwrap();
    let hooks = Meddler(|entry, folio| meddle(&swap, entry, folio), Cell::new(false));
    let result = swap.alloc_folio_with(CPU1, order(2), FolioId(500), DeviceMask::ALL, &hooks);
    assert!(hooks.1.get(), "the scan dropped the lock to reclaim");
    (swap, first, result)
}

#[test]
fn reclaimed_range_is_taken_after_the_recheck() {
    let (swap, first, result) = scan_with_meddling(|swap, entry, folio| {
        swap.cache_remove(entry, 4, folio, Shadow::EMPTY, |_, _| {}).unwrap();
    });
    assert_eq!(result, Ok(first));
    swap.validate().unwrap();
}

#[test]
fn steal_of_order_0_between_reclaims_unlock_and_relock() {
    let (swap, first, result) = scan_with_meddling(|swap, entry, folio| {
        swap.cache_remove(entry, 4, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        // Another CPU takes every order-0 slot that is left elsewhere, and then steals in this cluster.
        loop {
            let stolen = take(swap, LogicalCpu(2), 0, 600);
            if stolen.offset() / 512 == entry.offset() / 512 {
                break;
            }
        }
    });
    let entry = result.unwrap();
    assert_ne!(entry, first, "the range no longer fits: re-checked");
    assert_eq!(entry.offset() / 512, first.offset() / 512);
    swap.validate().unwrap();
}

#[test]
fn cluster_emptied_between_reclaims_unlock_and_relock() {
    let (swap, first, result) = scan_with_meddling(|swap, entry, folio| {
        swap.cache_remove(entry, 4, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        for other in 2..=127u32 {
            let entry = entry.checked_add(u64::from(other - 1) * 4).unwrap();
            give(swap, entry, 2, other);
        }
    });
    // Its table is gone, so the scan gives it up; the next step isolates it from FREE.
    assert_eq!(result, Ok(first));
    swap.validate().unwrap();
}

#[test]
fn cluster_emptied_and_isolated_by_another_cpu_between_unlock_and_relock() {
    let (swap, first, result) = scan_with_meddling(|swap, entry, folio| {
        swap.cache_remove(entry, 4, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        for other in 2..=127u32 {
            let entry = entry.checked_add(u64::from(other - 1) * 4).unwrap();
            give(swap, entry, 2, other);
        }
        assert_eq!(take(swap, LogicalCpu(2), 7, 700).offset() / 512, entry.offset() / 512);
    });
    assert_eq!(result, Err(AllocError::SplitAndRetry), "now a cluster of order 7");
    assert_eq!(swap.word(first), SlotWord::Cached { folio: FolioId(700), count: 1, zero: false });
    swap.validate().unwrap();
}

#[test]
fn last_partial_cluster_has_its_tail_masked_as_bad() {
    let swap = engine(8);
    let id = plain(&swap, 512 + 100);
    let info = swap.device_info(id).unwrap();
    assert_eq!((info.pages, info.max), (611, 612));
    let mut entries = Vec::new();
    while let Ok(entry) = swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL) {
        assert!(entry.offset() >= 1 && entry.offset() < 612);
        entries.push(entry);
    }
    entries.sort();
    entries.dedup();
    assert_eq!(entries.len(), 611);
    assert_eq!(swap.validate().unwrap().bad, 1 + 412);
}

#[test]
fn device_with_a_header_only_is_refused() {
    let swap = engine(8);
    for pages in [0, 1] {
        assert_eq!(swap.swapon(DeviceSpec::new(pages)), Err(SwaponError::InvalidSize));
    }
    let id = plain(&swap, 2);
    assert_eq!(take(&swap, CPU0, 0, 1).offset(), 1);
    assert!(!swap.device_info(id).unwrap().available);
    assert_eq!(swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL), Err(AllocError::NoSpace));
    swap.validate().unwrap();
}

#[test]
fn device_cannot_shrink() {
    let swap = engine(8);
    let id = swap.swapon(DeviceSpec { pages_max: 4096, ..DeviceSpec::new(2048) }).unwrap();
    assert_eq!(swap.grow(id, 2047), Err(SwaponError::InvalidSize));
    assert_eq!(swap.grow(id, 4097), Err(SwaponError::InvalidSize));
    assert_eq!(swap.grow(id, 2048), Ok(()));
    swap.validate().unwrap();
}

#[test]
fn all_list_members_contended_gives_null_on_a_non_empty_list() {
    let swap = engine(8);
    plain(&swap, 1024);
    let held = take(&swap, CPU0, 2, 1);
    let next = take(&swap, CPU0, 2, 2);
    uncache(&swap, held, 2, 1);
    let mut result = None;
    swap.put(held, 1, |_, _| {
        // Here the cluster's lock is held: the callback stands for another CPU that allocates meanwhile.
        let inner = swap.slots;
        result = Some(inner.alloc_folio(CPU1, order(3), FolioId(9), DeviceMask::ALL));
    })
    .unwrap();
    assert_eq!(result, Some(Err(AllocError::SplitAndRetry)));
    let mut result = None;
    uncache(&swap, next, 2, 2);
    swap.put(next, 1, |_, _| {
        result = Some(swap.slots.alloc_folio(CPU1, order(2), FolioId(9), DeviceMask::ALL));
    })
    .unwrap();
    assert_eq!(result, Some(Err(AllocError::SplitAndRetry)), "NONFULL[2] has one member, which is contended");
    take(&swap, CPU1, 2, 9);
    swap.validate().unwrap();
}

#[test]
fn folio_freed_while_write_back_runs_keeps_its_slot_until_it_leaves_the_cache() {
    let swap = engine(8);
    let id = plain(&swap, 1024);
    let entry = take(&swap, CPU0, 4, 1);
    let put = swap.put(entry, 16, |_, _| panic!("write-back still reads the payload")).unwrap();
    assert_eq!(put, Put { freed: 0, only_cached: 16, rejected: 0 });
    assert_eq!(swap.device_info(id).unwrap().inuse, 16);
    assert_eq!(swap.validate().unwrap().only_cached, 16);
    let mut freed = 0;
    assert_eq!(swap.cache_remove(entry, 16, FolioId(1), Shadow::EMPTY, |_, _| freed += 1), Ok(16));
    assert_eq!(freed, 16);
    assert_eq!(swap.device_info(id).unwrap().inuse, 0);
    swap.validate().unwrap();
}

#[test]
fn swapoff_during_swap_in() {
    let swap = engine(8);
    let id = plain(&swap, 1024);
    let entry = take(&swap, CPU0, 4, 1);
    uncache(&swap, entry, 4, 1);
    let reference = swap.device_get(CPU1, id).unwrap();
    swap.swapoff_begin(id).unwrap();
    assert_eq!(swap.swapoff_begin(id), Err(SwapoffError::WrongStep));
    assert_eq!(swap.alloc_folio(CPU0, Order::ZERO, FolioId(2), DeviceMask::ALL), Err(AllocError::NoSpace));
    // The swap-in in flight goes on: into the cache, count down, out of the cache.
    let inserted = swap.cache_insert(entry.checked_add(5).unwrap(), order(4), FolioId(3)).unwrap();
    assert_eq!(inserted.first, entry);
    assert_eq!(swap.swapoff_finish(id), Err(SwapoffError::Busy(16)));
    assert_eq!(swap.swapoff_next(id, 0).map(|(entry, _)| entry), Some(entry));
    swap.put(entry, 16, |_, _| {}).unwrap();
    swap.cache_remove(entry, 16, FolioId(3), Shadow::EMPTY, |_, _| {}).unwrap();
    assert_eq!(swap.swapoff_next(id, 0), None);
    assert!(!swap.device_info(id).unwrap().available, "a free does not put it back");
    assert_eq!(swap.swapoff_finish(id), Err(SwapoffError::Pinned));
    assert!(swap.device_get(CPU0, id).is_none(), "the reference is killed");
    drop(reference);
    swap.swapoff_finish(id).unwrap();
    assert_eq!(swap.device_info(id), None);
    assert_eq!(swap.word(entry), SlotWord::Bad);
    assert_eq!(swap.frames_free(), swap.frames_total());
    swap.validate().unwrap();
    // The number and the clusters serve again, as if never used.
    assert_eq!(plain(&swap, 2048), id);
    take(&swap, CPU0, 4, 1);
    swap.validate().unwrap();
}

#[test]
fn swapoff_cancel_puts_the_device_back() {
    let swap = engine(8);
    let id = plain(&swap, 1024);
    let entry = take(&swap, CPU0, 0, 1);
    swap.swapoff_begin(id).unwrap();
    swap.swapoff_cancel(id).unwrap();
    assert_eq!(swap.swapoff_cancel(id), Err(SwapoffError::WrongStep));
    assert!(swap.device_info(id).unwrap().available);
    assert_eq!(take(&swap, CPU0, 0, 1).offset(), entry.offset() + 1);
    swap.validate().unwrap();
}

#[test]
fn two_threads_faulting_two_sub_pages_of_one_large_entry() {
    let swap = engine(8);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 4, 1);
    let at = |step| entry.checked_add(step).unwrap();
    uncache(&swap, entry, 4, 1);
    // The first thread brings the whole folio in; the second finds it.
    swap.cache_insert(at(3), order(4), FolioId(10)).unwrap();
    assert_eq!(swap.cache_insert(at(9), order(4), FolioId(11)), Err(InsertError::Exist(FolioId(10))));
    assert_eq!(swap.cache_insert(at(9), Order::ZERO, FolioId(11)), Err(InsertError::Exist(FolioId(10))));
    uncache(&swap, entry, 4, 10);
    // The first brings in one page; the second must shrink its order.
    swap.cache_insert(at(3), Order::ZERO, FolioId(12)).unwrap();
    assert_eq!(swap.cache_insert(at(9), order(4), FolioId(13)), Err(InsertError::Busy));
    assert_eq!(swap.cache_insert(at(9), order(3), FolioId(13)).unwrap().first, at(8));
    swap.validate().unwrap();
}

// ---- race codes of phase IV ----

#[test]
fn cache_insert_codes() {
    let swap = engine(8);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 3, 1);
    let at = |step| entry.checked_add(step).unwrap();
    swap.set_zero_mark(at(6), 1, FolioId(1), ZeroMark::AllZero).unwrap();
    let shadow = Shadow::new(0x1234).unwrap();
    swap.cache_remove(entry, 8, FolioId(1), shadow, |_, _| {}).unwrap();
    assert_eq!(swap.word(at(6)), SlotWord::Shadow { shadow, count: 1, zero: true });
    assert_eq!(swap.cache_insert(entry, order(3), FolioId(2)), Err(InsertError::Busy), "unequal zero state");
    let inserted = swap.cache_insert(at(2), order(2), FolioId(2)).unwrap();
    assert_eq!(inserted, Inserted { first: entry, shadow, zero: ZeroMark::Stored });
    swap.put(at(7), 1, |_, _| {}).unwrap();
    assert_eq!(swap.cache_insert(at(7), Order::ZERO, FolioId(3)), Err(InsertError::NoEntry));
    assert_eq!(
        swap.cache_insert(at(6), order(1), FolioId(3)),
        Err(InsertError::Busy),
        "a slot of the range is free"
    );
    assert_eq!(swap.cache_remove(entry, 8, FolioId(2), shadow, |_, _| {}), Err(CacheError::NotCached(at(4))));
    swap.cache_replace(at(2), 2, FolioId(2), FolioId(20)).unwrap();
    assert_eq!(swap.word(at(3)), SlotWord::Cached { folio: FolioId(20), count: 1, zero: false });
    let header = SwapEntry::new(entry.device(), 1).unwrap();
    assert_eq!(
        swap.cache_insert(header, order(1), FolioId(3)),
        Err(InsertError::Entry(EntryError::OutOfRange))
    );
    swap.validate().unwrap();
}

// ---- counts ----

#[test]
fn count_overflow_and_back() {
    let swap = engine(3);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 2, 1);
    assert_eq!(swap.frames_free(), 1);
    for count in 2..=1000 {
        swap.dup(entry, 3).unwrap();
        assert_eq!(swap.swap_count(entry), Some(count));
    }
    assert_eq!(swap.frames_free(), 0, "the overflow array");
    uncache(&swap, entry, 2, 1);
    swap.validate().unwrap();
    for count in (1..1000).rev() {
        swap.put(entry, 3, |_, _| panic!("not the last count")).unwrap();
        assert_eq!(swap.swap_count(entry), Some(count));
        if count == 14 {
            assert_eq!(swap.frames_free(), 1, "no slot above 14: the array is given back");
        }
    }
    swap.validate().unwrap();
    assert_eq!(swap.put(entry, 4, |_, _| {}).unwrap().freed, 4);
    swap.validate().unwrap();
}

#[test]
fn duplicate_is_all_or_nothing() {
    let swap = engine(2);
    plain(&swap, 1024);
    let entry = take(&swap, CPU0, 2, 1);
    let at = |step| entry.checked_add(step).unwrap();
    uncache(&swap, entry, 2, 1);
    let counts = || (0..4).map(|step| swap.swap_count(at(step))).collect::<Vec<_>>();
    // No frame for the overflow array: slot 2 is at 14.
    for _ in 0..13 {
        swap.dup(at(2), 1).unwrap();
    }
    let before = counts();
    assert_eq!(swap.dup(entry, 4), Err(DupError::NoFrame));
    assert_eq!(counts(), before);
    // A free slot in the range.
    swap.put(at(3), 1, |_, _| {}).unwrap();
    let before = counts();
    assert_eq!(swap.dup(at(0), 2), Ok(()));
    assert_eq!(swap.put(at(0), 2, |_, _| {}).unwrap(), Put::default());
    assert_eq!(swap.dup(at(3), 1), Err(DupError::NoEntry(at(3))));
    assert_eq!(counts(), before);
    // A bad slot.
    let id = plain(&engine(4), 1024);
    assert_eq!(id, entry.device());
    let second = swap.swapon(DeviceSpec { bad: &[2], ..DeviceSpec::new(512) });
    assert_eq!(second, Err(SwaponError::NoFrame));
    swap.validate().unwrap();
}

#[test]
fn duplicate_across_a_cluster_border_rolls_back() {
    let swap = engine(8);
    plain(&swap, 4096);
    let first = take(&swap, CPU0, 9, 1);
    let second = take(&swap, CPU0, 9, 2);
    assert_eq!(second.offset(), first.offset() + 512);
    uncache(&swap, second, 9, 2);
    let tail = first.checked_add(510).unwrap();
    swap.dup(tail, 4).unwrap();
    let gap = second.checked_add(2).unwrap();
    swap.put(gap, 1, |_, _| {}).unwrap();
    assert_eq!(swap.dup(tail, 5), Err(DupError::NoEntry(gap)));
    assert_eq!(swap.swap_count(tail), Some(2));
    assert_eq!(swap.swap_count(second), Some(2));
    swap.validate().unwrap();
}

#[test]
fn batch_free_cuts_at_cluster_borders_and_calls_once_per_slot() {
    let swap = engine(8);
    let id = plain(&swap, 4096);
    let first = take(&swap, CPU0, 9, 1);
    take(&swap, CPU0, 9, 2);
    uncache(&swap, first, 9, 1);
    uncache(&swap, first.checked_add(512).unwrap(), 9, 2);
    let mut seen = Vec::new();
    let put = swap.put(first, 1024, |entry, _| seen.push(entry.offset())).unwrap();
    assert_eq!(put.freed, 1024);
    assert_eq!(seen, (first.offset()..first.offset() + 1024).collect::<Vec<_>>());
    assert_eq!(lists(&swap, id).free, 2);
    swap.validate().unwrap();
}

#[test]
fn free_swap_and_cache_jumps_to_the_next_folio_border() {
    struct Folios<'a>(&'a Slots<PAYLOAD>, RefCell<Vec<u64>>);
    impl Hooks for Folios<'_> {
        fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
            self.1.borrow_mut().push(entry.offset());
            if folio == FolioId(2) {
                return Reclaimed::Kept(8);
            }
            self.0.cache_remove(entry, 8, folio, Shadow::EMPTY, |_, _| {}).unwrap();
            Reclaimed::Freed(8)
        }
    }
    let swap = engine(8);
    plain(&swap, 4096);
    let first = take(&swap, CPU0, 3, 1);
    take(&swap, CPU0, 3, 2);
    take(&swap, CPU0, 3, 3);
    let hooks = Folios(&swap, RefCell::default());
    let put = swap.free_swap_and_cache(first, 24, &hooks, |_, _| {}).unwrap();
    assert_eq!(put.only_cached, 24);
    assert_eq!(*hooks.1.borrow(), [first.offset(), first.offset() + 8, first.offset() + 16]);
    assert_eq!(swap.is_swapped(first.checked_add(8).unwrap(), 8), Ok(false));
    assert_eq!(swap.validate().unwrap().only_cached, 8);
}

// ---- devices ----

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
        // Full and off the list before, so growth must bring it back.
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

// ---- frames ----

#[test]
fn idle_frames_are_shown_in_runs_and_need_no_zeroing_afterwards() {
    let swap = engine(100);
    plain(&swap, 512 * 100);
    let entries: Vec<_> = (0..40).map(|folio| take(&swap, CPU0, 9, folio)).collect();
    for (folio, entry) in entries.iter().enumerate() {
        give(&swap, *entry, 9, folio as u32);
    }
    let mut shown = Vec::new();
    let count = swap.take_idle_frames(30, |memory, bytes| {
        shown.push(bytes / FRAME);
        // SAFETY: idle memory, locked out of use for the length of this call.
        unsafe { memory.write_bytes(0, bytes) };
        FrameContent::Zeroed
    });
    assert_eq!(count, 30);
    assert_eq!(shown.iter().sum::<usize>(), 30);
    assert!(shown.len() <= 3, "adjacent frames come in one run");
    assert_eq!(swap.take_idle_frames(100, |_, _| FrameContent::Unchanged), 10);
    assert_eq!(swap.take_idle_frames(100, |_, _| FrameContent::Zeroed), 10);
    assert_eq!(swap.take_idle_frames(100, |_, _| FrameContent::Zeroed), 0);
    swap.validate().unwrap();
}

#[test]
fn frames_are_added_piecewise_until_the_chunk_table_is_full() {
    let config = Config { cpus: 1, clusters_max: 64, frame_chunks_max: 2 };
    let swap = engine_with::<Current>(config, 0);
    assert_eq!(swap.swapon(DeviceSpec::new(512)), Err(SwaponError::NoFrame));
    swap.validate().unwrap();
    let memory = Memory::new(FRAME * 70);
    // SAFETY: parts of fresh memory that outlives the handle's use.
    unsafe {
        let add = |from: usize, bytes| swap.add_frames(memory.start().add(from), bytes);
        assert_eq!(add(0, FRAME - 1), Err(AddFramesError::TooSmall));
        assert_eq!(add(8, FRAME * 2), Ok(1), "up to 63 bytes are lost to alignment");
        assert_eq!(add(FRAME * 3, FRAME * 65), Err(AddFramesError::ChunkTableFull));
        assert_eq!(add(FRAME * 3, FRAME * 2), Ok(2));
        assert_eq!(add(FRAME * 5, FRAME), Err(AddFramesError::ChunkTableFull));
    }
    assert_eq!((swap.frames_free(), swap.frames_total()), (3, 3));
    swap.swapon(DeviceSpec::new(512)).unwrap();
    swap.validate().unwrap();
}

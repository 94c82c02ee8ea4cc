//! One test per open edge (spec §6).

mod common;
use common::*;
use folioswap_slots::*;
use std::cell::{Cell, RefCell};

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

/// Scenario: a cluster of order 2 with one range only cached. CPU 0's scan reclaims it with the
/// lock dropped, and meanwhile `meddle` runs.
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
        // Another CPU takes every order-0 slot that is left elsewhere, and then steals in this
        // cluster.
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
fn cluster_that_got_another_table_between_unlock_and_relock() {
    let (swap, first, result) = scan_with_meddling(|swap, entry, folio| {
        swap.cache_remove(entry, 4, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        for other in 2..=127u32 {
            let entry = entry.checked_add(u64::from(other - 1) * 4).unwrap();
            give(swap, entry, 2, other);
        }
        // CPU 2 allocates the same order again, and gets the reclaimed range, which comes first.
        assert_eq!(take(swap, LogicalCpu(2), 2, 700), entry);
    });
    let next = first.checked_add(4).unwrap();
    assert_eq!(result, Ok(next), "the scan goes on in the table that the cluster has now");
    assert_eq!(swap.word(next), SlotWord::Cached { folio: FolioId(500), count: 1, zero: false });
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
fn a_hint_may_point_to_the_end_of_a_partial_last_cluster() {
    let swap = engine(8);
    let id = plain(&swap, 700);
    // 511 slots behind the header, then the partial cluster.
    (1..=698).for_each(|offset| assert_eq!(take(&swap, CPU0, 0, 1).offset(), offset));
    let hole = SwapEntry::new(id, 600).unwrap();
    give(&swap, hole, 0, 1);
    assert_eq!(take(&swap, CPU0, 0, 2).offset(), 699);
    // A slot is free, so the scan left the next offset: the first one past the end of the device.
    swap.validate().unwrap();
    assert_eq!(take(&swap, CPU0, 0, 3), hole, "and the fast path does not take it");
    swap.validate().unwrap();
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
        // The cluster's lock is held here: the callback stands for another CPU that allocates
        // meanwhile.
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
    // The number and the clusters are used again, as if they never had been.
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
    // The first thread brings in one page; the second must reduce its order.
    swap.cache_insert(at(3), Order::ZERO, FolioId(12)).unwrap();
    assert_eq!(swap.cache_insert(at(9), order(4), FolioId(13)), Err(InsertError::Busy));
    assert_eq!(swap.cache_insert(at(9), order(3), FolioId(13)).unwrap().first, at(8));
    swap.validate().unwrap();
}

#[test]
fn swapoff_cancel_of_a_full_device_leaves_it_off_the_list_until_its_first_free() {
    let swap = engine(8);
    let id = plain(&swap, 700);
    let entries: Vec<_> = (0..699).map(|folio| take(&swap, CPU0, 0, folio)).collect();
    assert!(!swap.device_info(id).unwrap().available, "full");
    swap.swapoff_begin(id).unwrap();
    swap.swapoff_cancel(id).unwrap();
    assert!(!swap.device_info(id).unwrap().available, "it is full still");
    swap.validate().unwrap();
    let nothing = swap.alloc_folio(CPU1, Order::ZERO, FolioId(1), DeviceMask::ALL);
    assert_eq!(nothing, Err(AllocError::NoSpace));
    give(&swap, entries[600], 0, 600);
    assert!(swap.device_info(id).unwrap().available, "the first free lists it");
    assert_eq!(take(&swap, CPU1, 0, 1), entries[600], "it is not lost for ever");
    swap.validate().unwrap();
}

/// The kernel scans an emptied cluster that a hint leads to from its first slot. Here the table
/// leaves with the last slot, so a hint never leads into an empty cluster: whatever empties it, the
/// next allocation isolates it from FREE and begins at its first slot.
#[test]
fn a_cluster_that_became_empty_is_scanned_from_its_first_slot_not_from_the_hint() {
    struct Refuses;
    impl Hooks for Refuses {
        fn charge(&self, _: Result<SwapEntry, AllocError>, _: u32) -> Result<(), ChargeRefused> {
            Err(ChargeRefused)
        }
    }
    for size in 0..9 {
        let swap = engine(8);
        // The header slot keeps cluster 0 in use: it is filled, so that order 0 takes cluster 1.
        plain(&swap, 512 * 2);
        (0..511).for_each(|_| _ = take(&swap, CPU1, 0, 9));
        let tables = swap.frames_free();
        let emptied: [&dyn Fn(); 3] = [
            &|| {
                let entries = [1, 2].map(|folio| take(&swap, CPU0, size, folio));
                give(&swap, entries[0], size, 1);
                give(&swap, entries[1], size, 2);
            },
            &|| {
                let entry = take(&swap, CPU0, size, 1);
                swap.put(entry, 1 << size, |_, _| {}).unwrap();
                uncache(&swap, entry, size, 1);
            },
            &|| {
                let all = DeviceMask::ALL;
                let refused = swap.alloc_folio_with(CPU0, order(size), FolioId(1), all, &Refuses);
                assert_eq!(refused, Err(AllocError::ChargeRefused));
            },
        ];
        for empty in emptied {
            empty();
            assert_eq!(swap.frames_free(), tables, "order {size}: the table is back");
            swap.validate().unwrap();
            let again = take(&swap, CPU0, size, 3);
            assert_eq!(again.offset(), 512, "order {size}: from the first slot");
            give(&swap, again, size, 3);
        }
    }
}

#[test]
fn an_allocation_that_cannot_succeed_gives_up_after_one_round_while_discards_wait() {
    struct Deferred(Cell<u32>);
    impl Hooks for Deferred {
        fn discard(&self, _: DeviceId, _: u64, _: u32) -> DiscardOutcome {
            self.0.set(self.0.get() + 1);
            DiscardOutcome::Deferred
        }
    }
    let config = Config { cpus: 4, clusters_max: 16, frame_chunks_max: 2 };
    let swap = engine_with::<CountLocks>(config, 8);
    let flags = DeviceFlags::DISCARD;
    let id = swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(512 * 3) }).unwrap();
    let wholes = [1, 2].map(|folio| take(&swap, CPU0, 9, folio));
    (0..511).for_each(|_| _ = take(&swap, CPU0, 0, 9));
    give(&swap, wholes[0], 9, 1);
    assert_eq!((swap.discards_pending(id), swap.free_slots()), (1, 512));
    let hooks = Deferred(Cell::new(0));
    let before = swap.lock_stats().unwrap().local.acquired;
    let result = swap.alloc_folio_with(CPU1, Order::ZERO, FolioId(3), DeviceMask::ALL, &hooks);
    assert_eq!(result, Err(AllocError::NoSpace));
    assert_eq!(hooks.0.get(), 1, "the discard was tried once");
    let locked = swap.lock_stats().unwrap().local.acquired - before;
    assert_eq!(locked, 2, "one round, and the count of the failure");
}

#[test]
fn discards_that_wait_run_by_priority_not_by_number() {
    struct Noted(RefCell<Vec<DeviceId>>);
    impl Hooks for Noted {
        fn discard(&self, device: DeviceId, _: u64, _: u32) -> DiscardOutcome {
            self.0.borrow_mut().push(device);
            DiscardOutcome::Done
        }
    }
    let swap = engine(16);
    let on = |priority| {
        let spec = DeviceSpec { priority: Some(priority), ..DeviceSpec::new(1024) };
        swap.swapon(DeviceSpec { flags: DeviceFlags::DISCARD, ..spec }).unwrap()
    };
    let devices = [1, 7, 4].map(on);
    for id in devices {
        let only = DeviceMask::only(id);
        let whole = swap.alloc_folio(CPU0, Order::MAX, FolioId(1), only).unwrap();
        (0..511).for_each(|_| _ = swap.alloc_folio(CPU0, Order::ZERO, FolioId(2), only).unwrap());
        give(&swap, whole, 9, 1);
    }
    assert!(devices.iter().all(|id| swap.discards_pending(*id) == 1));
    let hooks = Noted(RefCell::default());
    let alloc = |mask| swap.alloc_folio_with(CPU1, Order::MAX, FolioId(3), mask, &hooks);
    assert_eq!(alloc(DeviceMask::ALL), Err(AllocError::SplitAndRetry), "a large folio waits for none");
    let first = |mask| swap.alloc_folio_with(CPU1, Order::ZERO, FolioId(3), mask, &hooks).unwrap().device();
    assert_eq!(first(DeviceMask::ALL), devices[1], "the highest priority");
    assert_eq!(first(DeviceMask::ALL.without(devices[1])), devices[2], "the highest that is permitted");
    assert_eq!(*hooks.0.borrow(), [devices[1], devices[2]]);
    swap.validate().unwrap();
}

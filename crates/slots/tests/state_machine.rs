//! One test per row of the state machine's table (spec §0).

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::memory::Zeroed;
use std::cell::RefCell;

/// Fills a device of order-0 slots completely; returns the entries.
fn fill(slots: &Slots<PAYLOAD>, device: DeviceId) -> Vec<SwapEntry> {
    let mut entries = Vec::new();
    while let Ok(entry) = slots.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::only(device)) {
        entries.push(entry);
    }
    entries
}

#[test]
fn isolate_from_free_gives_a_table_and_a_hint_never_does() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(2048)).unwrap();
    let before = swap.frames_free();
    let entry = take(&swap, CPU0, 2, 1);
    assert_eq!(swap.frames_free(), before - 1);
    give(&swap, entry, 2, 1);
    assert_eq!(swap.frames_free(), before);
    assert_eq!(lists(&swap, device).free, 1, "empty: FREE, order reset");
    // The hint of order 2 names the FREE cluster. The allocation must isolate it, which gives it a
    // table.
    let again = take(&swap, CPU0, 2, 1);
    assert_eq!(again.offset() / 512, entry.offset() / 512);
    assert_eq!(again.offset() % 512, 0, "isolated: from its first slot, not from the hint");
    assert_eq!(lists(&swap, device).free, 0);
    swap.validate().unwrap();
}

#[test]
fn isolate_from_free_without_a_frame_puts_back_to_free() {
    let swap = engine(1);
    let device = swap.swapon(DeviceSpec::new(1024)).unwrap();
    assert_eq!(swap.frames_free(), 0, "the header's cluster has it");
    let denied = swap.alloc_folio(CPU0, order(9), FolioId(1), DeviceMask::ALL);
    assert_eq!(denied, Err(AllocError::NoFrame));
    assert_eq!(lists(&swap, device).free, 1);
    swap.validate().unwrap();
    let more = Zeroed::new(FRAME);
    // SAFETY: fresh memory that outlives the handle's use.
    unsafe { swap.add_frames(more.start(), more.bytes()).unwrap() };
    let entry = take(&swap, CPU0, 9, 1);
    assert_eq!(entry.offset(), 512);
    swap.validate().unwrap();
}

#[test]
fn relocate_partly_used_goes_to_frag_of_its_order() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(2048)).unwrap();
    for size in 1..9 {
        if size % 3 == 1 {
            take(&swap, CPU0, size, 1);
            assert_eq!(lists(&swap, device).frag[size as usize], 1);
        }
    }
    swap.validate().unwrap();
}

#[test]
fn relocate_with_512_used_goes_to_full() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(2048)).unwrap();
    take(&swap, CPU0, 9, 1);
    assert_eq!(lists(&swap, device).full, 1);
    take(&swap, CPU0, 8, 1);
    assert_eq!(lists(&swap, device).full, 1);
    take(&swap, CPU0, 8, 1);
    assert_eq!(lists(&swap, device).full, 2);
    swap.validate().unwrap();
}

#[test]
fn slots_freed_count_above_zero_goes_to_nonfull_of_its_order() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(2048)).unwrap();
    let first = take(&swap, CPU0, 3, 1);
    let _second = take(&swap, CPU0, 3, 2);
    assert_eq!(lists(&swap, device).frag[3], 1);
    give(&swap, first, 3, 1);
    assert_eq!(lists(&swap, device).frag[3], 0);
    assert_eq!(lists(&swap, device).nonfull[3], 1);
    // From FULL as well.
    let whole = take(&swap, CPU0, 9, 3);
    uncache(&swap, whole, 9, 3);
    swap.put(whole, 1, |_, _| {}).unwrap();
    assert_eq!(lists(&swap, device).full, 0);
    assert_eq!(lists(&swap, device).nonfull[9], 1);
    swap.validate().unwrap();
}

#[test]
fn slots_freed_count_zero_goes_to_free_with_order_reset() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(1024)).unwrap();
    let entry = take(&swap, CPU0, 3, 1);
    give(&swap, entry, 3, 1);
    assert_eq!(lists(&swap, device).free, 1);
    let other = take(&swap, CPU0, 7, 1);
    assert_eq!(other.offset(), 512, "another order may have the cluster now");
    swap.validate().unwrap();
}

#[test]
fn slots_freed_count_zero_goes_to_discard_on_a_discarding_device() {
    let swap = engine(8);
    let flags = DeviceFlags::DISCARD;
    let device = swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(2048) }).unwrap();
    let entry = take(&swap, CPU0, 3, 1);
    give(&swap, entry, 3, 1);
    assert_eq!(lists(&swap, device).discard, 1);
    assert_eq!(lists(&swap, device).free, 0);
    swap.validate().unwrap();
}

/// The order in which CPU 1 gets the clusters with a hole is their order on NONFULL.
#[test]
fn slots_freed_in_a_nonfull_cluster_leave_it_where_it_is() {
    let swap = engine(8);
    let device = plain(&swap, 512 * 8);
    let entries: Vec<_> = (0..128).map(|_| take(&swap, CPU0, 3, 1)).collect();
    for at in [5, 70, 6] {
        give(&swap, entries[at], 3, 1);
    }
    assert_eq!(lists(&swap, device).nonfull[3], 2);
    assert_eq!(take(&swap, CPU1, 3, 2), entries[5], "the second free did not move it behind the other");
    swap.validate().unwrap();
}

#[test]
fn relocate_leaves_a_fragment_cluster_where_it_is() {
    // Each of two CPUs has a cluster of its own.
    let swap = engine_with::<Current>(Config { cpus: 16, clusters_max: 16, frame_chunks_max: 2 }, 8);
    let device = plain(&swap, 512 * 3);
    let own = take(&swap, CPU0, 3, 1);
    let other = take(&swap, LogicalCpu(8), 3, 1);
    // CPU 0 drains its cluster in place, while the other one is behind it on FRAG.
    take(&swap, CPU0, 3, 1);
    assert_eq!((lists(&swap, device).frag[3], lists(&swap, device).free), (2, 0));
    let third = take(&swap, CPU1, 3, 1);
    assert_eq!(third.offset() / 512, own.offset() / 512, "still the first");
    assert_ne!(third.offset() / 512, other.offset() / 512);
    swap.validate().unwrap();
}

#[test]
fn swapoff_clears_every_hint_that_names_the_device_and_no_other() {
    let swap = engine(16);
    let spec = |priority| DeviceSpec { priority: Some(priority), ..DeviceSpec::new(512 * 6) };
    let [gone, stays] = [2, 1].map(|priority| swap.swapon(spec(priority)).unwrap());
    let entries = [0, 1, 2, 3].map(|size| (size, take(&swap, LogicalCpu(size), size, 1)));
    assert!(entries.iter().all(|(_, entry)| entry.device() == gone));
    let kept = swap.alloc_folio(CPU0, order(4), FolioId(2), DeviceMask::only(stays)).unwrap();
    entries.iter().for_each(|(size, entry)| give(&swap, *entry, *size, 1));
    swap.swapoff_begin(gone).unwrap();
    swap.swapoff_finish(gone).unwrap();
    swap.validate().unwrap();
    // The device gets the same number again: a hint that was left would lead into it.
    assert_eq!(swap.swapon(spec(0)), Ok(gone));
    for (size, _) in entries {
        assert_eq!(take(&swap, LogicalCpu(size), size, 1).device(), stays);
    }
    assert_eq!(take(&swap, CPU0, 4, 1).offset(), kept.offset() + 16, "this one is still there");
    swap.validate().unwrap();
}

struct Discards<'a>(&'a Slots<PAYLOAD>, RefCell<Vec<(u64, u32)>>, DiscardOutcome);

impl Hooks for Discards<'_> {
    fn discard(&self, device: DeviceId, first: u64, slots: u32) -> DiscardOutcome {
        // The cluster is off-list with a flag, and no lock is held: the device can be used
        // meanwhile.
        self.0.validate().unwrap();
        assert_eq!(lists(self.0, device).discard, 0);
        self.1.borrow_mut().push((first, slots));
        self.2
    }
}

#[test]
fn discard_done_goes_to_free_and_a_deferred_one_back_to_discard() {
    let swap = engine(8);
    let flags = DeviceFlags::DISCARD;
    let device = swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(1024) }).unwrap();
    let entry = take(&swap, CPU0, 9, 1);
    give(&swap, entry, 9, 1);
    let deferred = Discards(&swap, RefCell::default(), DiscardOutcome::Deferred);
    assert_eq!(swap.run_discards(device, &deferred), 0);
    assert_eq!(lists(&swap, device).discard, 1);
    swap.validate().unwrap();
    let done = Discards(&swap, RefCell::default(), DiscardOutcome::Done);
    assert_eq!(swap.run_discards(device, &done), 1);
    assert_eq!(*done.1.borrow(), [(512, 512)]);
    assert_eq!(lists(&swap, device).discard, 0);
    assert_eq!(lists(&swap, device).free, 1);
    swap.validate().unwrap();
}

#[test]
fn a_run_of_the_discards_does_all_that_wait() {
    let swap = engine(8);
    let flags = DeviceFlags::DISCARD;
    let device = swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(2048) }).unwrap();
    let whole: Vec<SwapEntry> = (1..=3).map(|folio| take(&swap, CPU0, 9, folio)).collect();
    whole.iter().zip(1..).for_each(|(entry, folio)| give(&swap, *entry, 9, folio));
    assert_eq!(swap.discards_pending(device), 3);
    assert_eq!(swap.run_discards(device, &Ran), 3);
    assert_eq!(swap.discards_pending(device), 0);
    swap.validate().unwrap();
}

/// Discards take no time.
struct Ran;

impl Hooks for Ran {
    fn discard(&self, _device: DeviceId, _first: u64, _slots: u32) -> DiscardOutcome {
        DiscardOutcome::Done
    }
}

#[test]
fn relocation_never_touches_a_discard_cluster() {
    let swap = engine(8);
    let flags = DeviceFlags::DISCARD;
    let device = swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(1024) }).unwrap();
    let entry = take(&swap, CPU0, 3, 1);
    give(&swap, entry, 3, 1);
    // The hint of order 3 still leads to the cluster. Only the header's cluster is left for order
    // 0, none for order 3.
    let denied = swap.alloc_folio(CPU0, order(3), FolioId(1), DeviceMask::ALL);
    assert_eq!(denied, Err(AllocError::SplitAndRetry));
    assert_eq!(lists(&swap, device).discard, 1);
    swap.validate().unwrap();
}

#[test]
fn order_n_uses_only_clusters_that_are_empty_or_of_its_order() {
    let swap = engine(8);
    swap.swapon(DeviceSpec::new(512 * 3)).unwrap();
    let two = take(&swap, CPU0, 2, 1);
    let three = take(&swap, CPU0, 3, 1);
    assert_ne!(two.offset() / 512, three.offset() / 512);
    let denied = swap.alloc_folio(CPU0, order(4), FolioId(1), DeviceMask::ALL);
    assert_eq!(denied, Err(AllocError::SplitAndRetry));
    assert_eq!(swap.stats().fallback[4], 1);
}

#[test]
fn order_zero_uses_any_usable_cluster_which_keeps_its_order() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(512 * 2)).unwrap();
    take(&swap, CPU0, 5, 1);
    let entries = fill(&swap, device);
    assert_eq!(entries.len(), 511 + 512 - 32, "every free slot can be got");
    let inside = entries.iter().find(|entry| entry.offset() >= 512).unwrap();
    assert_eq!(lists(&swap, device).full, 2);
    give(&swap, *inside, 0, 1);
    assert_eq!(lists(&swap, device).nonfull[5], 1, "still order 5");
    swap.validate().unwrap();
}

#[test]
fn device_leaves_the_available_list_when_full_and_returns_at_its_first_free() {
    let swap = engine(8);
    let device = swap.swapon(DeviceSpec::new(700)).unwrap();
    let entries = fill(&swap, device);
    assert_eq!(entries.len(), 699);
    assert!(!swap.device_info(device).unwrap().available);
    assert_eq!(swap.free_slots(), 0);
    swap.validate().unwrap();
    give(&swap, entries[100], 0, 1);
    assert!(swap.device_info(device).unwrap().available);
    swap.validate().unwrap();
    assert_eq!(take(&swap, CPU0, 0, 1), entries[100]);
}

#[test]
fn vm_swap_full_is_strictly_more_than_half_used() {
    let swap = engine(8);
    swap.swapon(DeviceSpec::new(513)).unwrap();
    for _ in 0..256 {
        take(&swap, CPU0, 0, 1);
    }
    assert!(!swap.vm_swap_full());
    take(&swap, CPU0, 0, 1);
    assert!(swap.vm_swap_full());
}

#[test]
fn charge_is_called_on_success_and_on_failure_and_can_refuse() {
    #[derive(Default)]
    struct Group {
        calls: RefCell<Vec<(bool, u32)>>,
        limit: u32,
    }
    impl Hooks for Group {
        fn charge(&self, outcome: Result<SwapEntry, AllocError>, slots: u32) -> Result<(), ChargeRefused> {
            self.calls.borrow_mut().push((outcome.is_ok(), slots));
            if slots > self.limit { Err(ChargeRefused) } else { Ok(()) }
        }
    }
    let swap = engine(4);
    let device = swap.swapon(DeviceSpec::new(1024)).unwrap();
    let group = Group { limit: 16, ..Group::default() };
    let alloc = |size| swap.alloc_folio_with(CPU0, order(size), FolioId(1), DeviceMask::ALL, &group);
    alloc(4).unwrap();
    assert_eq!(alloc(5), Err(AllocError::SplitAndRetry));
    assert_eq!(alloc(9), Err(AllocError::SplitAndRetry));
    let lower = Group { limit: 0, ..Group::default() };
    let refused = swap.alloc_folio_with(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL, &lower);
    assert_eq!(refused, Err(AllocError::ChargeRefused));
    assert_eq!(*group.calls.borrow(), [(true, 16), (false, 32), (false, 512)]);
    assert_eq!(swap.device_info(device).unwrap().inuse, 16);
    swap.validate().unwrap();
}

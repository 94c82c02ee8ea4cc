//! One test per step of the scan order (spec §1), with and without per-cluster discard, and under
//! the policies from before.

mod common;
use common::*;
use folioswap_slots::*;

const NO_DISCARD: DeviceFlags = DeviceFlags::NONE;

fn device<P: Policy>(swap: &Bench<P>, clusters: u64, flags: DeviceFlags) -> DeviceId {
    swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(512 * clusters) }).unwrap()
}

fn cluster_of(entry: SwapEntry) -> u64 {
    entry.offset() / 512
}

/// CPU 1 leaves one NONFULL cluster of `size` behind, which is returned.
fn leave_nonfull<P: Policy>(swap: &Bench<P>, size: u32) -> u64 {
    let first = take(&swap.slots, CPU1, size, 1);
    let _second = take(&swap.slots, CPU1, size, 2);
    give(&swap.slots, first, size, 1);
    cluster_of(first)
}

/// Clusters isolated and scanned so far.
fn clusters_scanned<P: Policy>(swap: &Bench<P>) -> u64 {
    swap.stats().clusters_scanned.iter().sum()
}

struct DiscardAll;
impl Hooks for DiscardAll {
    fn discard(&self, _: DeviceId, _: u64, _: u32) -> DiscardOutcome {
        DiscardOutcome::Done
    }
}

#[test]
fn step_0_this_cpus_cluster_first() {
    for flags in [NO_DISCARD, DeviceFlags::DISCARD] {
        let swap = engine(16);
        device(&swap, 8, flags);
        let own = take(&swap, CPU0, 2, 1);
        let nonfull = leave_nonfull(&swap, 2);
        assert_ne!(cluster_of(own), nonfull);
        let next = take(&swap, CPU0, 2, 1);
        assert_eq!(next.offset(), own.offset() + 4, "sequential in the own cluster");
        assert_eq!(swap.stats().hint_hits, 2);
    }
}

#[test]
fn step_0_rotating_disk_has_one_next_offset_for_all_cpus() {
    let swap = engine(16);
    device(&swap, 8, DeviceFlags::ROTATIONAL);
    let first = take(&swap, CPU0, 1, 1);
    let second = take(&swap, CPU1, 1, 1);
    let third = take(&swap, LogicalCpu(3), 1, 1);
    assert_eq!(second.offset(), first.offset() + 2);
    assert_eq!(third.offset(), first.offset() + 4);
    assert_eq!(swap.stats().hint_hits, 0, "no hint ever leads to a rotating disk");
    swap.validate().unwrap();
}

#[test]
fn step_1_nonfull_before_free_without_discard() {
    let swap = engine(16);
    device(&swap, 8, NO_DISCARD);
    let nonfull = leave_nonfull(&swap, 2);
    assert_eq!(cluster_of(take(&swap, CPU0, 2, 1)), nonfull);
}

/// Whether CPU 0 takes a NONFULL cluster of `size`, on a device with `free` free ones. For order 0
/// there are two: the header's cluster is NONFULL as well.
fn takes_nonfull<P: Policy>(size: u32, free: u64, frames: usize) -> bool {
    let swap = engine_with::<P>(Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 }, frames);
    let id = device(&swap, 2 + free, NO_DISCARD);
    let one = take(&swap.slots, CPU1, size, 1);
    take(&swap.slots, CPU1, size, 2);
    give(&swap.slots, one, size, 1);
    let before = swap.device_lists(id).unwrap();
    assert_eq!(u64::from(before.free + before.never_used), free);
    assert_eq!(before.nonfull[size as usize], if size == 0 { 2 } else { 1 });
    take(&swap.slots, CPU0, size, 3);
    let after = swap.device_lists(id).unwrap();
    swap.validate().unwrap();
    before.free + before.never_used == after.free + after.never_used
}

#[test]
fn step_1_free_before_nonfull_for_order_0_while_free_clusters_are_plentiful() {
    assert!(!takes_nonfull::<Current>(0, 32, 8));
    assert!(takes_nonfull::<Current>(0, 31, 8));
    assert!(takes_nonfull::<Current>(2, 32, 8));
}

#[test]
fn step_1_nonfull_serves_when_a_plentiful_free_cluster_gets_no_table() {
    assert!(takes_nonfull::<Current>(0, 60, 2));
}

#[test]
fn step_1_free_before_nonfull_with_discard() {
    let swap = engine(16);
    device(&swap, 8, DeviceFlags::DISCARD);
    let nonfull = leave_nonfull(&swap, 2);
    assert_ne!(cluster_of(take(&swap, CPU0, 2, 1)), nonfull);
}

#[test]
fn step_2_free_when_nonfull_is_drained_without_discard() {
    let swap = engine(16);
    let id = device(&swap, 8, NO_DISCARD);
    take(&swap, CPU1, 2, 1);
    assert_eq!(lists(&swap, id).frag[2], 1, "FRAG comes after FREE");
    let entry = take(&swap, CPU0, 2, 1);
    assert_eq!(lists(&swap, id).frag[2], 2);
    assert_eq!(cluster_of(entry), 2);
}

#[test]
fn step_2_nonfull_when_free_is_drained_with_discard() {
    let swap = engine(16);
    device(&swap, 3, DeviceFlags::DISCARD);
    let nonfull = leave_nonfull(&swap, 2);
    take(&swap, CPU1, 9, 1);
    assert_eq!(cluster_of(take(&swap, CPU0, 2, 1)), nonfull);
}

#[test]
fn steps_1_and_2_all_nonfull_clusters_are_scanned() {
    for flags in [NO_DISCARD, DeviceFlags::DISCARD] {
        let swap = engine(16);
        let id = device(&swap, 5, flags);
        // Four clusters of order 8: all but the last have freed slots that do not make a run.
        let folios: Vec<_> = (0..8).map(|folio| take(&swap, CPU1, 8, folio)).collect();
        for (folio, entry) in folios.iter().enumerate() {
            if folio % 2 == 0 {
                uncache(&swap, *entry, 8, folio as u32);
                let slots = if folio == 6 { 256 } else { 1 };
                swap.put(*entry, slots, |_, _| {}).unwrap();
            }
        }
        assert_eq!(lists(&swap, id).nonfull[8], 4);
        assert_eq!(take(&swap, CPU0, 8, 99), folios[6]);
        assert_eq!(lists(&swap, id).frag[8], 3, "failed scans leave their clusters on FRAG");
        assert_eq!(lists(&swap, id).full, 1);
        swap.validate().unwrap();
    }
}

/// A swap cache that gives up every folio without a count.
struct GiveUp<'a, P: Policy>(&'a Slots<PAYLOAD, P>);
impl<P: Policy> Hooks for GiveUp<'_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        self.0.cache_remove(entry, 1, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        Reclaimed::Freed(1)
    }
}

#[test]
fn step_3_reclaims_one_full_cluster_when_more_than_half_is_used() {
    for flags in [NO_DISCARD, DeviceFlags::DISCARD] {
        let swap = engine(16);
        let id = device(&swap, 3, flags);
        let mut entries = Vec::new();
        for _ in 0..511 + 512 + 512 {
            entries.push(take(&swap, CPU0, 0, 1));
        }
        assert_eq!(lists(&swap, id).full, 3);
        for entry in &entries {
            assert_eq!(swap.put(*entry, 1, |_, _| {}).unwrap().only_cached, 1);
        }
        assert_eq!(swap.free_slots(), 0);
        // The device is full and off the list, so the work item comes first: exactly one cluster
        // without force.
        let sizes = [511, 512];
        let first = swap.reclaim_full_clusters(id, FullClusters::One, &GiveUp(&swap));
        assert!(sizes.contains(&first), "one cluster, the header's or another");
        assert_eq!(swap.free_slots(), u64::from(first));
        assert_eq!(lists(&swap, id).full, 2);
        swap.validate().unwrap();
        // Order 8 has no run; step 3 gives slots back on its way.
        let result = swap.alloc_folio_with(CPU0, order(8), FolioId(2), DeviceMask::ALL, &GiveUp(&swap));
        assert!(result.is_ok() || result == Err(AllocError::SplitAndRetry));
        if let Ok(entry) = result {
            give(&swap, entry, 8, 2);
        } else {
            assert_eq!(lists(&swap, id).full, 1, "exactly one more was reclaimed");
        }
        swap.validate().unwrap();
        // By force: inuse / 512 clusters, so the header's cluster of 511 may be left over.
        swap.reclaim_full_clusters(id, FullClusters::All, &GiveUp(&swap));
        assert!(swap.device_info(id).unwrap().inuse < 512);
        swap.reclaim_full_clusters(id, FullClusters::One, &GiveUp(&swap));
        assert_eq!(swap.free_slots(), 1535);
        swap.validate().unwrap();
    }
}

#[test]
fn step_3_comes_after_free_and_nonfull_and_before_frag() {
    let swap = engine(16);
    let id = device(&swap, 3, NO_DISCARD);
    let whole = take(&swap, CPU0, 9, 1);
    for step in 0..512 {
        swap.put(whole.checked_add(step).unwrap(), 1, |_, _| {}).unwrap();
    }
    // The rest has order 8: both halves are used, the second is freed but for a slot, so it is
    // NONFULL, then FRAG after a failed scan.
    take(&swap, CPU0, 8, 2);
    take(&swap, CPU0, 8, 2);
    for _ in 0..256 {
        take(&swap, CPU0, 0, 3);
    }
    assert!(swap.vm_swap_full());
    assert_eq!(lists(&swap, id).full, 2);
    // Order 0 with its own cluster still at hand does not get as far as step 3.
    take(&swap, CPU0, 0, 3);
    assert_eq!(lists(&swap, id).full, 2);
    // Order 9: nothing is FREE, so step 3 reclaims the first FULL cluster; its slots serve from the
    // next attempt on.
    let first = swap.alloc_folio_with(CPU0, order(9), FolioId(2), DeviceMask::ALL, &GiveUp(&swap));
    let second = swap.alloc_folio_with(CPU0, order(9), FolioId(2), DeviceMask::ALL, &GiveUp(&swap));
    assert_eq!(first, Err(AllocError::SplitAndRetry));
    assert_eq!(second, Ok(whole));
    swap.validate().unwrap();
}

#[test]
fn step_3_does_nothing_while_half_or_less_is_used() {
    let swap = engine(16);
    let id = device(&swap, 8, NO_DISCARD);
    let entry = take(&swap, CPU0, 9, 1);
    for step in 0..512 {
        swap.put(entry.checked_add(step).unwrap(), 1, |_, _| {}).unwrap();
    }
    for cpu in 0..6 {
        take(&swap, LogicalCpu(cpu % 4), 1 + cpu, 1);
    }
    let result = swap.alloc_folio_with(CPU0, order(9), FolioId(2), DeviceMask::ALL, &GiveUp(&swap));
    assert_eq!(result, Err(AllocError::SplitAndRetry));
    assert_eq!(lists(&swap, id).full, 1, "its slots stay cached");
}

/// Makes `clusters` FRAG clusters of order 8 without a free run; each scan of one fails.
fn leave_frag<P: Policy>(swap: &Bench<P>, id: DeviceId, clusters: u32) {
    for _ in 0..clusters {
        let first = take(&swap.slots, CPU1, 8, 1);
        take(&swap.slots, CPU1, 8, 1);
        uncache(&swap.slots, first, 8, 1);
        swap.put(first, 1, |_, _| {}).unwrap();
    }
    // One failing allocation scans all NONFULL clusters: they become FRAG.
    assert!(swap.alloc_folio(CPU1, order(8), FolioId(1), DeviceMask::ALL).is_err());
    assert_eq!(lists(&swap.slots, id).frag[8], clusters);
}

fn scans_of_a_failing_order_8<P: Policy>(clusters: u64) -> u64 {
    let swap = engine_with::<P>(Config { cpus: 4, clusters_max: 256, frame_chunks_max: 8 }, 32);
    let id = device(&swap, clusters + 1, NO_DISCARD);
    leave_frag(&swap, id, clusters as u32);
    let before = clusters_scanned(&swap);
    assert!(swap.alloc_folio(CPU0, order(8), FolioId(1), DeviceMask::ALL).is_err());
    swap.validate().unwrap();
    clusters_scanned(&swap) - before
}

#[test]
fn step_4_scans_exactly_one_fragment_cluster() {
    assert_eq!(scans_of_a_failing_order_8::<Current>(10), 1);
}

#[test]
fn step_4_variant_from_before_scans_all_fragment_clusters() {
    assert_eq!(scans_of_a_failing_order_8::<ScanAllFragments>(10), 10);
}

#[test]
fn step_1_variant_from_before_prefers_free_everywhere() {
    let swap = engine_with::<FreeFirst>(Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 }, 16);
    device(&swap, 8, NO_DISCARD);
    let nonfull = leave_nonfull(&swap, 2);
    assert_ne!(cluster_of(take(&swap.slots, CPU0, 2, 1)), nonfull);
}

#[test]
fn step_1_variant_nonfull_first_even_with_discard() {
    let swap = engine_with::<NonfullFirst>(Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 }, 16);
    device(&swap, 8, DeviceFlags::DISCARD);
    let nonfull = leave_nonfull(&swap, 2);
    assert_eq!(cluster_of(take(&swap.slots, CPU0, 2, 1)), nonfull);
}

/// Full clusters left after an allocation of order 8 that FREE cannot serve but NONFULL can. There
/// are two at first, whose folios are only cached.
fn full_clusters_left<P: Policy>() -> u32 {
    let swap = engine_with::<P>(Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 }, 16);
    let id = device(&swap, 5, DeviceFlags::DISCARD);
    for folio in 1..3 {
        let whole = take(&swap.slots, CPU1, 9, folio);
        swap.put(whole, 512, |_, _| {}).unwrap();
    }
    let half = take(&swap.slots, CPU1, 8, 3);
    take(&swap.slots, CPU1, 8, 4);
    take(&swap.slots, CPU1, 9, 5);
    give(&swap.slots, half, 8, 3);
    assert!(swap.vm_swap_full());
    assert_eq!((lists(&swap.slots, id).free, lists(&swap.slots, id).nonfull[8]), (0, 1));
    let entry =
        swap.alloc_folio_with(CPU0, order(8), FolioId(9), DeviceMask::ALL, &GiveUp(&swap.slots)).unwrap();
    assert_eq!(entry, half);
    swap.validate().unwrap();
    lists(&swap.slots, id).full
}

#[test]
fn step_3_is_not_reached_while_nonfull_serves() {
    assert_eq!(full_clusters_left::<FreeFirst>(), 4, "the half was filled again as well");
}

#[test]
fn step_3_variant_from_before_reclaims_as_soon_as_free_is_drained() {
    assert_eq!(
        full_clusters_left::<ReclaimAfterFree<FreeFirst>>(),
        3,
        "one was reclaimed before NONFULL was looked at"
    );
}

#[test]
fn step_5_discards_run_outside_after_order_0_failed_everywhere() {
    let swap = engine(16);
    let id = device(&swap, 2, DeviceFlags::DISCARD);
    let whole = take(&swap, CPU0, 9, 1);
    for _ in 0..511 {
        take(&swap, CPU0, 0, 1);
    }
    give(&swap, whole, 9, 1);
    assert_eq!(lists(&swap, id).discard, 1);
    let without = swap.alloc_folio(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL);
    assert_eq!(without, Err(AllocError::NoSpace), "nobody discards");
    let large = swap.alloc_folio_with(CPU0, order(1), FolioId(1), DeviceMask::ALL, &DiscardAll);
    assert_eq!(large, Err(AllocError::SplitAndRetry), "only order 0 runs discards");
    let entry = swap.alloc_folio_with(CPU0, Order::ZERO, FolioId(1), DeviceMask::ALL, &DiscardAll).unwrap();
    assert_eq!(cluster_of(entry), 1);
    swap.validate().unwrap();
}

#[test]
fn step_5_variant_of_6_18_discards_inside_the_allocator() {
    let swap = engine_with::<DiscardInside>(Config { cpus: 4, clusters_max: 64, frame_chunks_max: 4 }, 16);
    device(&swap, 2, DeviceFlags::DISCARD);
    let whole = take(&swap.slots, CPU0, 9, 1);
    give(&swap.slots, whole, 9, 1);
    let entry = swap.alloc_folio_with(CPU0, order(9), FolioId(1), DeviceMask::ALL, &DiscardAll).unwrap();
    assert_eq!(entry, whole);
    swap.validate().unwrap();
}

#[test]
fn step_6_order_0_steals_from_frag_then_nonfull_of_each_order() {
    for flags in [NO_DISCARD, DeviceFlags::DISCARD] {
        let swap = engine(16);
        let id = device(&swap, 4, flags);
        let nonfull = leave_nonfull(&swap, 1);
        let frag_two = cluster_of(take(&swap, CPU0, 2, 1));
        let frag_one = {
            // CPU 2 takes order 3: for order 1 it would use the NONFULL cluster.
            let entry = take(&swap, LogicalCpu(2), 3, 1);
            cluster_of(entry)
        };
        for _ in 0..511 {
            take(&swap, CPU0, 0, 1);
        }
        // FRAG[1] is empty, so NONFULL[1] comes before FRAG[2], and that before FRAG[3].
        assert_eq!(cluster_of(take(&swap, LogicalCpu(3), 0, 1)), nonfull);
        assert_eq!(lists(&swap, id).frag[1], 1, "a scan that used it moved it to FRAG");
        assert_ne!(frag_two, nonfull);
        assert_ne!(frag_one, nonfull);
        swap.validate().unwrap();
    }
}

#[test]
fn step_6_large_orders_fail_instead() {
    let swap = engine(16);
    device(&swap, 2, NO_DISCARD);
    take(&swap, CPU0, 2, 1);
    assert_eq!(swap.alloc_folio(CPU0, order(1), FolioId(1), DeviceMask::ALL), Err(AllocError::SplitAndRetry));
}

#[test]
fn an_order_9_request_uses_only_whole_free_clusters() {
    let swap = engine(16);
    let id = device(&swap, 2, NO_DISCARD);
    let entry = take(&swap, CPU0, 9, 1);
    uncache(&swap, entry, 9, 1);
    swap.put(entry, 511, |_, _| {}).unwrap();
    assert_eq!(lists(&swap, id).nonfull[9], 1);
    let scanned = clusters_scanned(&swap);
    assert_eq!(
        swap.alloc_folio(CPU0, Order::MAX, FolioId(1), DeviceMask::ALL),
        Err(AllocError::SplitAndRetry)
    );
    assert_eq!(clusters_scanned(&swap), scanned, "NONFULL[9] and FRAG[9] are not looked at");
}

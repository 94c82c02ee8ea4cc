//! The difference that each behaviour from before makes (spec §1 to §4), beside today's behaviour.
//! The parts of the scan order are in `scan_order`, the slot cache is in `slot_cache`.

mod common;
use common::*;
use folioswap_slots::*;
use std::cell::RefCell;

fn config(cpus: u32) -> Config {
    Config { cpus, clusters_max: 256, frame_chunks_max: 8 }
}

fn with<P: Policy>(frames: usize) -> Bench<P> {
    engine_with::<P>(config(4), frames)
}

/// Devices that served `count` allocations of `size`, by their index of swapon.
fn devices_used<P: Policy>(swap: &Bench<P>, cpu: LogicalCpu, size: u32, count: usize) -> Vec<usize> {
    (0..count).map(|_| take(&swap.slots, cpu, size, 1).device().index()).collect()
}

fn runs(devices: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for device in devices {
        match runs.last_mut() {
            Some((last, length)) if last == device => *length += 1,
            _ => runs.push((*device, 1)),
        }
    }
    runs
}

// ---- rotation ----

#[test]
fn today_equal_devices_take_turns_per_consumed_cluster() {
    let swap = with::<Current>(64);
    add_devices(&swap, 2, 4096);
    // The header's cluster has 511 slots.
    assert_eq!(runs(&devices_used(&swap, CPU0, 0, 1600)), [(0, 511), (1, 511), (0, 512), (1, 66)]);
    let swap = with::<Current>(64);
    add_devices(&swap, 2, 4096);
    assert_eq!(runs(&devices_used(&swap, CPU0, 4, 96)), [(0, 31 + 1), (1, 32), (0, 32)]);
}

#[test]
fn before_equal_devices_take_turns_per_64_order_0_slots() {
    let swap = with::<RotatePerAllocation>(64);
    add_devices(&swap, 3, 4096);
    let expected: Vec<_> = (0..10).map(|turn| (turn % 3, 64)).collect();
    assert_eq!(runs(&devices_used(&swap, CPU0, 0, 640)), expected);
    swap.validate().unwrap();
}

#[test]
fn before_equal_devices_take_turns_per_large_allocation_each_with_its_own_hint() {
    let swap = with::<RotatePerAllocation>(64);
    add_devices(&swap, 2, 4096);
    let entries: Vec<_> = (0..6).map(|_| take(&swap.slots, CPU0, 4, 1)).collect();
    for (turn, entry) in entries.iter().enumerate() {
        assert_eq!(entry.device().index(), turn % 2);
        if turn >= 2 {
            assert_eq!(
                entry.offset(),
                entries[turn - 2].offset() + 16,
                "goes on where it was on this device"
            );
        }
    }
    swap.validate().unwrap();
}

#[test]
fn before_hints_per_device_are_cleared_by_swapoff() {
    let swap = with::<RotatePerAllocation>(64);
    let ids: Vec<_> = (0..2).map(|_| swap.swapon(DeviceSpec::new(4096)).unwrap()).collect();
    let entries: Vec<_> = (0..2).map(|_| take(&swap.slots, CPU0, 4, 1)).collect();
    give(&swap.slots, entries[0], 4, 1);
    swap.swapoff_begin(ids[0]).unwrap();
    swap.swapoff_finish(ids[0]).unwrap();
    swap.validate().unwrap();
    assert_eq!(devices_used(&swap, CPU0, 4, 3), [1, 1, 1]);
    // A turn that was under way on the device that left is over.
    let swap = with::<RotatePerAllocation>(64);
    let ids: Vec<_> = (0..2).map(|_| swap.swapon(DeviceSpec::new(4096)).unwrap()).collect();
    let entry = take(&swap.slots, CPU0, 0, 1);
    give(&swap.slots, entry, 0, 1);
    swap.swapoff_begin(ids[0]).unwrap();
    assert_eq!(take(&swap.slots, CPU0, 0, 1).device(), ids[1]);
    swap.swapoff_finish(ids[0]).unwrap();
    swap.validate().unwrap();
}

// ---- nodes and default priorities ----

/// Four devices, the first three each near to the node of their number; CPU n is on node n.
fn four_devices_on_nodes<P: Policy>() -> Bench<P> {
    let swap = with::<P>(128);
    for node in 0..3 {
        swap.swapon(DeviceSpec { node: Node::new(node), ..DeviceSpec::new(2048) }).unwrap();
    }
    swap.swapon(DeviceSpec::new(2048)).unwrap();
    (0..4).for_each(|cpu| swap.set_node(LogicalCpu(cpu), Node::new(cpu).unwrap()));
    swap
}

#[test]
fn before_a_node_drains_its_own_device_first_and_a_node_without_one_the_first_added() {
    let swap = four_devices_on_nodes::<BeforeRoundRobin>();
    swap.validate().unwrap();
    assert_eq!(devices_used(&swap, LogicalCpu(2), 8, 1), [2]);
    assert_eq!(devices_used(&swap, LogicalCpu(1), 8, 3), [1, 1, 1]);
    assert_eq!(devices_used(&swap, LogicalCpu(3), 8, 1), [0], "node 3 has none");
    swap.validate().unwrap();
    // Order 0 goes on to the next device when its own is full.
    let used = devices_used(&swap, LogicalCpu(1), 0, 1500);
    assert_eq!(
        used.iter().filter(|device| **device == 1).count(),
        2047 - 768,
        "the own one to its last slot"
    );
    assert!(used.iter().rev().take(200).all(|device| *device == 0), "then by order of swapon");
    swap.validate().unwrap();
}

#[test]
fn before_explicit_priorities_are_the_same_on_all_nodes() {
    let swap = four_devices_on_nodes::<BeforeRoundRobin>();
    swap.swapon(DeviceSpec { priority: Some(0), node: Node::new(7), ..DeviceSpec::new(2048) }).unwrap();
    for cpu in 0..3 {
        assert_eq!(devices_used(&swap, LogicalCpu(cpu), 8, 1), [4]);
    }
    swap.validate().unwrap();
}

#[test]
fn before_devices_of_one_node_take_turns_there() {
    let swap = with::<BeforeRoundRobin>(128);
    for _ in 0..2 {
        swap.swapon(DeviceSpec { node: Node::new(0), ..DeviceSpec::new(4096) }).unwrap();
    }
    swap.set_node(CPU1, Node::new(5).unwrap());
    assert_eq!(devices_used(&swap, CPU0, 9, 4), [0, 1, 0, 1], "both have key 1 on node 0");
    assert_eq!(devices_used(&swap, CPU1, 9, 3), [0, 0, 0], "strictly by priority on node 5");
    swap.validate().unwrap();
}

#[test]
fn before_without_nodes_the_first_added_is_drained_first() {
    let swap = with::<DescendingPriorities>(128);
    add_devices(&swap, 4, 1024);
    assert_eq!(runs(&devices_used(&swap, CPU0, 0, 1023 * 2 + 5)), [(0, 1023), (1, 1023), (2, 5)]);
}

#[test]
fn today_nodes_play_no_role() {
    let swap = four_devices_on_nodes::<Current>();
    assert_eq!(devices_used(&swap, LogicalCpu(2), 9, 4), [0, 1, 2, 3]);
}

#[test]
fn a_full_device_leaves_and_returns_to_the_lists_of_all_nodes() {
    let swap = four_devices_on_nodes::<BeforeRoundRobin>();
    let mut entries: Vec<_> = (0..2047).map(|_| take(&swap.slots, LogicalCpu(1), 0, 1)).collect();
    assert!(entries.iter().all(|entry| entry.device().index() == 1));
    assert!(!swap.device_info(entries[0].device()).unwrap().available);
    swap.validate().unwrap();
    let entry = entries.pop().unwrap();
    give(&swap.slots, entry, 0, 1);
    swap.validate().unwrap();
    assert_eq!(take(&swap.slots, LogicalCpu(1), 0, 1), entry);
}

// ---- frees ----

/// A swap cache of folios of eight pages that notes each time it is asked.
struct Folios<'a, P: Policy>(&'a Slots<PAYLOAD, P>, RefCell<Vec<u64>>);
impl<P: Policy> Hooks for Folios<'_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        self.1.borrow_mut().push(entry.offset());
        let first = entry.round_down(order(3)).unwrap();
        if self.0.is_swapped(first, 8).unwrap() {
            return Reclaimed::Kept(8);
        }
        self.0.cache_remove(first, 8, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        Reclaimed::Freed(8)
    }
}

fn lookups_of_freeing_a_cached_folio<P: Policy>() -> (usize, u64) {
    let swap = engine_with::<CountLocks<P>>(config(4), 16);
    swap.swapon(DeviceSpec::new(4096)).unwrap();
    let entry = take(&swap.slots, CPU0, 3, 1);
    let hooks = Folios(&swap.slots, RefCell::default());
    let before = swap.lock_stats().unwrap().cluster.acquired;
    let put = swap.free_swap_and_cache(entry, 8, &hooks, |_, _| {}).unwrap();
    assert_eq!(put.only_cached, 8);
    assert_eq!(swap.validate().unwrap().inuse, 0);
    let lookups = hooks.1.borrow().len();
    (lookups, swap.lock_stats().unwrap().cluster.acquired - before)
}

#[test]
fn today_a_cached_folio_is_looked_up_once_and_its_counts_go_under_one_lock() {
    assert_eq!(lookups_of_freeing_a_cached_folio::<Current>(), (1, 2));
}

#[test]
fn before_a_cached_folio_is_looked_up_once_per_slot() {
    assert_eq!(lookups_of_freeing_a_cached_folio::<FreePerSlot>(), (8, 9));
}

#[test]
fn frees_of_both_kinds_end_alike() {
    fn free<P: Policy>() -> (Put, Report) {
        let swap = with::<P>(16);
        swap.swapon(DeviceSpec::new(4096)).unwrap();
        let entry = take(&swap.slots, CPU0, 4, 1);
        uncache(&swap.slots, entry, 4, 1);
        swap.dup(entry.checked_add(3).unwrap(), 2).unwrap();
        let put = swap.put(entry, 17, |_, _| {}).unwrap();
        (put, swap.validate().unwrap())
    }
    assert_eq!(free::<Current>(), free::<FreePerSlot>());
    assert_eq!(free::<Current>().0, Put { freed: 14, only_cached: 0, rejected: 1 });
}

// ---- counting ----

#[test]
fn lock_acquisitions_are_counted_only_if_asked_for() {
    assert_eq!(with::<Current>(8).lock_stats(), None);
    let swap = with::<CountLocks>(8);
    swap.swapon(DeviceSpec::new(512)).unwrap();
    let start = swap.lock_stats().unwrap();
    let entry = take(&swap.slots, CPU0, 0, 1);
    let first = swap.lock_stats().unwrap();
    assert_eq!(first.local.acquired - start.local.acquired, 1);
    assert_eq!(first.available.acquired - start.available.acquired, 1);
    assert_eq!(first.cluster.acquired - start.cluster.acquired, 1, "isolated by trylock");
    take(&swap.slots, CPU0, 0, 1);
    let second = swap.lock_stats().unwrap();
    assert_eq!(second.cluster.acquired - first.cluster.acquired, 1);
    assert_eq!((second.list, second.available), (first.list, first.available), "the fast path takes neither");
    // A trylock that fails is counted as contended.
    uncache(&swap.slots, entry, 0, 1);
    swap.put(entry, 1, |_, _| {
        let _ = swap.slots.alloc_folio(CPU1, order(0), FolioId(9), DeviceMask::ALL);
    })
    .unwrap();
    assert!(swap.lock_stats().unwrap().cluster.contended > 0);
}

#[test]
fn metadata_of_todays_policy_has_no_part_for_variants() {
    let bytes = Slots::<PAYLOAD, Current>::bytes_needed(config(4));
    assert_eq!(Slots::<PAYLOAD, BeforeClusterScan>::bytes_needed(config(4)), bytes);
    assert_eq!(Slots::<PAYLOAD, FreePerSlot<DescendingPriorities>>::bytes_needed(config(4)), bytes);
    assert!(Slots::<PAYLOAD, SlotCachePerCpu>::bytes_needed(config(4)) > bytes);
    let swap = with::<SlotCachePerCpu>(8);
    // SAFETY: laid out by `init`; the refused handle is not used.
    let attached = unsafe { Slots::<PAYLOAD, Current>::attach(swap.metadata.start()) };
    assert_eq!(attached.err(), Some(ConfigError::NotInitialised), "laid out for another policy");
}

#[test]
fn variants_combine_and_keep_the_choices_below_them() {
    type All = RelaxBy<
        SpinOnly,
        CountLocks<BeforeClusterScan<BeforeSlotCacheRemoval<BeforeRoundRobin<FreePerSlot>>>>,
    >;
    assert_eq!(All::FRAGMENT_SCAN, FragmentScan::All);
    assert_eq!(All::CLUSTER_PREFERENCE, ClusterPreference::FreeFirst);
    assert_eq!(All::FULL_RECLAIM, FullReclaim::AfterFree);
    assert_eq!(All::DISCARD_PLACE, DiscardPlace::Inside);
    assert_eq!(All::DEFAULT_PRIORITY, DefaultPriority::Descending);
    assert_eq!(All::SLOT_CACHE, SlotCache::PerCpu);
    assert_eq!(All::ROTATION, Rotation::PerAllocation);
    assert_eq!(All::NODE_PREFERENCE, NodePreference::On);
    assert_eq!(All::FREES, Frees::PerSlot);
    assert_eq!(All::LOCK_COUNTING, LockCounting::On);
    assert_eq!(<RelaxBy<SpinOnly> as Policy>::LOCK_COUNTING, Current::LOCK_COUNTING);
}

// ---- proposals: the scope of hints ----

/// Clusters that 40 folios of order 2 of each of two groups lie in, whose masks have one device
/// each and which take turns on one CPU.
fn clusters_of_two_groups<P: Policy>() -> usize {
    let swap = with::<P>(200);
    add_devices(&swap, 2, 512 * 64);
    let mut clusters = std::collections::HashSet::new();
    for turn in 0..80 {
        let mask = DeviceMask::only(DeviceId::new(turn % 2).unwrap());
        let entry = swap.alloc_folio(CPU0, order(2), FolioId(turn), mask).unwrap();
        assert!(mask.contains(entry.device()));
        clusters.insert((entry.device(), entry.offset() / 512));
    }
    swap.validate().unwrap();
    clusters.len()
}

#[test]
fn groups_that_take_turns_on_a_cpu_lose_their_cluster_unless_hints_tell_them_apart() {
    assert_eq!(clusters_of_two_groups::<Current>(), 80, "each allocation begins a free cluster");
    assert_eq!(clusters_of_two_groups::<HintPerDevice>(), 2);
    assert_eq!(clusters_of_two_groups::<HintPerMask>(), 2);
}

/// A group that may use all devices is not drawn to the slow one by the hint of another group.
#[test]
fn no_scope_of_hints_leads_a_group_to_a_slower_device_than_it_may_use() {
    fn fast_first<P: Policy>() {
        let swap = with::<P>(64);
        let on = |priority| swap.swapon(DeviceSpec { priority: Some(priority), ..DeviceSpec::new(4096) });
        let [fast, slow] = [2, 1].map(|priority| on(priority).unwrap());
        let alloc = |mask| swap.alloc_folio(CPU0, order(2), FolioId(1), mask).unwrap().device();
        for _ in 0..300 {
            assert_eq!(alloc(DeviceMask::only(slow)), slow);
            assert_eq!(alloc(DeviceMask::ALL), fast);
        }
    }
    fast_first::<HintPerDevice>();
    fast_first::<HintPerMask>();
}

#[test]
fn more_masks_than_there_is_room_for_replace_the_oldest_and_swapoff_clears_them_all() {
    let swap = with::<HintPerMask>(64);
    add_devices(&swap, 6, 4096);
    let ids: Vec<_> = (0..6).map(|number| DeviceId::new(number).unwrap()).collect();
    let alloc = |id| swap.alloc_folio(CPU0, order(2), FolioId(1), DeviceMask::only(id)).unwrap();
    let firsts: Vec<_> = ids.iter().map(|id| alloc(*id)).collect();
    for (id, first) in ids.iter().zip(&firsts).skip(2) {
        assert_eq!(alloc(*id).offset(), first.offset() + 4, "one of the last four");
    }
    assert_ne!(alloc(ids[0]).offset() / 512, firsts[0].offset() / 512, "replaced");
    swap.validate().unwrap();
    for (id, first) in ids.iter().zip(&firsts).skip(3) {
        swap.swapoff_begin(*id).unwrap();
        for slot in 0..8 {
            let entry = SwapEntry::new(*id, first.offset() + slot).unwrap();
            let _ = swap.cache_remove(entry, 1, FolioId(1), Shadow::EMPTY, |_, _| {});
            swap.put(entry, 1, |_, _| {}).unwrap();
        }
        swap.swapoff_finish(*id).unwrap();
        swap.validate().unwrap();
    }
}

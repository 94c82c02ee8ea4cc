//! One test per rule of the scan of one cluster and of the lists' order (spec §0), and of the
//! reclaim of full clusters.

mod common;
use common::*;
use folioswap_slots::*;
use std::cell::{Cell, RefCell};

/// A swap cache of folios of `pages` pages: those in `kept` stay, the others leave. Notes each
/// entry that it is asked for.
struct Cache<'a, P: Policy = Current> {
    swap: &'a Slots<PAYLOAD, P>,
    pages: u32,
    kept: &'a [u32],
    asked: RefCell<Vec<u64>>,
}

impl<'a, P: Policy> Cache<'a, P> {
    fn new(swap: &'a Slots<PAYLOAD, P>, pages: u32, kept: &'a [u32]) -> Self {
        Cache { swap, pages, kept, asked: RefCell::default() }
    }
}

impl<P: Policy> Hooks for Cache<'_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        self.asked.borrow_mut().push(entry.offset());
        if self.kept.contains(&folio.0) {
            return Reclaimed::Kept(self.pages);
        }
        let first = entry.round_down(order(self.pages.trailing_zeros())).unwrap();
        self.swap.cache_remove(first, self.pages, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        Reclaimed::Freed(self.pages)
    }
}

fn only_cached(swap: &Slots<PAYLOAD>, entry: SwapEntry, size: u32) {
    assert_eq!(swap.put(entry, 1 << size, |_, _| {}).unwrap().only_cached, 1 << size);
}

#[test]
fn a_scan_goes_from_the_offset_to_the_end_and_does_not_wrap_around() {
    let swap = engine(8);
    plain(&swap, 2048);
    let entries: Vec<_> = (0..64).map(|folio| take(&swap, CPU0, 3, folio)).collect();
    let cluster = entries[0].offset() / 512;
    assert!(entries.iter().all(|entry| entry.offset() / 512 == cluster), "one whole cluster");
    let swap = engine(8);
    plain(&swap, 2048);
    let entries: Vec<_> = (0..10).map(|folio| take(&swap, CPU0, 3, folio)).collect();
    give(&swap, entries[2], 3, 2);
    assert_eq!(take(&swap, CPU0, 3, 99).offset(), entries[9].offset() + 8, "the hole lies behind the hint");
    // Another CPU isolates the cluster from NONFULL and starts at its first slot.
    give(&swap, entries[5], 3, 5);
    assert_eq!(take(&swap, CPU1, 3, 99), entries[2]);
    assert_eq!(take(&swap, CPU1, 3, 99), entries[5], "and goes on from there");
    swap.validate().unwrap();
}

#[test]
fn a_slot_that_is_only_cached_spoils_its_range_while_half_or_less_is_used() {
    let swap = engine(8);
    plain(&swap, 2048);
    let first = take(&swap, CPU1, 3, 1);
    take(&swap, CPU1, 3, 2);
    only_cached(&swap, first, 3);
    swap.put(take(&swap, CPU1, 3, 3), 1, |_, _| {}).unwrap();
    assert!(!swap.vm_swap_full());
    let cache = Cache::new(&swap, 8, &[]);
    let entry = swap.alloc_folio_with(CPU0, order(3), FolioId(9), DeviceMask::ALL, &cache).unwrap();
    assert_ne!(entry, first);
    assert!(cache.asked.borrow().is_empty(), "nobody is asked");
}

/// A device more than half used without a free range: in its one cluster of order 3, two folios of
/// order 2 are only cached.
fn two_small_folios_in_one_range(swap: &Slots<PAYLOAD>) -> SwapEntry {
    plain(swap, 1024);
    let entries: Vec<_> = (0..64).map(|folio| take(swap, CPU0, 3, folio)).collect();
    for _ in 0..256 {
        take(swap, CPU1, 0, 1000);
    }
    let target = entries[7];
    uncache(swap, target, 3, 7);
    for half in 0..2 {
        let at = target.checked_add(half * 4).unwrap();
        swap.cache_insert(at, order(2), FolioId(2000 + half as u32)).unwrap();
    }
    only_cached(swap, target, 3);
    // A slot freed in each of eight other ranges makes the cluster NONFULL, so that a scan visits
    // it, and leaves as many slots free as a range has.
    for other in (8..16).map(|other| entries[other]) {
        uncache(swap, other, 3, other.offset() as u32 % 512 / 8);
        swap.put(other, 1, |_, _| {}).unwrap();
    }
    target
}

#[test]
fn the_first_folio_that_is_kept_ends_the_reclaim_of_a_range() {
    let swap = engine(8);
    let target = two_small_folios_in_one_range(&swap);
    let cache = Cache::new(&swap, 4, &[2000]);
    let result = swap.alloc_folio_with(CPU1, order(3), FolioId(9), DeviceMask::ALL, &cache);
    assert_eq!(result, Err(AllocError::SplitAndRetry));
    let first = target.offset();
    let asked = cache.asked.borrow();
    assert!(
        !asked.is_empty() && asked.iter().all(|asked| *asked == first),
        "not the second folio: {asked:?}"
    );
    swap.validate().unwrap();
}

#[test]
fn a_range_whose_folios_all_leave_is_taken() {
    let swap = engine(8);
    let target = two_small_folios_in_one_range(&swap);
    let cache = Cache::new(&swap, 4, &[]);
    let result = swap.alloc_folio_with(CPU1, order(3), FolioId(9), DeviceMask::ALL, &cache);
    assert_eq!(result, Ok(target));
    assert_eq!(*cache.asked.borrow(), [target.offset(), target.offset() + 4], "each folio once");
    swap.validate().unwrap();
}

/// With fewer slots free than a folio has, no slot of the cluster is looked at, and nobody is asked
/// to give up what is only cached.
#[test]
fn a_cluster_with_fewer_free_slots_than_the_folio_has_is_left_at_once() {
    let swap = engine(8);
    let target = two_small_folios_in_one_range(&swap);
    // Order 0 steals one of the eight free slots.
    let stolen = (0..512).find_map(|_| {
        let entry = take(&swap, LogicalCpu(2), 0, 1001);
        (entry.offset() / 512 == target.offset() / 512).then_some(entry)
    });
    let stolen = stolen.unwrap();
    let cache = Cache::new(&swap, 4, &[]);
    let attempt = || swap.alloc_folio_with(CPU1, order(3), FolioId(9), DeviceMask::ALL, &cache);
    assert_eq!(attempt(), Err(AllocError::SplitAndRetry));
    assert!(cache.asked.borrow().is_empty(), "505 slots are used, those that are only cached among them");
    give(&swap, stolen, 0, 1001);
    assert_eq!(attempt(), Ok(target), "504 are");
    swap.validate().unwrap();
}

#[test]
fn nonfull_clusters_are_taken_in_the_order_in_which_they_got_there() {
    let swap = engine(16);
    plain(&swap, 4096);
    let folios: Vec<_> = (0..6).map(|folio| take(&swap, CPU1, 8, folio)).collect();
    // Clusters of folios (4, 5), (0, 1), (2, 3) get a free half, in this order.
    for folio in [4, 0, 2] {
        give(&swap, folios[folio as usize], 8, folio);
    }
    let taken: Vec<_> = [CPU0, LogicalCpu(2), LogicalCpu(3)].map(|cpu| take(&swap, cpu, 8, 9)).to_vec();
    assert_eq!(taken, [folios[4], folios[0], folios[2]]);
}

#[test]
fn a_fragment_cluster_that_failed_goes_to_the_tail_so_that_the_list_rotates() {
    let swap = engine(16);
    plain(&swap, 512 * 4);
    // Three clusters of order 3 have one range each that a kept folio spoils; then more than half
    // of all is used.
    let folios: Vec<_> = (0..192).map(|folio| take(&swap, CPU1, 3, folio)).collect();
    for first in [0, 64, 128] {
        only_cached(&swap, folios[first], 3);
    }
    assert!(swap.vm_swap_full());
    let id = folios[0].device();
    assert_eq!(lists(&swap, id).full, 3);
    // A slot freed in each of eight other ranges makes it NONFULL, with as many slots free as a
    // range has; a scan in vain makes it FRAG.
    for folio in [0, 64, 128].into_iter().flat_map(|first| first + 1..first + 9) {
        uncache(&swap, folios[folio], 3, folio as u32);
        swap.put(folios[folio], 1, |_, _| {}).unwrap();
    }
    let cache = Cache::new(&swap, 8, &[0, 64, 128]);
    let attempt = |_| swap.alloc_folio_with(CPU0, order(3), FolioId(9), DeviceMask::ALL, &cache);
    assert_eq!(attempt(0), Err(AllocError::SplitAndRetry));
    assert_eq!(lists(&swap, id).frag[3], 3);
    cache.asked.borrow_mut().clear();
    assert!((0..6).map(attempt).all(|result| result == Err(AllocError::SplitAndRetry)));
    let asked: Vec<_> = cache.asked.borrow().iter().map(|offset| offset / 512).collect();
    assert_eq!(asked[..3], asked[3..], "in turn");
    assert!(asked[0] != asked[1] && asked[1] != asked[2] && asked[0] != asked[2], "each once: {asked:?}");
    swap.validate().unwrap();
}

#[test]
fn a_full_cluster_whose_reclaim_gave_nothing_is_not_lost_and_goes_to_the_tail() {
    let swap = engine(16);
    let id = plain(&swap, 512 * 4);
    let wholes: Vec<_> = (0..3).map(|folio| take(&swap, CPU0, 9, folio)).collect();
    wholes.iter().for_each(|entry| only_cached(&swap, *entry, 9));
    let cache = Cache::new(&swap, 512, &[0, 1, 2]);
    for _ in 0..6 {
        assert_eq!(swap.reclaim_full_clusters(id, FullClusters::One, &cache), 0);
        assert_eq!(lists(&swap, id).full, 3);
        swap.validate().unwrap();
    }
    let offsets: Vec<_> = wholes.iter().map(|entry| entry.offset()).collect();
    assert_eq!(*cache.asked.borrow(), [offsets.clone(), offsets].concat(), "one folio each, in turn");
}

#[test]
fn reclaim_of_a_full_cluster_skips_ahead_by_the_size_of_each_folio() {
    let swap = engine(16);
    let id = plain(&swap, 1024);
    let folios: Vec<_> = (0..64).map(|folio| take(&swap, CPU0, 3, folio)).collect();
    folios.iter().for_each(|entry| only_cached(&swap, *entry, 3));
    let cache = Cache::new(&swap, 8, &[1, 3, 63]);
    assert_eq!(swap.reclaim_full_clusters(id, FullClusters::One, &cache), 61 * 8);
    let offsets: Vec<_> = folios.iter().map(|entry| entry.offset()).collect();
    assert_eq!(*cache.asked.borrow(), offsets, "each folio is asked for once");
    assert_eq!(lists(&swap, id).nonfull[3], 1, "frees relisted it");
    swap.validate().unwrap();
}

#[test]
fn forced_reclaim_looks_at_inuse_over_512_clusters() {
    let swap = engine(16);
    let id = plain(&swap, 512 * 6);
    let wholes: Vec<_> = (0..4).map(|folio| take(&swap, CPU0, 9, folio)).collect();
    wholes.iter().for_each(|entry| only_cached(&swap, *entry, 9));
    let cache = Cache::new(&swap, 512, &[0, 1, 2, 3]);
    swap.reclaim_full_clusters(id, FullClusters::All, &cache);
    assert_eq!(cache.asked.borrow().len(), 4);
    assert_eq!(swap.reclaim_full_clusters(DeviceId::new(9).unwrap(), FullClusters::All, &cache), 0);
}

#[test]
fn a_cluster_that_becomes_empty_on_a_device_that_may_not_be_written_goes_to_free() {
    let swap = engine(8);
    let flags = DeviceFlags::DISCARD;
    let id = swap.swapon(DeviceSpec { flags, ..DeviceSpec::new(2048) }).unwrap();
    let entry = take(&swap, CPU0, 9, 1);
    swap.swapoff_begin(id).unwrap();
    give(&swap, entry, 9, 1);
    let lists = lists(&swap, id);
    assert_eq!((lists.free, lists.discard), (1, 0));
    swap.validate().unwrap();
}

#[test]
fn a_failed_allocation_changes_no_counter_but_its_own() {
    let swap = engine(8);
    let id = plain(&swap, 1024);
    take(&swap, CPU0, 8, 1);
    let before = (swap.device_info(id), swap.free_slots(), swap.frames_free());
    // There are free slots, but no whole cluster.
    let denied = swap.alloc_folio(CPU0, Order::MAX, FolioId(2), DeviceMask::ALL);
    assert_eq!(denied, Err(AllocError::SplitAndRetry));
    assert_eq!((swap.device_info(id), swap.free_slots(), swap.frames_free()), before);
    assert_eq!(swap.stats().fallback[9], 1);
    assert_eq!(swap.stats().allocated[9], 0);
}

#[test]
fn the_free_count_goes_down_after_the_slots_are_taken_and_by_what_was_taken() {
    struct Watches<'a>(&'a Slots<PAYLOAD>, Cell<u64>);
    impl Hooks for Watches<'_> {
        fn charge(&self, _: Result<SwapEntry, AllocError>, _: u32) -> Result<(), ChargeRefused> {
            self.1.set(self.0.free_slots());
            Err(ChargeRefused)
        }
    }
    let swap = engine(8);
    plain(&swap, 1024);
    let hooks = Watches(&swap, Cell::new(0));
    let refused = swap.alloc_folio_with(CPU0, order(4), FolioId(1), DeviceMask::ALL, &hooks);
    assert_eq!(refused, Err(AllocError::ChargeRefused));
    assert_eq!(hooks.1.get(), 1023 - 16, "taken when the charge is called");
    assert_eq!(swap.free_slots(), 1023, "given back when it is refused");
}

#[test]
fn free_folio_is_the_opposite_of_alloc_folio() {
    let swap = engine(8);
    let id = plain(&swap, 2048);
    let entry = take(&swap, CPU0, 4, 1);
    let mut freed = Vec::new();
    let count = swap.free_folio(entry, 16, FolioId(1), |entry, payload| {
        assert_eq!(payload, swap.payload(entry).unwrap().as_ptr());
        freed.push(entry.offset());
    });
    assert_eq!(count, Ok(16));
    assert_eq!(freed, (entry.offset()..entry.offset() + 16).collect::<Vec<_>>());
    assert_eq!(swap.device_info(id).unwrap().inuse, 0);
    swap.validate().unwrap();
}

#[test]
fn free_folio_leaves_slots_with_further_counts_swapped_out() {
    let swap = engine(8);
    plain(&swap, 2048);
    let entry = take(&swap, CPU0, 2, 1);
    let at = |step| entry.checked_add(step).unwrap();
    swap.dup(at(1), 1).unwrap();
    (0..20).for_each(|_| swap.dup(at(2), 1).unwrap());
    // Slot 3 is only cached already.
    swap.put(at(3), 1, |_, _| {}).unwrap();
    assert_eq!(swap.free_folio(entry, 4, FolioId(7), |_, _| {}), Err(CacheError::NotCached(entry)));
    let mut freed = Vec::new();
    assert_eq!(swap.free_folio(entry, 4, FolioId(1), |entry, _| freed.push(entry)), Ok(2));
    assert_eq!(freed, [at(0), at(3)]);
    assert_eq!(swap.word(at(1)), SlotWord::Shadow { shadow: Shadow::EMPTY, count: 1, zero: false });
    assert_eq!(swap.swap_count(at(2)), Some(20));
    swap.validate().unwrap();
}

//! Random operations against a plain oracle: a map from entry to state. `validate` runs after each
//! operation.
//!
//! `FOLIOSWAP_SLOTS_CASES=20000 cargo test --release -p folioswap-slots --test oracle` is the long
//! form (default 2000 cases of up to 120 operations for the policy of today, a tenth or a fifth of
//! it for each of the others).

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::environment;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Op {
    Alloc { cpu: u32, size: u32, mask: u8 },
    Dup { pick: usize, slots: u32, times: u32 },
    Put { pick: usize, slots: u32 },
    Remove { pick: usize },
    Insert { pick: usize, size: u32 },
    Zero { pick: usize },
    Discard,
    ReclaimFull,
    Grow { pages: u64 },
    Idle,
    FreeFolio { pick: usize },
    FreeAndCache { pick: usize, slots: u32 },
    Swapoff { device: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => Just(0u32), 4 => 1u32..6, 2 => 6u32..10];
    let alloc = (0u32..4, size.clone(), prop_oneof![6 => Just(7u8), 1 => 1u8..7])
        .prop_map(|(cpu, size, mask)| Op::Alloc { cpu, size, mask });
    let pick = 0usize..100_000;
    let dup =
        (pick.clone(), 1u32..40, 1u32..20).prop_map(|(pick, slots, times)| Op::Dup { pick, slots, times });
    prop_oneof![
        8 => alloc,
        2 => dup,
        6 => (pick.clone(), 1u32..700).prop_map(|(pick, slots)| Op::Put { pick, slots }),
        5 => pick.clone().prop_map(|pick| Op::Remove { pick }),
        3 => (pick.clone(), size).prop_map(|(pick, size)| Op::Insert { pick, size }),
        1 => pick.clone().prop_map(|pick| Op::Zero { pick }),
        3 => pick.clone().prop_map(|pick| Op::FreeFolio { pick }),
        2 => (pick, 1u32..200).prop_map(|(pick, slots)| Op::FreeAndCache { pick, slots }),
        1 => (0u32..3).prop_map(|device| Op::Swapoff { device }),
        1 => Just(Op::Discard),
        1 => Just(Op::ReclaimFull),
        1 => (0u64..4000).prop_map(|pages| Op::Grow { pages }),
        1 => Just(Op::Idle),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct State {
    folio: Option<FolioId>,
    count: u64,
    zero: bool,
}

#[derive(Default)]
struct Oracle {
    slots: BTreeMap<SwapEntry, State>,
    /// Folio -> (first, slots).
    folios: BTreeMap<u32, (SwapEntry, u32)>,
    next_folio: u32,
}

impl Oracle {
    fn pick(&self, pick: usize) -> Option<SwapEntry> {
        let length = self.slots.len();
        (length > 0).then(|| *self.slots.keys().nth(pick % length).unwrap())
    }

    fn pick_folio(&self, pick: usize) -> Option<(u32, SwapEntry, u32)> {
        let nth = pick % self.folios.len().max(1);
        self.folios.iter().nth(nth).map(|(&folio, &(first, slots))| (folio, first, slots))
    }

    fn remove_folio(&mut self, folio: u32) -> Vec<SwapEntry> {
        let (first, slots) = self.folios.remove(&folio).unwrap();
        let mut freed = Vec::new();
        for entry in range(first, slots) {
            let state = self.slots.get_mut(&entry).unwrap();
            assert_eq!(state.folio.take(), Some(FolioId(folio)));
            if state.count == 0 {
                self.slots.remove(&entry);
                freed.push(entry);
            }
        }
        freed
    }
}

fn range(first: SwapEntry, slots: u32) -> impl Iterator<Item = SwapEntry> {
    (0..u64::from(slots)).map(move |step| first.checked_add(step).unwrap())
}

/// Reclaims through the oracle, so that both stay in step.
struct Cache<'a, P: Policy> {
    swap: &'a Slots<PAYLOAD, P>,
    oracle: &'a RefCell<Oracle>,
}

impl<P: Policy> Hooks for Cache<'_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        let mut oracle = self.oracle.borrow_mut();
        let (first, slots) = oracle.folios[&folio.0];
        assert!(first <= entry && entry.offset() < first.offset() + u64::from(slots));
        if self.swap.is_swapped(first, slots).unwrap() || folio.0.is_multiple_of(5) {
            return Reclaimed::Kept(slots);
        }
        oracle.remove_folio(folio.0);
        let freed = self.swap.cache_remove(first, slots, folio, Shadow::EMPTY, |_, _| {}).unwrap();
        assert_eq!(freed, slots);
        Reclaimed::Freed(slots)
    }

    fn discard(&self, _: DeviceId, first: u64, slots: u32) -> DiscardOutcome {
        assert_eq!((first % 512, slots), (0, 512));
        DiscardOutcome::Done
    }
}

/// Marks the payload of a slot as that of its entry. [`check_mark`] checks it when the slot is
/// freed.
fn mark<P: Policy>(swap: &Slots<PAYLOAD, P>, entry: SwapEntry) {
    let payload = swap.payload(entry).unwrap().cast::<[u8; 8]>();
    // SAFETY: the slot is used and its payload is ours.
    unsafe { payload.write(entry.to_raw().to_le_bytes()) };
}

fn check_mark(entry: SwapEntry, payload: *mut u8) {
    // SAFETY: the callback may use the payload.
    let mark = unsafe { payload.cast::<[u8; 8]>().read() };
    assert_eq!(u64::from_le_bytes(mark), entry.to_raw(), "payload belongs to its slot");
}

/// The operations, each done to the slots and to the oracle alike.
impl<P: Policy> Cache<'_, P> {
    fn alloc(&self, cpu: u32, size: u32, mask: u8) {
        let folio = {
            let mut oracle = self.oracle.borrow_mut();
            oracle.next_folio += 1;
            oracle.next_folio
        };
        let mask = (0..3)
            .filter(|bit| mask >> bit & 1 != 0)
            .fold(DeviceMask::NONE, |mask, bit| mask.with(DeviceId::new(bit).unwrap()));
        let result = self.swap.alloc_folio_with(LogicalCpu(cpu), order(size), FolioId(folio), mask, self);
        let mut oracle = self.oracle.borrow_mut();
        match result {
            Ok(entry) => {
                assert!(mask.contains(entry.device()));
                assert_eq!(entry.offset() % (1 << size), 0);
                for entry in range(entry, 1 << size) {
                    let state = State { folio: Some(FolioId(folio)), count: 1, zero: false };
                    assert_eq!(oracle.slots.insert(entry, state), None, "{entry:?} handed out twice");
                    mark(self.swap, entry);
                }
                oracle.folios.insert(folio, (entry, 1 << size));
            }
            Err(AllocError::NoSpace) if size == 0 => {
                // Slots in the slot cache of another CPU look used.
                for info in mask.iter().filter_map(|id| self.swap.device_info(id)) {
                    assert_eq!(info.inuse, info.pages, "order 0 gets every slot");
                }
            }
            Err(error) => assert!(
                matches!(error, AllocError::SplitAndRetry | AllocError::NoSpace | AllocError::NoFrame),
                "{error}"
            ),
        }
    }

    fn dup(&self, pick: usize, slots: u32, times: u32) {
        let mut oracle = self.oracle.borrow_mut();
        let Some(entry) = oracle.pick(pick) else { return };
        for _ in 0..times {
            let all = range(entry, slots).all(|entry| oracle.slots.contains_key(&entry));
            match self.swap.dup(entry, slots) {
                Ok(()) => {
                    assert!(all);
                    for entry in range(entry, slots) {
                        oracle.slots.get_mut(&entry).unwrap().count += 1;
                    }
                }
                Err(DupError::NoFrame) => {
                    // The first slot that fails names the error: one at 14, before any that is
                    // free.
                    assert_eq!(self.swap.frames_free(), 0);
                    let mut present = range(entry, slots).map_while(|entry| oracle.slots.get(&entry));
                    assert!(present.any(|state| state.count == 14), "no count passed 14");
                }
                Err(_) => assert!(!all),
            }
        }
    }

    fn put(&self, pick: usize, slots: u32) {
        let mut oracle = self.oracle.borrow_mut();
        let Some(entry) = oracle.pick(pick) else { return };
        let max = self.swap.device_info(entry.device()).unwrap().max;
        let slots = slots.min((max - entry.offset()) as u32);
        let mut expected = Put::default();
        let mut freed = Vec::new();
        for entry in range(entry, slots) {
            match oracle.slots.get_mut(&entry) {
                None | Some(State { count: 0, .. }) => expected.rejected += 1,
                Some(State { count: 1, folio: None, .. }) => {
                    oracle.slots.remove(&entry);
                    expected.freed += 1;
                    freed.push(entry);
                }
                Some(state) => {
                    state.count -= 1;
                    expected.only_cached += u32::from(state.count == 0);
                }
            }
        }
        let mut seen = Vec::new();
        let put = self.swap.put(entry, slots, |entry, payload| {
            check_mark(entry, payload);
            seen.push(entry);
        });
        assert_eq!(put, Ok(expected));
        assert_eq!(seen, freed);
    }

    fn remove(&self, pick: usize) {
        let mut oracle = self.oracle.borrow_mut();
        let Some((folio, first, slots)) = oracle.pick_folio(pick) else { return };
        let expected = oracle.remove_folio(folio);
        let mut seen = Vec::new();
        let freed = self.swap.cache_remove(first, slots, FolioId(folio), Shadow::EMPTY, |entry, payload| {
            check_mark(entry, payload);
            seen.push(entry);
        });
        assert_eq!(freed, Ok(expected.len() as u32));
        assert_eq!(seen, expected);
    }

    fn insert(&self, pick: usize, size: u32) {
        let mut oracle = self.oracle.borrow_mut();
        let Some(target) = oracle.pick(pick) else { return };
        oracle.next_folio += 1;
        let folio = oracle.next_folio;
        let result = self.swap.cache_insert(target, order(size), FolioId(folio));
        let state = oracle.slots[&target];
        if let Some(cached) = state.folio {
            if !matches!(result, Err(InsertError::Entry(_))) {
                assert_eq!(result, Err(InsertError::Exist(cached)));
            }
            return;
        }
        let Some(first) = target.round_down(order(size)) else {
            assert_eq!(result, Err(InsertError::Entry(EntryError::OutOfRange)));
            return;
        };
        let fits = range(first, 1 << size)
            .all(|entry| oracle.slots.get(&entry).is_some_and(|s| s.folio.is_none() && s.zero == state.zero));
        match result {
            Ok(inserted) => {
                assert!(fits);
                assert_eq!(inserted.first, first);
                for entry in range(first, 1 << size) {
                    oracle.slots.get_mut(&entry).unwrap().folio = Some(FolioId(folio));
                }
                oracle.folios.insert(folio, (first, 1 << size));
            }
            Err(InsertError::Busy | InsertError::Entry(_)) => assert!(!fits),
            Err(error) => panic!("{error}"),
        }
    }

    fn zero(&self, pick: usize) {
        let mut oracle = self.oracle.borrow_mut();
        let Some(entry) = oracle.pick(pick) else { return };
        let state = oracle.slots.get_mut(&entry).unwrap();
        if let Some(folio) = state.folio {
            state.zero = true;
            self.swap.set_zero_mark(entry, 1, folio, ZeroMark::AllZero).unwrap();
        }
    }

    fn run_discards(&self) {
        for id in self.swap.devices().iter() {
            self.swap.run_discards(id, self);
            assert_eq!(self.swap.discards_pending(id), 0);
        }
    }

    fn reclaim_full(&self) {
        for id in self.swap.devices().iter() {
            self.swap.reclaim_full_clusters(id, FullClusters::All, self);
        }
    }

    fn grow(&self, pages: u64) {
        let device = DeviceId::new(0).unwrap();
        let Some(before) = self.swap.device_info(device) else { return };
        match self.swap.grow(device, pages) {
            Ok(()) => assert_eq!(self.swap.device_info(device).unwrap().max, pages),
            Err(SwaponError::InvalidSize) => assert!(pages < before.max),
            Err(error) => assert_eq!(error, SwaponError::NoFrame),
        }
    }

    fn free_folio(&self, pick: usize) {
        let mut oracle = self.oracle.borrow_mut();
        let Some((folio, first, slots)) = oracle.pick_folio(pick) else { return };
        for entry in range(first, slots) {
            let state = oracle.slots.get_mut(&entry).unwrap();
            state.count = state.count.saturating_sub(1);
        }
        let expected = oracle.remove_folio(folio);
        let mut seen = Vec::new();
        let freed = self.swap.free_folio(first, slots, FolioId(folio), |entry, payload| {
            check_mark(entry, payload);
            seen.push(entry);
        });
        assert_eq!(freed, Ok(expected.len() as u32));
        assert_eq!(seen, expected);
    }

    fn free_swap_and_cache(&self, pick: usize, slots: u32) {
        let Some(entry) = self.oracle.borrow().pick(pick) else { return };
        let max = self.swap.device_info(entry.device()).unwrap().max;
        let slots = slots.min((max - entry.offset()) as u32);
        let mut expected = Put::default();
        // The hook asks the oracle in between, and slot by slot it asks earlier than in a batch.
        // Both may see the same, because a folio stays while any of its slots has a count.
        for entry in range(entry, slots) {
            let mut oracle = self.oracle.borrow_mut();
            match oracle.slots.get_mut(&entry) {
                None | Some(State { count: 0, .. }) => expected.rejected += 1,
                Some(State { count: 1, folio: None, .. }) => {
                    oracle.slots.remove(&entry);
                    expected.freed += 1;
                }
                Some(state) => {
                    state.count -= 1;
                    expected.only_cached += u32::from(state.count == 0);
                }
            }
        }
        let put = self.swap.free_swap_and_cache(entry, slots, self, check_mark).unwrap();
        assert_eq!(put.freed, expected.freed);
        // Slot by slot, a folio that was only cached to its last slot may have left before its
        // other slots were looked at.
        assert_eq!(put.only_cached, expected.only_cached);
        assert_eq!(put.rejected, expected.rejected);
    }

    fn swapoff_and_on(&self, device: u32) {
        let id = DeviceId::new(device).unwrap();
        if self.swap.devices().contains(id) {
            swapoff(self.swap, self.oracle, id);
        }
        // swapon may lack frames: the device then stays off until the next time.
        let _ = swap_on_lowest(self.swap);
    }

    fn take_idle(&self) {
        self.swap.take_idle_frames(3, |memory, bytes| {
            // SAFETY: idle memory, locked out of use for the length of this call.
            unsafe { memory.write_bytes(0, bytes) };
            FrameContent::Zeroed
        });
    }

    fn apply(&self, op: &Op) {
        match *op {
            Op::Alloc { cpu, size, mask } => self.alloc(cpu, size, mask),
            Op::Dup { pick, slots, times } => self.dup(pick, slots, times),
            Op::Put { pick, slots } => self.put(pick, slots),
            Op::Remove { pick } => self.remove(pick),
            Op::Insert { pick, size } => self.insert(pick, size),
            Op::Zero { pick } => self.zero(pick),
            Op::Discard => self.run_discards(),
            Op::ReclaimFull => self.reclaim_full(),
            Op::Grow { pages } => self.grow(pages),
            Op::FreeFolio { pick } => self.free_folio(pick),
            Op::FreeAndCache { pick, slots } => self.free_swap_and_cache(pick, slots),
            Op::Swapoff { device } => self.swapoff_and_on(device),
            Op::Idle => self.take_idle(),
        }
    }
}

/// Brings in all pages on the device, and switches it off.
fn swapoff<P: Policy>(swap: &Slots<PAYLOAD, P>, oracle: &RefCell<Oracle>, id: DeviceId) {
    let mut oracle = oracle.borrow_mut();
    swap.swapoff_begin(id).unwrap();
    assert_eq!(swap.swapoff_begin(id), Err(SwapoffError::WrongStep));
    let mut from = 0;
    while let Some((entry, word)) = swap.swapoff_next(id, from) {
        from = entry.offset();
        if let SlotWord::Cached { folio, .. } = word {
            let (first, slots) = oracle.folios[&folio.0];
            oracle.remove_folio(folio.0);
            swap.cache_remove(first, slots, folio, Shadow::EMPTY, check_mark).unwrap();
        } else {
            let count = oracle.slots.remove(&entry).unwrap().count;
            (0..count).for_each(|_| assert_eq!(swap.put(entry, 1, check_mark).unwrap().rejected, 0));
        }
    }
    assert_eq!(swap.swapoff_next(id, 0), None, "nothing is left behind");
    swap.swapoff_finish(id).unwrap();
    assert!(oracle.slots.keys().all(|entry| entry.device() != id));
}

/// Switches the device of the lowest free number on.
fn swap_on_lowest<P: Policy>(swap: &Slots<PAYLOAD, P>) -> Option<Result<DeviceId, SwaponError>> {
    let number = (0..3).find(|number| !swap.devices().contains(DeviceId::new(*number).unwrap()))?;
    let node = Node::new(number);
    let spec = match number {
        0 => DeviceSpec { pages_max: 4000, bad: &[7, 1030], ..DeviceSpec::new(1200) },
        1 => DeviceSpec { flags: DeviceFlags::DISCARD, ..DeviceSpec::new(1024) },
        _ => DeviceSpec { flags: DeviceFlags::ROTATIONAL, priority: Some(1), ..DeviceSpec::new(700) },
    };
    Some(swap.swapon(DeviceSpec { node, ..spec }))
}

fn compare<P: Policy>(swap: &Slots<PAYLOAD, P>, oracle: &Oracle) {
    let report = swap.validate().unwrap();
    assert_eq!(report.inuse, oracle.slots.len() as u64 + report.slot_cached);
    for (entry, state) in &oracle.slots {
        let (folio, count, zero) = match swap.word(*entry) {
            SlotWord::Cached { folio, count, zero } => (Some(folio), count, zero),
            SlotWord::Shadow { count, zero, .. } => (None, count, zero),
            other => panic!("{entry:?} is {other:?}"),
        };
        assert_eq!(State { folio, count, zero }, *state);
    }
}

fn run<P: Policy>(ops: &[Op], frames: usize) {
    let swap = engine_with::<P>(Config { cpus: 4, clusters_max: 256, frame_chunks_max: 8 }, frames);
    while let Some(added) = swap_on_lowest(&swap.slots) {
        added.unwrap();
    }
    (0..4).for_each(|cpu| swap.set_node(LogicalCpu(cpu), Node::new(cpu).unwrap()));
    let oracle = RefCell::new(Oracle::default());
    for op in ops {
        Cache { swap: &swap.slots, oracle: &oracle }.apply(op);
        compare(&swap.slots, &oracle.borrow());
    }
    for id in swap.devices().iter() {
        swapoff(&swap.slots, &oracle, id);
    }
    compare(&swap.slots, &oracle.borrow());
    assert_eq!(swap.frames_free(), swap.frames_total());
}

/// The number of cases; `share` is a variant's fraction of it.
fn cases(share: u32) -> u32 {
    let default = if cfg!(miri) { 2 } else { 2000 };
    (environment::number("FOLIOSWAP_SLOTS_CASES", default) / share).max(1)
}

macro_rules! agree_with_the_oracle {
    ($($name:ident: $policy:ty, $share:expr;)*) => { $(
        #[test]
        fn $name() {
            if cfg!(miri) && $share > 1 {
                return;
            }
            let config = ProptestConfig::with_cases(cases($share));
            let config = ProptestConfig { failure_persistence: None, ..config };
            let ops = prop::collection::vec(op(), 1..if cfg!(miri) { 12 } else { 120 });
            let mut runner = proptest::test_runner::TestRunner::new(config);
            let result = runner.run(&(ops, 7usize..20), |(ops, frames)| {
                run::<$policy>(&ops, frames);
                Ok(())
            });
            result.unwrap();
        }
    )* };
}

agree_with_the_oracle! {
    today: Current, 1;
    scan_all_fragments: ScanAllFragments, 10;
    free_first: FreeFirst, 10;
    nonfull_first: NonfullFirst, 10;
    nonfull_unless_discard: NonfullUnlessDiscard, 10;
    reclaim_after_free: ReclaimAfterFree, 10;
    discard_inside: DiscardInside, 10;
    slot_cache: SlotCachePerCpu, 5;
    rotate_per_allocation: RotatePerAllocation, 10;
    free_per_slot: FreePerSlot, 10;
    hint_per_device: HintPerDevice, 10;
    hint_per_mask: HintPerMask, 10;
    prefer_own_node: BeforeRoundRobin, 10;
    before_cluster_scan: BeforeClusterScan, 10;
    before_slot_cache_removal: BeforeSlotCacheRemoval, 5;
    everything_from_before: Everything, 5;
}

//! A long random run. Real threads allocate, duplicate, free, swap in and leave folios only cached,
//! with devices that come and go and discards that run, under every policy. It ends with `validate`
//! clean, no slot in use and every frame back in the pool.
//!
//! The long form, 10^8 operations under today's policy (about two minutes on two cores):
//! `FOLIOSWAP_SLOTS_OPERATIONS=100000000 cargo test --release -p folioswap-slots --test random_run
//! today -- --nocapture`

mod common;
use common::*;
use folioswap_slots::*;
use folioswap_test_support::{environment, random::Random};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

/// Operations beyond those asked for that the workers may add, until the scheduler has granted a
/// swapoff and a discard.
const OPERATIONS_OVER: u64 = 100_000_000;

/// Number of workers. One more thread switches devices on and off.
const WORKERS: u32 = 3;

/// Folios whose counts are all gone, in parts so that threads seldom meet. The part's lock stands
/// for the folio's.
struct OnlyCached {
    parts: Vec<Mutex<HashMap<u32, (SwapEntry, u32)>>>,
}

impl OnlyCached {
    fn part(&self, folio: FolioId) -> &Mutex<HashMap<u32, (SwapEntry, u32)>> {
        &self.parts[folio.0 as usize % self.parts.len()]
    }
}

/// Progress of the run, and the signals between its threads.
#[derive(Default)]
struct Progress {
    reclaimed: AtomicU64,
    discarded: AtomicU64,
    /// Devices that went and came back.
    rounds: AtomicU64,
    /// Devices on their way off.
    leaving: AtomicU32,
    /// The workers are done, or one of them has failed.
    stop: AtomicBool,
    failed: AtomicBool,
}

impl Progress {
    /// Whether the run has seen all that it is about. The scheduler decides how many operations
    /// that takes.
    fn is_enough(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) > 0 && self.discarded.load(Ordering::Relaxed) > 0
    }
}

/// Ends the device thread if a worker panics; it would wait for the worker's slots for ever.
struct TellFailure<'a>(&'a Progress);

impl Drop for TellFailure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
}

struct Cache<'a, P: Policy> {
    swap: Slots<PAYLOAD, P>,
    only_cached: &'a OnlyCached,
    progress: &'a Progress,
}

impl<P: Policy> Hooks for Cache<'_, P> {
    fn reclaim(&self, entry: SwapEntry, folio: FolioId) -> Reclaimed {
        let mut part = match self.only_cached.part(folio).try_lock() {
            Ok(part) => part,
            Err(TryLockError::WouldBlock) => return Reclaimed::Kept(1),
            Err(TryLockError::Poisoned(error)) => panic!("{error}"),
        };
        // The folio may have left, and its number may stand for another by now.
        let Some((first, slots)) = part.get(&folio.0).copied() else { return Reclaimed::Absent };
        let covers = first.device() == entry.device()
            && (first.offset()..first.offset() + u64::from(slots)).contains(&entry.offset());
        if !covers {
            return Reclaimed::Absent;
        }
        part.remove(&folio.0);
        let freed = self.swap.cache_remove(first, slots, folio, Shadow::EMPTY, |_, _| {});
        assert_eq!(freed, Ok(slots));
        self.progress.reclaimed.fetch_add(1, Ordering::Relaxed);
        Reclaimed::Freed(slots)
    }

    fn discard(&self, _: DeviceId, _: u64, _: u32) -> DiscardOutcome {
        self.progress.discarded.fetch_add(1, Ordering::Relaxed);
        DiscardOutcome::Done
    }
}

/// A folio that a worker has swapped out: its mark is in every payload.
struct Owned {
    entry: SwapEntry,
    slots: u32,
    folio: u32,
    extra: u64,
    cached: bool,
}

struct Worker<'a, P: Policy> {
    swap: Slots<PAYLOAD, P>,
    hooks: Cache<'a, P>,
    number: u32,
    random: Random,
    owned: Vec<Owned>,
    folios: u32,
    operations: u64,
}

impl<P: Policy> Worker<'_, P> {
    fn alloc(&mut self) {
        let size = [0, 0, 0, 0, 1, 2, 3, 4, 4, 6, 9][self.random.below(11) as usize];
        self.folios = (self.folios + 1) & 0xff_ffff;
        let folio = (self.number + 1) << 24 | self.folios;
        // Now and then another CPU, as when the scheduler moves a thread.
        let cpu = if self.random.below(8) == 0 { self.random.below(6) as u32 } else { self.number * 2 };
        let mask = match self.random.below(16) {
            0 => DeviceMask::only(DeviceId::new(self.random.below(4) as u32).unwrap()),
            _ => DeviceMask::ALL,
        };
        let result =
            self.swap.alloc_folio_with(LogicalCpu(cpu), order(size), FolioId(folio), mask, &self.hooks);
        let Ok(entry) = result else { return };
        assert!(mask.contains(entry.device()));
        for step in 0..1u64 << size {
            let payload = self.swap.payload(entry.checked_add(step).unwrap()).unwrap();
            // SAFETY: the slot is ours.
            unsafe { payload.cast::<[u8; 4]>().write(folio.to_le_bytes()) };
        }
        let mut owned = Owned { entry, slots: 1 << size, folio, extra: 0, cached: true };
        if self.random.below(2) == 0 {
            self.uncache(&mut owned);
        }
        self.owned.push(owned);
    }

    fn uncache(&mut self, owned: &mut Owned) {
        let Owned { entry, slots, folio, .. } = *owned;
        let freed =
            self.swap.cache_remove(entry, slots, FolioId(folio), Shadow::EMPTY, |_, _| panic!("counted"));
        assert_eq!(freed, Ok(0));
        owned.cached = false;
        self.operations += 1;
    }

    /// Gives up every count, in one of the possible ways.
    fn free(&mut self, owned: Owned) {
        let Owned { entry, slots, folio, .. } = owned;
        for _ in 0..owned.extra {
            assert_eq!(self.swap.put(entry, slots, |_, _| panic!("counted")), Ok(Put::default()));
            self.operations += 1;
        }
        let check = |_: SwapEntry, payload: *mut u8| {
            // SAFETY: the callback may use the payload.
            assert_eq!(unsafe { payload.cast::<[u8; 4]>().read() }, folio.to_le_bytes(), "another's payload");
        };
        match (owned.cached, self.random.below(3)) {
            (false, 0) => {
                let put = self.swap.put(entry, slots, check).unwrap();
                assert_eq!(put.freed, slots);
                return;
            }
            (false, _) => {
                let inserted = self.swap.cache_insert(entry, order(slots.trailing_zeros()), FolioId(folio));
                assert_eq!(inserted.unwrap().first, entry);
                self.operations += 1;
            }
            _ => {}
        }
        if self.random.below(4) == 0 {
            // The folio stays only cached, until some thread reclaims it. It enters the map first,
            // because any thread may come from the last count on.
            let mut part = self.hooks.only_cached.part(FolioId(folio)).lock().unwrap();
            part.insert(folio, (entry, slots));
            assert_eq!(self.swap.put(entry, slots, |_, _| panic!("cached")).unwrap().only_cached, slots);
        } else {
            assert_eq!(self.swap.free_folio(entry, slots, FolioId(folio), check), Ok(slots));
        }
    }

    /// Frees the folios on devices that are on their way off.
    fn leave(&mut self, leaving: u32) {
        let (gone, kept) =
            self.owned.drain(..).partition(|owned| leaving >> owned.entry.device().index() & 1 != 0);
        self.owned = kept;
        let gone: Vec<Owned> = gone;
        gone.into_iter().for_each(|owned| self.free(owned));
    }

    fn run(mut self, operations: u64) -> u64 {
        let progress = self.hooks.progress;
        let _tell = TellFailure(progress);
        let at_most = operations + OPERATIONS_OVER;
        while self.operations < operations || (!progress.is_enough() && self.operations < at_most) {
            self.operations += 1;
            let leaving = progress.leaving.load(Ordering::Acquire);
            if leaving != 0 {
                self.leave(leaving);
            }
            if self.owned.is_empty() || (self.random.below(2) == 0 && self.owned.len() < 600) {
                self.alloc();
                continue;
            }
            let index = self.random.below(self.owned.len() as u64) as usize;
            match self.random.below(8) {
                0 => {
                    let owned = &mut self.owned[index];
                    for _ in 0..self.random.below(20) {
                        owned.extra += u64::from(self.swap.dup(owned.entry, owned.slots).is_ok());
                        self.operations += 1;
                    }
                }
                1 => {
                    let Owned { entry, slots, folio, cached, .. } = self.owned[index];
                    let at = entry.checked_add(self.random.below(u64::from(slots))).unwrap();
                    let word = self.swap.word(at);
                    let is_cached = matches!(word, SlotWord::Cached { folio: found, .. } if found.0 == folio);
                    assert_eq!(is_cached, cached, "{word:?}");
                    assert!(self.swap.swap_count(at).unwrap() > 0);
                }
                _ => {
                    let owned = self.owned.swap_remove(index);
                    self.free(owned);
                }
            }
        }
        let rest: Vec<Owned> = self.owned.drain(..).collect();
        rest.into_iter().for_each(|owned| self.free(owned));
        self.operations
    }
}

fn spec(number: u32) -> DeviceSpec<'static> {
    let flags = [DeviceFlags::NONE, DeviceFlags::DISCARD, DeviceFlags::ROTATIONAL, DeviceFlags::DISCARD];
    DeviceSpec {
        flags: flags[number as usize],
        priority: (number == 2).then_some(3),
        node: Node::new(number),
        ..DeviceSpec::new([512 * 8, 512 * 6, 700, 512 * 4][number as usize])
    }
}

/// Switches the last two devices off and on, until the workers are done.
fn devices_come_and_go<P: Policy>(hooks: &Cache<'_, P>) {
    let Cache { swap, progress, .. } = *hooks;
    while !progress.stop.load(Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_micros(500));
        let id = DeviceId::new(2 + progress.rounds.load(Ordering::Relaxed) as u32 % 2).unwrap();
        swap.swapoff_begin(id).unwrap();
        progress.leaving.fetch_or(1 << id.index(), Ordering::Release);
        loop {
            // Lone cached folios; what workers own they free.
            let mut from = 0;
            while let Some((entry, word)) = swap.swapoff_next(id, from) {
                from = entry.offset() + 1;
                if let SlotWord::Cached { folio, count: 0, .. } = word {
                    hooks.reclaim(entry, folio);
                }
            }
            match swap.swapoff_finish(id) {
                Ok(()) => break,
                Err(_) if progress.failed.load(Ordering::Relaxed) => return,
                Err(SwapoffError::Busy(_) | SwapoffError::Pinned) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        progress.leaving.fetch_and(!(1 << id.index()), Ordering::Release);
        assert_eq!(swap.swapon(spec(id.index() as u32)), Ok(id));
        progress.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

fn random_run<P: Policy>(operations: u64) {
    let config = Config { cpus: 6, clusters_max: 64, frame_chunks_max: 4 };
    let bench = engine_with::<RelaxBy<Yield, P>>(config, 60);
    let swap = bench.slots;
    for number in 0..4 {
        swap.swapon(spec(number)).unwrap();
    }
    (0..6).for_each(|cpu| swap.set_node(LogicalCpu(cpu), Node::new(cpu).unwrap()));
    let only_cached = OnlyCached { parts: (0..64).map(|_| Mutex::default()).collect() };
    let progress = Progress::default();
    let hooks = || Cache { swap, only_cached: &only_cached, progress: &progress };
    let start = std::time::Instant::now();
    let done: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let worker = Worker {
                    swap,
                    hooks: hooks(),
                    number,
                    random: Random::new(0x9e37_79b9_7f4a_7c15 ^ u64::from(number + 1)),
                    owned: Vec::new(),
                    folios: 0,
                    operations: 0,
                };
                scope.spawn(move || worker.run(operations / u64::from(WORKERS)))
            })
            .collect();
        let hooks = hooks();
        scope.spawn(move || devices_come_and_go(&hooks));
        let done = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        progress.stop.store(true, Ordering::Relaxed);
        done
    });
    let report = swap.validate().unwrap();
    let hooks = hooks();
    for part in &only_cached.parts {
        let rest: Vec<_> = part.lock().unwrap().iter().map(|(folio, at)| (*folio, *at)).collect();
        for (folio, (entry, slots)) in rest {
            assert_eq!(hooks.reclaim(entry, FolioId(folio)), Reclaimed::Freed(slots));
        }
    }
    swap.validate().unwrap();
    for id in swap.devices().iter() {
        swap.swapoff_begin(id).unwrap();
        swap.swapoff_finish(id).unwrap();
    }
    assert_eq!(swap.validate().unwrap(), Report::default());
    assert_eq!(swap.frames_free(), swap.frames_total(), "every frame is back");
    let stats = swap.stats();
    let allocated: u64 = stats.allocated.iter().sum();
    let fallback: u64 = stats.fallback.iter().sum();
    let rounds = progress.rounds.load(Ordering::Relaxed);
    let discarded = progress.discarded.load(Ordering::Relaxed);
    println!(
        "{done} operations in {:.1?}: {allocated} allocations, {fallback} failed; {} folios reclaimed, \
         {discarded} clusters discarded; {rounds} swapoffs; {} slots were only cached at the end; \
         validate is clean",
        start.elapsed(),
        progress.reclaimed.load(Ordering::Relaxed),
        report.only_cached,
    );
    assert!(progress.is_enough(), "{rounds} swapoffs and {discarded} discards in {done} operations");
}

fn operations() -> u64 {
    environment::number("FOLIOSWAP_SLOTS_OPERATIONS", 200_000)
}

macro_rules! random_runs {
    ($($name:ident: $policy:ty;)*) => { $(
        #[test]
        #[cfg_attr(miri, ignore)]
        fn $name() {
            random_run::<$policy>(operations());
        }
    )* };
}

random_runs! {
    today: Current;
    before_cluster_scan: BeforeClusterScan;
    before_slot_cache_removal: BeforeSlotCacheRemoval;
    before_round_robin: BeforeRoundRobin;
    slot_cache: SlotCachePerCpu;
    rotate_per_allocation: RotatePerAllocation;
    hint_per_device: HintPerDevice;
    hint_per_mask: HintPerMask;
    scan_all_fragments: ScanAllFragments;
    free_first: FreeFirst;
    nonfull_first: NonfullFirst;
    nonfull_unless_discard: NonfullUnlessDiscard;
    reclaim_after_free: ReclaimAfterFree;
    discard_inside: DiscardInside;
    free_per_slot: FreePerSlot;
    everything_from_before: Everything;
}

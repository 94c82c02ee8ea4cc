//! Tiers: where a logical CPU should keep the next offset when groups with different device masks
//! take turns on it. It answers an open question of the kernel's list (January 2026): with one hint
//! per CPU and order, such groups overwrite each other's, and each allocation begins a cluster.
//!
//! Three designs make the same allocations and frees. Whatever differs comes from the real
//! allocator.

mod report;

pub use report::report;

use crate::allocator::Allocator;
use crate::parallel::parallel;
use crate::policies::{WithPolicy, Yield};
use folioswap_report::statistics::Summary;
use folioswap_report::{Progress, Show};
use folioswap_slots::{
    CLUSTER_SLOTS, ConfigError, CountLocks, DeviceId, DeviceMask, DeviceSpec, FolioId, HintPerDevice,
    HintPerMask, LogicalCpu, NonfullUnlessDiscard, Order, Policy, RelaxBy, Shadow, Slots, SwapEntry,
    SwaponError,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Instant;

/// Size and number of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Options {
    /// Clusters of each of the two devices.
    pub clusters: u32,
    /// Logical CPUs.
    pub cpus: u32,
    /// Rounds over the whole of memory that a run makes after it has filled the devices.
    pub rounds: u32,
    /// Runs of each kind, with seeds 1, 2, ...
    pub runs: u32,
}

impl Options {
    /// A minute on two cores: two devices of 2 GiB.
    pub fn full() -> Options {
        Options { clusters: 1024, cpus: 16, rounds: 4, runs: 5 }
    }

    /// Some seconds.
    pub fn quick() -> Options {
        Options { clusters: 256, cpus: 8, rounds: 2, runs: 2 }
    }
}

/// Where the hint is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// One per CPU and order, as in the kernel.
    PerCpu,
    /// One per CPU, order and device, as proposed.
    PerDevice,
    /// One per CPU, order and mask.
    PerMask,
}

impl Design {
    /// All designs, the kernel's first.
    pub const ALL: [Design; 3] = [Design::PerCpu, Design::PerDevice, Design::PerMask];

    /// The name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Design::PerCpu => "per CPU (kernel)",
            Design::PerDevice => "per CPU and device",
            Design::PerMask => "per CPU and mask",
        }
    }
}

/// How groups and their masks share the CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Every group may use every device: no masks, the control.
    NoMasks,
    /// Masks, but each CPU runs one group only.
    Pinned,
    /// Two groups, one for each device, take turns on every CPU.
    TwoTiers,
    /// As before, and a third group that may use both devices.
    TwoTiersAndBoth,
    /// As two tiers, with the devices at equal priority, and all groups permitted both but one.
    Overlapping,
}

impl Sharing {
    /// All kinds.
    pub const ALL: [Sharing; 5] = [
        Sharing::NoMasks,
        Sharing::Pinned,
        Sharing::TwoTiers,
        Sharing::TwoTiersAndBoth,
        Sharing::Overlapping,
    ];

    /// The name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::NoMasks => "no masks (control)",
            Sharing::Pinned => "two tiers, a group for each CPU",
            Sharing::TwoTiers => "two tiers, two groups on each CPU",
            Sharing::TwoTiersAndBoth => "two tiers, a third group may use both",
            Sharing::Overlapping => "equal devices, one group may use one",
        }
    }

    /// Masks of the groups, of the fast and the slow device.
    fn masks(self, fast: DeviceId, slow: DeviceId) -> Vec<DeviceMask> {
        let (fast, slow) = (DeviceMask::only(fast), DeviceMask::only(slow));
        match self {
            Sharing::NoMasks => vec![DeviceMask::ALL; 2],
            Sharing::Pinned | Sharing::TwoTiers => vec![fast, slow],
            Sharing::TwoTiersAndBoth => vec![fast, slow, DeviceMask::ALL],
            Sharing::Overlapping => vec![DeviceMask::ALL, slow],
        }
    }

    /// Priorities of the two devices.
    const fn priorities(self) -> [Option<i16>; 2] {
        match self {
            Sharing::NoMasks | Sharing::Overlapping => [None, None],
            Sharing::Pinned | Sharing::TwoTiers | Sharing::TwoTiersAndBoth => [Some(10), Some(5)],
        }
    }
}

/// One kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Groups and masks.
    pub sharing: Sharing,
    /// How much of the devices is in use, percent.
    pub fill: u32,
}

/// The counts of one run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    /// Allocations that the CPU's own cluster served, of all, percent.
    pub hint_hits_percent: f64,
    /// Allocations above order 0 that found no run of slots, percent.
    pub failed_percent: f64,
    /// Allocations that went to the slower device while the faster one was permitted and had room,
    /// of those of groups that may use both, percent. A hint that another group left leads there.
    pub misplaced_percent: f64,
    /// Clusters that hold something, for each cluster that the slots in use would fill, at the end.
    pub clusters_for_one: f64,
    /// Clusters isolated and scanned per allocation.
    pub scanned: f64,
    /// Lock acquisitions per allocation, those of the frees included: clusters, lists, available
    /// list.
    pub locks: [f64; 3],
    /// Time per allocation and free in a run without counting, ns.
    pub ns: f64,
}

/// One design's runs of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// The design.
    pub design: Design,
    /// One for each seed.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// Mean, deviation and extremes of a figure.
    pub fn summary(&self, figure: impl Fn(&Sample) -> f64) -> Summary {
        Summary::of(&self.samples.iter().map(figure).collect::<Vec<_>>())
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum TiersError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// A device cannot be switched on.
    #[error("a device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
}

/// How full the devices are: with room to spare, and nearly full.
const FILLS: [u32; 2] = [60, 90];

/// All cases.
pub fn cases() -> Vec<Case> {
    let fills = |sharing| FILLS.map(|fill| Case { sharing, fill });
    Sharing::ALL.into_iter().flat_map(fills).collect()
}

/// Runs cases with all designs. The outcomes of a case are adjacent.
///
/// # Errors
/// [`TiersError`] for impossible sizes.
pub fn run(options: &Options, cases: &[Case], show: Show) -> Result<Vec<Outcome>, TiersError> {
    let kinds: Vec<(Case, Design)> =
        cases.iter().flat_map(|case| Design::ALL.map(|design| (*case, design))).collect();
    let progress = Progress::new(show, 2 * kinds.len());
    let counted = parallel(&kinds, |(case, design)| {
        let samples: Result<Vec<Sample>, TiersError> =
            seeds(options).map(|seed| count(options, *case, *design, seed)).collect();
        progress.done(&format!("{}, {}", case.sharing.name(), design.name()));
        samples
    });
    let mut outcomes = Vec::new();
    for ((case, design), samples) in kinds.into_iter().zip(counted) {
        outcomes.push(Outcome { case, design, samples: samples? });
    }
    // Times come one at a time, with nothing beside them, and the designs of a case in turn.
    for chunk in outcomes.chunks_mut(Design::ALL.len()) {
        for (index, seed) in seeds(options).enumerate() {
            for outcome in chunk.iter_mut() {
                outcome.samples[index].ns = timed(options, outcome.case, outcome.design, seed)?;
            }
        }
        chunk.iter().for_each(|outcome| progress.done(&format!("time, {}", outcome.case.sharing.name())));
    }
    Ok(outcomes)
}

fn seeds(options: &Options) -> std::ops::RangeInclusive<u64> {
    1..=u64::from(options.runs.max(1))
}

/// The kernel's own order of lists, in every design.
type Kernel = RelaxBy<Yield, NonfullUnlessDiscard>;

impl Design {
    fn apply<T: WithPolicy>(self, task: T) -> T::Output {
        match self {
            Design::PerCpu => task.run::<Kernel>(),
            Design::PerDevice => task.run::<HintPerDevice<Kernel>>(),
            Design::PerMask => task.run::<HintPerMask<Kernel>>(),
        }
    }

    fn apply_counted<T: WithPolicy>(self, task: T) -> T::Output {
        match self {
            Design::PerCpu => task.run::<CountLocks<Kernel>>(),
            Design::PerDevice => task.run::<CountLocks<HintPerDevice<Kernel>>>(),
            Design::PerMask => task.run::<CountLocks<HintPerMask<Kernel>>>(),
        }
    }
}

fn count(options: &Options, case: Case, design: Design, seed: u64) -> Result<Sample, TiersError> {
    design.apply_counted(Task { options, case, seed })
}

fn timed(options: &Options, case: Case, design: Design, seed: u64) -> Result<f64, TiersError> {
    design.apply(Task { options, case, seed }).map(|sample| sample.ns)
}

struct Task<'a> {
    options: &'a Options,
    case: Case,
    seed: u64,
}

/// Pages that a CPU swaps out before it goes on with another group: a reclaim batch.
const BATCH: u64 = 32;

/// A group with what it has on the devices.
struct Group {
    mask: DeviceMask,
    /// Pages that it keeps out.
    target: u64,
    out: u64,
    held: VecDeque<(SwapEntry, Order)>,
}

/// The driver of one run: a single thread, so that every design gets the same requests.
struct Driver<'a, P: Policy> {
    slots: &'a Slots<0, P>,
    random: Xoshiro256PlusPlus,
    /// Allocations and frees.
    operations: u64,
    attempts: u64,
    large: u64,
    failed: u64,
    /// The faster device, if one is.
    fast: Option<DeviceId>,
    /// Allocations of groups that may use both devices of different priority, and those that went
    /// to the slower one in spite of room on the faster.
    may_choose: u64,
    misplaced: u64,
}

impl<P: Policy> Driver<'_, P> {
    /// A CPU swaps a batch of the group out, and lets it come back to its target.
    fn turn(&mut self, cpu: LogicalCpu, group: &mut Group) {
        let mut pages = 0;
        while pages < BATCH {
            // Of the folios, half are of order 0, a quarter each of 16 kB and of 64 kB.
            let order = [0, 0, 2, 4][self.random.random_range(0..4)];
            let Some(order) = Order::new(order) else { return };
            pages += u64::from(order.slots());
            self.large += u64::from(order > Order::ZERO);
            if self.swap_out(cpu, group, order) {
                continue;
            }
            if order > Order::ZERO {
                self.failed += 1;
                // The folio is split.
                for _ in 0..order.slots() {
                    self.swap_out(cpu, group, Order::ZERO);
                }
            }
        }
        while group.out > group.target {
            // Three of four folios that come back are the oldest; the rest is any.
            let any = self.random.random_range(0..4) == 0;
            let index = if any { self.random.random_range(0..group.held.len()) } else { 0 };
            let Some((entry, order)) = group.held.swap_remove_front(index) else { break };
            let put = self.slots.put(entry, order.slots(), |_, _| {});
            debug_assert!(put.is_ok());
            group.out -= u64::from(order.slots());
            self.operations += 1;
        }
    }

    /// Whether the folio found a run of slots.
    fn swap_out(&mut self, cpu: LogicalCpu, group: &mut Group, order: Order) -> bool {
        self.attempts += 1;
        self.operations += 1;
        let folio = FolioId(cpu.0);
        let Ok(entry) = self.slots.alloc_folio(cpu, order, folio, group.mask) else { return false };
        let left = self.slots.cache_remove(entry, order.slots(), folio, Shadow::EMPTY, |_, _| {});
        debug_assert!(left.is_ok());
        if let Some(fast) = self.fast.filter(|_| group.mask == DeviceMask::ALL) {
            self.may_choose += 1;
            let has_room = || self.slots.device_info(fast).is_some_and(|info| info.available);
            self.misplaced += u64::from(entry.device() != fast && has_room());
        }
        group.held.push_back((entry, order));
        group.out += u64::from(order.slots());
        true
    }
}

impl WithPolicy for Task<'_> {
    type Output = Result<Sample, TiersError>;

    fn run<P: Policy>(self) -> Self::Output {
        let Task { options, case, seed } = self;
        let pages = u64::from(options.clusters) * u64::from(CLUSTER_SLOTS);
        let allocator: Allocator<P> = Allocator::new(options.cpus, 2 * options.clusters)?;
        let slots = allocator.slots();
        let [fast, slow] = case.sharing.priorities();
        let on = |priority| slots.swapon(DeviceSpec { priority, ..DeviceSpec::new(pages) });
        let (fast, slow) = (on(fast)?, on(slow)?);
        let full = pages * u64::from(case.fill) / 100;
        let targets = match case.sharing {
            Sharing::NoMasks | Sharing::Pinned | Sharing::TwoTiers => vec![full, full],
            Sharing::TwoTiersAndBoth => vec![full / 2, full / 2, full],
            Sharing::Overlapping => vec![full + full / 2, full / 2],
        };
        let masks = case.sharing.masks(fast, slow);
        let mut groups: Vec<Group> = masks
            .into_iter()
            .zip(targets)
            .map(|(mask, target)| Group { mask, target, out: 0, held: VecDeque::new() })
            .collect();
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut driver = Driver {
            slots,
            random,
            operations: 0,
            attempts: 0,
            large: 0,
            failed: 0,
            // Only where locks are counted, because the look costs time.
            fast: slots.lock_stats().and(case.sharing.priorities()[0]).map(|_| fast),
            may_choose: 0,
            misplaced: 0,
        };
        let turns = 2 * full / BATCH;
        let mut begin = Instant::now();
        let mut operations_before = 0;
        for turn in 0..turns * u64::from(options.rounds + 1) {
            if turn == turns {
                // The devices are as full as they will be.
                (begin, operations_before) = (Instant::now(), driver.operations);
            }
            let cpu = driver.random.random_range(0..options.cpus);
            // Groups follow each other on a CPU at random.
            let group = match case.sharing {
                Sharing::Pinned => cpu as usize % groups.len(),
                _ => driver.random.random_range(0..groups.len()),
            };
            driver.turn(LogicalCpu(cpu), &mut groups[group]);
        }
        let ns = begin.elapsed().as_nanos() as f64;
        let operations = (driver.operations - operations_before).max(1) as f64;
        let stats = slots.stats();
        let attempts = driver.attempts.max(1) as f64;
        let occupied: u64 = [fast, slow]
            .into_iter()
            .filter_map(|id| slots.device_lists(id))
            .map(|lists| u64::from(lists.full) + sum(&lists.frag) + sum(&lists.nonfull))
            .sum();
        let locks = slots.lock_stats().unwrap_or_default();
        Ok(Sample {
            hint_hits_percent: 100.0 * stats.hint_hits as f64 / attempts,
            failed_percent: 100.0 * driver.failed as f64 / driver.large.max(1) as f64,
            misplaced_percent: 100.0 * driver.misplaced as f64 / driver.may_choose.max(1) as f64,
            clusters_for_one: occupied as f64 * f64::from(CLUSTER_SLOTS) / stats.inuse.max(1) as f64,
            scanned: stats.clusters_scanned.iter().sum::<u64>() as f64 / attempts,
            locks: [locks.cluster, locks.list, locks.available].map(|lock| lock.acquired as f64 / attempts),
            ns: ns / operations,
        })
    }
}

fn sum(lists: &[u32]) -> u64 {
    lists.iter().map(|length| u64::from(*length)).sum()
}

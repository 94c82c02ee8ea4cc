//! Series 3: the gain from swapping folios of every order out whole (spec §3).

mod report;
mod scenarios;

pub use report::report;
pub use scenarios::{SCENARIOS, Scenario, ScenarioOutcome, run_scenarios};

use crate::allocator::Allocator;
use crate::experiments::processors;
use crate::policies::{PolicyName, WithPolicy};
use crate::ram_device::{PAGE, RamDevice};
use crate::swapout::{Backing, Cpu, Exit, LargeFolios, Setup, Splits, UnmapBy, huge_bytes};
use folioswap_report::statistics::{Equivalence, Summary, equivalence};
use folioswap_report::{Progress, Show};
use folioswap_slots::{
    CLUSTER_SLOTS, ConfigError, DeviceSpec, LogicalCpu, Order, Policy, Slots, SwaponError, Violation,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::io;
use std::time::{Duration, Instant};

/// Tasks of each thread; 70 tasks on 8 CPUs were published.
const TASKS: u32 = 9;
/// The published limit: 40 GiB for 70 tasks of 1 GiB.
const LIMIT: (u64, u64) = (40, 70);
/// Factor on the tasks' size in runs without bytes: these are too short to be timed otherwise, and
/// larger tasks cost no memory there.
const SLOTS_ONLY_LARGER: u32 = 8;

/// Sizes and number of rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Options {
    /// Rounds, in each of which every kind runs once.
    pub rounds: u32,
    /// Real threads, each on a logical CPU of its own.
    pub threads: u32,
    /// Memory that each of a thread's nine tasks writes, MiB; even.
    pub task_mib: u32,
    /// Greatest difference that counts as none, as a part of 1.
    pub margin: f64,
}

impl Options {
    /// Some minutes.
    pub fn full() -> Options {
        Options { rounds: 12, threads: processors(), task_mib: 64, margin: 0.05 }
    }

    /// About half a minute.
    pub fn quick() -> Options {
        Options { rounds: 5, threads: processors(), task_mib: 16, margin: 0.05 }
    }

    fn task_pages(&self, load: Load) -> u32 {
        let larger = if load == Load::SlotsOnly { SLOTS_ONLY_LARGER } else { 1 };
        (self.task_mib / 2).max(1) * CLUSTER_SLOTS * larger
    }

    /// Slots of the device: half of the written pages, as published (35 of 70 GiB), and for each
    /// thread the clusters and the batch that it may hold.
    fn device_pages(&self, load: Load) -> u64 {
        let threads = u64::from(self.threads.max(1));
        let written = threads * u64::from(TASKS) * u64::from(self.task_pages(load));
        written / 2 + (threads * 8 + 1) * u64::from(CLUSTER_SLOTS)
    }
}

/// The work for each folio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// The kernel gives and takes memory, bytes are written and copied to a device in RAM, and
    /// slots are allocated and freed: the published work without the kernel's reclaim.
    WithMemory,
    /// Bytes are written and copied, and slots allocated and freed; the memory stays.
    WithData,
    /// Slots, page tables and lists only, where a difference between allocators shows most.
    SlotsOnly,
}

/// How folios leave, and how their slots are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Before series 3: only folios of 2 MiB leave whole, and slots are freed one by one.
    Before,
    /// Since series 3: all folios leave whole, and slots are freed in batches.
    After,
    /// As before, but folios of 2 MiB are split too.
    SplitFirst,
    /// As after, with today's order of lists: free clusters first while they are plentiful.
    Today,
}

impl Variant {
    /// All variants.
    pub const ALL: [Variant; 4] = [Variant::Before, Variant::After, Variant::SplitFirst, Variant::Today];

    /// The rule for large folios.
    pub const fn large_folios(self) -> LargeFolios {
        match self {
            Variant::Before => LargeFolios::OnlyHugeWhole,
            Variant::After | Variant::Today => LargeFolios::Whole,
            Variant::SplitFirst => LargeFolios::SplitFirst,
        }
    }

    /// The policy of the allocator. Before and after have the same order of lists, so that they
    /// differ by the series alone.
    pub const fn policy(self) -> PolicyName {
        match self {
            Variant::Before | Variant::SplitFirst => PolicyName::FreePerSlot,
            Variant::After => PolicyName::NonfullFirst,
            Variant::Today => PolicyName::Current,
        }
    }
}

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The work for each folio.
    pub load: Load,
    /// Order in which memory comes.
    pub order: u32,
}

/// The published sizes with each load; the baseline of a load comes first.
pub const CASES: [Case; 9] = {
    const fn case(load: Load, order: u32) -> Case {
        Case { load, order }
    }
    [
        case(Load::WithMemory, 0),
        case(Load::WithMemory, 4),
        case(Load::WithMemory, 9),
        case(Load::WithData, 0),
        case(Load::WithData, 4),
        case(Load::WithData, 9),
        case(Load::SlotsOnly, 0),
        case(Load::SlotsOnly, 4),
        case(Load::SlotsOnly, 9),
    ]
};

/// The fate of the folios of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Folios of the run's order that left whole (`swpout` of that size).
    pub swpout: u64,
    /// Those that found no slots (`swpout_fallback` of that size).
    pub swpout_fallback: u64,
    /// Pages of large folios that left singly.
    pub pages_alone: u64,
    /// Folios that were split.
    pub splits: Splits,
    /// Write requests.
    pub requests: u64,
    /// Single pages that found no slot.
    pub refused: u64,
    /// Frees at the end.
    #[serde(flatten)]
    pub exit: Exit,
    /// Slots in use after everything was freed.
    pub lost: u64,
}

/// The outcome of a variant of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The variant.
    pub variant: Variant,
    /// MB/s written, from the first page to the end of the last task.
    pub rate: Summary,
    /// The rate divided by that of 4 kB before, of the same load and round.
    pub to_baseline: Summary,
    /// Processor time per page written, from its first touch to the end of its task, ns.
    pub processor_ns: Summary,
    /// Processor time per page freed at the end, ns, freeing the task's memory included where there
    /// is some.
    pub free_ns: Summary,
    /// Counts of the last round. They do not depend on time, except where threads take clusters
    /// from one another.
    pub counts: Counts,
}

/// The outcome of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// Outcomes in the order of [`Variant::ALL`].
    pub measured: Vec<Measured>,
    /// Test of the rates, after / before.
    pub equivalence: Option<Equivalence>,
    /// Test of the pages per processor second, after / before.
    pub processor_equivalence: Option<Equivalence>,
}

/// All outcomes.
#[derive(Debug, Clone, Serialize)]
pub struct Outcomes {
    /// Outcomes by case.
    pub cases: Vec<Outcome>,
    /// Outcomes by scenario, size and variant.
    pub scenarios: Vec<ScenarioOutcome>,
    /// The way in which memory was taken away.
    pub unmap_by: UnmapBy,
    /// The part (of 1) of the memory of 2 MB folios that was in huge pages when all was written, in
    /// runs with memory; `None` without such runs.
    pub huge_part: Option<Summary>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ThpSwapoutError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// A device cannot be switched on.
    #[error("a device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
    /// The tasks get no memory.
    #[error("the tasks get no memory: {0}")]
    Memory(#[from] io::Error),
    /// The allocator is not sound after a run.
    #[error("the allocator is not sound after a run: {0:?}")]
    Unsound(Violation),
}

/// Runs all scenarios, and `cases` in rounds. The 4 kB case of each load must be among them, before
/// the others.
///
/// # Errors
/// [`ThpSwapoutError`].
pub fn run(options: &Options, cases: &[Case], show: Show) -> Result<Outcomes, ThpSwapoutError> {
    let scenarios = run_scenarios()?;
    let progress = Progress::new(show, cases.len() * Variant::ALL.len() * options.rounds as usize);
    // All runs share one device, whose memory is taken beforehand: that is no part of a swap-out.
    let with_bytes = cases.iter().filter(|case| case.load != Load::SlotsOnly);
    let mut device =
        RamDevice::new(with_bytes.map(|case| options.device_pages(case.load)).max().unwrap_or(1));
    device.populate();
    let mut runs: Vec<Vec<Vec<Measurement>>> = vec![vec![Vec::new(); Variant::ALL.len()]; cases.len()];
    let mut unmap_by = UnmapBy::CallPerRange;
    let mut huge_parts = Vec::new();
    for round in 0..options.rounds.max(1) as usize {
        for (case, runs) in cases.iter().zip(&mut runs) {
            for step in 0..Variant::ALL.len() {
                // The variants take turns in being first, so that a drift of the machine falls on
                // all.
                let which = (round + step) % Variant::ALL.len();
                let variant = Variant::ALL[which];
                let task = Task { options, case, variant, device: &device };
                let run = variant.policy().apply(task)?;
                unmap_by = run.unmap_by;
                huge_parts.extend(run.huge_part);
                runs[which].push(run);
                progress.done(&format!("{case:?} {variant:?}"));
            }
        }
    }
    let cases = cases.iter().zip(&runs).map(|(case, variants)| {
        let of_load = |other: &&Case| other.load == case.load && other.order == 0;
        let baseline = cases.iter().position(|other| of_load(&other)).map_or(variants, |index| &runs[index]);
        outcome(*case, variants, &baseline[0], options.margin)
    });
    let huge_part = (!huge_parts.is_empty()).then(|| Summary::of(&huge_parts));
    Ok(Outcomes { cases: cases.collect(), scenarios, unmap_by, huge_part })
}

fn outcome(case: Case, variants: &[Vec<Measurement>], baseline: &[Measurement], margin: f64) -> Outcome {
    let measured = Variant::ALL.iter().zip(variants).map(|(variant, runs)| {
        let each =
            |figure: fn(&Measurement) -> f64| Summary::of(&runs.iter().map(figure).collect::<Vec<_>>());
        let ratios: Vec<f64> = runs.iter().zip(baseline).map(|(run, base)| run.rate / base.rate).collect();
        Measured {
            variant: *variant,
            rate: each(|run| run.rate),
            to_baseline: Summary::of(&ratios),
            processor_ns: each(|run| run.processor_ns),
            free_ns: each(|run| run.free_ns),
            counts: runs.last().map_or_else(Counts::default, |run| run.counts),
        }
    });
    let compare = |figure: fn(&Measurement) -> f64| {
        let pair = |(before, after): (&Measurement, &Measurement)| (figure(before), figure(after));
        let pairs: Vec<(f64, f64)> = variants[0].iter().zip(&variants[1]).map(pair).collect();
        equivalence(&pairs, margin)
    };
    Outcome {
        case,
        measured: measured.collect(),
        equivalence: compare(|run| run.rate),
        processor_equivalence: compare(|run| 1.0 / run.processor_ns),
    }
}

/// Runs `work`; returns the processor time of this thread for it, and its result.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let begin = now();
    let result = work();
    (now() - begin, result)
}

/// Sums up the counts of the allocator and of its CPUs after all tasks ended.
fn count<P: Policy>(
    slots: &Slots<0, P>,
    order: Order,
    cpus: &[Cpu<'_, P>],
    exits: &[Exit],
) -> Result<Counts, Violation> {
    let stats = slots.stats();
    let report = slots.validate()?;
    let swpout = stats.allocated[order.index()];
    let mut counts = Counts {
        swpout,
        swpout_fallback: if order == Order::ZERO { 0 } else { stats.fallback[order.index()] },
        pages_alone: if order == Order::ZERO { 0 } else { stats.allocated[0] },
        lost: report.inuse - report.slot_cached,
        ..Counts::default()
    };
    for cpu in cpus {
        let splits = cpu.splits();
        counts.splits.by_rule += splits.by_rule;
        counts.splits.partially_mapped += splits.partially_mapped;
        counts.splits.no_slots += splits.no_slots;
        counts.splits.partly_advised += splits.partly_advised;
        counts.requests += cpu.requests();
        counts.refused += cpu.refused();
    }
    for exit in exits {
        counts.exit.pages += exit.pages;
        counts.exit.calls += exit.calls;
        counts.exit.lookups += exit.lookups;
    }
    Ok(counts)
}

#[derive(Clone)]
struct Measurement {
    rate: f64,
    processor_ns: f64,
    free_ns: f64,
    huge_part: Option<f64>,
    counts: Counts,
    unmap_by: UnmapBy,
}

struct Task<'a> {
    options: &'a Options,
    case: &'a Case,
    variant: Variant,
    device: &'a RamDevice,
}

impl WithPolicy for Task<'_> {
    type Output = Result<Measurement, ThpSwapoutError>;

    fn run<P: Policy>(self) -> Self::Output {
        let Task { options, case, variant, device } = self;
        let threads = options.threads.max(1);
        let order = Order::new(case.order).unwrap_or(Order::ZERO);
        let task_pages = options.task_pages(case.load);
        let device_pages = options.device_pages(case.load);
        let allocator: Allocator<P> =
            Allocator::new(threads, device_pages.div_ceil(u64::from(CLUSTER_SLOTS)) as u32)?;
        allocator.slots().swapon(DeviceSpec::new(device_pages))?;
        let setup = |cpu| Setup {
            slots: allocator.slots(),
            logical: LogicalCpu(cpu),
            large_folios: variant.large_folios(),
            order,
            tasks: TASKS,
            task_pages,
            limit: (u64::from(TASKS) * u64::from(task_pages) * LIMIT.0 / LIMIT.1) as u32,
            backing: match case.load {
                Load::WithMemory => Backing::Paged(device),
                Load::WithData => Backing::Resident(device),
                Load::SlotsOnly => Backing::None,
            },
        };
        let mut cpus: Vec<Cpu<'_, P>> =
            (0..threads).map(|cpu| Cpu::new(&setup(cpu))).collect::<io::Result<_>>()?;
        let huge_before = huge_bytes();
        let (wall_written, written) = on_threads(&mut cpus, Cpu::write_all);
        let huge = huge_bytes().saturating_sub(huge_before);
        let resident: u64 = cpus.iter().map(|cpu| u64::from(cpu.resident())).sum();
        let (wall_ended, ended) = on_threads(&mut cpus, Cpu::exit);
        let exits: Vec<Exit> = ended.iter().map(|(_, exit)| *exit).collect();
        let counts = count(allocator.slots(), order, &cpus, &exits).map_err(ThpSwapoutError::Unsound)?;
        let freeing: Duration = ended.iter().map(|(time, _)| *time).sum();
        let processor = freeing + written.iter().map(|(time, ())| *time).sum::<Duration>();
        let pages = f64::from(threads) * f64::from(TASKS) * f64::from(task_pages);
        let huge_run = case.load == Load::WithMemory && order == Order::MAX;
        Ok(Measurement {
            rate: pages * PAGE as f64 / 1e6 / (wall_written + wall_ended).as_secs_f64(),
            processor_ns: processor.as_secs_f64() * 1e9 / pages,
            free_ns: freeing.as_secs_f64() * 1e9 / counts.exit.pages.max(1) as f64,
            huge_part: huge_run.then(|| huge as f64 / (resident.max(1) * PAGE as u64) as f64),
            counts,
            unmap_by: cpus.first().map_or(UnmapBy::CallPerRange, Cpu::unmap_by),
        })
    }
}

/// Does `work` on every CPU at once, each on a thread of its own. Returns the wall time, and each
/// thread's processor time and result.
fn on_threads<'a, P: Policy, T: Send>(
    cpus: &mut [Cpu<'a, P>],
    work: fn(&mut Cpu<'a, P>) -> T,
) -> (Duration, Vec<(Duration, T)>) {
    let begin = Instant::now();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter_mut().map(|cpu| scope.spawn(move || timed(|| work(cpu)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a task does not panic")).collect()
    });
    (begin.elapsed(), results)
}

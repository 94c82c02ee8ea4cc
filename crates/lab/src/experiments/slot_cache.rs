//! Series 2: whether anything is slower without the slot cache, and how many slots the cache pinned
//! (spec §2).

mod allocation;

pub use allocation::Allocation;

use crate::allocator::Allocator;
use crate::experiments::processors;
use crate::memory::Memory;
use crate::policies::WithPolicy;
use crate::ram_device::{PAGE, RamDevice};
use folioswap_report::statistics::{Equivalence, Summary, equivalence};
use folioswap_report::{Bar, Chart, Progress, Report, Show, Table};
use folioswap_slots::{
    CLUSTER_SLOTS, ConfigError, DeviceMask, DeviceSpec, FolioId, LogicalCpu, Order, Policy, Shadow, Slots,
    SwapEntry, SwaponError,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Instant;

/// Sizes and number of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Options {
    /// Rounds, in each of which every allocator runs once.
    pub pairs: u32,
    /// Real threads, each on a logical CPU of its own.
    pub threads: u32,
    /// Memory that each thread uses, MiB.
    pub task_mib: u32,
    /// Memory that each thread touches per run, MiB.
    pub touched_mib: u32,
    /// Greatest difference that counts as none, as a part of 1.
    pub margin: f64,
}

impl Options {
    /// As many pairs as were published, 16; about two minutes.
    pub fn full() -> Options {
        Options { pairs: 16, threads: processors(), task_mib: 256, touched_mib: 1024, margin: 0.05 }
    }

    /// About half a minute.
    pub fn quick() -> Options {
        Options { pairs: 8, threads: processors(), task_mib: 128, touched_mib: 384, margin: 0.05 }
    }
}

/// The order in which a task touches its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// From start to end, repeatedly.
    Sequential,
    /// At random.
    Random,
}

/// The work for each folio that goes out or comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Slots are allocated and freed, and the bytes copied to and from a device in RAM.
    WithData,
    /// Slots only, where a difference would show most.
    SlotsOnly,
}

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The order of touches.
    pub pattern: Pattern,
    /// Order of all folios.
    pub order: u32,
    /// The work for each folio.
    pub load: Load,
}

/// The published cases, each with and without data.
pub const CASES: [Case; 8] = {
    const fn case(pattern: Pattern, order: u32, load: Load) -> Case {
        Case { pattern, order, load }
    }
    [
        case(Pattern::Random, 0, Load::WithData),
        case(Pattern::Random, 4, Load::WithData),
        case(Pattern::Sequential, 0, Load::WithData),
        case(Pattern::Sequential, 4, Load::WithData),
        case(Pattern::Random, 0, Load::SlotsOnly),
        case(Pattern::Random, 4, Load::SlotsOnly),
        case(Pattern::Sequential, 0, Load::SlotsOnly),
        case(Pattern::Sequential, 4, Load::SlotsOnly),
    ]
};

/// The outcome of a case. Arrays are by [`Allocation::ALL`].
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// Touched MB/s.
    pub rates: [Summary; 4],
    /// Test of the ratio to *before*.
    pub equivalence: [Option<Equivalence>; 4],
    /// Peak of the slots in slot caches at the end of a run.
    pub pinned: [u64; 4],
}

impl Outcome {
    /// Test of after / before: the claim of the series.
    pub fn of_the_series(&self) -> Option<Equivalence> {
        self.equivalence[Allocation::After as usize]
    }
}

/// Slots that are pinned by 96 logical CPUs that allocated one slot each.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
pub struct Pinned {
    /// With the slot cache.
    pub before: u64,
    /// Without it.
    pub after: u64,
}

/// All outcomes.
#[derive(Debug, Clone, Serialize)]
pub struct Outcomes {
    /// Outcomes by case.
    pub cases: Vec<Outcome>,
    /// Slots that 96 logical CPUs pin.
    pub pinned_96: Pinned,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SlotCacheError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// A device cannot be switched on.
    #[error("a device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
}

/// Runs all cases.
///
/// # Errors
/// [`SlotCacheError`] for impossible sizes.
pub fn run(options: &Options, cases: &[Case], show: Show) -> Result<Outcomes, SlotCacheError> {
    let progress = Progress::new(show, cases.len() * options.pairs as usize);
    let mut outcomes = Vec::new();
    for case in cases {
        let mut rounds: Vec<[f64; 4]> = Vec::new();
        let mut pinned = [0; 4];
        for round in 0..options.pairs {
            let mut rates = [0.0; 4];
            for step in 0..Allocation::ALL.len() {
                // They take turns in being first, and every other round goes backwards, so that a
                // drift of the machine falls on all, and each is before and behind *before*.
                let at = (round as usize / 2 + step) % Allocation::ALL.len();
                let which = if round % 2 == 0 { at } else { Allocation::ALL.len() - 1 - at };
                let task = Task { options, case, seed: u64::from(round) };
                let (rate, cached) = Allocation::ALL[which].apply(task)?;
                rates[which] = rate;
                pinned[which] = pinned[which].max(cached);
            }
            rounds.push(rates);
            progress.done(&format!("{case:?}"));
        }
        let column = |which: usize| rounds.iter().map(|rates| rates[which]).collect::<Vec<_>>();
        let pairs = |which: usize| rounds.iter().map(|rates| (rates[0], rates[which])).collect::<Vec<_>>();
        outcomes.push(Outcome {
            case: *case,
            rates: std::array::from_fn(|which| Summary::of(&column(which))),
            equivalence: std::array::from_fn(|which| equivalence(&pairs(which), options.margin)),
            pinned,
        });
    }
    let pinned_96 =
        Pinned { before: Allocation::Before.apply(NinetySix)?, after: Allocation::Today.apply(NinetySix)? };
    Ok(Outcomes { cases: outcomes, pinned_96 })
}

struct NinetySix;

impl WithPolicy for NinetySix {
    type Output = Result<u64, SlotCacheError>;
    fn run<P: Policy>(self) -> Self::Output {
        let allocator: Allocator<P> = Allocator::new(96, 512)?;
        allocator.slots().swapon(DeviceSpec::new(512 * u64::from(CLUSTER_SLOTS)))?;
        for cpu in 0..96 {
            let taken =
                allocator.slots().alloc_folio(LogicalCpu(cpu), Order::ZERO, FolioId(cpu), DeviceMask::ALL);
            assert!(taken.is_ok(), "an empty device has room");
        }
        Ok(allocator.slots().stats().inuse - 96)
    }
}

struct Task<'a> {
    options: &'a Options,
    case: &'a Case,
    seed: u64,
}

impl WithPolicy for Task<'_> {
    type Output = Result<(f64, u64), SlotCacheError>;

    fn run<P: Policy>(self) -> Self::Output {
        let Task { options, case, seed } = self;
        let threads = options.threads.max(1);
        let order = Order::new(case.order).unwrap_or(Order::ZERO);
        // The proportions are the published ones: 31 tasks of 1 G within 12 G, 32 G of swap.
        let folios = u64::from(options.task_mib) * 256 / u64::from(order.slots());
        let resident = (folios * 12 / 31).max(2);
        let pages = u64::from(threads) * u64::from(options.task_mib) * 256 * 32 / 31 + 4096;
        let allocator: Allocator<P> =
            Allocator::new(threads, pages.div_ceil(u64::from(CLUSTER_SLOTS)) as u32)?;
        allocator.slots().swapon(DeviceSpec::new(pages))?;
        let disk = match case.load {
            Load::WithData => Some(RamDevice::new(pages)),
            Load::SlotsOnly => None,
        };
        let touches = u64::from(options.touched_mib) * 256 / u64::from(order.slots());
        let mut workers: Vec<Worker<'_, P>> = (0..threads)
            .map(|cpu| {
                let frames =
                    disk.is_some().then(|| Memory::zeroed(resident as usize * order.slots() as usize * PAGE));
                Worker {
                    slots: allocator.slots(),
                    disk: disk.as_ref(),
                    cpu: LogicalCpu(cpu),
                    order,
                    pattern: case.pattern,
                    folios: vec![FolioState::New; folios as usize],
                    oldest: VecDeque::with_capacity(resident as usize),
                    resident,
                    frames,
                    random: Xoshiro256PlusPlus::seed_from_u64(seed << 32 | u64::from(cpu)),
                    next: 0,
                }
            })
            .collect();
        // All memory is touched once first, as `usemem --init-time` does before the clock starts.
        let mut seconds = 0.0;
        for timed in [false, true] {
            let begin = Instant::now();
            std::thread::scope(|scope| {
                for worker in &mut workers {
                    scope.spawn(move || if timed { worker.run(touches) } else { worker.initialise() });
                }
            });
            seconds = begin.elapsed().as_secs_f64();
        }
        let cached = allocator.slots().stats().slot_cached;
        let megabytes = f64::from(options.touched_mib) * f64::from(threads) * 1.048_576;
        Ok((megabytes / seconds, cached))
    }
}

/// The state of a folio of a task.
#[derive(Clone, Copy)]
enum FolioState {
    /// Never touched.
    New,
    /// In this frame of the task's memory.
    Frame(u32),
    /// On the device.
    Swapped(SwapEntry),
}

/// A task on a thread and a logical CPU of its own, and on cache lines of its own. Its oldest folio
/// goes out when another one must come in.
#[repr(align(128))]
struct Worker<'a, P: Policy> {
    slots: &'a Slots<0, P>,
    disk: Option<&'a RamDevice>,
    cpu: LogicalCpu,
    order: Order,
    pattern: Pattern,
    folios: Vec<FolioState>,
    oldest: VecDeque<u32>,
    resident: u64,
    frames: Option<Memory>,
    random: Xoshiro256PlusPlus,
    next: u32,
}

impl<P: Policy> Worker<'_, P> {
    fn initialise(&mut self) {
        for folio in 0..self.folios.len() as u32 {
            self.touch(folio);
        }
    }

    fn run(&mut self, touches: u64) {
        let count = self.folios.len() as u32;
        for _ in 0..touches {
            let folio = match self.pattern {
                Pattern::Sequential => {
                    self.next = (self.next + 1) % count;
                    self.next
                }
                Pattern::Random => self.random.random_range(0..count),
            };
            self.touch(folio);
        }
    }

    fn touch(&mut self, folio: u32) {
        if let FolioState::Frame(_) = self.folios[folio as usize] {
            return;
        }
        let frame = if (self.oldest.len() as u64) < self.resident {
            self.oldest.len() as u32
        } else {
            self.swap_out_oldest()
        };
        if let FolioState::Swapped(entry) = self.folios[folio as usize] {
            self.copy(entry, frame, Direction::In);
            let put = self.slots.put(entry, self.order.slots(), |_, _| {});
            debug_assert!(put.is_ok());
        }
        self.folios[folio as usize] = FolioState::Frame(frame);
        self.oldest.push_back(folio);
    }

    fn swap_out_oldest(&mut self) -> u32 {
        let victim = self.oldest.pop_front().expect("the resident part is full");
        let FolioState::Frame(frame) = self.folios[victim as usize] else {
            unreachable!("on the list of resident folios")
        };
        let folio = FolioId(victim);
        let entry = self.slots.alloc_folio(self.cpu, self.order, folio, DeviceMask::ALL);
        let entry = entry.expect("the device is larger than all tasks together");
        self.copy(entry, frame, Direction::Out);
        let left = self.slots.cache_remove(entry, self.order.slots(), folio, Shadow::EMPTY, |_, _| {});
        debug_assert!(left.is_ok());
        self.folios[victim as usize] = FolioState::Swapped(entry);
        frame
    }

    fn copy(&self, entry: SwapEntry, frame: u32, direction: Direction) {
        let (Some(disk), Some(frames)) = (self.disk, &self.frames) else { return };
        let bytes = self.order.slots() as usize * PAGE;
        let in_memory = frame as usize * bytes;
        assert!(in_memory + bytes <= frames.bytes());
        // SAFETY: the frame was just checked to lie inside the memory.
        let memory = unsafe { frames.start().add(in_memory) };
        // SAFETY: the frame is this worker's and no part of the disk. The slots belong to this
        // worker from their allocation to their free, so no other thread accesses their bytes.
        unsafe {
            match direction {
                Direction::In => disk.read(entry, self.order.slots(), memory),
                Direction::Out => disk.write(entry, self.order.slots(), memory),
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

fn published(case: &Case) -> [&'static str; 2] {
    match (case.pattern, case.order, case.load) {
        (Pattern::Random, 0, Load::WithData) => ["424.9 ±24.4 MB/s", "414.7 ±34.6 MB/s"],
        (Pattern::Random, 4, Load::WithData) => ["163.3 ±11.6 MB/s", "167.3 ±18.4 MB/s"],
        (Pattern::Sequential, 0, Load::WithData) => ["6150 ±103 MB/s", "6321 ±116 MB/s"],
        _ => ["-", "-"],
    }
}

fn rates(options: &Options, outcomes: &Outcomes) -> Table {
    let mut table = Table::new(
        format!(
            "Touched MB/s; equivalence of after / before at 5 % (90 % interval) with a margin of {} %",
            options.margin * 100.0
        ),
        &[
            "workload",
            "published before",
            "published after",
            "ours before (6.14)",
            "ours after (6.15)",
            "after / before",
            "90 % interval",
            "verdict",
            "nonfull first (6.18) / before",
            "today / before",
            "pinned before",
            "after",
        ],
    );
    for outcome in &outcomes.cases {
        let case = &outcome.case;
        let size = if case.order == 0 { "4 kB" } else { "64 kB" };
        let load = if case.load == Load::WithData { "with data" } else { "slots only" };
        let [before, after] = published(case);
        let rate = |summary: &Summary| format!("{:.0} ±{:.0}", summary.mean, summary.deviation);
        let (ratio, interval, verdict) =
            outcome.of_the_series().map_or(("-".into(), "-".into(), "-"), |test| {
                let interval = format!("{:.3} to {:.3}", test.interval.0, test.interval.1);
                (format!("{:.3}", test.ratio), interval, test.verdict.name())
            });
        let later = |which: Allocation| {
            outcome.equivalence[which as usize].map_or_else(
                || "-".to_owned(),
                |test| format!("{:.3} ({:.3} to {:.3})", test.ratio, test.interval.0, test.interval.1),
            )
        };
        table.rows.push(vec![
            format!("{:?} {size}, {load}", case.pattern),
            before.to_owned(),
            after.to_owned(),
            rate(&outcome.rates[0]),
            rate(&outcome.rates[1]),
            ratio,
            interval,
            verdict.to_owned(),
            later(Allocation::NonfullFirst),
            later(Allocation::Today),
            outcome.pinned[0].to_string(),
            outcome.pinned[1].to_string(),
        ]);
    }
    table
}

/// Makes the report.
pub fn report(options: &Options, outcomes: &Outcomes) -> Report {
    Report {
        experiment: "slot-cache",
        setup: vec![
            format!(
                "Series 2 (slot cache): {} real threads, each a task of {} MiB within {:.0} MiB, {} MiB touched per run; published: 31 tasks of 1 GiB within 12 GiB (scale 1/{:.0}); n = {} rounds.",
                options.threads,
                options.task_mib,
                f64::from(options.task_mib) * 12.0 / 31.0,
                options.touched_mib,
                31.0 * 1024.0 / (f64::from(options.threads) * f64::from(options.task_mib)),
                options.pairs
            ),
            "before and after differ by the series alone: both scan all fragment clusters and take free ones first, as Linux 6.14 did. 6.18 has series 1 beside it, with the order of lists as it was merged; today has free clusters first while they are plentiful, which is our own. With data: bytes are copied to and from a device in RAM.".to_owned(),
            format!(
                "96 logical CPUs that allocated one slot each pin {} further slots with the cache, {} without.",
                outcomes.pinned_96.before, outcomes.pinned_96.after
            ),
        ],
        tables: vec![rates(options, outcomes)],
        not_comparable: vec![
            "Absolute rates: the published ones have page faults, reclaim and page tables in them; ours are slots and copies alone, so that a difference between allocators shows more.".to_owned(),
            "Contention: 32 CPUs there, the processors that exist here.".to_owned(),
            "System time of the builds (6446 -> 6409 s with 4 kB, 6842 -> 6438 s with 64 kB) has no counterpart here.".to_owned(),
            "64 kB never used the slot cache: these rows show how large a difference the measurement itself makes (and the rotation per 64).".to_owned(),
        ],
        results: serde_json::json!({ "options": options, "outcomes": outcomes }),
        chart: Chart {
            title: "Without the slot cache against with it (1 = equal; the line is the 90 % interval)".to_owned(),
            axis: "after / before".to_owned(),
            bars: bars(outcomes),
        },
    }
}

/// The ratios with their intervals.
fn bars(outcomes: &Outcomes) -> Vec<Bar> {
    outcomes
        .cases
        .iter()
        .filter_map(|outcome| {
            let test = outcome.of_the_series()?;
            Some(Bar {
                group: format!("{:?} {}", outcome.case.pattern, outcome.case.order),
                label: format!("{:?}", outcome.case.load),
                value: test.ratio,
                spread: test.interval,
            })
        })
        .collect()
}

//! Series 4: whether devices of equal priority share the load (spec §4).

use crate::allocator::Allocator;
use crate::parallel::parallel;
use crate::peer::DeviceUse;
use crate::policies::{PolicyName, WithPolicy};
use folioswap_report::statistics::Summary;
use folioswap_report::{Bar, Chart, Progress, Report, Show, Table};
use folioswap_slots::{
    CLUSTER_SLOTS, ConfigError, DeviceMask, DeviceSpec, FolioId, LogicalCpu, NODES_MAX, Node, NodePreference,
    Order, Policy, Shadow, SwapEntry, SwaponError,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use std::collections::VecDeque;

/// Tasks of the published workload, `usemem -n 31 2G` within 4 GiB.
const TASKS: u32 = 31;
const NODES: u32 = 8;
const CPUS: u32 = 32;
const DEVICES: usize = 4;
const GIB: u64 = 1 << 18;
/// Pages that a task swaps out before the next one runs: a reclaim batch.
const BATCH: u32 = 32;

/// Scale and number of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Options {
    /// Divisor of the sizes of devices and tasks, but not of the CPUs.
    pub scale: u32,
    /// Runs of each kind.
    pub runs: u32,
}

impl Options {
    /// The published sizes: 64 GiB of slots.
    pub fn full() -> Options {
        Options { scale: 1, runs: 3 }
    }

    /// Some seconds.
    pub fn quick() -> Options {
        Options { scale: 16, runs: 3 }
    }
}

/// One arrangement of four devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Arrangement {
    /// The name in the table.
    pub name: &'static str,
    /// The policy.
    pub policy: PolicyName,
    /// Priorities in the order of swapon; `None` is the default.
    pub priorities: [Option<i16>; DEVICES],
    /// Node of each device, where the machine tells.
    pub nodes: [Option<u32>; DEVICES],
    /// Order of the folios.
    pub order: u32,
    /// The moment of the published run that is shown.
    pub moment: Moment,
}

/// How much is swapped out when the use is read. The sums of the published uses are of two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// 25.1 GiB, on the way up: the published use *before*.
    Half,
    /// 50.4 GiB, and a quarter of it again: the published use *after*.
    Whole,
}

impl Moment {
    /// GiB swapped out, in tenths.
    const fn tenths_of_gib(self) -> u64 {
        match self {
            Moment::Half => 251,
            Moment::Whole => 504,
        }
    }
}

const NO_NODES: [Option<u32>; DEVICES] = [None; DEVICES];
/// The series puts zram0 to zram3 on the first four of eight nodes.
const PUBLISHED_NODES: [Option<u32>; DEVICES] = [Some(0), Some(1), Some(2), Some(3)];
const DEFAULT: [Option<i16>; DEVICES] = [None; DEVICES];
const EQUAL: [Option<i16>; DEVICES] = [Some(5); DEVICES];
const DIFFERENT: [Option<i16>; DEVICES] = [Some(1), Some(4), Some(3), Some(2)];

/// All arrangements.
pub const ARRANGEMENTS: [Arrangement; 8] = [
    Arrangement {
        name: "before: default priorities, devices on nodes 0 to 3 of 8, at 25.1 G",
        policy: PolicyName::DrainedFirst,
        priorities: DEFAULT,
        nodes: PUBLISHED_NODES,
        order: 0,
        moment: Moment::Half,
    },
    Arrangement {
        name: "before: default priorities, devices without node",
        policy: PolicyName::DrainedFirst,
        priorities: DEFAULT,
        nodes: NO_NODES,
        order: 0,
        moment: Moment::Whole,
    },
    Arrangement {
        name: "before: default priorities, devices on nodes 0 to 3 of 8",
        policy: PolicyName::DrainedFirst,
        priorities: DEFAULT,
        nodes: PUBLISHED_NODES,
        order: 0,
        moment: Moment::Whole,
    },
    Arrangement {
        name: "before: equal priorities given",
        policy: PolicyName::DrainedFirst,
        priorities: EQUAL,
        nodes: NO_NODES,
        order: 0,
        moment: Moment::Whole,
    },
    Arrangement {
        name: "after: default priorities",
        policy: PolicyName::Current,
        priorities: DEFAULT,
        nodes: NO_NODES,
        order: 0,
        moment: Moment::Whole,
    },
    Arrangement {
        name: "after: default priorities, 64 kB folios",
        policy: PolicyName::Current,
        priorities: DEFAULT,
        nodes: NO_NODES,
        order: 4,
        moment: Moment::Whole,
    },
    Arrangement {
        name: "after: equal priorities given",
        policy: PolicyName::Current,
        priorities: EQUAL,
        nodes: NO_NODES,
        order: 0,
        moment: Moment::Whole,
    },
    Arrangement {
        name: "after: priorities 1, 4, 3, 2 given",
        policy: PolicyName::Current,
        priorities: DIFFERENT,
        nodes: NO_NODES,
        order: 0,
        moment: Moment::Whole,
    },
];

/// The outcome of an arrangement.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The arrangement.
    pub arrangement: Arrangement,
    /// Slots in use of each device for each run, in the order of swapon.
    pub used: Vec<[u64; DEVICES]>,
    /// Slots of each device.
    pub pages: u64,
    /// The most that equal devices may differ by, slots: 1 % of the mean, or a cluster per CPU and
    /// order in use, whichever is larger.
    pub tolerance: u64,
}

impl Outcome {
    /// Largest difference between two devices over all runs, slots.
    pub fn difference(&self) -> u64 {
        let difference = |used: &[u64; DEVICES]| {
            used.iter().max().copied().unwrap_or(0) - used.iter().min().copied().unwrap_or(0)
        };
        self.used.iter().map(difference).max().unwrap_or(0)
    }

    /// Whether no device is used before all of higher priority are full, apart from clusters that
    /// CPUs still hold.
    pub fn strictly_ordered(&self) -> bool {
        let slack = u64::from(TASKS) * u64::from(CLUSTER_SLOTS);
        let mut order: Vec<usize> = (0..DEVICES).collect();
        order.sort_by_key(|device| std::cmp::Reverse(self.arrangement.priorities[*device]));
        self.used.iter().all(|used| {
            order.windows(2).all(|pair| used[pair[1]] == 0 || used[pair[0]] + slack >= self.pages)
        })
    }
}

/// Whether equal devices share the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// They differ by no more than the tolerance.
    Equal,
    /// They differ by more.
    Unequal,
    /// The tolerance is larger than what a device holds in the mean: even an empty device would be
    /// within it.
    TooSmallToTell,
}

impl Sharing {
    /// The verdict on devices that hold `used` slots and differ by `difference`.
    pub fn of(used: &[u64], difference: u64, tolerance: u64) -> Sharing {
        let mean = used.iter().sum::<u64>() / used.len().max(1) as u64;
        match difference <= tolerance {
            false => Sharing::Unequal,
            true if tolerance >= mean => Sharing::TooSmallToTell,
            true => Sharing::Equal,
        }
    }

    /// The word in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::Equal => "equal",
            Sharing::Unequal => "unequal",
            Sharing::TooSmallToTell => "too small to tell",
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RoundRobinError {
    /// The allocator refuses the sizes.
    #[error("the allocator cannot be made: {0}")]
    Config(#[from] ConfigError),
    /// A device cannot be switched on.
    #[error("a device cannot be switched on: {0}")]
    Swapon(#[from] SwaponError),
}

/// Runs all arrangements.
///
/// # Errors
/// [`RoundRobinError`] for impossible sizes.
pub fn run(options: &Options, show: Show) -> Result<Vec<Outcome>, RoundRobinError> {
    let runs: Vec<(Arrangement, u64)> = ARRANGEMENTS
        .iter()
        .flat_map(|arrangement| (1..=u64::from(options.runs)).map(move |seed| (*arrangement, seed)))
        .collect();
    let progress = Progress::new(show, runs.len());
    let results = parallel(&runs, |(arrangement, seed)| {
        let task = Task { arrangement, scale: u64::from(options.scale.max(1)), seed: *seed };
        let result = arrangement.policy.apply(task);
        progress.done(arrangement.name);
        result
    });
    let results: Vec<([u64; DEVICES], u64)> = results.into_iter().collect::<Result<_, _>>()?;
    let each = options.runs.max(1) as usize;
    let outcome = |runs: &[(Arrangement, u64)], results: &[([u64; DEVICES], u64)]| {
        let used: Vec<[u64; DEVICES]> = results.iter().map(|(used, _)| *used).collect();
        let mean = used.iter().flatten().sum::<u64>() / (used.len() * DEVICES) as u64;
        let tolerance = (mean / 100).max(u64::from(TASKS) * u64::from(CLUSTER_SLOTS));
        Outcome { arrangement: runs[0].0, used, pages: results[0].1, tolerance }
    };
    Ok(runs.chunks(each).zip(results.chunks(each)).map(|(runs, results)| outcome(runs, results)).collect())
}

struct Task<'a> {
    arrangement: &'a Arrangement,
    scale: u64,
    seed: u64,
}

impl WithPolicy for Task<'_> {
    type Output = Result<([u64; DEVICES], u64), RoundRobinError>;

    fn run<P: Policy>(self) -> Self::Output {
        let pages = 16 * GIB / self.scale;
        let clusters = pages.div_ceil(u64::from(CLUSTER_SLOTS)) as u32 * DEVICES as u32;
        let allocator: Allocator<P> = Allocator::new(CPUS, clusters)?;
        let slots = allocator.slots();
        if P::NODE_PREFERENCE == NodePreference::On {
            for cpu in 0..CPUS {
                if let Some(node) = Node::new(cpu % NODES.min(NODES_MAX as u32)) {
                    slots.set_node(LogicalCpu(cpu), node);
                }
            }
        }
        let mut ids = [None; DEVICES];
        for (device, id) in ids.iter_mut().enumerate() {
            let priority = self.arrangement.priorities[device];
            let node = self.arrangement.nodes[device].and_then(Node::new);
            *id = Some(slots.swapon(DeviceSpec { priority, node, ..DeviceSpec::new(pages) })?);
        }
        let order = Order::new(self.arrangement.order).unwrap_or(Order::ZERO);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut tasks: Vec<VecDeque<SwapEntry>> = (0..TASKS).map(|_| VecDeque::new()).collect();
        let swap_out = |task: &mut VecDeque<SwapEntry>, cpu: u32| {
            let folio = FolioId(cpu);
            for _ in 0..(BATCH / order.slots()).max(1) {
                let Ok(entry) = slots.alloc_folio(LogicalCpu(cpu), order, folio, DeviceMask::ALL) else {
                    return;
                };
                let left = slots.cache_remove(entry, order.slots(), folio, Shadow::EMPTY, |_, _| {});
                debug_assert!(left.is_ok());
                task.push_back(entry);
            }
        };
        // The first pass swaps out the published use of 64 GiB. The second goes over a quarter of
        // it: each page that comes in sends one out.
        let moment = self.arrangement.moment;
        let wanted = moment.tenths_of_gib() * GIB / 10 / self.scale;
        let batches = wanted / u64::from(BATCH.max(order.slots()));
        for _ in 0..batches {
            let cpu = random.random_range(0..TASKS);
            swap_out(&mut tasks[cpu as usize], cpu);
        }
        let second_pass = if moment == Moment::Whole { batches / 4 } else { 0 };
        for _ in 0..second_pass {
            let cpu = random.random_range(0..TASKS);
            let task = &mut tasks[cpu as usize];
            for _ in 0..(BATCH / order.slots()).max(1) {
                let Some(entry) = task.pop_front() else { break };
                let put = slots.put(entry, order.slots(), |_, _| {});
                debug_assert!(put.is_ok());
            }
            swap_out(task, cpu);
        }
        let used = ids.map(|id| id.and_then(|id| slots.device_info(id)).map_or(0, |info| info.inuse));
        Ok((used, pages))
    }
}

/// The kernel's result with the same arrangement.
#[derive(Debug, Clone, Serialize)]
pub struct Peer {
    /// Name and version of the kernel.
    pub kernel: String,
    /// Sizes and load.
    pub setup: String,
    /// Devices of default priority, in the order of swapon.
    pub default: Vec<DeviceUse>,
    /// The same devices with one explicit priority for all.
    pub equal: Vec<DeviceUse>,
}

fn gib(slots: u64) -> String {
    format!("{:.3}", slots as f64 / GIB as f64)
}

fn uses(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(
        "Use of four equal devices, GiB, by order of swapon (ours: first run; largest difference and tolerance over all runs)",
        &["arrangement", "published", "1st", "2nd", "3rd", "4th", "difference", "tolerance", "verdict"],
    );
    for outcome in outcomes {
        let arrangement = &outcome.arrangement;
        let (difference, tolerance) = (outcome.difference(), outcome.tolerance);
        let published = match (arrangement.policy, arrangement.priorities, arrangement.order) {
            (PolicyName::DrainedFirst, DEFAULT, _) if arrangement.moment == Moment::Half => {
                "15.7/3.4/3.4/2.6"
            }
            (PolicyName::Current, DEFAULT, 0) => "12.6 each",
            _ => "-",
        };
        let verdict = match arrangement.priorities == DIFFERENT {
            true if outcome.strictly_ordered() => "strictly ordered",
            true => "NOT ORDERED",
            false => Sharing::of(&outcome.used[0], difference, tolerance).name(),
        };
        let mut row = vec![arrangement.name.to_owned(), published.to_owned()];
        row.extend(outcome.used[0].map(gib));
        row.extend([gib(difference), gib(tolerance), verdict.to_owned()]);
        table.rows.push(row);
    }
    table
}

fn peers_uses(peer: &Peer) -> Table {
    let head = ["arrangement", "1st", "2nd", "3rd", "4th"];
    let mut table = Table::new(format!("{}: {}; use from /proc/swaps, MiB", peer.kernel, peer.setup), &head);
    for (name, devices) in [("default priorities", &peer.default), ("equal priorities given", &peer.equal)] {
        let mut row = vec![name.to_owned()];
        row.extend(
            devices.iter().map(|device| format!("{} of {}", device.used_kib / 1024, device.size_kib / 1024)),
        );
        table.rows.push(row);
    }
    table
}

/// Makes the report.
pub fn report(options: &Options, outcomes: &[Outcome], peer: Option<&Peer>) -> Report {
    let scale = u64::from(options.scale.max(1));
    Report {
        experiment: "round-robin",
        setup: vec![
            format!(
                "Series 4 (devices in turn): {TASKS} tasks on {CPUS} logical CPUs swap out {} GiB to 4 devices of {} GiB, and a quarter of it again; scale 1/{scale} of 50.4 GiB on 4 x 16 GiB; n = {}.",
                gib(504 * GIB / 10 / scale),
                gib(16 * GIB / scale),
                options.runs
            ),
            "before = drained-first, after = current (`folioswap lab policies`). Equal: within 1 % or a cluster for each CPU and order in use.".to_owned(),
        ],
        tables: std::iter::once(uses(outcomes)).chain(peer.map(peers_uses)).collect(),
        not_comparable: vec![
            "System time and throughput (published: 637.9 -> 526.7 s, 3547 -> 4208 MB/s): they come from 8 nodes whose CPUs wait for one device's lock.".to_owned(),
            "The published uses are of two moments, by their sums of 25.1 G (before) and 50.4 G (after). Ours are read at 25.1 G in the row that says so, else after 50.4 G and a quarter of it again, at full scale.".to_owned(),
            "At 25.1 G the devices of nodes 1 to 3 should be equal, since each node swaps as much as the next one; the published 3.4, 3.4 and 2.6 differ by what the scheduler did with 31 tasks, which is not modelled.".to_owned(),
        ],
        results: serde_json::json!({ "options": options, "outcomes": outcomes, "peer": peer }),
        chart: Chart {
            title: "Use of four equal devices".to_owned(),
            axis: "GiB".to_owned(),
            bars: outcomes.iter().flat_map(bars).collect(),
        },
    }
}

/// The use of each device: mean, minimum and maximum of the runs.
fn bars(outcome: &Outcome) -> impl Iterator<Item = Bar> {
    (0..DEVICES).map(move |device| {
        let used = |run: &[u64; DEVICES]| run[device] as f64 / GIB as f64;
        let all: Vec<f64> = outcome.used.iter().map(used).collect();
        let summary = Summary::of(&all);
        Bar {
            group: outcome.arrangement.name.to_owned(),
            label: format!("device {}", device + 1),
            value: summary.mean,
            spread: (summary.min, summary.max),
        }
    })
}

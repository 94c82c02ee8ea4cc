//! System time and lock waits of series 1, 2 and 4 on more CPUs than this machine has, in simulated
//! time ([`events`](crate::events)), beside the published system times.

use crate::build::BuildError;
use crate::events::{Costs, CostsFile, LockWaits};
use crate::parallel::parallel;
use crate::replay::{
    ReplayError, SimulateError, SimulatedReplay, SimulatedReplayed, TooManyClusters, simulate,
};
use cases::cases;
pub use cases::{Build, Case, Fill, FillChoice};
use folioswap_report::{Bar, Chart, Progress, Report, Show, Table, percent};
use load::load;
use serde::Serialize;

mod cases;
mod load;

/// A published experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Series {
    /// The scan of clusters, a build with 64 kB folios.
    ClusterScan,
    /// The slot cache, a build with 4 kB pages.
    SlotCache,
    /// Devices in turn, tasks that write memory.
    RoundRobin,
}

impl Series {
    /// The experiment of a series, by its number.
    pub const fn by_number(number: u32) -> Option<Series> {
        match number {
            1 => Some(Series::ClusterScan),
            2 => Some(Series::SlotCache),
            4 => Some(Series::RoundRobin),
            _ => None,
        }
    }
}

/// The runs to make.
#[derive(Debug, Clone, Serialize)]
pub struct Options {
    /// Series.
    pub series: Vec<Series>,
    /// Numbers of logical CPUs for the builds; the tasks of series 4 are as many as published for
    /// 96, and scale with this.
    pub cpus: Vec<u32>,
    /// Tasks that each job of a build runs one after the other.
    pub tasks_per_job: u32,
    /// Divisor of the memory of series 4's tasks.
    pub scale: u32,
    /// Sizes of the device in series 1.
    pub fills: Vec<FillChoice>,
}

impl Options {
    /// Some minutes on two cores.
    pub fn full() -> Options {
        let series = vec![Series::ClusterScan, Series::SlotCache, Series::RoundRobin];
        let fills = vec![FillChoice::Peak(78), FillChoice::Peak(97), FillChoice::Published];
        Options { series, cpus: vec![96, 384], tasks_per_job: 4, scale: 16, fills }
    }

    /// About a minute on two cores.
    pub fn quick() -> Options {
        let fills = vec![FillChoice::Peak(97), FillChoice::Published];
        Options { cpus: vec![96], tasks_per_job: 1, scale: 128, fills, ..Options::full() }
    }
}

/// An assumption that is changed, to see how much depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assumption {
    /// As measured and recorded.
    AsMeasured,
    /// A line moves between CPUs four times as slowly, as between two sockets.
    SlowLines,
    /// Programs take no time between requests: every CPU always swaps.
    NoProgram,
    /// Pages cost four times as much outside the allocator.
    DearPages,
    /// A lock within the device is held for a twentieth of each page's cost. The kernel's zram has
    /// such locks; how long it holds them was not measured.
    DeviceLock,
    /// The same for a tenth.
    LongDeviceLock,
}

impl Assumption {
    /// Those that are tried for a series.
    const fn of(series: Series) -> &'static [Assumption] {
        use Assumption::{AsMeasured, DearPages, DeviceLock, LongDeviceLock, NoProgram, SlowLines};
        match series {
            Series::ClusterScan | Series::SlotCache => &[AsMeasured, SlowLines, NoProgram, DearPages],
            Series::RoundRobin => &[AsMeasured, SlowLines, NoProgram, DearPages, DeviceLock, LongDeviceLock],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Assumption::DeviceLock => "device locked for 1/20 of a page",
            Assumption::LongDeviceLock => "device locked for 1/10 of a page",
            Assumption::AsMeasured => "as measured",
            Assumption::SlowLines => "lines move 4 x slower",
            Assumption::NoProgram => "no program time",
            Assumption::DearPages => "pages cost 4 x more",
        }
    }

    /// The changed costs, the factor on program time, and the share of [`SimulatedReplay`]'s
    /// `device_lock`.
    fn apply(self, costs: &Costs) -> (Costs, f64, f64) {
        let mut costs = *costs;
        match self {
            Assumption::AsMeasured => {}
            Assumption::SlowLines => costs.transfer_ns *= 4.0,
            Assumption::NoProgram => return (costs, 0.0, 0.0),
            Assumption::DearPages => {
                costs.page_out_ns *= 4.0;
                costs.page_in_ns *= 4.0;
            }
            Assumption::DeviceLock => return (costs, 1.0, 0.05),
            Assumption::LongDeviceLock => return (costs, 1.0, 0.1),
        }
        (costs, 1.0, 0.0)
    }
}

/// A simulated run.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// Index into its steps.
    pub step: usize,
    /// The assumption.
    pub assumption: Assumption,
    /// The figures.
    pub replayed: SimulatedReplayed,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ContentionError {
    /// The trace cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The trace is too large.
    #[error(transparent)]
    Size(#[from] TooManyClusters),
    /// A replay that looks for the device's size failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A simulation failed.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// Simulates all cases. Assumptions other than the measured ones are tried at the first number of
/// CPUs.
///
/// # Errors
/// [`ContentionError`].
pub fn run(options: &Options, costs: &Costs, show: Show) -> Result<Vec<Outcome>, ContentionError> {
    let cases = cases(options);
    let assumptions = |case: &Case| {
        let all = options.cpus.first() == Some(&case.cpus);
        let known = Assumption::of(case.series);
        if all { known } else { &known[..1] }
    };
    let total = cases.iter().map(|case| case.steps.len() * assumptions(case).len()).sum();
    let progress = Progress::new(show, total);
    let mut outcomes = Vec::new();
    // One case at a time, because a full-size trace takes much memory.
    for case in &cases {
        let load = load(options, case)?;
        let runs: Vec<(Assumption, usize)> = assumptions(case)
            .iter()
            .flat_map(|assumption| (0..case.steps.len()).map(|step| (*assumption, step)))
            .collect();
        let results = parallel(&runs, |(assumption, step)| {
            let (costs, program_time, device_lock) = assumption.apply(costs);
            let (name, policy, _) = case.steps[*step];
            let devices = load.devices.clone();
            let nodes = load.nodes.clone();
            let replay = SimulatedReplay { policy, devices, nodes, costs, program_time, device_lock };
            let result = simulate(&load.prepared, &replay);
            progress.done(&format!("{}, {name}, {}", case.title, assumption.name()));
            result
        });
        for ((assumption, step), replayed) in runs.into_iter().zip(results) {
            outcomes.push(Outcome { case: case.clone(), step, assumption, replayed: replayed? });
        }
    }
    Ok(outcomes)
}

/// The report.
pub fn report(options: &Options, file: &CostsFile, outcomes: &[Outcome]) -> Report {
    let mut tables = Vec::new();
    let mut hot = Table::new(
        "Locks by the time that CPUs waited for them (as measured)",
        &[
            "case, step",
            "lock",
            "acquired",
            "waited",
            "refused trylocks",
            "wait, s",
            "held, s",
            "longest queue",
        ],
    );
    for same_case in outcomes.chunk_by(|a, b| a.case.title == b.case.title) {
        let Some(first) = same_case.first() else { continue };
        tables.push(times_table(&first.case, same_case));
        for outcome in same_case.iter().filter(|outcome| outcome.assumption == Assumption::AsMeasured) {
            let locks = &outcome.replayed.simulation.locks;
            for lock in locks.iter().filter(|lock| lock.waited + lock.refused > 0).take(3) {
                hot.rows.push(hot_row(outcome, lock));
            }
        }
    }
    tables.push(hot);
    let bars = outcomes
        .iter()
        .filter(|outcome| outcome.assumption == Assumption::AsMeasured)
        .map(|outcome| {
            let system = outcome.replayed.simulation.times.system();
            let (name, ..) = outcome.case.steps[outcome.step];
            Bar {
                group: outcome.case.title.clone(),
                label: name.to_owned(),
                value: system,
                spread: (system, system),
            }
        })
        .collect();
    Report {
        experiment: "contention",
        setup: vec![
            "Contention in simulated time: each logical CPU runs the real allocator at its own clock, each lock has a queue.".to_owned(),
            format!("Costs of locks, steps and pages: measured on {} ({}).", file.machine, match file.pages_by {
                crate::events::PagesBy::KernelZram => "pages by the kernel's own swap to zram",
                crate::events::PagesBy::UserSpace => "pages by codec and faults of a process, without the kernel's reclaim",
            }),
            format!(
                "Builds run {} tasks for each job (series 2: {}), published were 29; tasks of series 4 have 1/{} of the memory. Seconds are therefore not comparable, ratios are.",
                options.tasks_per_job, options.tasks_per_job.div_ceil(4), options.scale
            ),
            "One seed; the figures repeat exactly.".to_owned(),
        ],
        tables,
        not_comparable: vec![
            "the published system time contains forks, file accesses, page tables and the memory group's own locks, which are not modelled: their cost is the same before and after, so the model's ratios are further from 1 than published ones where locks matter equally".to_owned(),
            "the published machine has two threads a core; here each logical CPU is as fast as the measured one".to_owned(),
            "memory lines of cluster tables and counters that move between CPUs cost nothing beside the lock's own line".to_owned(),
            "how full the published devices became is not known: 78 and 97 % are assumptions, and the devices \"as the published\" have the size at which as many folios find no room before the series as did there".to_owned(),
            "a lock within a device is an assumption: how long the kernel's zram holds its own was not measured".to_owned(),
        ],
        results: serde_json::json!({ "options": options, "costs": file, "outcomes": outcomes }),
        chart: Chart {
            title: "System time in simulated time".to_owned(),
            axis: "seconds".to_owned(),
            bars,
        },
    }
}

fn hot_row(outcome: &Outcome, lock: &LockWaits) -> Vec<String> {
    let (name, ..) = outcome.case.steps[outcome.step];
    vec![
        format!("{}, {name}", outcome.case.title),
        lock.name.clone(),
        lock.acquired.to_string(),
        lock.waited.to_string(),
        lock.refused.to_string(),
        format!("{:.3}", lock.wait_s),
        format!("{:.3}", lock.held_s),
        lock.queue_max.to_string(),
    ]
}

fn times_table(case: &Case, outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(
        format!("{}{}", case.title[..1].to_uppercase(), &case.title[1..]),
        &[
            "step",
            "assumption",
            "published sys, s",
            "published / before",
            "model / before",
            "model sys, s",
            "pages, s",
            "allocator, s",
            "lock waits, s",
            "waits of sys",
            "failed above order 0",
            "scanned per large alloc",
        ],
    );
    let published_before = case.steps.first().and_then(|(_, _, seconds)| *seconds);
    for outcome in outcomes {
        let (name, policy, published) = case.steps[outcome.step];
        let before = outcomes
            .iter()
            .find(|other| other.step == 0 && other.assumption == outcome.assumption)
            .map_or(f64::NAN, |other| other.replayed.simulation.times.system());
        let times = &outcome.replayed.simulation.times;
        let system = times.system();
        let sum = |counts: &[u64]| counts.iter().sum::<u64>() as f64;
        let large = sum(&outcome.replayed.allocated[1..]) + sum(&outcome.replayed.fallback[1..]);
        let dash = || "-".to_owned();
        table.rows.push(vec![
            format!("{name} ({policy})"),
            outcome.assumption.name().to_owned(),
            published.map_or_else(dash, |seconds| format!("{seconds:.2}")),
            published
                .zip(published_before)
                .map_or_else(dash, |(after, before)| format!("{:.3}", after / before)),
            format!("{:.3}", system / before),
            format!("{system:.3}"),
            format!("{:.3}", times.pages),
            format!("{:.3}", times.allocator),
            format!("{:.3}", times.lock_wait),
            percent(times.lock_wait, system),
            percent(sum(&outcome.replayed.fallback[1..]), large),
            if large > 0.0 {
                format!("{:.3}", sum(&outcome.replayed.clusters_scanned[1..]) / large)
            } else {
                dash()
            },
        ]);
    }
    table
}

#[cfg(test)]
mod tests;

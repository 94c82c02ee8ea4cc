//! Series 1: how many folios find no slots and how many clusters an allocation scans, before and
//! after each patch (spec §1).

mod contention;

pub use contention::{Contention, ContentionError, contention};

use crate::build::{
    BuildError, BuildParameters, NoRecorder, OrderCounts, Scale, Sizes, Stopped, SwapDevice, Tally, run_build,
};
use crate::parallel::parallel;
use crate::policies::{PolicyName, WithPolicy};
use folioswap_report::statistics::Summary;
use folioswap_report::{Bar, Chart, Progress, Report, Show, Table, percent};
use folioswap_slots::{DeviceFlags, ORDERS, Policy};
use serde::Serialize;

/// Scale and number of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Options {
    /// The part of the published machine.
    pub scale: Scale,
    /// Tasks that each job runs one after the other.
    pub tasks_per_job: u32,
    /// Sizes of the swap device: for each, the part of it in percent that the build needs at its
    /// peak.
    pub fills: Vec<u32>,
    /// Runs of each kind, with seeds 1, 2, ...
    pub runs: u32,
}

impl Options {
    /// Some minutes on two cores.
    pub fn full() -> Options {
        Options { scale: Scale(2), tasks_per_job: 10, fills: FILLS.to_vec(), runs: 3 }
    }

    /// Half a minute on two cores.
    pub fn quick() -> Options {
        Options { scale: Scale(8), tasks_per_job: 8, fills: FILLS.to_vec(), runs: 2 }
    }
}

/// The fill of the published devices is not known. But the build ended on 8 GiB, and even after
/// both patches 3.6 % of its 64 kB folios found no slots there, so it needed nearly all of it. 8
/// GiB is therefore taken as 97 % full, and 10 GiB then was 78 % full. The size between was not
/// published.
const FILLS: [u32; 3] = [FILL_10_GIB, 90, FILL_8_GIB];
const FILL_10_GIB: u32 = 78;
const FILL_8_GIB: u32 = 97;
/// The policies of the published steps, and today's, whose choice among nonfull clusters is our
/// own.
pub(super) const POLICIES: [PolicyName; 4] =
    [PolicyName::ScanAll, PolicyName::ScanOne, PolicyName::NonfullFirst, PolicyName::Current];
pub(super) const STEPS: [&str; 4] = ["before", "patch 1", "patch 2", "today"];
const PUBLISHED: usize = 3;
/// Which step is which policy.
pub(super) const KEY: &str = "before = scan-all, patch 1 = scan-one, patch 2 = nonfull-first, today = current (`folioswap lab policies`).";

/// The type of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Completion {
    /// A synchronous device: zram.
    Synchronous,
    /// A device that is not synchronous: brd.
    Asynchronous,
}

impl Completion {
    const fn name(self) -> &'static str {
        match self {
            Completion::Synchronous => "synchronous (zram)",
            Completion::Asynchronous => "not synchronous (brd)",
        }
    }

    const fn flags(self) -> DeviceFlags {
        match self {
            Completion::Synchronous => DeviceFlags::SYNCHRONOUS,
            Completion::Asynchronous => DeviceFlags::NONE,
        }
    }
}

/// A kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Case {
    /// Folio sizes of the workload.
    pub sizes: Sizes,
    /// The device's type.
    pub completion: Completion,
    /// The part of the device that the build needs at its peak, percent.
    pub fill: u32,
    /// How much is read again, which makes slots that are only cached.
    pub reading: Reading,
}

/// How much of what comes back is only read, so that it keeps its slot on a device that is not
/// synchronous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// As the model of the build has it.
    Build,
    /// Ten times as many accesses to what was left alone, nearly all of which read: a supply of
    /// slots that are only cached, for the price of patch 1, which is to leave them where they are.
    Much,
}

/// One policy's runs of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// The policy.
    pub policy: PolicyName,
    /// swpout of each order, summed over the runs.
    pub swpout: [u64; ORDERS],
    /// swpout_fallback of each order, summed over the runs.
    pub fallback: [u64; ORDERS],
    /// Failed allocations above order 0, percent, per run.
    pub failed_percent: Summary,
    /// Clusters isolated and scanned per allocation above order 0.
    pub scanned_per_large: Summary,
    /// Lock acquisitions (clusters, lists, available list, local) per allocation of any order,
    /// those of the frees included.
    pub locks_per_allocation: Summary,
    /// Peak of the slots in use, as a part of the device.
    pub peak_use: Summary,
    /// Peak of the slots that were only cached, as a part of the device.
    pub peak_only_cached: Summary,
    /// Slots that were only cached and that the allocator took back, per run.
    pub taken_back: Summary,
    /// Those of them that the forced search of full clusters took back.
    pub taken_back_full: Summary,
    /// Slots that were ever written, as a part of the device.
    pub ever_written: Summary,
    /// Folios that could not leave at all.
    pub out_of_swap: u64,
}

struct BuildRun<'a> {
    parameters: &'a BuildParameters,
    device: SwapDevice,
    seed: u64,
}

impl WithPolicy for BuildRun<'_> {
    type Output = Result<Tally, BuildError>;
    fn run<P: Policy>(self) -> Self::Output {
        let outcome =
            run_build::<P, _>(self.parameters, self.device, self.seed, NoRecorder, |_| Stopped::No)?;
        assert!(outcome.consistent, "the allocator's invariants do not hold: seed {}", self.seed);
        Ok(outcome.tally)
    }
}

/// Runs all cases.
///
/// # Errors
/// [`BuildError`] for impossible sizes.
pub fn run(options: &Options, show: Show) -> Result<Vec<Outcome>, BuildError> {
    let mut cases = Vec::new();
    for sizes in [Sizes::Only64k, Sizes::All] {
        for completion in [Completion::Synchronous, Completion::Asynchronous] {
            let fills = options.fills.iter();
            cases.extend(fills.map(|&fill| Case { sizes, completion, fill, reading: Reading::Build }));
        }
    }
    // The price of patch 1, on the device that keeps slots.
    cases.extend(options.fills.iter().map(|&fill| Case {
        sizes: Sizes::Only64k,
        completion: Completion::Asynchronous,
        fill,
        reading: Reading::Much,
    }));
    run_cases(options, &cases, show)
}

/// Runs some cases with all policies. The outcomes of a case are adjacent, in the order of the
/// patches.
///
/// # Errors
/// [`BuildError`] for impossible sizes.
pub fn run_cases(options: &Options, cases: &[Case], show: Show) -> Result<Vec<Outcome>, BuildError> {
    let mut runs = Vec::new();
    for case in cases {
        for policy in POLICIES {
            runs.extend((1..=u64::from(options.runs)).map(|seed| (*case, policy, seed)));
        }
    }
    let workload = |case: &Case, seed: u64| (case.sizes, case.completion, case.reading, seed);
    let mut workloads: Vec<(Sizes, Completion, Reading, u64)> =
        runs.iter().map(|(case, _, seed)| workload(case, *seed)).collect();
    workloads.dedup();
    workloads.sort_by_key(|(sizes, completion, reading, seed)| {
        (*sizes as u8, *completion as u8, *reading as u8, *seed)
    });
    workloads.dedup();
    let progress = Progress::new(show, workloads.len() + runs.len());
    let needs = parallel(&workloads, |(sizes, completion, reading, seed)| {
        let need = need(&parameters(options, *sizes, *reading), *completion, *seed);
        progress.done(&format!("{}, {}: how much swap it needs", sizes.name(), completion.name()));
        need
    });
    let needs: Vec<u64> = needs.into_iter().collect::<Result<_, _>>()?;
    let results = parallel(&runs, |(case, policy, seed)| {
        let parameters = parameters(options, case.sizes, case.reading);
        let workload = workload(case, *seed);
        let index = workloads.iter().position(|other| *other == workload).expect("collected from the runs");
        let pages = needs[index] * 100 / u64::from(case.fill.max(1)) + 1;
        let device = SwapDevice { pages, flags: case.completion.flags() };
        let result = policy.apply_counted(BuildRun { parameters: &parameters, device, seed: *seed });
        progress.done(&format!(
            "{}, {}, {} % full, {policy}",
            case.sizes.name(),
            case.completion.name(),
            case.fill
        ));
        result.map(|tally| (tally, pages))
    });
    let results: Vec<(Tally, u64)> = results.into_iter().collect::<Result<_, _>>()?;
    let each = options.runs.max(1) as usize;
    let kinds = runs.chunks(each).zip(results.chunks(each));
    Ok(kinds.map(|(kind, results)| summarise(kind[0].0, kind[0].1, results)).collect())
}

/// Peak of the slots that the build uses when there is enough swap.
fn need(parameters: &BuildParameters, completion: Completion, seed: u64) -> Result<u64, BuildError> {
    let device = SwapDevice { pages: parameters.pages_max(), flags: completion.flags() };
    Ok(PolicyName::Current.apply_counted(BuildRun { parameters, device, seed })?.inuse_peak)
}

fn parameters(options: &Options, sizes: Sizes, reading: Reading) -> BuildParameters {
    let scaled = BuildParameters::published(sizes).scaled(options.scale);
    let build = BuildParameters { tasks: scaled.jobs * options.tasks_per_job, ..scaled };
    match reading {
        Reading::Build => build,
        Reading::Much => BuildParameters {
            cold_touches_per_step: 10.0 * build.cold_touches_per_step,
            write_share: 0.05,
            ..build
        },
    }
}

fn summarise(case: Case, policy: PolicyName, results: &[(Tally, u64)]) -> Outcome {
    let over = |figure: &dyn Fn(&Tally, f64) -> f64| {
        let figures: Vec<f64> = results.iter().map(|(tally, pages)| figure(tally, *pages as f64)).collect();
        Summary::of(&figures)
    };
    let attempts = |counts: &OrderCounts| (counts.allocated + counts.fallback) as f64;
    let sum = |count: &dyn Fn(&OrderCounts) -> u64| {
        std::array::from_fn(|order| results.iter().map(|(tally, _)| count(&tally.orders[order])).sum())
    };
    Outcome {
        case,
        policy,
        swpout: sum(&|counts| counts.allocated),
        fallback: sum(&|counts| counts.fallback),
        failed_percent: over(&|tally, _| {
            let large = tally.large();
            100.0 * large.fallback as f64 / attempts(&large)
        }),
        scanned_per_large: over(&|tally, _| {
            let large = tally.large();
            large.clusters_scanned as f64 / attempts(&large)
        }),
        locks_per_allocation: over(&|tally, _| {
            let locks = tally.locks.unwrap_or_default();
            let acquired = locks.cluster.acquired
                + locks.list.acquired
                + locks.available.acquired
                + locks.local.acquired;
            acquired as f64 / (attempts(&tally.large()) + attempts(&tally.orders[0]))
        }),
        peak_use: over(&|tally, pages| tally.inuse_peak as f64 / pages),
        peak_only_cached: over(&|tally, pages| tally.retained_peak as f64 / pages),
        taken_back: over(&|tally, _| tally.slots_reclaimed as f64),
        taken_back_full: over(&|tally, _| tally.slots_reclaimed_forced as f64),
        ever_written: over(&|tally, pages| tally.slots_ever_written as f64 / pages),
        out_of_swap: results.iter().map(|(tally, _)| tally.orders[0].fallback).sum(),
    }
}

/// Published swpout / fallback of an order: before, after patch 1, after patch 2.
fn published(case: &Case, order: usize) -> [Option<(u64, u64)>; PUBLISHED] {
    let synchronous = case.completion == Completion::Synchronous;
    // The published runs are one build; how much it read again is not known.
    let gib = match case.fill {
        FILL_10_GIB => 10,
        FILL_8_GIB => 8,
        _ => 0,
    };
    match (case.sizes, synchronous, gib, order) {
        (Sizes::Only64k, true, 10, 4) => {
            [Some((1_793_044, 17_653)), Some((1_789_358, 17_813)), Some((1_813_133, 0))]
        }
        (Sizes::Only64k, true, 8, 4) => {
            [Some((1_634_681, 173_056)), Some((1_638_155, 189_562)), Some((1_761_110, 66_071))]
        }
        (Sizes::Only64k, false, 10, 4) => [Some((1_787_599, 0)), Some((1_783_106, 0)), None],
        (Sizes::Only64k, false, 8, 4) => [Some((1_645_421, 148_408)), Some((1_592_973, 265_010)), None],
        // Patch 2 alone was published: its "before" had patch 1.
        (Sizes::All, true, 10, 5) => [None, Some((449_548, 55_894)), Some((497_519, 3204))],
        (Sizes::All, true, 10, 6) => [None, Some((63_938, 2154)), Some((65_698, 324))],
        (Sizes::All, true, 10, 7) => [None, Some((11_971, 2218)), Some((14_606, 4))],
        (Sizes::All, true, 10, 9) => [None, Some((12, 1578)), Some((1253, 15))],
        _ => [None; PUBLISHED],
    }
}

fn counts(pair: Option<(u64, u64)>) -> String {
    match pair {
        None | Some((0, 0)) => "-".to_owned(),
        Some((swpout, fallback)) => {
            format!("{swpout}/{fallback} {}", percent(fallback as f64, (swpout + fallback) as f64))
        }
    }
}

fn spread(summary: &Summary, digits: usize) -> String {
    if summary.n < 2 {
        return format!("{:.digits$}", summary.mean);
    }
    format!("{:.digits$} ±{:.digits$}", summary.mean, summary.deviation)
}

/// Makes the report.
pub fn report(options: &Options, outcomes: &[Outcome], contention: &[Contention]) -> Report {
    let mut tables = Vec::new();
    for chunk in outcomes.chunks(POLICIES.len()) {
        let case = chunk[0].case;
        let beside = match case.fill {
            FILL_10_GIB => "beside the published 10 G",
            FILL_8_GIB => "beside the published 8 G",
            _ => "not published",
        };
        let (sizes, completion) = (case.sizes.name(), case.completion.name());
        let reading = match case.reading {
            Reading::Build => "",
            Reading::Much => ", much is read again",
        };
        let title =
            format!("{sizes}, {completion}{reading}, device {} % full at the peak ({beside})", case.fill);
        let head: Vec<String> = std::iter::once("swpout/fallback, failed".to_owned())
            .chain(STEPS[..PUBLISHED].iter().map(|step| format!("published {step}")))
            .chain(STEPS.iter().map(|step| format!("ours {step}")))
            .collect();
        let mut table = Table { title, head, rows: Vec::new() };
        for order in 1..ORDERS {
            let ours: Vec<String> = chunk
                .iter()
                .map(|outcome| counts(Some((outcome.swpout[order], outcome.fallback[order]))))
                .collect();
            if ours.iter().all(|cell| cell == "-") {
                continue;
            }
            let theirs = published(&case, order).map(counts);
            let size = 4u32 << order;
            let name = if size < 1024 { format!("{size} kB") } else { format!("{} MB", size / 1024) };
            table.rows.push(std::iter::once(name).chain(theirs).chain(ours).collect());
        }
        let mut row = |name: &str, figure: &dyn Fn(&Outcome) -> String| {
            let theirs = (0..PUBLISHED).map(|_| "-".to_owned());
            table.rows.push(
                std::iter::once(name.to_owned()).chain(theirs).chain(chunk.iter().map(figure)).collect(),
            );
        };
        row("failed above order 0, %", &|outcome| spread(&outcome.failed_percent, 3));
        row("clusters scanned per large alloc", &|outcome| spread(&outcome.scanned_per_large, 3));
        row("lock acquisitions per allocation", &|outcome| spread(&outcome.locks_per_allocation, 2));
        row("peak use of the device, %", &|outcome| format!("{:.1}", 100.0 * outcome.peak_use.mean));
        row("peak only cached, %", &|outcome| format!("{:.2}", 100.0 * outcome.peak_only_cached.mean));
        row("slots taken back from the cache", &|outcome| format!("{:.0}", outcome.taken_back.mean));
        row("of them when the device was full", &|outcome| format!("{:.0}", outcome.taken_back_full.mean));
        row("slots ever written, %", &|outcome| format!("{:.1}", 100.0 * outcome.ever_written.mean));
        if chunk.iter().any(|outcome| outcome.out_of_swap > 0) {
            row("order 0: out of swap", &|outcome| outcome.out_of_swap.to_string());
        }
        tables.push(table);
    }
    if !contention.is_empty() {
        tables.push(contention::table(contention));
    }
    Report {
        experiment: "cluster-scan",
        setup: setup(options),
        tables,
        not_comparable: NOT_COMPARABLE.iter().map(|reason| (*reason).to_owned()).collect(),
        results: serde_json::json!({ "options": options, "outcomes": outcomes, "contention": contention,
            "parameters": { "64 kB only": parameters(options, Sizes::Only64k, Reading::Build), "all sizes": parameters(options, Sizes::All, Reading::Build), "64 kB only, much is read again": parameters(options, Sizes::Only64k, Reading::Much) } }),
        chart: Chart {
            title: "Folios above order 0 that found no run of slots".to_owned(),
            axis: "failed, %".to_owned(),
            bars: outcomes
                .iter()
                .map(|outcome| Bar {
                    group: format!(
                        "{}{}, {}, {} % full",
                        outcome.case.sizes.name(),
                        if outcome.case.reading == Reading::Much { ", reads" } else { "" },
                        if outcome.case.completion == Completion::Synchronous { "sync" } else { "async" },
                        outcome.case.fill
                    ),
                    label: outcome.policy.to_string(),
                    value: outcome.failed_percent.mean,
                    spread: (outcome.failed_percent.min, outcome.failed_percent.max),
                })
                .collect(),
        },
    }
}

const NOT_COMPARABLE: [&str; 6] = [
    "The price of patch 1 (fallbacks +79 % on brd with 8 G, +10 % on zram) is paid where many slots are only cached: their folios are taken back by scans of fragment clusters, and one scan finds fewer than all. In the model of the build such slots are rare (*peak only cached*); how many the published runs had is not known. *Much is read again* has a supply of them.",
    "System time: 96 real CPUs waited for each other's locks in the published runs. Here logical CPUs take turns; lock acquisitions and clusters scanned stand for it.",
    "Absolute counts: the build is a model (`--json` has every parameter and `BuildParameters` its reasons); counts here are sums over the runs. Compare the failed parts.",
    "How full the published devices were is not known. That 8 G was nearly full is inferred: the build ended on it, and 3.6 % of the folios found no room even after both patches; 10 G follows. `--fill` takes others.",
    "With all sizes only the effect of patch 2 was published, so its \"before\" stands under patch 1. 1 MB, and orders below 5, were not published for it.",
    "The model reclaims for one group by one clock hand; the kernel's classic LRU has two lists.",
];

fn setup(options: &Options) -> Vec<String> {
    let p = parameters(options, Sizes::Only64k, Reading::Build);
    let gib = |pages: u64| pages as f64 / f64::from(1 << 18);
    vec![
        format!(
            "Series 1 (cluster scan): a build of {} tasks, {} at a time on {} logical CPUs, within {:.3} GiB, scale {} of -j96 in 2 GiB; n = {}.",
            p.tasks, p.jobs, p.cpus, gib(p.limit_pages), options.scale, options.runs
        ),
        "Each run's device is sized by what the same build with the same seed uses at most when there is room for everything.".to_owned(),
        format!("{KEY} Every figure comes from the real allocator."),
    ]
}

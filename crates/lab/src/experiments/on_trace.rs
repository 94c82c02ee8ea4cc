//! The experiments on a trace instead of a model: each policy gets the same requests in the same
//! order.

use super::cluster_scan::{KEY, POLICIES, STEPS};
use super::round_robin::Sharing;
use crate::policies::{Locks, PolicyName};
use crate::replay::{
    Device, Medium, Prepared, Replay, ReplayError, Replayed, Retention, TooManyClusters, replay,
};
use crate::traces::Trace;
use folioswap_report::statistics::{Summary, equivalence};
use folioswap_report::{Bar, Chart, Progress, Report, Show, Table, percent};
use folioswap_slots::{CLUSTER_SLOTS, ORDERS};

/// Why a trace was not replayed.
#[derive(Debug, thiserror::Error)]
pub enum OnTraceError {
    /// The trace is too large.
    #[error(transparent)]
    Size(#[from] TooManyClusters),
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// A trace with its name.
pub struct Named<'a> {
    /// The name that the user gave.
    pub name: String,
    /// The trace.
    pub trace: &'a Trace,
}

impl Named<'_> {
    fn setup(&self, what: &str, prepared: &Prepared) -> String {
        format!(
            "{what} on {}: {} operations of {} logical CPUs, at most {:.3} GiB in use.",
            self.name,
            prepared.len(),
            prepared.cpus,
            prepared.slots_peak as f64 / f64::from(1 << 18)
        )
    }
}

const RECORDED: &str = "Nothing published has this workload: what is to be compared are the columns. A replay frees a slot when the trace does, whatever the policy.";

fn run(
    prepared: &Prepared,
    policy: PolicyName,
    devices: Vec<Device>,
    threads: u32,
    locks: Locks,
) -> Result<Replayed, ReplayError> {
    replay(prepared, &Replay { policy, devices, threads, cpus: None, locks, moments: 0 })
}

fn device(medium: Medium, pages: Option<u64>) -> Device {
    Device { medium, pages, priority: None, synchronous: medium == Medium::Zram, discard: false }
}

/// Series 1: how many folios find no slots, on devices that become `fills` percent full.
///
/// # Errors
/// [`OnTraceError`].
pub fn cluster_scan(named: &Named<'_>, fills: &[u32], show: Show) -> Result<Report, OnTraceError> {
    let progress = Progress::new(show, 2 * fills.len() * POLICIES.len());
    let (mut tables, mut bars, mut results, mut setup) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for medium in [Medium::Zram, Medium::Ram] {
        let retention = if medium == Medium::Zram { Retention::Never } else { Retention::AsRecorded };
        let kind = if medium == Medium::Zram { "synchronous (zram)" } else { "not synchronous (brd)" };
        let prepared = Prepared::new(named.trace, retention)?;
        setup.push(named.setup(&format!("Series 1 (cluster scan), {kind},"), &prepared));
        for fill in fills {
            let pages = prepared.slots_peak * 100 / u64::from((*fill).max(1)) + 1;
            let mut columns = Vec::new();
            for policy in POLICIES {
                columns.push(run(&prepared, policy, vec![device(medium, Some(pages))], 1, Locks::Counted)?);
                progress.done(&format!("{kind}, {fill} % full, {policy}"));
            }
            let title = format!("{kind}, device {fill} % full at the peak");
            tables.push(scan_table(title.clone(), &columns));
            for column in &columns {
                let value =
                    100.0 * part(large(&column.fallback), large(&column.allocated) + large(&column.fallback));
                bars.push(Bar {
                    group: title.clone(),
                    label: column.policy.to_string(),
                    value,
                    spread: (value, value),
                });
            }
            results.push(serde_json::json!({ "device": medium, "fill": fill, "policies": columns }));
        }
    }
    setup.push(KEY.to_owned());
    Ok(Report {
        experiment: "cluster-scan",
        setup,
        tables,
        not_comparable: vec![RECORDED.to_owned()],
        results: serde_json::json!({ "trace": named.name, "cases": results }),
        chart: Chart {
            title: "Folios above order 0 that found no run of slots".to_owned(),
            axis: "failed, %".to_owned(),
            bars,
        },
    })
}

fn large(counts: &[u64; ORDERS]) -> u64 {
    counts[1..].iter().sum()
}

fn part(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn scan_table(title: String, columns: &[Replayed]) -> Table {
    let head = std::iter::once("swpout/fallback, failed".to_owned())
        .chain(STEPS.iter().map(|step| format!("ours {step}")))
        .collect();
    let mut table = Table { title, head, rows: Vec::new() };
    let mut row = |name: String, cell: &dyn Fn(&Replayed) -> String| {
        table.rows.push(std::iter::once(name).chain(columns.iter().map(cell)).collect());
    };
    for order in 1..ORDERS {
        if columns.iter().any(|column| column.allocated[order] + column.fallback[order] > 0) {
            row(format!("{} kB", 4u32 << order), &|column| {
                let (out, fallback) = (column.allocated[order], column.fallback[order]);
                format!("{out}/{fallback} {}", percent(fallback as f64, (out + fallback) as f64))
            });
        }
    }
    row("clusters scanned per large alloc".to_owned(), &|column| {
        let all = large(&column.allocated) + large(&column.fallback);
        format!("{:.3}", part(large(&column.clusters_scanned), all))
    });
    row("lock acquisitions per operation".to_owned(), &|column| {
        let acquired: u64 = column.locks.unwrap_or_default().iter().map(|(acquired, _)| acquired).sum();
        format!("{:.2}", part(acquired, column.operations))
    });
    table
}

/// Series 2: the time of the replay without the slot cache against that with it.
///
/// # Errors
/// [`OnTraceError`].
pub fn slot_cache(
    named: &Named<'_>,
    pairs: u32,
    threads: u32,
    margin: f64,
    show: Show,
) -> Result<Report, OnTraceError> {
    let prepared = Prepared::new(named.trace, Retention::Never)?;
    let progress = Progress::new(show, pairs as usize);
    let rate = |policy| -> Result<f64, ReplayError> {
        let result = run(&prepared, policy, vec![device(Medium::Zram, None)], threads, Locks::Uncounted)?;
        Ok(result.operations as f64 * 1e3 / result.wall_ns.max(1) as f64)
    };
    let mut measured = Vec::new();
    for pair in 0..pairs {
        // The policies alternate in being first, so that a drift of the machine falls on both.
        let order = [PolicyName::SlotCache, PolicyName::Current];
        let rates = if pair % 2 == 0 {
            let before = rate(order[0])?;
            (before, rate(order[1])?)
        } else {
            let after = rate(order[1])?;
            (rate(order[0])?, after)
        };
        measured.push(rates);
        progress.done(&format!("pair {}", pair + 1));
    }
    let test = equivalence(&measured, margin);
    let summary = |of: &dyn Fn(&(f64, f64)) -> f64| Summary::of(&measured.iter().map(of).collect::<Vec<_>>());
    let (before, after) = (summary(&|pair| pair.0), summary(&|pair| pair.1));
    let mut table = Table::new(
        format!(
            "Million operations of the trace a second; equivalence of after / before (90 % interval) with a margin of {} %",
            margin * 100.0
        ),
        &["threads", "before", "after", "after / before", "90 % interval", "verdict"],
    );
    let text = |summary: &Summary| format!("{:.2} ±{:.2}", summary.mean, summary.deviation);
    if let Some(test) = test {
        table.rows.push(vec![
            threads.to_string(),
            text(&before),
            text(&after),
            format!("{:.3}", test.ratio),
            format!("{:.3} to {:.3}", test.interval.0, test.interval.1),
            test.verdict.name().to_owned(),
        ]);
    }
    Ok(Report {
        experiment: "slot-cache",
        setup: vec![
            named.setup("Series 2 (slot cache)", &prepared),
            format!("before = slot-cache, after = current; n = {pairs} pairs."),
        ],
        tables: vec![table],
        not_comparable: vec![RECORDED.to_owned()],
        results: serde_json::json!({ "trace": named.name, "pairs": measured, "equivalence": test }),
        chart: Chart {
            title: "Without the slot cache against with it (1 = equal; the line is the 90 % interval)"
                .to_owned(),
            axis: "after / before".to_owned(),
            bars: test
                .map(|test| Bar {
                    group: named.name.clone(),
                    label: "after / before".to_owned(),
                    value: test.ratio,
                    spread: test.interval,
                })
                .into_iter()
                .collect(),
        },
    })
}

/// Series 4: how the use of four equal devices is distributed at the trace's peak.
///
/// # Errors
/// [`OnTraceError`].
pub fn round_robin(named: &Named<'_>, show: Show) -> Result<Report, OnTraceError> {
    const POLICIES: [(PolicyName, &str); 2] = [
        (PolicyName::DrainedFirst, "before: default priorities"),
        (PolicyName::Current, "after: default priorities"),
    ];
    let prepared = Prepared::new(named.trace, Retention::Never)?.until_the_peak();
    let progress = Progress::new(show, POLICIES.len());
    let orders = prepared.orders() as u64;
    let mut table = Table::new(
        "Use of four equal devices when the trace uses most, MiB, by order of swapon",
        &["arrangement", "1st", "2nd", "3rd", "4th", "difference", "tolerance", "verdict"],
    );
    let (mut bars, mut results) = (Vec::new(), Vec::new());
    for (policy, name) in POLICIES {
        let devices = vec![device(Medium::Zram, None); 4];
        let result = run(&prepared, policy, devices, 1, Locks::Uncounted)?;
        progress.done(name);
        let used: Vec<u64> = result.devices.iter().map(|(_, used)| *used).collect();
        let (most, least) =
            (used.iter().max().copied().unwrap_or(0), used.iter().min().copied().unwrap_or(0));
        let one_percent = used.iter().sum::<u64>() / 400;
        let tolerance = one_percent.max(u64::from(prepared.cpus) * orders * u64::from(CLUSTER_SLOTS));
        let mib = |slots: u64| format!("{:.1}", slots as f64 / 256.0);
        let mut row = vec![name.to_owned()];
        row.extend(used.iter().map(|used| mib(*used)));
        let verdict = Sharing::of(&used, most - least, tolerance);
        row.extend([mib(most - least), mib(tolerance), verdict.name().to_owned()]);
        table.rows.push(row);
        for (index, used) in used.iter().enumerate() {
            let value = *used as f64 / 256.0;
            bars.push(Bar {
                group: name.to_owned(),
                label: format!("device {}", index + 1),
                value,
                spread: (value, value),
            });
        }
        results.push(serde_json::json!({ "policy": policy, "used": used, "tolerance": tolerance }));
    }
    Ok(Report {
        experiment: "round-robin",
        setup: vec![
            named.setup("Series 4 (devices in turn)", &prepared),
            "before = drained-first, after = current. Equal: within 1 % or a cluster for each CPU and order in use.".to_owned(),
        ],
        tables: vec![table],
        not_comparable: vec![RECORDED.to_owned()],
        results: serde_json::json!({ "trace": named.name, "arrangements": results }),
        chart: Chart { title: "Use of four equal devices".to_owned(), axis: "MiB".to_owned(), bars },
    })
}

//! The hot set under every engine: a table for each scan with a line for each engine.

use crate::comparison::{Column, Host, Terms};
use crate::data::Kind;
use crate::engine::{Engine, Figures, RunError, step, tell};
use crate::faults;
use crate::hot_set::{self, HotTouches, SCANS, TURN};
use crate::kinds;
use crate::tables::{
    self, MIB, PARENTHESES, PEAK, UNCHARGED, absent_row, cell, kernels_best, ratio, spread, values,
    without_kernel,
};
use folioswap_report::{Bar, Chart, Report, Table, statistics::median};

/// The comparison to make.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The terms.
    pub terms: Terms,
    /// Bytes of the hot set.
    pub hot: u64,
    /// Bytes that are scanned.
    pub scan: u64,
    /// Kinds of data, each compared by itself.
    pub kinds: Vec<Kind>,
    /// Touches of the hot set for each page that is scanned.
    pub touches_per_page: u64,
}

/// Runs the comparison; see [`crate::touch_table::compare`].
///
/// # Errors
/// [`RunError`]; everything is undone.
pub fn compare(options: &Comparison, host: Host<'_>) -> Result<Report, RunError> {
    let (terms, need) = (&options.terms, options.hot + options.scan);
    let of = |kind| arguments(options, kind);
    let (all, absent) = kinds::compare(terms, host, "hot-set-worker", need, &options.kinds, of)?;
    Ok(report(options, &all, absent.as_deref()))
}

fn arguments(options: &Comparison, kind: Kind) -> Vec<String> {
    let pairs = [
        ("--hot", options.hot.to_string()),
        ("--scan", options.scan.to_string()),
        ("--touches-per-page", options.touches_per_page.to_string()),
        ("--kind", kind.name().to_owned()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Runs the worker, which is started for each run; see [`hot_set::hot_set`].
///
/// # Errors
/// The wrong page, and how it is wrong.
pub fn work(options: &hot_set::Options, engine: Option<&dyn faults::Engine>) -> Result<(), RunError> {
    let mut timings = Vec::new();
    let done = hot_set::hot_set(options, engine, |timing| timings.push(timing));
    done.map_err(|why| RunError::Program { engine: Engine::Unlimited, why })?;
    timings.iter().try_for_each(tell).map_err(step("telling what a scan took"))
}

fn report(options: &Comparison, all: &[(Kind, Vec<Column>)], absent: Option<&str>) -> Report {
    let (mut tables, mut bars) = (Vec::new(), Vec::new());
    for (kind, columns) in all {
        for (number, name) in SCANS.iter().enumerate() {
            let title = format!("{name} scan, {} data", kind.title());
            let (table, mut of_scan) = scan(title, number, columns);
            tables.push(table);
            bars.append(&mut of_scan);
        }
        tables.push(kinds::whole(*kind, columns, &[]));
    }
    let limit = options.terms.limit as f64;
    let mut setup = vec![format!(
        "A hot set of {:.0} MiB ({:.2} of the limit, {:.0} MiB), and a scan of {:.0} MiB ({:.1} times the limit), written and then read; {} random touches of the hot set for each page of the scan, by the same thread, {TURN} pages at a time; {} rounds in turn; medians.",
        options.hot as f64 / MIB,
        options.hot as f64 / limit,
        limit / MIB,
        options.scan as f64 / MIB,
        options.scan as f64 / limit,
        options.touches_per_page,
        options.terms.rounds,
    )];
    setup.extend(tables::clock(all.iter().flat_map(|(_, columns)| columns)));
    setup.extend(without_kernel(&options.terms, absent));
    Report {
        experiment: "hot-set",
        setup,
        tables,
        not_comparable: vec![
            UNCHARGED.to_owned(),
            PEAK.to_owned(),
            "kept %: touches of the hot set for which nothing was decompressed and no device read, by counters of each touch: under the kernel the thread's own major faults, under folioswap the engine's pgmajfault. What waited uncompressed and came back (folioswap's staging, the kernel's swap cache) is kept; faulted % has it too.".to_owned(),
            PARENTHESES.to_owned(),
            "A system call after each touch, which tells whether it faulted, is in the wall time of all, and not in the percentiles.".to_owned(),
        ],
        results: serde_json::json!({
            "hot": options.hot, "scan": options.scan, "limit": options.terms.limit, "comparisons": kinds::results(all),
        }),
        chart: Chart {
            title: "Touches of the hot set that needed no decompression and no device".to_owned(),
            axis: "percent".to_owned(),
            bars,
        },
    }
}

/// A percentage with as many digits as the goals need.
fn percentage(part: f64) -> String {
    format!("{:.2}", 100.0 * part)
}

fn scan(title: String, number: usize, columns: &[Column]) -> (Table, Vec<Bar>) {
    let of = |run: &Figures| run.phases.get(number).cloned();
    let hot = |run: &Figures| run.phases.get(number)?.hot;
    let seconds = |run: &Figures| Some(of(run)?.seconds);
    let best = kernels_best(columns, seconds, f64::min);
    let head = [
        "",
        "kept %",
        "least to most",
        "faulted %",
        "seconds",
        "to the kernel's best",
        "scan MB/s",
        "hot touches/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
    ];
    let (mut table, mut bars) = (Table::new(title.clone(), &head), Vec::new());
    for column in columns {
        let kept = values(&column.runs, |run| hot(run).and_then(HotTouches::kept));
        let Some(middle) = median(&kept) else {
            table.rows.push(absent_row(column, table.head.len()));
            continue;
        };
        let (least, most) = spread(&kept);
        let faulted = values(&column.runs, |run| hot(run).map(|hot| hot.faults as f64 / hot.touches as f64));
        let latency = |figure| tables::latency(columns, column, number, figure);
        table.rows.push(vec![
            column.engine.to_string(),
            percentage(middle),
            format!("{} to {}", percentage(least), percentage(most)),
            median(&faulted).map_or("-".to_owned(), percentage),
            cell(column, 3, seconds),
            ratio(column, median(&values(&column.runs, seconds)), best),
            cell(column, 0, |run| Some(of(run)?.mb_per_s)),
            cell(column, 0, |run| Some(of(run)?.touches_per_s)),
            latency(|timing| timing.p50_ns),
            latency(|timing| timing.p99_ns),
            latency(|timing| timing.p999_ns),
        ]);
        bars.push(Bar {
            group: title.clone(),
            label: column.engine.to_string(),
            value: 100.0 * middle,
            spread: (100.0 * least, 100.0 * most),
        });
    }
    (table, bars)
}

#[cfg(test)]
mod tests;

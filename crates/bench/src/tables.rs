//! The parts that the tables of all comparisons share.

use crate::comparison::{Column, Terms};
use crate::engine::{Engine, Figures};
use crate::folios::{self, FolioCounts};
use crate::touch::Timing;
use folioswap_report::Table;
use folioswap_report::statistics::median;
use std::collections::BTreeSet;

pub(crate) const MIB: f64 = (1u64 << 20) as f64;

/// The caveat on limits that do not count the same.
pub(crate) const UNCHARGED: &str = "The kernel does not charge a group for what zram takes; folioswap's limit counts its store only with --memory-scope total.";

/// The caveat on ratios in parentheses.
pub(crate) const PARENTHESES: &str = "In parentheses: ours to the best of the kernel's settings in that column alone; no one setting need be the best in all.";

/// The caveat on peaks of resident memory.
pub(crate) const PEAK: &str = "Peak: anonymous and shared memory of all processes, folioswap's store with it; under the kernel what its group was charged at most, without zram. That is read at the end only: the kernel kills less when its statistics are read meanwhile.";

/// The caveat on the counters of folios.
pub(crate) const FALLBACKS: &str = "A folio that the kernel writes whole and reads back page by page, as it does with 2M, counts as no fallback: its swpin is missing instead. The kernel's counters are those of the whole machine meanwhile.";

/// Lines of the setup that say why the kernel has no columns, if it has none.
pub(crate) fn without_kernel(terms: &Terms, absent: Option<&str>) -> Vec<String> {
    let unasked =
        terms.kernel.is_empty().then(|| "The kernel's own swap was not asked (`--peer kernel`).".to_owned());
    unasked.into_iter().chain(absent.map(|why| format!("kernel: absent, {why}."))).collect()
}

/// The best of the medians of the kernel's columns: the one that `better` prefers.
pub(crate) fn kernels_best(
    columns: &[Column],
    figure: impl Fn(&Figures) -> Option<f64>,
    better: fn(f64, f64) -> f64,
) -> Option<f64> {
    let kernel = columns.iter().filter(|column| matches!(column.engine, Engine::Kernel(_)));
    kernel.filter_map(|column| median(&values(&column.runs, &figure))).reduce(better)
}

/// Our value as a multiple of the kernel's best; a dash in other columns.
pub(crate) fn ratio(column: &Column, value: Option<f64>, best: Option<f64>) -> String {
    match (value, best) {
        (Some(value), Some(best)) if column.engine.is_ours() => format!("{:.2}x", value / best),
        _ => "-".to_owned(),
    }
}

/// A median, or a dash.
pub(crate) fn cell(column: &Column, digits: usize, figure: impl Fn(&Figures) -> Option<f64>) -> String {
    let middle = median(&values(&column.runs, figure));
    middle.map_or("-".to_owned(), |middle| format!("{middle:.digits$}"))
}

/// The number of failed runs, or a dash.
pub(crate) fn failed(column: &Column) -> String {
    match column.failed.len() {
        0 => "-".to_owned(),
        failed => format!("{failed} of {}", column.runs.len() + failed),
    }
}

/// The median of a part (0 to 1) as a percentage, or a dash.
pub(crate) fn percent(column: &Column, part: impl Fn(&Figures) -> Option<f64>) -> String {
    let middle = median(&values(&column.runs, part));
    middle.map_or("-".to_owned(), |middle| format!("{:.1}", 100.0 * middle))
}

/// Latency of the touches in phase `number`, microseconds: the median of a percentile over the
/// runs, and ours as a multiple of the kernel's best.
pub(crate) fn latency(
    columns: &[Column],
    column: &Column,
    number: usize,
    figure: fn(&Timing) -> u64,
) -> String {
    let of = |run: &Figures| run.phases.get(number).map(figure).filter(|&ns| ns > 0).map(|ns| ns as f64);
    let Some(middle) = median(&values(&column.runs, of)) else { return "-".to_owned() };
    let text = microseconds(middle);
    match ratio(column, Some(middle), kernels_best(columns, of, f64::min)).as_str() {
        "-" => text,
        ratio => format!("{text} ({ratio})"),
    }
}

/// A line that says how long timing a touch takes.
pub(crate) fn clock<'a>(columns: impl Iterator<Item = &'a Column>) -> Option<String> {
    let timings = columns.flat_map(|column| &column.runs).filter_map(|run| run.phases.first());
    let middle = median(&timings.map(|timing| timing.clock_ns as f64).collect::<Vec<_>>())?;
    Some(format!("Timing a touch takes {middle:.0} ns, which are in its time and in the phase's."))
}

/// Formats nanoseconds as microseconds, with as many digits as were measured.
fn microseconds(ns: f64) -> String {
    if ns < 1000.0 { format!("{:.2}", ns / 1000.0) } else { format!("{:.1}", ns / 1000.0) }
}

/// The fate of the folios of each size above a page: a line for each engine and each size that was
/// tried; `None` when none was.
pub(crate) fn folios(title: String, columns: &[Column]) -> Option<Table> {
    let head = ["", "KiB", "swpout", "fell back", "swpin", "fell back", "fell back %"];
    let mut table = Table::new(title, &head);
    for column in columns {
        let sizes: BTreeSet<u32> =
            column.runs.iter().flat_map(|run| &run.folios).map(|counts| counts.kib).collect();
        for kib in sizes.into_iter().filter(|&kib| kib > 4) {
            let of = |run: &Figures| run.folios.iter().copied().find(|counts| counts.kib == kib);
            if !column.runs.iter().filter_map(of).any(|counts| counts.asked() > 0) {
                continue;
            }
            let count = |figure: fn(FolioCounts) -> u64| {
                cell(column, 0, |run| of(run).map(|counts| figure(counts) as f64))
            };
            table.rows.push(vec![
                column.engine.to_string(),
                kib.to_string(),
                count(|counts| counts.swpout),
                count(|counts| counts.swpout_fallback),
                count(|counts| counts.swpin),
                count(|counts| counts.swpin_fallback),
                percent(column, |run| folios::fallback(&[of(run)?])),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Cells with the pages out and in.
pub(crate) fn pages(column: &Column) -> [String; 2] {
    [0, 1].map(|which| cell(column, 0, |run| run.out_in.map(|pages| pages[which] as f64)))
}

/// Minimum and maximum.
pub(crate) fn spread(values: &[f64]) -> (f64, f64) {
    (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max))
}

/// All figures of all runs as JSON.
pub(crate) fn engines(columns: &[Column]) -> Vec<serde_json::Value> {
    let engine = |column: &Column| serde_json::json!({ "engine": column.engine.to_string(), "runs": column.runs, "failed": column.failed });
    columns.iter().map(engine).collect()
}

/// The row of an engine without a successful run, with the reason.
pub(crate) fn absent_row(column: &Column, cells: usize) -> Vec<String> {
    let why = column.failed.first().map_or("no such phase", String::as_str);
    let mut row = vec![column.engine.to_string(), format!("failed: {}", why.lines().last().unwrap_or(why))];
    row.resize(cells, "-".to_owned());
    row
}

pub(crate) fn values(runs: &[Figures], figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(figure).collect()
}

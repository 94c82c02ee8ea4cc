//! GNU sort under every engine, within several limits: a table for each limit.

use crate::comparison::{Column, Contestant, Host, Terms};
use crate::engine::{Engine, Figures, RunError, step, tell};
use crate::sort::{self, LINE, Text};
use crate::tables::{
    MIB, PEAK, UNCHARGED, absent_row, cell, engines, kernels_best, pages, ratio, spread, values,
    without_kernel,
};
use folioswap_report::{Bar, Chart, Report, Table, statistics::median};
use std::io;

/// The comparison to make.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The terms, one for each limit.
    pub terms: Vec<Terms>,
    /// Lines of text, at most [`sort::LINES_MAX`]; each has [`LINE`] bytes.
    pub lines: u64,
    /// Threads of sort.
    pub parallel: u32,
    /// Bytes that sort may use before it writes to temporary files.
    pub buffer: u64,
}

/// The columns within one limit.
struct Within {
    limit: u64,
    columns: Vec<Column>,
}

/// Lower bound of the need that is assumed. The kernel's device is at least twice as large, so that
/// sort is never killed for want of swap.
const NEED_LEAST: u64 = 1 << 30;

/// Runs the comparison; see [`crate::touch_table::compare`].
///
/// # Errors
/// [`RunError`], also when sort is not installed or the text does not fit; everything is undone.
pub fn compare(options: &Comparison, host: Host<'_>) -> Result<Report, RunError> {
    if !sort::is_installed("sort") {
        return Err(step("sort")(io::Error::new(io::ErrorKind::NotFound, "no such program in $PATH")));
    }
    let text = Text::new(options.lines).map_err(step("a temporary file with the text"))?;
    let mut all = Vec::new();
    let mut without = Vec::new();
    for terms in &options.terms {
        let programs = [Contestant {
            worker: "sort-worker",
            arguments: arguments(options, &text),
            name: format!("sort within {:.0} MiB", terms.limit as f64 / MIB),
        }];
        let need = (3 * options.lines * LINE).max(NEED_LEAST);
        let (mut columns, absent) = terms.run(host, need, &programs)?;
        let mut columns = columns.remove(0);
        fail_wrong_outputs(&mut columns);
        without = without_kernel(terms, absent.as_deref());
        all.push(Within { limit: terms.limit, columns });
    }
    Ok(report(options, &all, without))
}

fn arguments(options: &Comparison, text: &Text) -> Vec<String> {
    let pairs = [
        ("--input", text.path().display().to_string()),
        ("--parallel", options.parallel.to_string()),
        ("--buffer-size", options.buffer.to_string()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Runs the worker, which starts sort.
///
/// # Errors
/// The reason why sort did not come to its end.
pub fn work(options: &sort::Options) -> Result<(), RunError> {
    let timing = sort::sort(options);
    let timing =
        timing.map_err(|why| RunError::Program { engine: Engine::Unlimited, why: why.to_string() })?;
    tell(&timing).map_err(step("telling what sort took"))
}

fn output(run: &Figures) -> Option<&str> {
    run.phases.first()?.output.as_deref()
}

/// Moves runs to the failed ones when their output differs from that of the first run without a
/// limit.
fn fail_wrong_outputs(columns: &mut [Column]) {
    let unlimited = columns.iter().find(|column| column.engine == Engine::Unlimited);
    let wanted = unlimited.and_then(|column| output(column.runs.first()?)).map(str::to_owned);
    for column in columns {
        let before = column.runs.len();
        column.runs.retain(|run| output(run).is_some() && output(run) == wanted.as_deref());
        let wrong = before - column.runs.len();
        column.failed.extend((0..wrong).map(|_| "its output is wrong".to_owned()));
    }
}

fn seconds(run: &Figures) -> Option<f64> {
    run.phases.first().map(|timing| timing.seconds)
}

fn report(options: &Comparison, all: &[Within], without: Vec<String>) -> Report {
    let (mut tables, mut bars) = (Vec::new(), Vec::new());
    for within in all {
        let (table, mut of_limit) = table(within);
        tables.push(table);
        bars.append(&mut of_limit);
    }
    let rounds = options.terms.first().map_or(0, |terms| terms.rounds);
    let mut setup = vec![format!(
        "sort --parallel={} -S {:.0}M of {} lines ({:.1} MB) in no order; {rounds} rounds in turn; medians of the runs that came to their end with the right output.",
        options.parallel,
        options.buffer as f64 / MIB,
        options.lines,
        (options.lines * LINE) as f64 / 1e6,
    )];
    setup.extend(without);
    let results = all
        .iter()
        .map(|within| serde_json::json!({ "limit": within.limit, "engines": engines(&within.columns) }));
    Report {
        experiment: "sort",
        setup,
        tables,
        not_comparable: vec![
            UNCHARGED.to_owned(),
            PEAK.to_owned(),
            "An engine under which runs failed is compared by those that were lucky.".to_owned(),
            "The text is in the page cache, which counts towards no limit here; the program that reads sort's output through a pipe and sums it up counts towards all of them.".to_owned(),
        ],
        results: serde_json::json!({ "lines": options.lines, "comparisons": results.collect::<Vec<_>>() }),
        chart: Chart { title: "Wall time of sort".to_owned(), axis: "seconds".to_owned(), bars },
    }
}

/// The number of failed runs, and how the first of them failed.
fn failures(column: &Column) -> String {
    let Some(first) = column.failed.first() else { return "-".to_owned() };
    let (failed, runs) = (column.failed.len(), column.runs.len() + column.failed.len());
    format!("{failed} of {runs}: {}", first.lines().last().unwrap_or(first))
}

fn table(within: &Within) -> (Table, Vec<Bar>) {
    let columns = &within.columns;
    let title = format!("Within {:.0} MiB", within.limit as f64 / MIB);
    let head = [
        "",
        "seconds",
        "fastest to slowest",
        "to unlimited",
        "to the kernel's best",
        "CPU s",
        "peak MiB",
        "pages out",
        "pages in",
        "failed",
    ];
    let (mut table, mut bars) = (Table::new(title.clone(), &head), Vec::new());
    let best = kernels_best(columns, seconds, f64::min);
    let unlimited = columns.iter().find(|column| column.engine == Engine::Unlimited);
    let unlimited = unlimited.and_then(|column| median(&values(&column.runs, seconds)));
    for column in columns {
        let all = values(&column.runs, seconds);
        let Some(middle) = median(&all) else {
            let mut row = absent_row(column, table.head.len());
            row[1] = "-".to_owned();
            row[head.len() - 1] = failures(column);
            table.rows.push(row);
            continue;
        };
        let spread = spread(&all);
        let [out, back] = pages(column);
        table.rows.push(vec![
            column.engine.to_string(),
            format!("{middle:.2}"),
            format!("{:.2} to {:.2}", spread.0, spread.1),
            unlimited.map_or("-".to_owned(), |unlimited| format!("{:.1}x", middle / unlimited)),
            ratio(column, Some(middle), best),
            cell(column, 2, |run| run.cpu),
            cell(column, 0, |run| run.peak.map(|peak| peak as f64 / MIB)),
            out,
            back,
            failures(column),
        ]);
        bars.push(Bar { group: title.clone(), label: column.engine.to_string(), value: middle, spread });
    }
    (table, bars)
}

#[cfg(test)]
mod tests;

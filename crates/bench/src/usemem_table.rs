//! usemem under every engine, and the table of it.

use crate::comparison::{Column, Contestant, Host, Terms};
use crate::engine::{Engine, Figures, RunError, step, tell};
use crate::tables::{
    self, FALLBACKS, MIB, UNCHARGED, absent_row, cell, engines, failed, kernels_best, pages, ratio, spread,
    values, without_kernel,
};
use crate::usemem::{self, same_filled};
use folioswap_report::{Bar, Chart, Report, Table, statistics::median};

/// The comparison to make.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The program's options.
    pub usemem: usemem::Options,
    /// The terms; the limit holds for all processes together.
    pub terms: Terms,
}

/// Runs the comparison; see [`crate::touch_table::compare`].
///
/// # Errors
/// [`RunError`]; everything is undone.
pub fn compare(options: &Comparison, host: Host<'_>) -> Result<Report, RunError> {
    let usemem = &options.usemem;
    let programs =
        [Contestant { worker: "usemem-worker", arguments: arguments(usemem), name: "usemem".to_owned() }];
    let (mut columns, absent) = options.terms.run(host, usemem.size * usemem.processes as u64, &programs)?;
    Ok(report(options, &columns.remove(0), absent.as_deref()))
}

/// Runs the worker, which is started for each run.
///
/// # Errors
/// The first wrong word.
pub fn work(options: &usemem::Options) -> Result<(), RunError> {
    let mut timings = Vec::new();
    let done = usemem::usemem(options, |timing| timings.push(timing));
    done.map_err(|why| RunError::Program { engine: Engine::Unlimited, why })?;
    timings.iter().try_for_each(tell).map_err(step("telling what a process took"))
}

fn arguments(options: &usemem::Options) -> Vec<String> {
    let mut words = vec![
        options.size.to_string(),
        format!("--nproc={}", options.processes),
        format!("--step={}", options.step),
    ];
    for (is_set, name) in [
        (options.random, "--random"),
        (options.sync_rw, "--sync-rw"),
        (options.sync_free, "--sync-free"),
        (options.init_time, "--init-time"),
        (options.check, "--check"),
    ] {
        if is_set {
            words.push(name.to_owned());
        }
    }
    words
}

/// The sum of the processes' megabytes per second, as vm-scalability sums it.
fn throughput(run: &Figures) -> Option<f64> {
    let access = run.phases.iter().filter(|timing| timing.phase == "access");
    access.map(|timing| timing.mb_per_s).reduce(|sum, each| sum + each)
}

fn freeing(run: &Figures) -> Option<f64> {
    let free = run.phases.iter().filter(|timing| timing.phase == "free");
    free.map(|timing| timing.seconds * 1000.0).reduce(f64::max)
}

/// Microseconds of processor time per page that was swapped out.
fn per_page_out(run: &Figures) -> Option<f64> {
    let [out, _] = run.out_in?;
    (out > 0).then_some(())?;
    Some(run.cpu? * 1e6 / out as f64)
}

fn report(options: &Comparison, columns: &[Column], absent: Option<&str>) -> Report {
    let usemem = &options.usemem;
    let best = kernels_best(columns, throughput, f64::max);
    let least = kernels_best(columns, per_page_out, f64::min);
    let mut table = Table::new(
        "Megabytes that all processes write a second, and processor time (user and system, of everything that runs)",
        &[
            "",
            "MB/s",
            "slowest to fastest",
            "to the kernel's best",
            "wall s",
            "CPU s",
            "CPU us a page out",
            "to the kernel's least",
            "free ms",
            "pages out",
            "pages in",
            "failed",
        ],
    );
    let mut bars = Vec::new();
    for column in columns {
        let all = values(&column.runs, throughput);
        let Some(middle) = median(&all) else {
            table.rows.push(absent_row(column, table.head.len()));
            continue;
        };
        let spread = spread(&all);
        let [out, back] = pages(column);
        table.rows.push(vec![
            column.engine.to_string(),
            format!("{middle:.0}"),
            format!("{:.0} to {:.0}", spread.0, spread.1),
            ratio(column, Some(middle), best),
            cell(column, 2, |run| Some(run.wall)),
            cell(column, 2, |run| run.cpu),
            cell(column, 2, per_page_out),
            ratio(column, median(&values(&column.runs, per_page_out)), least),
            cell(column, 1, freeing),
            out,
            back,
            failed(column),
        ]);
        bars.push(Bar {
            group: "usemem".to_owned(),
            label: column.engine.to_string(),
            value: middle,
            spread,
        });
    }
    let mut setup = vec![
        format!(
            "usemem {}, {} processes of {:.0} MiB within {:.0} MiB, a word every {} bytes; {} rounds in turn; medians.",
            if usemem.random { "at random (-R)" } else { "in order" },
            usemem.processes,
            usemem.size as f64 / MIB,
            options.terms.limit as f64 / MIB,
            usemem.step,
            options.terms.rounds,
        ),
        format!(
            "{:.2} % of the pages hold one word repeated (after a pass in order).",
            100.0 * same_filled(usemem.step)
        ),
    ];
    setup.extend(without_kernel(&options.terms, absent));
    Report {
        experiment: "usemem",
        setup,
        tables: [table].into_iter().chain(tables::folios("Folios by size".to_owned(), columns)).collect(),
        not_comparable: vec![
            UNCHARGED.to_owned(),
            FALLBACKS.to_owned(),
            "kswapd's processor time is in no group: the kernel reclaims for a group in the program's own time.".to_owned(),
        ],
        results: serde_json::json!({ "limit": options.terms.limit, "engines": engines(columns) }),
        chart: Chart { title: "usemem".to_owned(), axis: "MB/s".to_owned(), bars },
    }
}

#[cfg(test)]
mod tests;

//! `touch` under every engine: a table for each phase with a line for each engine.

use crate::comparison::{Column, Host, Terms};
use crate::data::Kind;
use crate::engine::{Engine, Figures, RunError, step, tell};
use crate::folios;
use crate::kinds;
use crate::resident::Resident;
use crate::tables::{
    self, FALLBACKS, MIB, PARENTHESES, PEAK, UNCHARGED, absent_row, kernels_best, percent, ratio, spread,
    values, without_kernel,
};
use crate::touch::{self, Advice, Timing};
use folioswap_report::{Bar, Chart, Report, Table, statistics::median};

/// The comparison to make.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The terms.
    pub terms: Terms,
    /// Bytes of memory that the program uses.
    pub size: u64,
    /// Kinds of data, each compared by itself.
    pub kinds: Vec<Kind>,
    /// Phases of the program, in order.
    pub phases: Vec<String>,
    /// Threads of the program.
    pub threads: usize,
    /// Random touches.
    pub touches: u64,
    /// Percent of them that write.
    pub writes: u64,
    /// The program's advice on huge pages.
    pub advice: Option<Advice>,
}

/// Runs the comparison. A kernel that cannot be used is marked absent, with the reason.
///
/// # Errors
/// [`RunError`] when the program fails without a limit, or on an interrupt; everything is undone.
pub fn compare(options: &Comparison, host: Host<'_>) -> Result<Report, RunError> {
    let of = |kind| arguments(options, kind);
    let (all, absent) = kinds::compare(&options.terms, host, "worker", options.size, &options.kinds, of)?;
    Ok(report(options, &all, absent.as_deref()))
}

/// The arguments of a worker.
fn arguments(options: &Comparison, kind: Kind) -> Vec<String> {
    let numbers = [
        ("--size", options.size),
        ("--threads", options.threads as u64),
        ("--touches", options.touches),
        ("--writes", options.writes),
    ];
    let words = [("--kind", kind.name().to_owned()), ("--phases", options.phases.join(","))];
    let advice = options.advice.map(|advice| ("--advise", advice.name().to_owned()));
    let numbers = numbers.map(|(name, number)| (name, number.to_string()));
    let pairs = numbers.into_iter().chain(words).chain(advice);
    pairs.flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Runs the worker, which is started for each run.
///
/// # Errors
/// The wrong page, and how it is wrong.
pub fn work(options: &touch::Options) -> Result<(), RunError> {
    let mut unheard = Ok(());
    let done = touch::touch(options, 0, |timing| {
        if unheard.is_ok() {
            unheard = tell(&timing);
        }
    });
    done.map_err(|why| RunError::Program { engine: Engine::Unlimited, why })?;
    unheard.map_err(step("telling what a phase took"))
}

fn report(options: &Comparison, all: &[(Kind, Vec<Column>)], absent: Option<&str>) -> Report {
    let (mut tables, mut bars) = (Vec::new(), Vec::new());
    let steps = touch::steps(&options.phases);
    for (kind, columns) in all {
        for number in 0..steps.len() {
            let (table, mut of_phase) = phase(&steps, *kind, number, columns);
            tables.push(table);
            bars.append(&mut of_phase);
        }
        tables.push(kinds::whole(*kind, columns, &[("fell back %", fell_back)]));
        tables.extend(tables::folios(format!("Folios by size, {} data", kind.title()), columns));
    }
    let mut setup = vec![format!(
        "{:.0} MiB of data within {:.0} MiB; {} thread{}, {} rounds in turn; medians (and from the fastest to the slowest run).",
        options.size as f64 / MIB,
        options.terms.limit as f64 / MIB,
        options.threads,
        if options.threads == 1 { "" } else { "s" },
        options.terms.rounds,
    )];
    setup.extend(tables::clock(all.iter().flat_map(|(_, columns)| columns)));
    setup.extend(without_kernel(&options.terms, absent));
    Report {
        experiment: "touch",
        setup,
        tables,
        not_comparable: vec![
            UNCHARGED.to_owned(),
            PEAK.to_owned(),
            FALLBACKS.to_owned(),
            "huge %: of what is resident of the program's memory when the phase ends, the part that huge pages of 2 MiB map whole (AnonHugePages).".to_owned(),
            "Percentiles are of each page's first access in a phase.".to_owned(),
            PARENTHESES.to_owned(),
            "Only the wall time of a phase is measured in it; pages out and in are of the whole run.".to_owned(),
        ],
        results: serde_json::json!({ "size": options.size, "limit": options.terms.limit, "comparisons": kinds::results(all) }),
        chart: Chart { title: "Wall time of each phase".to_owned(), axis: "seconds".to_owned(), bars },
    }
}

/// The title of a phase. Phases of the same name are numbered.
fn title_of(phases: &[String], number: usize) -> String {
    let before = phases[..number].iter().filter(|name| **name == phases[number]).count();
    if before == 0 { phases[number].clone() } else { format!("{} again ({})", phases[number], before + 1) }
}

fn phase(steps: &[String], kind: Kind, number: usize, columns: &[Column]) -> (Table, Vec<Bar>) {
    let name = title_of(steps, number);
    let title = format!("{name}, {} data", kind.title());
    let seconds = |run: &Figures| run.phases.get(number).map(|timing| timing.seconds);
    let best = kernels_best(columns, seconds, f64::min);
    let mut table = Table::new(
        title.clone(),
        &[
            "",
            "seconds",
            "fastest to slowest",
            "MB/s",
            "to the kernel's best",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "huge %",
        ],
    );
    let latency = |column, figure| tables::latency(columns, column, number, figure);
    let mut bars = Vec::new();
    for column in columns {
        let all = values(&column.runs, seconds);
        let Some(middle) = median(&all) else {
            table.rows.push(absent_row(column, table.head.len()));
            continue;
        };
        let spread = spread(&all);
        let of = |figure: fn(&Timing) -> f64| {
            median(&values(&column.runs, |run| run.phases.get(number).map(figure))).unwrap_or(0.0)
        };
        table.rows.push(vec![
            column.engine.to_string(),
            format!("{middle:.3}"),
            format!("{:.3} to {:.3}", spread.0, spread.1),
            format!("{:.0}", of(|timing| timing.mb_per_s)),
            ratio(column, Some(middle), best),
            latency(column, |timing| timing.p50_ns),
            latency(column, |timing| timing.p99_ns),
            latency(column, |timing| timing.p999_ns),
            percent(column, |run| run.phases.get(number)?.resident.and_then(Resident::huge)),
        ]);
        bars.push(Bar { group: title.clone(), label: column.engine.to_string(), value: middle, spread });
    }
    (table, bars)
}

fn fell_back(column: &Column) -> String {
    percent(column, |run| folios::fallback(&run.folios))
}

#[cfg(test)]
mod tests;

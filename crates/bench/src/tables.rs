//! The tables of a comparison: a block for each phase, a line for each engine.

use crate::comparison::{Column, Options};
use crate::data::Kind;
use crate::engine::{Engine, Figures};
use crate::touch::Timing;
use folioswap_lab::report::{Bar, Chart, Report, Table};

const MIB: f64 = (1u64 << 20) as f64;

pub(crate) fn report(options: &Options, all: &[(Kind, Vec<Column>)], absent: Option<&str>) -> Report {
    let (mut tables, mut bars) = (Vec::new(), Vec::new());
    for (kind, columns) in all {
        for number in 0..options.phases.len() {
            let (table, mut of_phase) = phase(options, *kind, number, columns);
            tables.push(table);
            bars.append(&mut of_phase);
        }
        tables.push(whole(*kind, columns));
    }
    let mut setup = vec![format!(
        "{:.0} MiB of data within {:.0} MiB; {} thread{}, {} rounds in turn; medians (and from the fastest to the slowest run).",
        options.size as f64 / MIB,
        options.limit as f64 / MIB,
        options.threads,
        if options.threads == 1 { "" } else { "s" },
        options.rounds,
    )];
    if options.kernel.is_empty() {
        setup.push("The kernel's own swap was not asked (`--peer kernel`).".to_owned());
    }
    if let Some(why) = absent {
        setup.push(format!("kernel: absent, {why}."));
    }
    let results = all.iter().map(|(kind, columns)| {
        let engines = columns.iter().map(|column| {
            serde_json::json!({ "engine": column.engine.to_string(), "runs": column.runs, "failed": column.failed })
        });
        serde_json::json!({ "kind": kind.name(), "engines": engines.collect::<Vec<_>>() })
    });
    Report {
        experiment: "touch",
        setup,
        tables,
        not_comparable: vec![
            "The kernel does not charge a group for what zram takes; folioswap's limit counts its store only with --memory-scope total.".to_owned(),
            "Peak: anonymous and shared memory of all processes; folioswap's store is in it, the kernel's zram is not.".to_owned(),
            "Only the wall time of a phase is measured in it; pages out and in are of the whole run.".to_owned(),
        ],
        results: serde_json::json!({ "size": options.size, "limit": options.limit, "comparisons": results.collect::<Vec<_>>() }),
        chart: Chart { title: "Wall time of each phase".to_owned(), axis: "seconds".to_owned(), bars },
    }
}

/// The name of a phase, told from others of the same name by its number among them.
fn title_of(phases: &[String], number: usize) -> String {
    let before = phases[..number].iter().filter(|name| **name == phases[number]).count();
    if before == 0 { phases[number].clone() } else { format!("{} again ({})", phases[number], before + 1) }
}

fn phase(options: &Options, kind: Kind, number: usize, columns: &[Column]) -> (Table, Vec<Bar>) {
    let name = title_of(&options.phases, number);
    let title = format!("{name}, {} data", kind.title());
    let seconds =
        |column: &Column| values(&column.runs, |run| run.phases.get(number).map(|timing| timing.seconds));
    let kernel = columns.iter().filter(|column| matches!(column.engine, Engine::Kernel(_)));
    let best = kernel.filter_map(|column| median(&seconds(column))).reduce(f64::min);
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
        ],
    );
    let mut bars = Vec::new();
    for column in columns {
        let all = seconds(column);
        let Some(middle) = median(&all) else {
            table.rows.push(absent_row(column, table.head.len()));
            continue;
        };
        let spread = (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max));
        let of = |figure: fn(&Timing) -> f64| {
            median(&values(&column.runs, |run| run.phases.get(number).map(figure))).unwrap_or(0.0)
        };
        let ratio = match (column.engine, best) {
            (Engine::Folioswap(_), Some(best)) => format!("{:.2}x", middle / best),
            _ => "-".to_owned(),
        };
        let latency = |figure: fn(&Timing) -> f64| {
            let value = of(figure);
            if value > 0.0 { format!("{:.1}", value / 1000.0) } else { "-".to_owned() }
        };
        table.rows.push(vec![
            column.engine.to_string(),
            format!("{middle:.3}"),
            format!("{:.3} to {:.3}", spread.0, spread.1),
            format!("{:.0}", of(|timing| timing.mb_per_s)),
            ratio,
            latency(|timing| timing.p50_ns as f64),
            latency(|timing| timing.p99_ns as f64),
            latency(|timing| timing.p999_ns as f64),
        ]);
        bars.push(Bar { group: title.clone(), label: column.engine.to_string(), value: middle, spread });
    }
    (table, bars)
}

/// Memory and pages of the whole runs.
fn whole(kind: Kind, columns: &[Column]) -> Table {
    let mut table = Table::new(
        format!("The whole run, {} data", kind.title()),
        &["", "seconds", "peak MiB", "pages out", "pages in", "failed"],
    );
    for column in columns {
        let cell = |figure: fn(&Figures) -> Option<f64>, scale: f64| {
            let middle = median(&values(&column.runs, figure));
            middle.map_or("-".to_owned(), |middle| format!("{:.0}", middle / scale))
        };
        let runs = column.runs.len() + column.failed.len();
        let failed = if column.failed.is_empty() {
            "-".to_owned()
        } else {
            format!("{} of {runs}", column.failed.len())
        };
        let seconds = median(&values(&column.runs, |run| Some(run.wall)));
        table.rows.push(vec![
            column.engine.to_string(),
            seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.2}")),
            cell(|run| run.peak.map(|peak| peak as f64), MIB),
            cell(|run| run.out_in.map(|[out, _]| out as f64), 1.0),
            cell(|run| run.out_in.map(|[_, back]| back as f64), 1.0),
            failed,
        ]);
    }
    table
}

/// No run of this engine came to its end: why.
pub(crate) fn absent_row(column: &Column, cells: usize) -> Vec<String> {
    let why = column.failed.first().map_or("no such phase", String::as_str);
    let mut row = vec![column.engine.to_string(), format!("failed: {}", why.lines().last().unwrap_or(why))];
    row.resize(cells, "-".to_owned());
    row
}

pub(crate) fn values(runs: &[Figures], figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(figure).collect()
}

pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Scope, name_of};
    use folioswap_peer::FolioSizes;

    fn run(seconds: &[f64]) -> Figures {
        let timing = |(number, &seconds): (usize, &f64)| Timing {
            phase: ["fill", "random"][number % 2].to_owned(),
            process: 0,
            seconds,
            mb_per_s: 100.0 / seconds,
            touches_per_s: 1.0,
            p50_ns: if number == 0 { 0 } else { 2_500 },
            p99_ns: 0,
            p999_ns: 0,
        };
        let phases = seconds.iter().enumerate().map(timing).collect();
        Figures { phases, wall: 1.0, peak: Some(3 << 20), cpu: None, out_in: Some([7, 8]) }
    }

    fn options() -> Options {
        Options {
            size: 8 << 20,
            limit: 4 << 20,
            kinds: vec![Kind::Two],
            phases: ["fill", "random", "fill"].map(str::to_owned).into(),
            threads: 1,
            touches: 10,
            writes: 0,
            rounds: 3,
            scope: Scope::Resident,
            kernel: vec![FolioSizes::Only4K, FolioSizes::All],
        }
    }

    #[test]
    fn medians_are_compared_with_the_kernels_best_and_failures_are_named() {
        let column = |engine, runs: &[[f64; 3]], failed: &[&str]| Column {
            engine,
            runs: runs.iter().map(|seconds| run(seconds)).collect(),
            failed: failed.iter().map(|why| (*why).to_owned()).collect(),
        };
        let columns = vec![
            column(
                Engine::Folioswap(Scope::Resident),
                &[[3.0, 1.0, 1.0], [2.0, 1.0, 1.0], [9.0, 1.0, 1.0]],
                &[],
            ),
            column(Engine::Kernel(FolioSizes::Only4K), &[[4.0, 4.0, 4.0], [6.0, 4.0, 4.0]], &["killed"]),
            column(Engine::Kernel(FolioSizes::All), &[], &["one\nkilled"]),
        ];
        let report = report(&options(), &[(Kind::Two, columns)], Some("no zram"));
        let titles: Vec<&str> = report.tables.iter().map(|table| table.title.as_str()).collect();
        assert_eq!(
            titles,
            ["fill, 2:1 data", "random, 2:1 data", "fill again (2), 2:1 data", "The whole run, 2:1 data"]
        );
        let rows = &report.tables[0].rows;
        assert_eq!(rows[0][..5], ["folioswap resident", "3.000", "2.000 to 9.000", "33", "0.60x"]);
        assert_eq!(rows[1][..2], ["kernel 4k", "5.000"]);
        assert_eq!(rows[2][..2], ["kernel all", "failed: killed"]);
        assert_eq!((rows[0][5].as_str(), report.tables[1].rows[0][5].as_str()), ("-", "2.5"));
        assert_eq!(report.tables[3].rows[1], ["kernel 4k", "1.00", "3", "7", "8", "1 of 3"]);
        assert!(report.setup.iter().any(|line| line == "kernel: absent, no zram."));
        assert_eq!(report.chart.bars.len(), 6);
        assert_eq!(name_of(FolioSizes::All), "all");
    }
}

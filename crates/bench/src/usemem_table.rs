//! usemem under every engine: what is compared, and its table.

use crate::comparison::{Column, Contest};
use crate::engine::{Engine, Figures, RunError, Scope, tell};
use crate::tables::{absent_row, median, values};
use crate::usemem::{self, same_filled};
use folioswap_lab::progress::Show;
use folioswap_lab::report::{Bar, Chart, Report, Table};
use folioswap_peer::FolioSizes;
use std::path::Path;

const MIB: f64 = (1u64 << 20) as f64;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The program's options.
    pub usemem: usemem::Options,
    /// Bytes of resident memory that all processes together may have.
    pub limit: u64,
    /// Runs of each engine.
    pub rounds: u32,
    /// What folioswap's limit counts.
    pub scope: Scope,
    /// The kernel's settings, if it is asked.
    pub kernel: Vec<FolioSizes>,
}

/// Compares; see [`crate::comparison::touch`].
///
/// # Errors
/// [`RunError`]; everything is undone.
pub fn compare(
    options: &Comparison,
    program: &Path,
    interrupted: fn() -> bool,
    show: Show,
) -> Result<Report, RunError> {
    let contest = Contest {
        program,
        limit: options.limit,
        need: options.usemem.size * options.usemem.processes as u64,
        scope: options.scope,
        kernel: &options.kernel,
        rounds: options.rounds,
        interrupted,
    };
    let programs = [("usemem-worker", arguments(&options.usemem), "usemem".to_owned())];
    let (mut columns, absent) = contest.run(&programs, show)?;
    Ok(report(options, &columns.remove(0), absent.as_deref()))
}

/// The program that is started for each run.
///
/// # Errors
/// What word is wrong.
pub fn work(options: &usemem::Options) -> Result<(), RunError> {
    let mut timings = Vec::new();
    let done = usemem::usemem(options, |timing| timings.push(timing));
    done.map_err(|why| RunError::Program { engine: Engine::Unlimited, why })?;
    timings.iter().try_for_each(tell).map_err(crate::engine::step("telling what a process took"))
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

/// The sum of what the processes wrote a second, as vm-scalability sums it.
fn throughput(run: &Figures) -> Option<f64> {
    let access = run.phases.iter().filter(|timing| timing.phase == "access");
    access.map(|timing| timing.mb_per_s).reduce(|sum, each| sum + each)
}

fn freeing(run: &Figures) -> Option<f64> {
    let free = run.phases.iter().filter(|timing| timing.phase == "free");
    free.map(|timing| timing.seconds * 1000.0).reduce(f64::max)
}

/// Microseconds of processor time for each page that was swapped out.
fn per_page_out(run: &Figures) -> Option<f64> {
    let [out, _] = run.out_in?;
    (out > 0).then_some(())?;
    Some(run.cpu? * 1e6 / out as f64)
}

fn report(options: &Comparison, columns: &[Column], absent: Option<&str>) -> Report {
    let usemem = &options.usemem;
    let kernel = || columns.iter().filter(|column| matches!(column.engine, Engine::Kernel(_)));
    let best = kernel().filter_map(|column| median(&values(&column.runs, throughput))).reduce(f64::max);
    let least = kernel().filter_map(|column| median(&values(&column.runs, per_page_out))).reduce(f64::min);
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
        let spread = (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max));
        let cell = |figure: fn(&Figures) -> Option<f64>, digits: usize| {
            let middle = median(&values(&column.runs, figure));
            middle.map_or("-".to_owned(), |middle| format!("{middle:.digits$}"))
        };
        let ratio = |value: Option<f64>, of: Option<f64>| match (column.engine, value, of) {
            (Engine::Folioswap(_), Some(value), Some(of)) => format!("{:.2}x", value / of),
            _ => "-".to_owned(),
        };
        let runs = column.runs.len() + column.failed.len();
        let failed = match column.failed.len() {
            0 => "-".to_owned(),
            failed => format!("{failed} of {runs}"),
        };
        table.rows.push(vec![
            column.engine.to_string(),
            format!("{middle:.0}"),
            format!("{:.0} to {:.0}", spread.0, spread.1),
            ratio(Some(middle), best),
            cell(|run| Some(run.wall), 2),
            cell(|run| run.cpu, 2),
            cell(per_page_out, 2),
            ratio(median(&values(&column.runs, per_page_out)), least),
            cell(freeing, 1),
            cell(|run| run.out_in.map(|[out, _]| out as f64), 0),
            cell(|run| run.out_in.map(|[_, back]| back as f64), 0),
            failed,
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
            options.limit as f64 / MIB,
            usemem.step,
            options.rounds,
        ),
        format!(
            "{:.2} % of the pages hold one word repeated (after a pass in order).",
            100.0 * same_filled(usemem.step)
        ),
    ];
    if options.kernel.is_empty() {
        setup.push("The kernel's own swap was not asked (`--peer kernel`).".to_owned());
    }
    setup.extend(absent.map(|why| format!("kernel: absent, {why}.")));
    let engines = columns.iter().map(|column| {
        serde_json::json!({ "engine": column.engine.to_string(), "runs": column.runs, "failed": column.failed })
    });
    Report {
        experiment: "usemem",
        setup,
        tables: vec![table],
        not_comparable: vec![
            "The kernel does not charge a group for what zram takes; folioswap's limit counts its store only with --memory-scope total.".to_owned(),
            "kswapd's processor time is in no group: the kernel reclaims for a group in the program's own time.".to_owned(),
        ],
        results: serde_json::json!({ "limit": options.limit, "engines": engines.collect::<Vec<_>>() }),
        chart: Chart { title: "usemem".to_owned(), axis: "MB/s".to_owned(), bars },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::touch::Timing;

    #[test]
    fn processes_add_up_and_ratios_are_to_the_kernels_best() {
        let run = |rates: &[f64], cpu, out| {
            let timing = |(process, &mb_per_s): (usize, &f64)| Timing {
                phase: "access".to_owned(),
                process,
                mb_per_s,
                ..Timing::default()
            };
            let phases = rates.iter().enumerate().map(timing).collect();
            Figures { phases, wall: 1.0, peak: None, cpu: Some(cpu), out_in: Some([out, 0]) }
        };
        let columns = [
            Column {
                engine: Engine::Folioswap(Scope::Resident),
                runs: vec![run(&[100.0, 140.0], 1.0, 1_000_000)],
                failed: Vec::new(),
            },
            Column {
                engine: Engine::Kernel(FolioSizes::Only4K),
                runs: vec![run(&[60.0, 60.0], 4.0, 2_000_000)],
                failed: vec!["killed".to_owned()],
            },
            Column {
                engine: Engine::Kernel(FolioSizes::All),
                runs: vec![run(&[40.0], 9.0, 0)],
                failed: Vec::new(),
            },
        ];
        let options = Comparison {
            usemem: usemem::Options {
                size: 1 << 30,
                processes: 2,
                step: 8,
                random: true,
                sync_rw: true,
                sync_free: false,
                init_time: true,
                check: false,
            },
            limit: 1 << 29,
            rounds: 2,
            scope: Scope::Resident,
            kernel: vec![FolioSizes::Only4K, FolioSizes::All],
        };
        let report = report(&options, &columns, None);
        let rows = &report.tables[0].rows;
        assert_eq!(rows[0][1..8], ["240", "240 to 240", "2.00x", "1.00", "1.00", "1.00", "0.50x"]);
        assert_eq!((rows[1][6].as_str(), rows[1][11].as_str()), ("2.00", "1 of 2"));
        assert_eq!(rows[2][6], "-");
        assert!(report.setup[0].contains("at random (-R), 2 processes of 1024 MiB within 512 MiB"));
        let words = arguments(&options.usemem);
        assert_eq!(words, ["1073741824", "--nproc=2", "--step=8", "--random", "--sync-rw", "--init-time"]);
    }
}

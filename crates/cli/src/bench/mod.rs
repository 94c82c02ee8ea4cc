//! `folioswap bench`: runs the same program under every engine.

pub mod arguments;
mod figures;

use crate::doctor::Findings;
use crate::error::Error;
use crate::lab::{self, arguments::OutputArguments};
use arguments::{
    BenchArguments, BenchCommand, HotSetArguments, HotSetWorkerArguments, SortArguments, TermsArguments,
    TouchArguments, UsememArguments, UsememOptions, WorkerArguments,
};
use folioswap_bench::comparison::Host;
use folioswap_bench::touch::Options;
use folioswap_bench::{
    faults, hot_set, hot_set_table, interrupts, sort, sort_table, touch_table, usemem, usemem_table,
};
use folioswap_report::Show;
use folioswap_supervisor::size;
use std::path::{Path, PathBuf};

/// The command.
///
/// # Errors
/// [`Error::Bench`], or the output cannot be written.
pub fn bench(arguments: &BenchArguments) -> Result<i32, Error> {
    match &arguments.command {
        BenchCommand::Touch(arguments) => touch(arguments),
        BenchCommand::Usemem(arguments) => usemem(arguments),
        BenchCommand::HotSet(arguments) => hot_set(arguments),
        BenchCommand::HotSetWorker(arguments) => hot_set_work(arguments),
        BenchCommand::Sort(arguments) => sort(arguments),
        BenchCommand::SortWorker(arguments) => {
            sort_table::work(&sort::Options {
                input: arguments.input.clone(),
                parallel: arguments.parallel,
                buffer: arguments.buffer_size,
            })?;
            Ok(0)
        }
        BenchCommand::Worker(arguments) => work(arguments),
        BenchCommand::UsememWorker(arguments) => {
            usemem_table::work(&usemem_options(arguments.size, &arguments.usemem))?;
            Ok(0)
        }
    }
}

fn touch(arguments: &TouchArguments) -> Result<i32, Error> {
    let quick = arguments.output.quick;
    let size = arguments.size.unwrap_or(if quick { 128 << 20 } else { 512 << 20 });
    let limit = arguments.limit.unwrap_or((size / 4).max(size::LIMIT_MIN));
    let options = touch_table::Comparison {
        terms: arguments.terms.terms(limit, rounds(&arguments.output)),
        size,
        kinds: arguments.kind.iter().map(|kind| (*kind).into()).collect(),
        phases: arguments.phases.clone(),
        threads: arguments.threads as usize,
        touches: arguments.touches.unwrap_or(if quick { 5_000 } else { 20_000 }),
        writes: arguments.writes,
        advice: arguments.advise.map(Into::into),
    };
    let report = touch_table::compare(&options, host(&prepare(&arguments.terms)?))?;
    lab::show(&report, &arguments.output)
}

/// The runs of each engine, unless the user asks for another number.
const fn rounds(output: &OutputArguments) -> u32 {
    if output.quick { 1 } else { 3 }
}

fn host(program: &Path) -> Host<'_> {
    Host { program, interrupted: interrupts::seen, show: Show::Yes }
}

/// Begins to take note of signals, and returns the path of our own executable, to be started again.
///
/// # Errors
/// What is to be measured cannot run here: that is said once, and not by each of its runs.
fn prepare(terms: &TermsArguments) -> Result<PathBuf, Error> {
    let findings = Findings::new();
    if !findings.works() {
        return Err(Error::Host(findings.refusal()));
    }
    if terms.peer.is_some() && !rustix::process::geteuid().is_root() {
        return Err(Error::PeerWantsRoot);
    }
    interrupts::watch().map_err(Error::system("signal handlers"))?;
    std::env::current_exe().map_err(Error::system("finding folioswap's own file"))
}

fn usemem(arguments: &UsememArguments) -> Result<i32, Error> {
    let quick = arguments.output.quick;
    let size = arguments.size.unwrap_or(if quick { 64 << 20 } else { 512 << 20 });
    let all = size * u64::from(arguments.usemem.nproc);
    let limit = arguments.limit.unwrap_or((all / 2).max(size::LIMIT_MIN));
    let options = usemem_table::Comparison {
        usemem: usemem_options(size, &arguments.usemem),
        terms: arguments.terms.terms(limit, rounds(&arguments.output)),
    };
    let report = usemem_table::compare(&options, host(&prepare(&arguments.terms)?))?;
    lab::show(&report, &arguments.output)
}

fn usemem_options(size: u64, arguments: &UsememOptions) -> usemem::Options {
    usemem::Options {
        size,
        processes: arguments.nproc as usize,
        step: arguments.step,
        random: arguments.random,
        sync_rw: arguments.sync_rw,
        sync_free: arguments.sync_free,
        init_time: arguments.init_time,
        check: arguments.check,
    }
}

fn work(arguments: &WorkerArguments) -> Result<i32, Error> {
    let options = Options {
        size: arguments.size,
        kind: arguments.kind,
        phases: arguments.phases.clone(),
        threads: arguments.threads,
        touches: arguments.touches,
        writes: arguments.writes,
        advice: arguments.advise.map(Into::into),
        ..Options::default()
    };
    touch_table::work(&options)?;
    Ok(0)
}

fn hot_set(arguments: &HotSetArguments) -> Result<i32, Error> {
    let limit = arguments.limit.unwrap_or(if arguments.output.quick { 16 << 20 } else { 128 << 20 });
    let options = hot_set_table::Comparison {
        terms: arguments.terms.terms(limit, rounds(&arguments.output)),
        hot: arguments.hot.unwrap_or(limit / 2),
        scan: arguments.scan.unwrap_or(8 * limit),
        kinds: arguments.kind.iter().map(|kind| (*kind).into()).collect(),
        touches_per_page: arguments.touches_per_page,
    };
    let report = hot_set_table::compare(&options, host(&prepare(&arguments.terms)?))?;
    lab::show(&report, &arguments.output)
}

fn hot_set_work(arguments: &HotSetWorkerArguments) -> Result<i32, Error> {
    let options = hot_set::Options {
        hot: arguments.hot,
        scan: arguments.scan,
        kind: arguments.kind,
        touches_per_page: arguments.touches_per_page,
    };
    let figures = figures::own().map_err(Error::system("asking the group for its figures"))?;
    hot_set_table::work(&options, figures.as_ref().map(|figures| figures as &dyn faults::Engine))?;
    Ok(0)
}

/// The number of lines that the usual limits are meant for.
const USUAL_LINES: u64 = 1_700_000;
/// The usual limits in MiB: four fifths, half and a third of the memory that sort needs for these
/// lines.
const USUAL_LIMITS: [u64; 3] = [150, 100, 60];

fn sort(arguments: &SortArguments) -> Result<i32, Error> {
    let lines = arguments.lines.unwrap_or(if arguments.output.quick { 400_000 } else { USUAL_LINES });
    let usual = USUAL_LIMITS.map(|mib| ((mib << 20) * lines / USUAL_LINES).max(size::LIMIT_MIN));
    let limits = if arguments.limit.is_empty() { &usual[..] } else { &arguments.limit };
    let terms = |&limit: &u64| arguments.terms.terms(limit, rounds(&arguments.output));
    let options = sort_table::Comparison {
        terms: limits.iter().map(terms).collect(),
        lines,
        parallel: arguments.parallel,
        buffer: arguments.buffer_size,
    };
    let report = sort_table::compare(&options, host(&prepare(&arguments.terms)?))?;
    lab::show(&report, &arguments.output)
}

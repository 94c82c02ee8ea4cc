//! `folioswap bench`: the same program under every engine.

pub mod arguments;

use crate::error::Error;
use crate::lab;
use arguments::{BenchArguments, BenchCommand, TouchArguments, WorkerArguments};
use folioswap_bench::comparison;
use folioswap_bench::interrupts;
use folioswap_bench::touch::Options;
use folioswap_lab::progress::Show;

/// The command.
///
/// # Errors
/// [`Error::Bench`], or the output cannot be written.
pub fn bench(arguments: &BenchArguments) -> Result<i32, Error> {
    match &arguments.command {
        BenchCommand::Touch(arguments) => touch(arguments),
        BenchCommand::Worker(arguments) => work(arguments),
    }
}

fn touch(arguments: &TouchArguments) -> Result<i32, Error> {
    let quick = arguments.output.quick;
    let size = arguments.size.unwrap_or(if quick { 128 << 20 } else { 512 << 20 });
    let options = comparison::Options {
        size,
        limit: arguments.limit.unwrap_or((size / 4).max(crate::size::LIMIT_MIN)),
        kinds: arguments.kind.iter().map(|kind| (*kind).into()).collect(),
        phases: arguments.phases.clone(),
        threads: arguments.threads as usize,
        touches: arguments.touches.unwrap_or(if quick { 5_000 } else { 20_000 }),
        writes: arguments.writes,
        rounds: arguments.rounds.unwrap_or(if quick { 1 } else { 3 }),
        scope: arguments.memory_scope.into(),
        kernel: match arguments.peer {
            Some(_) => arguments.thp.iter().map(|sizes| (*sizes).into()).collect(),
            None => Vec::new(),
        },
    };
    interrupts::watch().map_err(Error::system("signal handlers"))?;
    let program = std::env::current_exe().map_err(Error::system("finding folioswap's own file"))?;
    let report = comparison::touch(&options, &program, interrupts::seen, Show::Yes)?;
    lab::show(&report, &arguments.output)
}

fn work(arguments: &WorkerArguments) -> Result<i32, Error> {
    let options = Options {
        size: arguments.size,
        kind: arguments.kind,
        phases: arguments.phases.clone(),
        threads: arguments.threads,
        touches: arguments.touches,
        writes: arguments.writes,
        ..Options::default()
    };
    comparison::work(&options)?;
    Ok(0)
}

//! `folioswap bench`: the same program under every engine.

pub mod arguments;

use crate::error::Error;
use crate::lab;
use arguments::{
    BenchArguments, BenchCommand, PeerChoice, SizesChoice, TouchArguments, UsememArguments, UsememOptions,
    WorkerArguments,
};
use folioswap_bench::comparison;
use folioswap_bench::interrupts;
use folioswap_bench::touch::Options;
use folioswap_bench::usemem;
use folioswap_bench::usemem_table::{self, Comparison};
use folioswap_lab::progress::Show;
use folioswap_peer::FolioSizes;
use std::path::PathBuf;

/// The command.
///
/// # Errors
/// [`Error::Bench`], or the output cannot be written.
pub fn bench(arguments: &BenchArguments) -> Result<i32, Error> {
    match &arguments.command {
        BenchCommand::Touch(arguments) => touch(arguments),
        BenchCommand::Usemem(arguments) => usemem(arguments),
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
        kernel: kernel(arguments.peer, &arguments.thp),
    };
    let program = prepare()?;
    let report = comparison::touch(&options, &program, interrupts::seen, Show::Yes)?;
    lab::show(&report, &arguments.output)
}

/// The kernel's settings, if it is to be asked.
fn kernel(peer: Option<PeerChoice>, sizes: &[SizesChoice]) -> Vec<FolioSizes> {
    match peer {
        Some(PeerChoice::Kernel) => sizes.iter().map(|sizes| (*sizes).into()).collect(),
        None => Vec::new(),
    }
}

/// Signals are noted from now on. Our own file, to be started again.
fn prepare() -> Result<PathBuf, Error> {
    interrupts::watch().map_err(Error::system("signal handlers"))?;
    std::env::current_exe().map_err(Error::system("finding folioswap's own file"))
}

fn usemem(arguments: &UsememArguments) -> Result<i32, Error> {
    let quick = arguments.output.quick;
    let size = arguments.size.unwrap_or(if quick { 64 << 20 } else { 512 << 20 });
    let all = size * u64::from(arguments.usemem.nproc);
    let options = Comparison {
        usemem: usemem_options(size, &arguments.usemem),
        limit: arguments.limit.unwrap_or((all / 2).max(crate::size::LIMIT_MIN)),
        rounds: arguments.rounds.unwrap_or(if quick { 1 } else { 3 }),
        scope: arguments.memory_scope.into(),
        kernel: kernel(arguments.peer, &arguments.thp),
    };
    let report = usemem_table::compare(&options, &prepare()?, interrupts::seen, Show::Yes)?;
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
        ..Options::default()
    };
    comparison::work(&options)?;
    Ok(0)
}

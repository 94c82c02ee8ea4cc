//! All engines, round after round.

use crate::data::Kind;
use crate::engine::{Bench, Engine, Figures, PREFIX, RunError, Scope, step};
use crate::tables;
use folioswap_lab::progress::{Progress, Show};
use folioswap_lab::report::Report;
use folioswap_peer::{Cgroup, FolioSizes, Turn};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of memory that the program uses.
    pub size: u64,
    /// Bytes of resident memory that it may have.
    pub limit: u64,
    /// Contents, each a comparison of its own.
    pub kinds: Vec<Kind>,
    /// Phases of the program, in order.
    pub phases: Vec<String>,
    /// Threads of the program.
    pub threads: usize,
    /// Random touches.
    pub touches: u64,
    /// Percent of them that write.
    pub writes: u64,
    /// Runs of each.
    pub rounds: u32,
    /// What folioswap's limit counts.
    pub scope: Scope,
    /// The kernel's settings, if it is asked.
    pub kernel: Vec<FolioSizes>,
}

/// One engine's runs with one kind of data.
pub(crate) struct Column {
    pub(crate) engine: Engine,
    pub(crate) runs: Vec<Figures>,
    /// Why there is none, or not all.
    pub(crate) failed: Vec<String>,
}

/// Who is compared, and how often.
pub(crate) struct Contest<'a> {
    pub(crate) program: &'a Path,
    pub(crate) limit: u64,
    /// Bytes that the program uses at most.
    pub(crate) need: u64,
    pub(crate) scope: Scope,
    pub(crate) kernel: &'a [FolioSizes],
    pub(crate) rounds: u32,
    pub(crate) interrupted: fn() -> bool,
}

/// The columns of each comparison, and why the kernel is absent, if it is.
pub(crate) type Compared = (Vec<Vec<Column>>, Option<String>);

impl Contest<'_> {
    /// Lets each program (a worker's name, its arguments, and what it is called) run under every engine, in turn.
    ///
    /// # Errors
    /// [`RunError`] when a program fails without a limit, or was interrupted; everything is undone.
    pub(crate) fn run(
        &self,
        programs: &[(&str, Vec<String>, String)],
        show: Show,
    ) -> Result<Compared, RunError> {
        let (turn, absent) = if self.kernel.is_empty() {
            (None, None)
        } else {
            match take_turn(self.interrupted) {
                Ok(turn) => (Some(turn), None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    return Err(RunError::Interrupted);
                }
                Err(error) => (None, Some(error.to_string())),
            }
        };
        Cgroup::remove_stale(PREFIX);
        let bench = Bench {
            program: self.program.to_owned(),
            limit: self.limit,
            zram: (2 * self.need).max(256 << 20),
            turn,
            interrupted: self.interrupted,
        };
        let mut engines = vec![Engine::Unlimited, Engine::Folioswap(self.scope)];
        if bench.turn.is_some() {
            engines.extend(self.kernel.iter().copied().map(Engine::Kernel));
        }
        let progress = Progress::new(show, programs.len() * engines.len() * self.rounds as usize);
        let mut all = Vec::new();
        for (worker, arguments, name) in programs {
            let column = |&engine: &Engine| Column { engine, runs: Vec::new(), failed: Vec::new() };
            let mut columns: Vec<Column> = engines.iter().map(column).collect();
            for round in 1..=self.rounds {
                for column in &mut columns {
                    match bench.run(column.engine, worker, arguments) {
                        Ok(figures) => column.runs.push(figures),
                        // An engine that fails is a result; a program that fails by itself is none.
                        Err(RunError::Program { why, .. }) if column.engine != Engine::Unlimited => {
                            column.failed.push(why);
                        }
                        Err(error) => return Err(error),
                    }
                    progress.done(&format!("{name}, {}, round {round}", column.engine));
                }
            }
            all.push(columns);
        }
        Ok((all, absent))
    }
}

/// Compares. `program` is this very program, which is started again as `program bench worker ...`. Where the kernel cannot be asked its column is
/// marked absent, with the reason.
///
/// # Errors
/// [`RunError`] when the program fails without a limit, or was interrupted; everything is undone.
pub fn touch(
    options: &Options,
    program: &Path,
    interrupted: fn() -> bool,
    show: Show,
) -> Result<Report, RunError> {
    let contest = Contest {
        program,
        limit: options.limit,
        need: options.size,
        scope: options.scope,
        kernel: &options.kernel,
        rounds: options.rounds,
        interrupted,
    };
    let program = |&kind: &Kind| ("worker", arguments(options, kind), format!("{} data", kind.title()));
    let programs: Vec<_> = options.kinds.iter().map(program).collect();
    let (columns, absent) = contest.run(&programs, show)?;
    let all: Vec<_> = options.kinds.iter().copied().zip(columns).collect();
    Ok(tables::report(options, &all, absent.as_deref()))
}

fn take_turn(interrupted: fn() -> bool) -> io::Result<Arc<Turn>> {
    // SAFETY: no arguments, no effects.
    if unsafe { libc::geteuid() } != 0 {
        return Err(io::Error::other("zram, swap and a memory cgroup are set up by root only"));
    }
    if folioswap_peer::controller().is_none() {
        return Err(io::Error::other("there is no memory cgroup that can be written"));
    }
    if !Path::new("/sys/class/zram-control").exists() && !Path::new("/sys/block/zram0").exists() {
        return Err(io::Error::other("the kernel has no zram (modprobe zram)"));
    }
    let turn = Turn::take(interrupted)?;
    Cgroup::remove_stale(PREFIX);
    turn.remove_stale();
    Ok(Arc::new(turn))
}

/// Of a worker.
fn arguments(options: &Options, kind: Kind) -> Vec<String> {
    let numbers = [
        ("--size", options.size),
        ("--threads", options.threads as u64),
        ("--touches", options.touches),
        ("--writes", options.writes),
    ];
    let words = [("--kind", kind.name().to_owned()), ("--phases", options.phases.join(","))];
    let numbers = numbers.map(|(name, number)| (name, number.to_string()));
    numbers.into_iter().chain(words).flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// The program that is started for each run.
///
/// # Errors
/// What page is wrong and how.
pub fn work(options: &crate::touch::Options) -> Result<(), RunError> {
    let mut unheard = Ok(());
    let done = crate::touch::touch(options, 0, |timing| {
        if unheard.is_ok() {
            unheard = crate::engine::tell(&timing);
        }
    });
    done.map_err(|why| RunError::Program { engine: Engine::Unlimited, why })?;
    unheard.map_err(step("telling what a phase took"))
}

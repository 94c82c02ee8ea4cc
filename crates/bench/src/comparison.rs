//! All engines, round after round.

use crate::engine::{Bench, Engine, Figures, PREFIX, RunError};
use folioswap_group::segment::Scope;
use folioswap_peer::{Cgroup, FolioSizes, Turn};
use folioswap_report::{Progress, Show};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Who is compared, how often, and within what.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Bytes of resident memory that the program may have.
    pub limit: u64,
    /// Runs of each engine.
    pub rounds: u32,
    /// What folioswap's limit counts.
    pub scope: Scope,
    /// Further options of `folioswap run`; with each of these sets it runs once more, in a column of its own.
    pub variants: Vec<Vec<String>>,
    /// The kernel's settings, if it is asked.
    pub kernel: Vec<FolioSizes>,
}

/// Who runs it, and who may end it.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// This very program, which is started again as `program bench WORKER ...`.
    pub program: &'a Path,
    /// Asked now and then whether to end.
    pub interrupted: fn() -> bool,
    /// Progress.
    pub show: Show,
}

/// A program to be compared.
pub(crate) struct Contestant {
    /// Its worker's name.
    pub(crate) worker: &'static str,
    pub(crate) arguments: Vec<String>,
    /// For progress.
    pub(crate) name: String,
}

/// One engine's runs with one kind of data.
pub(crate) struct Column {
    pub(crate) engine: Engine,
    pub(crate) runs: Vec<Figures>,
    /// Why there is none, or not all.
    pub(crate) failed: Vec<String>,
}

/// The columns of each comparison, and why the kernel is absent, if it is.
pub(crate) type Compared = (Vec<Vec<Column>>, Option<String>);

impl Terms {
    /// Lets each program, which needs `need` bytes at most, run under every engine, in turn. Where the kernel cannot be asked it has no columns.
    ///
    /// # Errors
    /// [`RunError`] when a program fails without a limit, or was interrupted; everything is undone.
    pub(crate) fn run(
        &self,
        host: Host<'_>,
        need: u64,
        programs: &[Contestant],
    ) -> Result<Compared, RunError> {
        let (turn, absent) = if self.kernel.is_empty() {
            (None, None)
        } else {
            match take_turn(host.interrupted) {
                Ok(turn) => (Some(turn), None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    return Err(RunError::Interrupted);
                }
                Err(error) => (None, Some(error.to_string())),
            }
        };
        let bench = Bench {
            program: host.program.to_owned(),
            limit: self.limit,
            zram: (2 * need).max(256 << 20),
            turn,
            interrupted: host.interrupted,
        };
        let mut engines = vec![Engine::Unlimited, Engine::Folioswap(self.scope)];
        engines
            .extend(self.variants.iter().cloned().map(|options| Engine::FolioswapWith(self.scope, options)));
        if bench.turn.is_some() {
            engines.extend(self.kernel.iter().copied().map(Engine::Kernel));
        }
        let progress = Progress::new(host.show, programs.len() * engines.len() * self.rounds as usize);
        let mut all = Vec::new();
        for Contestant { worker, arguments, name } in programs {
            let column = |engine| Column { engine, runs: Vec::new(), failed: Vec::new() };
            let mut columns: Vec<Column> = engines.iter().cloned().map(column).collect();
            for round in 1..=self.rounds {
                for column in &mut columns {
                    match bench.run(&column.engine, worker, arguments) {
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

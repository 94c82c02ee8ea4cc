//! All engines, round after round.

use crate::engine::{Bench, Engine, Figures, PREFIX, RunError};
use folioswap_group::decisions::Scope;
use folioswap_peer::{Cgroup, FolioSizes, SwapLock};
use folioswap_report::{Progress, Show};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The terms of a comparison: engines, number of rounds, limit.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Bytes of resident memory that the program may have.
    pub limit: u64,
    /// Runs of each engine.
    pub rounds: u32,
    /// The memory that folioswap's limit counts.
    pub scope: Scope,
    /// Further sets of options of `folioswap run`; each set is an engine with a column of its own.
    pub variants: Vec<Vec<String>>,
    /// The kernel's settings of folio sizes to compare with; empty to leave the kernel out.
    pub kernel: Vec<FolioSizes>,
}

/// The surroundings of a comparison.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// This very program, which is started again as `program bench WORKER ...`.
    pub program: &'a Path,
    /// Polled now and then: whether to end.
    pub interrupted: fn() -> bool,
    /// Whether to show progress.
    pub show: Show,
}

/// A program to be compared.
pub(crate) struct Contestant {
    /// The worker's name on the command line.
    pub(crate) worker: &'static str,
    pub(crate) arguments: Vec<String>,
    /// The name that progress shows.
    pub(crate) name: String,
}

/// One engine's runs with one kind of data.
pub(crate) struct Column {
    pub(crate) engine: Engine,
    pub(crate) runs: Vec<Figures>,
    /// The reasons of the runs that failed.
    pub(crate) failed: Vec<String>,
}

/// The columns of each program, and the reason why the kernel is absent, if it is.
pub(crate) type Compared = (Vec<Vec<Column>>, Option<String>);

impl Terms {
    /// Runs each program, which needs at most `need` bytes, under every engine in turn, round after
    /// round. The kernel has no columns where it cannot be used.
    ///
    /// # Errors
    /// [`RunError`] when a program fails without a limit, or on an interrupt; everything is undone.
    pub(crate) fn run(
        &self,
        host: Host<'_>,
        need: u64,
        programs: &[Contestant],
    ) -> Result<Compared, RunError> {
        let (swap_lock, absent) = if self.kernel.is_empty() {
            (None, None)
        } else {
            match take_swap_lock(host.interrupted) {
                Ok(lock) => (Some(lock), None),
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
            swap_lock,
            interrupted: host.interrupted,
        };
        let mut engines = vec![Engine::Unlimited, Engine::Folioswap(self.scope)];
        engines
            .extend(self.variants.iter().cloned().map(|options| Engine::FolioswapWith(self.scope, options)));
        if bench.swap_lock.is_some() {
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
                        // A failure under an engine is a result; a failure without a limit is the
                        // program's own.
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

fn take_swap_lock(interrupted: fn() -> bool) -> io::Result<Arc<SwapLock>> {
    // SAFETY: the call has no arguments and no effects.
    if unsafe { libc::geteuid() } != 0 {
        return Err(io::Error::other("zram, swap and a memory cgroup are set up by root only"));
    }
    if folioswap_peer::controller().is_none() {
        return Err(io::Error::other("there is no memory cgroup that can be written"));
    }
    if !Path::new("/sys/class/zram-control").exists() && !Path::new("/sys/block/zram0").exists() {
        return Err(io::Error::other("the kernel has no zram (modprobe zram)"));
    }
    let lock = SwapLock::take(interrupted)?;
    Cgroup::remove_stale(PREFIX);
    lock.remove_stale();
    Ok(Arc::new(lock))
}
